"""Reading one call from transcripts: its frames, the stderr around them, missing lines."""

import json
from pathlib import Path

import pytest

from mcptally.redaction.display import mask_text
from mcptally.transcript import recorded_calls
from mcptally.transcript.recorded_calls import CallPosition, Position, read_calls
from tests.transcripts import c2s, call, event, opened, s2c, text, write

SECOND = 1000
"""Sequence numbers per second: `event` puts a millisecond between two of them."""


def stderr(seq: int, words: str, recording: str = "r1"):
    return event("stderr", seq, recording, text=words)


def read(
    folder: Path, events, *, ask=(1, 1), reply=(2, 2), batch_index=0, most=1 << 20, name="t.jsonl"
):
    """Read the call whose request and reply are on these lines (line and seq)."""
    path = write(folder / name, events)
    positions = [end and Position(str(path), *end, batch_index) for end in (ask, reply)]
    (found,) = read_calls([CallPosition("r1", *positions)], most_bytes=most, folder=Path())
    return found


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
def test_frames_are_as_recorded(tmp_path, name):
    request = call(1, "read") | {"vendor": 1.50}
    events = [c2s(1, request), s2c(2, text(1, "contents"))]
    found = read(tmp_path, events, name=name)
    assert json.loads(found.request) == request
    assert found.request.startswith('{"jsonrpc": "2.0", "id": 1')
    assert json.loads(found.reply) == text(1, "contents")
    assert (found.stderr, found.not_read) == ({}, None)


def test_the_frame_of_a_call_in_a_batch_is_its_member(tmp_path):
    events = [c2s(1, [call(1), call(2)]), s2c(2, [text(1), text(2, "second")])]
    found = read(tmp_path, events, batch_index=1)
    assert json.loads(found.request)["id"] == 2
    assert "second" in found.reply


def test_the_head_of_a_frame_that_the_recorder_cut_is_shown(tmp_path):
    cut = event("raw", 2, dir="s2c", why="too_large", text='{"id":1,"result":{"conte', id=1)
    assert read(tmp_path, [c2s(1, call(1)), cut]).reply == '{"id":1,"result":{"conte'


def test_stderr_is_sorted_into_before_during_and_after_the_call(tmp_path):
    events = [
        stderr(1, "long before"),
        stderr(3 * SECOND, "just before"),
        stderr(3 * SECOND, "of another recording", "r2"),
        c2s(3 * SECOND + 1, call(1)),
        stderr(3 * SECOND + 2, "\x1b[1;31mTraceback\x1b[0m"),
        stderr(4 * SECOND, "KeyError: 'id'"),
        s2c(5 * SECOND, text(1)),
        stderr(5 * SECOND + 1, "just after"),
        stderr(9 * SECOND, "long after"),
    ]
    found = read(tmp_path, events, ask=(4, 3001), reply=(7, 5000))
    assert found.stderr == {
        "before": "just before",
        "during": "Traceback\nKeyError: 'id'",
        "after": "just after",
    }


def test_without_a_reply_the_first_lines_after_the_request_are_kept(tmp_path):
    lines = [stderr(SECOND * n, f"line {n}") for n in range(2, 100)]
    found = read(tmp_path, [c2s(1, call(1)), *lines], reply=None)
    during = found.stderr["during"].split("\n")
    assert (during[0], len(during)) == ("line 2", recorded_calls.MAX_DURING)


def test_of_a_long_stderr_the_lines_at_the_reply_are_kept(tmp_path):
    lines = [stderr(n, f"line {n}") for n in range(2, 902)]
    found = read(tmp_path, [c2s(1, call(1)), *lines, s2c(902, text(1))], reply=(902, 902))
    during = found.stderr["during"].split("\n")
    assert (during[-1], len(during)) == ("line 901", recorded_calls.MAX_DURING)


@pytest.mark.parametrize("ended", [False, True])
def test_a_key_that_the_cut_splits_keeps_its_first_line_by_which_it_is_masked(tmp_path, ended):
    body = "MIIEowIBAAKCAQEAx1abcdef0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
    key = ["-----BEGIN RSA PRIVATE KEY-----", *[body] * recorded_calls.MAX_DURING]
    key += ["-----END RSA PRIVATE KEY-----", *["more"] * 60] if ended else []
    lines = [stderr(n, line) for n, line in enumerate(key, 2)]
    last = len(lines) + 2
    found = read(tmp_path, [c2s(1, call(1)), *lines, s2c(last, text(1))], reply=(last, last))
    assert body not in mask_text(found.stderr["during"])
    assert found.stderr["during"].startswith("more" if ended else "-----BEGIN")


@pytest.mark.parametrize(
    ("ask", "reply", "most", "why"),
    [
        pytest.param((3, 3), None, 1 << 20, ":3 has changed since", id="a line that is no event"),
        pytest.param((1, 7), None, 1 << 20, ":1 has changed since", id="another message"),
        pytest.param((900, 3), None, 1 << 20, ":900 has changed since", id="a line past the end"),
        pytest.param((1, 1), None, 0, "the limit for reading transcripts", id="no bytes allowed"),
    ],
)
def test_a_call_that_is_not_where_the_store_says_is_not_shown(tmp_path, ask, reply, most, why):
    events = [c2s(1, call(1)), s2c(2, text(1)), b"not an event\n"]
    found = read(tmp_path, events, ask=ask, reply=reply, most=most)
    assert (found.request, found.reply, found.stderr) == (None, None, {})
    assert why in found.not_read


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("gone.jsonl", "No such file"),
        ("s3://bucket/a.jsonl", "is not on this machine"),
        ("/dev/zero", "not a regular file"),
    ],
)
def test_a_file_that_is_not_there_is_not_read(tmp_path, monkeypatch, file, why):
    monkeypatch.chdir(tmp_path)
    (found,) = read_calls(
        [CallPosition("r1", Position(file, 1, 1, 0), None)], most_bytes=100, folder=Path()
    )
    assert found.request is None
    assert why in found.not_read


@pytest.mark.slow
def test_reading_stops_at_the_limit_and_says_where(tmp_path):
    events = [c2s(1, call(1)), *(opened() for _ in range(30_000)), s2c(2, text(1))]
    found = read(tmp_path, events, reply=(30_002, 2), most=1 << 20)
    assert found.request is not None
    assert found.reply is None
    assert "was not read after line" in found.not_read
