"""`check` reports every kind of damage to an archive, and nothing for a complete archive."""

import fcntl
import json
from itertools import pairwise

import pytest

from mcptally.transcript.check import check
from tests.commands import run
from tests.transcripts import c2s, event, request, write

MS = 1_000_000
"""Nanoseconds between two events."""


def recording(name="r1", *, messages=3, segment_every=0, close=True, **closing):
    """The events of a recording, as the recorder would write them."""
    events, segment = [], 0

    def add(kind, **fields):
        events.append(event(kind, len(events), name, **fields))

    add("open", segment=0, server="s", transport="stdio")
    for number in range(messages):
        if segment_every and number and number % segment_every == 0:
            segment += 1
            add("open", segment=segment, server="s", transport="stdio")
        add("message", dir="c2s", msg=request(number, "ping"))
    counts = {"open": segment + 1, "message": messages, "lost": 0}
    if close:
        add("close", **{"reason": "eof", "counts": counts, **closing})
    return events


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_whole_recording_is_whole_in_any_compression(tmp_path, name):
    answer = check([write(tmp_path / name, recording())])
    assert answer.whole
    assert [(r.verdict, r.events, r.problems) for r in answer.recordings] == [("whole", 5, [])]


def test_segments_in_files_of_any_order_are_one_whole_recording(tmp_path):
    events = recording(messages=6, segment_every=2)
    cuts = [i for i, e in enumerate(events) if e["event"] == "open"] + [len(events)]
    for n, (a, b) in enumerate(pairwise(cuts)):
        write(tmp_path / f"{9 - n}.jsonl", events[a:b])
    answer = check([tmp_path])
    assert answer.whole, answer
    assert answer.recordings[0].segments == 3
    (tmp_path / "8.jsonl").unlink()
    assert problems(check([tmp_path])) == [
        "3 events are missing at seq 3-5", "1 segment is missing: 1",
    ]  # fmt: skip


def problems(answer):
    assert not answer.whole
    return [p for r in answer.recordings for p in r.problems]


def dropped(events, *numbers):
    return [e for e in events if e["seq"] not in numbers]


def changed(events, number, **fields):
    return [{**e, **fields} if e["seq"] == number else e for e in events]


GAP = event("gap", 3, lost=1)
AFTER_GAP = [{**e, "seq": e["seq"] + 2, "ts_ns": e["ts_ns"] + 2 * MS} for e in recording()[2:]]
LATE = c2s(5, request(9, "ping"))
UNCLOSED = "no close event: killed or cut off"
DAMAGE = {
    "1 event is missing at seq 2": dropped(recording(), 2),
    "2 events are missing at seq 2, 5": dropped(recording(messages=6), 2, 5),
    "1 event is missing at seq 0": dropped(recording(), 0),
    "1 event repeats a seq": [*recording()[:3], *recording()[2:]],
    "the time goes back 1 time": changed(recording(), 3, ts_ns=1),
    "the close event counts 4 message events, 3 were read": recording(counts={"message": 4}),
    "the recorder lost 1 event, as its gap events say": [*recording()[:2], GAP, *AFTER_GAP],
    UNCLOSED: recording(close=False),
    "1 event after the close event": [*recording(), LATE],
    "1 segment is repeated": changed(recording(messages=4, segment_every=2), 3, segment=0),
}


@pytest.mark.parametrize(("said", "events"), DAMAGE.items(), ids=DAMAGE)
def test_damage_has_a_message(tmp_path, events, said):
    answer = check([write(tmp_path / "a.jsonl", events)])
    assert said in problems(answer)
    assert answer.recordings[0].verdict == ("unclosed" if said == UNCLOSED else "incomplete")
    if GAP in events:
        assert not any("missing" in p for p in problems(answer))


def test_a_time_that_goes_back_counts_once_between_many_holes(tmp_path):
    events = [e for e in recording(messages=10_000) if e["seq"] % 2 == 0]
    for late in events[len(events) // 2 :]:
        late["ts_ns"] -= 9000 * MS
    answer = check([write(tmp_path / "a.jsonl", events)])
    assert "the time goes back 1 time" in problems(answer)
    assert len(answer.recordings[0].problems[0]) < 300


def test_a_missing_segment_after_thousands_has_a_message(tmp_path):
    events = recording(messages=10_005, segment_every=1, close=False)
    gone = next(e for e in events if e.get("segment") == 10_001)
    gone["segment"] = 0
    answer = check([write(tmp_path / "a.jsonl", events)])
    assert "1 segment is missing: 10001" in problems(answer)


LINES = {
    "garbage": (b"hello\n", "not JSON"),
    "another program's line": (b'{"a":1}\n', "not an event"),
    "an unknown event": (
        b'{"v":1,"event":"hm","recording":"x","seq":0,"ts_ns":1}\n',
        "not an event of transcript format 1: Invalid value",
    ),
    "a line that redact withheld": (
        b'{"v":1,"withheld":"the line is not UTF-8","bytes":7}\n',
        "`mcptally redact` withheld this line because it could not search it for secrets: the line",
    ),
    "a withheld line without a reason": (
        b'{"v":1,"withheld":7}\n', "it could not search it for secrets",
    ),
    "a torn tail": (b'{"v":1,"eve', "torn tail: the last line is incomplete"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "said"), LINES.values(), ids=LINES)
def test_lines_that_are_not_events_have_a_message_and_their_bytes_are_counted(tmp_path, line, said):
    answer = check([write(tmp_path / "a.jsonl", [*recording(), line])])
    assert not answer.whole
    (file,) = answer.damaged_files
    assert any(said in p for p in file.problems), file
    assert file.bytes_not_read == len(line)


def test_a_recording_locked_by_a_recorder_is_being_written(tmp_path):
    write(tmp_path / "a.jsonl", recording(close=False))
    with (tmp_path / "a.jsonl").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert check([tmp_path]).recordings[0].verdict == "writing"
    assert check([tmp_path]).recordings[0].verdict == "unclosed"


def test_events_in_any_order_are_whole_if_none_is_missing(tmp_path):
    events = recording(messages=10_000)
    shuffled = [e for k in range(7) for e in events[k::7]]
    answer = check([write(tmp_path / "a.jsonl", shuffled)])
    assert answer.whole, answer.recordings
    assert answer.recordings[0].events == len(events)


@pytest.mark.parametrize(
    ("data", "code"), [(recording(), 0), (dropped(recording(), 2), 1), ([b"hello\n"], 3)]
)
def test_the_exit_code_says_whether_an_archive_is_whole(tmp_path, data, code):
    write(tmp_path / "a.jsonl", data)
    for form in ("table", "json"):
        done = run("check", tmp_path, "--format", form)
        assert done.returncode == code, done.stderr
        if code < 3 and form == "json":
            assert json.loads(done.stdout)["whole"] == (code == 0)
