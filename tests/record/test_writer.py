"""Writing recordings: events, gaps, segments and redaction."""

import json
import os
import re
import resource
import shutil
import sys
import threading

import pytest

from mcptally.redaction import policy as redaction_policy
from mcptally.transcript.format import RECORDER
from mcptally.transcript.writer import segment_writer
from mcptally.transcript.writer.archive import Archive
from mcptally.transcript.writer.clock import new_id
from mcptally.transcript.writer.event_line import http_event
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.segment import SEGMENT_NAME
from mcptally.wire.framing import FrameSplitter
from tests.record.recorder_process import events, of

COUNTED = ("open", "message", "raw", "stderr", "http", "gap")


OPEN_ARCHIVES = []
"""Archives that the fixture closes after each test."""


@pytest.fixture(autouse=True)
def _close_archives():
    yield
    while OPEN_ARCHIVES:
        OPEN_ARCHIVES.pop().close()


def archive(folder, *, policy="none", **limits):
    logged = []
    made = Archive(
        folder, policy=redaction_policy.policy(policy), limits=Limits(**limits), log=logged.append
    )
    OPEN_ARCHIVES.append(made)
    return made, logged


def started(folder, **options):
    made, logged = archive(folder, **options)
    return made.prepare(transport="stdio", server="s"), logged


def is_complete(found):
    """Return whether gaps cover all missing `seq`, times ascend, and `close` has the counts."""
    seqs = [event["seq"] for event in found]
    missing = set(range(max(seqs) + 1)) - set(seqs)
    assert seqs == sorted(set(seqs))
    assert len(missing) == sum(event["lost"] for event in of(found, "gap"))
    stamps = [event["ts_ns"] for event in found]
    assert stamps == sorted(stamps)
    assert len({event["recording"] for event in found}) == 1
    written = {kind: len(of(found, kind)) for kind in COUNTED if of(found, kind)}
    assert found[-1]["counts"] == {**written, "lost": len(missing)}
    return True


def test_every_kind_of_event_has_its_fields(tmp_path):
    made, logged = archive(tmp_path, frame_bytes=100)
    recording = made.prepare(transport="streamable_http", server="s", url="http://h:1/mcp")
    request = {"dir": "c2s", "scope": "x", "phase": "request", "method": "POST", "path": "/mcp"}
    frame = (b'{"id":1}', "c2s", "x", None, {})
    recording.events([http_event({**request, "headers": {}}), frame])
    fields = {"sse_id": "7", "sse_event": "message"}
    recording.events([(b"{\n}", "s2c", '"', 9, fields), (b"Accepted", "s2c", "x", None, {})])
    recording.stderr([b"one", b"\xff"])
    recording.close(reason="ended")
    recording.close(reason="again")
    found = events(tmp_path)
    assert is_complete(found)
    assert not logged
    common = {"v", "event", "recording", "seq", "ts_ns"}
    fields = [{k: v for k, v in event.items() if k not in common} for event in found]
    assert fields == [
        {
            "transport": "streamable_http",
            "server": "s",
            "url": "http://h:1/mcp",
            "recorder": RECORDER,
            "redaction": "none",
            "segment": 0,
        },
        {
            "dir": "c2s", "scope": "x", "phase": "request", "method": "POST", "path": "/mcp",
            "headers": {},
        },
        {"dir": "c2s", "scope": "x", "bytes": 8, "msg": {"id": 1}},
        {
            "dir": "s2c", "scope": '"', "bytes": 9, "sse_id": "7", "sse_event": "message",
            "reflowed": True, "msg": {},
        },
        {"dir": "s2c", "scope": "x", "bytes": 8, "why": "not_json", "text": "Accepted"},
        {"text": "one"},
        {"b64": "/w=="},
        {
            "reason": "ended", "exit_code": None, "signal": None,
            "counts": {
                "open": 1, "http": 1, "message": 2, "raw": 1, "stderr": 2, "lost": 0,
            },
        },
    ]  # fmt: skip


def test_the_recorder_has_the_version_of_the_package():
    from importlib.metadata import version

    assert f"mcptally {version('mcptally')}" == RECORDER


def test_an_id_is_a_uuid_of_version_7_and_sorts_by_time():
    ids = [new_id() for _ in range(50)]
    pattern = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert all(re.fullmatch(pattern, one) for one in ids)
    assert len(set(ids)) == 50
    assert [one[:13] for one in ids] == sorted(one[:13] for one in ids)


@pytest.mark.parametrize("label", ["a/b\\..", "..", "", "ü" * 99, "x" * 300, None, "@scope/pkg"])
def test_no_label_makes_a_file_outside_the_folder(label, tmp_path):
    made, _ = archive(tmp_path / "t")
    made.prepare(transport="stdio", server=label).close(reason="x")
    assert (tmp_path / "t").stat().st_mode & 0o777 == 0o700
    (file,) = (tmp_path / "t").iterdir()
    assert SEGMENT_NAME.fullmatch(file.name)
    assert events(tmp_path / "t")[0]["server"] == label


def test_a_secret_in_a_label_is_redacted_in_the_event_and_in_the_file_name(tmp_path):
    made, _ = archive(tmp_path, policy="default")
    token = "ghp_" + "a1B2" * 9
    made.prepare(transport="stdio", server=f"x-{token}").close(reason="x")
    assert not [path for path in tmp_path.iterdir() if token in path.name]
    assert events(tmp_path)[0]["server"] == "x-[redacted:github-token]"


def test_system_strings_that_are_not_utf8_are_recorded_with_replacement_characters(tmp_path):
    made, logged = archive(tmp_path)
    made.prepare(transport="stdio", server="a\udcff").close(reason="x", path="/bin:/\udcff")
    first, last = events(tmp_path)
    assert (first["event"], first["server"]) == ("open", "a\ufffd")
    assert (last["event"], last["path"]) == ("close", "/bin:/\ufffd")
    assert not logged


def test_the_recorded_copy_is_redacted_and_counts_its_redactions(tmp_path):
    made, _ = archive(tmp_path, policy="default", frame_bytes=300)
    token = "ghp_" + "a1B2" * 9
    recording = made.prepare(
        transport="stdio", server="s", command=["x", "--token", "hunter2hunter2"]
    )
    recording.frames([b'{"t":"%b"}' % token.encode()], dir="c2s")
    recording.frames([b"banner %b" % token.encode()], dir="s2c")
    recording.frames(
        FrameSplitter(cap=300).feed(b"%b %b\n" % (token.encode(), b"x" * 400)), dir="s2c"
    )
    recording.stderr([b"Authorization: Bearer %b" % token.encode()])
    recording.close(reason="x")
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert token not in text
    assert "hunter2" not in text
    found = events(tmp_path)
    assert found[0]["redaction"] == "default"
    assert of(found, "message")[0]["redacted"] == 1
    large = of(found, "raw", why="too_large")[0]
    assert "sha256" not in large  # a short secret could be guessed from a hash


def test_a_failing_policy_drops_the_copy_and_leaks_nothing(tmp_path):
    class Broken(redaction_policy.Policy):
        def json(self, frame):
            raise RuntimeError(frame)

        text = argv = url = json

    made = Archive(tmp_path, policy=Broken("broken", frozenset()))
    OPEN_ARCHIVES.append(made)
    recording = made.prepare(transport="stdio", server="s", command=["secret"])
    recording.frames([b'{"a":"secret"}'], dir="c2s")
    recording.frames([b"secret"], dir="c2s")
    recording.stderr([b"secret"])
    recording.close(reason="x")
    assert "secret" not in "".join(path.read_text() for path in tmp_path.iterdir())
    found = events(tmp_path)
    assert [e["why"] for e in of(found, "raw")] == ["redaction_failed", "not_json"]
    assert of(found, "stderr")[0]["withheld"] == "redaction_failed"


def test_segments_rotate_by_size_and_each_begins_with_open(tmp_path):
    recording, _ = started(tmp_path, segment_bytes=2000, compress=False)
    for number in range(100):
        recording.frames([b'{"id":%d}' % number], dir="c2s")
    recording.close(reason="x")
    found = events(tmp_path)
    assert is_complete(found)
    assert [e["segment"] for e in of(found, "open")] == list(range(len(list(tmp_path.iterdir()))))
    assert len(of(found, "open")) > 5
    assert [e["msg"]["id"] for e in of(found, "message")] == list(range(100))
    for path in sorted(tmp_path.iterdir()):
        assert json.loads(path.read_bytes().partition(b"\n")[0])["event"] == "open"
        assert path.stat().st_mode & 0o777 == 0o600


def test_segments_rotate_by_age(tmp_path):
    recording, _ = started(tmp_path, segment_seconds=1e-6, compress=False)
    recording.begin()
    for _ in range(3):
        recording.frames([b"{}"], dir="c2s")
    recording.close(reason="x")
    found = events(tmp_path)
    assert is_complete(found)
    assert len(of(found, "open")) == 5


def test_events_of_a_removed_segment_are_counted_as_lost_in_the_next_one(tmp_path):
    folder = tmp_path / "t"
    recording, logged = started(folder, compress=False)
    recording.frames([b'{"id":1}'], dir="c2s")
    (first,) = folder.iterdir()
    shutil.rmtree(folder)
    recording.frames([b'{"id":2}'], dir="c2s")
    recording.close(reason="x")
    found = events(folder)
    assert [e["event"] for e in found] == ["open", "gap", "message", "close"]
    assert (found[0]["segment"], found[1]["lost"], found[2]["msg"]["id"]) == (1, 2, 2)
    assert is_complete(found)
    (message,) = logged
    assert message.startswith(f"{first} was removed while it was being written: 2 events lost;")


def test_a_gap_in_a_removed_segment_is_reported_again(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_writer, "RETRY_SECONDS", 0)
    folder = tmp_path / "t"
    folder.write_text("in the way")
    recording, _ = started(folder, compress=False)
    recording.frames([b"{}"], dir="c2s")
    folder.unlink()
    recording.frames([b"{}"], dir="c2s")  # open, gap of 1, message
    shutil.rmtree(folder)
    recording.close(reason="x")
    found = events(folder)
    assert [e["event"] for e in found] == ["open", "gap", "close"]
    assert found[1]["lost"] == 4
    assert is_complete(found)


def test_many_threads_and_recordings_share_an_archive(tmp_path):
    made, _ = archive(tmp_path, segment_bytes=5000, compress=False)
    recordings = [made.prepare(transport="stdio", server=f"s{n}") for n in range(4)]

    def work():
        for number in range(200):
            recordings[number % 4].frames([b'{"id":%d}' % number], dir="c2s")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for recording in recordings:
        recording.close(reason="x")
    found = events(tmp_path)
    for recording in recordings:
        mine = [e for e in found if e["recording"] == recording.id]
        assert is_complete(mine)
        assert len(of(mine, "message")) == 200


def test_events_lost_without_a_folder_are_reported_by_a_gap_once_it_can_be_made(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(segment_writer, "RETRY_SECONDS", 0)
    blocker = tmp_path / "t"
    blocker.write_text("in the way")
    recording, logged = started(blocker)
    for _ in range(3):
        recording.frames([b"{}"], dir="c2s")
    recording.stderr([b"a", b"b"])
    assert len(logged) == 1
    blocker.unlink()
    recording.frames([b"{}"], dir="c2s")
    recording.close(reason="x")
    found = events(blocker)
    assert [e["event"] for e in found] == ["open", "gap", "message", "close"]
    assert found[1]["lost"] == found[-1]["counts"]["lost"] == 5
    # The events before the file was opened are lost, so their numbers are missing.
    assert [e["seq"] for e in found] == [5, 6, 7, 8]


def test_losses_without_a_gap_event_are_logged_at_close(tmp_path):
    blocker = tmp_path / "t"
    blocker.write_text("in the way")
    recording, logged = started(blocker)
    recording.frames([b"{}"], dir="c2s")
    recording.close(reason="x")
    assert len(logged) == 2
    assert "2 events could not be recorded" in logged[1]


def test_a_full_disk_leaves_whole_lines_and_a_gap_with_the_number_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_writer, "RETRY_SECONDS", 0)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the size limit would truncate it
    recording, logged = started(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        for number in range(50):
            recording.frames([b'{"id":%d}' % number], dir="c2s")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(logged) == 1
    (file,) = tmp_path.iterdir()
    assert file.read_bytes().endswith(b"}\n")
    recording.frames([b'{"id":50}'], dir="c2s")
    recording.close(reason="x")
    found = events(tmp_path)
    assert is_complete(found)
    (gap,) = of(found, "gap")
    assert gap["why"] == os.strerror(27)
    ids = [e["msg"]["id"] for e in of(found, "message")]
    assert ids == [*range(len(ids) - 1), 50]
    assert gap["lost"] == 50 - (len(ids) - 1)
