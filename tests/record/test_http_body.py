"""Tests of parsing bodies: JSON and event streams, compressed or not, split at any byte."""

import gzip
import json
import random
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given, settings

from mcptally.record.http.body import BodyParser, is_event_stream
from mcptally.wire.byte_pool import BytePool
from mcptally.wire.framing import HEAD_BYTES, TruncatedFrame
from tests.strategies import PLACES, cut

JSON = b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + b"abc" * 200 + b'"}}'
EVENTS = b"id: 1\ndata:\n\nevent: message\ndata: " + JSON + b"\n\n"


def raw_deflate(data):
    coder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return coder.compress(data) + coder.flush()


CODINGS = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:]),
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
    "": bytes,
}


def observe(parts, **options):
    truncated = options.pop("truncated", False)
    body = BodyParser(**options)
    items = [item for part in parts for item in body.feed(part)]
    return items + body.end(truncated=truncated)


@pytest.mark.parametrize("coding", CODINGS)
@settings(max_examples=4 * settings.default.max_examples // 5)
@given(places=PLACES)
def test_a_compressed_document_is_decoded_and_its_encoded_size_is_reported(coding, places):
    encoded = CODINGS[coding](JSON)
    (item,) = observe(cut(encoded, places), content_encoding=coding)
    assert item.piece == JSON
    assert item.fields == {}
    assert item.wire_bytes in (len(encoded), None)
    assert (item.wire_bytes is None) == (coding in ("", "identity"))


@pytest.mark.parametrize("coding", CODINGS)
@settings(max_examples=4 * settings.default.max_examples // 5)
@given(places=PLACES)
def test_a_compressed_event_stream_is_split_into_events(coding, places):
    encoded = CODINGS[coding](EVENTS)
    options = {"content_type": "text/event-stream; charset=utf-8", "content_encoding": coding}
    priming, message = observe(cut(encoded, places), **options)
    assert (priming.piece, priming.fields) == (b"", {"sse_id": "1", "why": "empty"})
    assert (message.piece, message.fields) == (JSON, {"sse_event": "message"})


def test_an_event_of_a_flushed_gzip_stream_is_returned_immediately():
    coder = zlib.compressobj(wbits=31)
    body = BodyParser(content_type="text/event-stream", content_encoding="gzip")
    for _ in range(3):
        encoded = coder.compress(b"data: " + JSON + b"\n\n") + coder.flush(zlib.Z_SYNC_FLUSH)
        assert [item.piece for item in body.feed(encoded)] == [JSON]


@pytest.mark.parametrize(
    ("coding", "encoded", "why"),
    [
        ("br", b"\x0b\x02\x80hi\x03", "content coding: br"),
        ("gzip, br", b"anything", "content coding: gzip, br"),
        ("gzip", b"no gzip at all", "content coding: "),
        ("gzip", gzip.compress(JSON, mtime=0)[:-10], "content coding: ended too early"),
        ("zstd", b"no zstd at all", "content coding: "),
        ("zstd", zstandard.compress(JSON)[:-3], "content coding: ended too early"),
        ("deflate", b"\xff\xff\xff", "content coding: "),
    ],
)
def test_an_undecodable_document_is_kept_encoded_with_the_reason(coding, encoded, why):
    for parts in ([encoded], [encoded[i : i + 1] for i in range(len(encoded))]):
        (item,) = observe(parts, content_encoding=coding)
        assert item.piece == encoded
        assert item.fields["why"].startswith(why)


def test_an_undecodable_event_stream_is_kept_encoded():
    items = observe([b"\x0b\x02", b"\x80hi"], content_type="text/event-stream",
                    content_encoding="br")  # fmt: skip
    assert [item.piece for item in items] == [b"\x0b\x02\x80hi"]


def test_a_truncated_document_is_marked_as_unterminated():
    (item,) = observe([JSON[:50]], truncated=True)
    assert (item.piece, item.fields) == (JSON[:50], {"unterminated": True})


def test_an_event_without_a_final_blank_line_is_no_message():
    (item,) = observe([b"data: {}\n"], content_type="text/event-stream")
    assert (item.piece, item.fields) == (b"{}", {"unterminated": True, "why": "torn"})


def test_an_empty_body_has_no_items():
    assert observe([]) == []
    assert observe([], content_type="text/event-stream") == []


def test_comments_and_blocks_without_data_are_labelled():
    stream = b": ping\n\nid: 5\nretry: 10\n\n"
    comment, block = observe([stream], content_type="text/event-stream")
    assert (comment.piece, comment.fields) == (b": ping", {"why": "comment"})
    assert (block.piece, block.fields["why"]) == (b"id: 5\nretry: 10", "no_data")
    assert block.fields["sse_id"] == "5"
    assert block.fields["sse_retry"] == "10"


def test_a_document_over_the_size_limit_is_reduced_to_head_and_hash():
    (item,) = observe([JSON, JSON], cap=1000)
    assert isinstance(item.piece, TruncatedFrame)
    assert item.piece.size == 2 * len(JSON)


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_decompression_bomb_uses_bounded_memory(coding):
    encoded = CODINGS[coding](bytes(150 << 20))
    tracemalloc.start()
    (item,) = observe([encoded], content_encoding=coding, cap=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert item.piece == encoded
    assert item.fields["why"] == "content coding: expands more than 100 times"
    assert peak < 100 << 20


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_highly_compressible_text_of_any_size_is_decoded(coding):
    line = json.dumps({"id": 1, "text": "row after row of a table"}).encode() + b"\n"
    noise = random.Random(1).randbytes(1 << 20).hex().encode()
    whole = line * (4 << 20 >> 5) + noise
    (item,) = observe([CODINGS[coding](whole)], content_encoding=coding, cap=1 << 20)
    assert isinstance(item.piece, TruncatedFrame)
    assert item.piece.size == len(whole)


def test_the_pool_bounds_all_bodies_together_and_small_bodies_do_not_use_it():
    large = JSON * (HEAD_BYTES // len(JSON) + 1)
    pool = BytePool(3 * len(large))
    bodies = [BodyParser(pool=pool) for _ in range(5)]
    for body in bodies:
        body.feed(large)
    small = BodyParser(pool=pool)
    small.feed(b"{}")
    sizes = [isinstance(body.end()[0].piece, TruncatedFrame) for body in [*bodies, small]]
    assert sizes == [False, False, False, True, True, False]
    del bodies, small, body
    again = BodyParser(pool=pool)
    again.feed(large)
    assert again.end()[0].piece == large
    truncated = BodyParser(pool=pool)
    truncated.feed(large)
    del truncated
    assert pool.take(3 * len(large))


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream;charset=utf-8", True),
        ("application/json", False),
        ("text/event-stream-ish", False),
        (None, False),
        ("", False),
    ],
)
def test_only_the_content_type_decides_what_is_an_event_stream(content_type, expected):
    assert is_event_stream(content_type) is expected
