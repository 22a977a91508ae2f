"""Objects that do not fit their struct are decoded member by member."""

from msgspec import Raw

from mcptally.transcript.events import ERROR_DECODER


def test_texts_of_other_types_keep_their_place_among_many():
    texts = [b'{"code":1}', b'{"code":"x","message":"a"}', b"[]", b'{"code":2}', b'{"code":[]}']
    items, odd = ERROR_DECODER.many([Raw(text) for text in texts])
    assert [(item.code, item.message) for item in items] == [
        (1, None), (None, "a"), (None, None), (2, None), (None, None),
    ]  # fmt: skip
    assert odd == [1, 2, 4]
