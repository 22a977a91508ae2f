"""Frames do not depend on chunks, and frames over the cap keep head, tail and hash."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from mcptally.wire.framing import (
    HEAD_BYTES,
    MAX_STDERR_LINE,
    TAIL,
    FrameSplitter,
    StderrLines,
    TruncatedFrame,
    cap_frame,
)
from tests.strategies import PLACES, cut

_BYTES = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r\n", b"\r", b"{}", b'{"a":1}', b"\xe2\x80\xa8", b"\xff", b""]),
        st.binary(max_size=40),
    ),
    max_size=20,
).map(b"".join)


def split(chunks, cap):
    splitter = FrameSplitter(cap=cap)
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return pieces, splitter.end()


@given(_BYTES, PLACES, st.integers(1, 60))
def test_frames_do_not_depend_on_chunks(data, places, cap):
    whole = split([data], cap)
    assert split(cut(data, places), cap) == whole
    assert split([data[i : i + 1] for i in range(len(data))], cap) == whole


@given(_BYTES, st.integers(1, 60))
def test_every_line_becomes_exactly_one_piece(data, cap):
    pieces, rest = split([data], cap)
    *lines, tail = data.split(b"\n")
    assert len(pieces) == len(lines)
    assert (rest is None) == (tail == b"")
    wanted = [line.removesuffix(b"\r") for line in lines] + ([tail] if tail else [])
    for piece, line in zip([*pieces, *([rest] if tail else [])], wanted, strict=True):
        if isinstance(piece, TruncatedFrame):
            assert len(line) > cap
            assert piece.size == len(line)
            assert piece.sha256 == hashlib.sha256(line).hexdigest()
            assert line.startswith(piece.head)
            assert line.endswith(piece.tail)
        else:
            assert piece == line
            assert len(line) <= cap


def test_only_a_newline_ends_a_frame():
    text = '{"a":"\u2028\u2029\x85"}\r \x0b\x0c\x1c\x1d\x1e'.encode()
    assert FrameSplitter().feed(text + b"\n") == [text]


def test_only_one_carriage_return_belongs_to_the_line_ending():
    assert FrameSplitter().feed(b"a\r\r\n\r\n\n") == [b"a\r", b"", b""]


def test_a_frame_over_the_cap_is_hashed_and_not_kept():
    splitter = FrameSplitter(cap=100_000)
    sha = hashlib.sha256()
    for number in range(64):
        chunk = bytes([number]).replace(b"\n", b"x") * 65536
        sha.update(chunk)
        assert splitter.feed(chunk) == []
    (piece,) = splitter.feed(b"\r\n")
    assert (piece.size, piece.sha256) == (64 * 65536, sha.hexdigest())
    assert (len(piece.head), len(piece.tail)) == (HEAD_BYTES, TAIL)
    assert splitter.pending == 0


def test_a_body_is_capped_like_a_frame_and_may_contain_line_breaks():
    assert cap_frame(b"{\n}", cap=3) == b"{\n}"
    piece = cap_frame(b"{\n }\r", cap=3)
    assert (piece.size, piece.sha256) == (5, hashlib.sha256(b"{\n }\r").hexdigest())


@given(_BYTES, PLACES)
def test_stderr_lines_do_not_depend_on_chunks(data, places):
    lines = StderrLines()
    found = [line for chunk in cut(data, places) for line in lines.feed(chunk)] + lines.end()
    assert b"\n".join(found).replace(b"\r", b"") == data.removesuffix(b"\n").replace(b"\r", b"")
    assert lines.end() == []


def test_a_long_line_on_stderr_comes_in_parts():
    lines = StderrLines()
    found = [part for _ in range(5) for part in lines.feed(b"x" * (MAX_STDERR_LINE // 2))]
    assert found == [b"x" * MAX_STDERR_LINE] * 2
    assert lines.feed(b"\r\n") == [b"x" * (MAX_STDERR_LINE // 2)]
