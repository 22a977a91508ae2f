"""Is an archive whole? Everything the transcript promises, checked line by line.

Only the frame of each event is read (recording, seq, time, segment, counts); payloads are passed
over. Memory is that of one file's read buffer and a few numbers a recording.
"""

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from mcptally.archive import Damage, discover, lines
from mcptally.errors import UnreadableError
from mcptally.frame import EVENTS, FORMAT_VERSION

if sys.platform != "win32":
    import fcntl

Verdict = Literal["whole", "writing", "unclosed", "incomplete"]
"""`writing` and `unclosed` have no `close`: the first is held open by its recorder, the second was
killed, or copied too early. `incomplete` means that something is missing or contradicts itself."""

_MAX_RUNS: Final = 4096
"""Runs of `seq` kept a recording before they are merged: bounds memory on shuffled files."""
_MAX_LISTED: Final = 20

_Int = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Event(msgspec.Struct, gc=False):
    """The frame of one event."""

    v: int
    event: str
    recording: str
    seq: _Int
    ts_ns: _Int
    segment: _Int | None = None
    server: str | None = None
    transport: str | None = None
    reason: str | None = None
    lost: _Int | None = None
    counts: dict[str, Any] | None = None


_DECODE: Final = msgspec.json.Decoder(_Event)


@dataclasses.dataclass(slots=True)
class _Run:
    """Consecutive `seq`: first, last, and the times of both."""

    first: int
    last: int
    began: int
    ended: int


@dataclasses.dataclass(slots=True)
class _Seen:
    """What is known of one recording so far."""

    file: Path
    server: str | None = None
    transport: str | None = None
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    runs: list[_Run] = dataclasses.field(default_factory=list)
    segments: list[int] = dataclasses.field(default_factory=list)
    lost: int = 0
    backwards: int = 0
    repeats: int = 0
    closed: int | None = None
    """The `seq` of its `close`."""
    promised: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingCheck:
    """What was found about one recording."""

    recording: str
    server: str | None
    transport: str | None
    verdict: Verdict
    events: int
    """Events read."""
    segments: int
    """Segments read: `open` events with a number of their own."""
    problems: list[str]
    """Sentences; empty when the verdict is `whole`."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileCheck:
    """What was wrong with one file."""

    file: str
    lines: int
    bytes_not_read: int
    """Bytes, decompressed, of lines that are no events of format 1."""
    problems: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """The whole answer."""

    whole: bool
    files: int
    events: int
    recordings: list[RecordingCheck]
    damaged_files: list[FileCheck]


def check(paths: Iterable[str | Path]) -> ArchiveCheck:
    """Say whether the archive that `paths` name is whole.

    Raises:
        UnreadableError: nothing there, or no event of a transcript in any of it.
    """
    seen: dict[str, _Seen] = {}
    damaged = []
    files = discover(paths)
    for path in files:
        report = _file(path, seen)
        if report.problems:
            damaged.append(report)
    if not seen:
        first = damaged[0] if damaged else None
        why = f"; {first.file}: {first.problems[0]}" if first else ""
        raise UnreadableError(f"no event of a transcript in {len(files)} files{why}")
    recordings = [_judge(name, state) for name, state in seen.items()]
    return ArchiveCheck(
        whole=not damaged and all(r.verdict == "whole" for r in recordings),
        files=len(files),
        events=sum(r.events for r in recordings),
        recordings=recordings,
        damaged_files=damaged,
    )


def _file(path: Path, seen: dict[str, _Seen]) -> FileCheck:
    problems: list[str] = []
    unread = total = 0
    bad: Counter[str] = Counter()
    first_bad: dict[str, int] = {}
    try:
        for number, line in _each(path):
            if isinstance(line, Damage):
                problems.append(f"line {line.line}: {line.message}")
                continue
            total = number
            torn = not line.endswith(b"\n")
            why = _event(line, path, seen) if line.strip() else None
            if why:
                why = "torn tail: the last line has no end" if torn else why
                bad[why] += 1
                first_bad.setdefault(why, number)
                unread += len(line)
    except UnreadableError as error:
        problems.append(str(error).removeprefix(f"{path}: "))
    for why, count in bad.items():
        where = f"line {first_bad[why]}" + (f" and {count - 1} more" if count > 1 else "")
        problems.append(f"{where}: {why}")
    if not total and not problems:
        problems.append("not a single line in it" if path.stat().st_size else "empty")
    return FileCheck(str(path), total, unread, problems)


def _each(path: Path) -> Iterator[tuple[int, bytes | Damage]]:
    for run in lines(path):
        if isinstance(run, Damage):
            yield run.line, run
        else:
            data, number, begin = run.data, run.first, 0
            while begin < len(data):
                end = data.find(b"\n", begin) + 1 or len(data)
                yield number, data[begin:end]
                number, begin = number + 1, end


def _event(line: bytes, path: Path, seen: dict[str, _Seen]) -> str | None:
    """Take one line into account; the reason when it is no event."""
    try:
        event = _DECODE.decode(line)
    except (msgspec.ValidationError, RecursionError) as error:
        return f"no event: {error}" if len(str(error)) < 120 else "no event"
    except (msgspec.DecodeError, ValueError):
        return "no JSON"
    if event.v != FORMAT_VERSION:
        return f"format {event.v} is not known to this version, which reads {FORMAT_VERSION}"
    if event.event not in EVENTS:
        return "no event: its kind is unknown"
    state = seen.get(event.recording)
    if state is None:
        state = seen[event.recording] = _Seen(path)
    _in_order(state, event)
    if event.event == "open":
        state.server = state.server or event.server
        state.transport = state.transport or event.transport
        if event.segment is not None:
            state.segments.append(event.segment)
        if len(state.segments) <= 1 or event.segment == max(state.segments):
            state.file = path
    elif event.event == "gap":
        state.lost += event.lost or 0
    elif event.event == "close":
        state.closed, state.promised = event.seq, event.counts
    state.counts[event.event] += 1
    return None


def _in_order(state: _Seen, event: _Event) -> None:
    runs = state.runs
    last = runs[-1] if runs else None
    if last is not None and event.seq == last.last + 1:
        state.backwards += event.ts_ns < last.ended
        last.last, last.ended = event.seq, event.ts_ns
        return
    runs.append(_Run(event.seq, event.seq, event.ts_ns, event.ts_ns))
    if len(runs) > _MAX_RUNS:
        state.runs = _merged(state)


def _merged(state: _Seen) -> list[_Run]:
    """The runs in order of `seq`, joined; repeats and times that go back are counted."""
    merged: list[_Run] = []
    for run in sorted(state.runs, key=lambda r: (r.first, r.last)):
        before = merged[-1] if merged else None
        if before is None or run.first > before.last + 1:
            if before is not None:
                state.backwards += run.began < before.ended
            merged.append(run)
            continue
        state.repeats += max(0, min(before.last, run.last) - run.first + 1)
        if run.first == before.last + 1:
            state.backwards += run.began < before.ended
        if run.last > before.last:
            before.last, before.ended = run.last, run.ended
    return merged


def _judge(name: str, state: _Seen) -> RecordingCheck:
    runs = state.runs = _merged(state)
    problems = []
    holes = [(a.last + 1, b.first - 1) for a, b in pairwise(runs)]
    if runs[0].first:
        holes.insert(0, (0, runs[0].first - 1))
    if state.lost:
        problems.append(f"the recorder lost {state.lost} events and says so in a gap")
    # Lost events keep their numbers: what a gap accounts for is told once.
    missing = sum(last - first + 1 for first, last in holes)
    if missing > state.lost:
        listed = ", ".join(_range(*hole) for hole in holes[:_MAX_LISTED])
        more = f" and {len(holes) - _MAX_LISTED} more" if len(holes) > _MAX_LISTED else ""
        problems.append(f"{missing - state.lost} events are missing at seq {listed}{more}")
    if state.repeats:
        problems.append(f"{state.repeats} events have a seq that was there already")
    if state.backwards:
        problems.append(f"the time goes back {state.backwards} times")
    if state.closed is not None and (
        after := sum(max(0, r.last - max(r.first, state.closed + 1) + 1) for r in runs)
    ):
        problems.append(f"{after} events after close")
    problems += _segments(state)
    if not state.counts["open"]:
        problems.append("no open: its first segment is missing")
    if state.closed is not None and not missing and not state.repeats:
        problems += _promises(state)
    broken = bool(problems)
    verdict: Verdict = "incomplete" if broken else "whole"
    if state.closed is None:
        writing = _held(state.file)
        problems.append("it is being written" if writing else "no close: killed, or cut off")
        if not broken:
            verdict = "writing" if writing else "unclosed"
    return RecordingCheck(
        recording=name,
        server=state.server,
        transport=state.transport,
        verdict=verdict,
        events=state.counts.total(),
        segments=len(set(state.segments)) or 1,
        problems=problems,
    )


def _segments(state: _Seen) -> Iterator[str]:
    found = set(state.segments)
    if len(found) < len(state.segments):
        yield f"{len(state.segments) - len(found)} segments are there twice"
    if found and (missing := max(found) + 1 - len(found)):
        gone = sorted(n for n in range(min(max(found), 10_000)) if n not in found)[:_MAX_LISTED]
        yield f"{missing} segments are missing: {', '.join(map(str, gone))}"


def _promises(state: _Seen) -> Iterator[str]:
    """Where `close` says another number of events than was read."""
    promised = state.promised or {}
    for event, number in promised.items():
        if event not in EVENTS or event == "close" or not isinstance(number, int):
            continue
        if number != state.counts[event]:
            yield f"close counts {number} {event} events, {state.counts[event]} are there"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _held(path: Path) -> bool:
    """Does a recorder hold this file's lock?"""
    if sys.platform == "win32":  # no such locks there: it looks unclosed
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
