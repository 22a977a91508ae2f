"""The events of a stream do not depend on its chunks, and no bytes are lost."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.wire.byte_pool import PooledBytes
from mcptally.wire.framing import TruncatedFrame
from mcptally.wire.sse import MAX_FIELD, SseEvent, SseParser
from tests.strategies import PLACES, cut

MESSAGE = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def event(data=None, *, name=None, id=None, retry=None, text=b"", torn=False):  # noqa: A002
    return SseEvent(data, name, id, retry, text, torn)


STREAMS = [
    pytest.param(b"data: x\n\n", [event(b"x")], id="one event"),
    pytest.param(b"data:x\n\ndata:  y\n\n", [event(b"x"), event(b" y")], id="one space is dropped"),
    pytest.param(b"data: a\r\ndata: b\r\n\r\n", [event(b"a\nb")], id="lines join, CRLF"),
    pytest.param(b"data: a\rdata: b\r\r", [event(b"a\nb")], id="lone CR"),
    pytest.param(b"data: a\r\r\ndata: b\n\n", [event(b"a"), event(b"b")], id="CR, then CRLF"),
    pytest.param(
        b"event: message\nid: 7\nretry: 500\ndata: " + MESSAGE + b"\n\n",
        [event(MESSAGE, name=b"message", id=b"7", retry=b"500")],
        id="all fields",
    ),
    pytest.param(b"id: 1\ndata:\n\n", [event(b"", id=b"1")], id="a priming event has empty data"),
    pytest.param(b"id: 1\ndata\n\n", [event(b"", id=b"1")], id="a field without colon"),
    pytest.param(b"id: 1\n\n", [event(id=b"1", text=b"id: 1")], id="an id alone"),
    pytest.param(b": ping\n\n", [event(text=b": ping")], id="a comment"),
    pytest.param(b":\n\n", [event(text=b":")], id="an empty comment"),
    pytest.param(b"\n\n\n", [], id="blank lines are nothing"),
    pytest.param(b": ping\ndata: x\n\n", [event(b"x")], id="a comment before data"),
    pytest.param(b"\xef\xbb\xbfdata: x\n\n", [event(b"x")], id="a byte order mark"),
    pytest.param(b"data: x\n\n\xef\xbb\xbfdata: y\n\n",
                 [event(b"x"), event(text=b"\xef\xbb\xbfdata: y")], id="a later mark is no mark"),
    pytest.param("data: \u2028\u0085\n\n".encode(), [event("\u2028\u0085".encode())],
                 id="Unicode's line ends end no line"),
    pytest.param(b"data: x\n", [event(b"x", torn=True)], id="no blank line at the end"),
    pytest.param(b"data: x", [event(b"x", torn=True)], id="no line end at the end"),
    pytest.param(b"data: " + b"x" * (2 * MAX_FIELD) + b"\ndata: y\n\n",
                 [event(b"x" * (2 * MAX_FIELD) + b"\ny")], id="a long line"),
    pytest.param(b": " + b"x" * (2 * MAX_FIELD) + b"\nid: 7\n\n",
                 [event(text=b": " + b"x" * (MAX_FIELD - 2), id=b"7")],
                 id="a long line that is no data"),
    pytest.param(b"event: endpoint\r\ndata: /messages?x=1\r\n\r\n",
                 [event(b"/messages?x=1", name=b"endpoint")], id="legacy endpoint"),
]  # fmt: skip


def parse(parts, **options):
    parser = SseParser(**options)
    found = [one for part in parts for one in parser.feed(part)]
    last = parser.end()
    return found if last is None else [*found, last]


@pytest.mark.parametrize(("stream", "expected"), STREAMS)
def test_a_stream_gives_these_events_whole_or_byte_by_byte(stream, expected):
    assert parse([stream]) == expected
    assert parse(stream[i : i + 1] for i in range(len(stream))) == expected


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b"data:", b"data: x", b"data", b"id: 1", b"event: e", b"retry: 1", b": c", b"?"]
        ),
        st.binary(max_size=12),
    ),
    max_size=20,
)


@given(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"]), PLACES)
def test_events_do_not_depend_on_chunks(lines, end, places):
    stream = end.join(lines)
    assert parse(cut(stream, places)) == parse([stream])


@given(
    st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n")), min_size=1)
)
def test_data_that_a_server_writes_is_parsed_back(texts):
    stream = b"".join(b"data: " + text.encode() + b"\n\n" for text in texts)
    assert [one.data for one in parse([stream])] == [text.encode() for text in texts]


@pytest.mark.parametrize("step", [1000, 70_000, 10_000_000])
def test_data_over_the_cap_is_hashed_and_parsing_continues(step):
    line = b"".join(b"%06d" % i for i in range(50_000))
    stream = b"id: 9\ndata: " + line + b"\ndata: end\n\ndata: next\n\n"
    cap = 100_000
    parts = (stream[i : i + step] for i in range(0, len(stream), step))
    large, after = parse(parts, cap=cap)
    whole = line + b"\nend"
    assert isinstance(large.data, TruncatedFrame)
    assert large.data.size == len(whole)
    assert large.data.sha256 == hashlib.sha256(whole).hexdigest()
    assert whole.startswith(large.data.head)
    assert whole.endswith(large.data.tail)
    assert large.id == b"9"
    assert after == event(b"next")


def test_an_endless_line_without_data_does_not_fill_memory():
    parser = SseParser(cap=1000)
    for _ in range(100):
        assert parser.feed(b":" + b"x" * MAX_FIELD) == []
    assert sum(map(len, parser._line)) <= 3 * MAX_FIELD
    (comment,) = parser.feed(b"\n\n")
    assert len(comment.text) <= 3 * MAX_FIELD


@given(st.lists(st.binary(max_size=50)), st.integers(0, 100))
def test_bytes_are_kept_up_to_the_cap_and_hashed_beyond(parts, cap):
    kept = PooledBytes(cap=cap)
    for part in parts:
        kept.feed(part)
    whole, piece = b"".join(parts), kept.take()
    if len(whole) <= cap:
        assert piece == whole
    else:
        assert isinstance(piece, TruncatedFrame)
        assert (piece.size, piece.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
        assert (piece.head, piece.tail) == (whole[:cap], whole)
