"""Is an archive whole? Everything the transcript promises, checked line by line.

A line is an event here exactly if it is one to `score`; payloads are passed over. Memory is that of
one file's read buffer and a few numbers for each recording, and for each hole in one.
"""

import dataclasses
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from mcptally.errors import UnreadableError
from mcptally.plural import count
from mcptally.transcript.discover import PassedOver, discover
from mcptally.transcript.events import EVENTS as SHAPES
from mcptally.transcript.events import AnyEvent, CloseEvent, GapEvent, OpenEvent
from mcptally.transcript.files import Damage, Lines, Room, lines
from mcptally.transcript.format import EVENTS
from mcptally.transcript.parse import MAX_NOISE, NOISE, at_once, event_of, is_torn
from mcptally.wire.nesting import with_stack_room

if sys.platform != "win32":
    import fcntl

Verdict = Literal["whole", "writing", "unclosed", "incomplete"]
"""`writing` and `unclosed` have no `close`: the first is held open by its recorder, the second was
killed, or copied too early. `incomplete` means that something is missing or contradicts itself."""

_MAX_RUNS: Final = 4096
"""Runs of `seq` kept of a recording before they are merged: bounds memory on shuffled files."""
_MAX_LISTED: Final = 20

_TOGETHER: Final = 16 << 20
"""Bytes of files that share the room to unpack in: what a partition of `score` has, about."""

_NAMES: Final = {shape: str(shape.__struct_config__.tag) for shape in SHAPES}
_COUNTS: Final = msgspec.json.Decoder(dict[str, Any])


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
    room: int = _MAX_RUNS
    """How many runs there may be before they are merged the next time."""
    segments: list[int] = dataclasses.field(default_factory=list)
    latest: int = 0
    """The highest of them; `file` is where it is."""
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


@with_stack_room
def check(paths: Iterable[str | Path]) -> ArchiveCheck:
    """Say whether the archive that `paths` name is whole.

    Raises:
        UnreadableError: nothing there, or no event of a transcript in any of it.
    """
    seen: dict[str, _Seen] = {}
    damaged = []
    out: list[PassedOver] = []
    files = discover(paths, out.append)
    room, together = Room(), 0
    for path in files:
        together += _size(path)
        if together > _TOGETHER:
            room, together = Room(), 0
        report = _file(path, seen, room)
        if report.problems:
            damaged.append(report)
    damaged += [FileCheck(each.name, 0, 0, [f"passed over: {each.why}"]) for each in out]
    if not seen:
        first = damaged[0] if damaged else None
        why = f"; {first.file}: {first.problems[0]}" if first else ""
        raise UnreadableError(f"no event of a transcript in {count(len(files), 'file')}{why}")
    held = functools.cache(is_held)  # a file may hold a million recordings
    recordings = [_judge(name, state, held) for name, state in seen.items()]
    return ArchiveCheck(
        whole=not damaged and all(r.verdict == "whole" for r in recordings),
        files=len(files),
        events=sum(r.events for r in recordings),
        recordings=recordings,
        damaged_files=damaged,
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # said when the file is read


def _file(path: Path, seen: dict[str, _Seen], room: Room) -> FileCheck:
    problems: list[str] = []
    unread = total = noise = 0
    bad: Counter[str] = Counter()
    first_bad: dict[str, tuple[int, str]] = {}
    for run in lines(path, room=room):
        if isinstance(run, Damage):
            where = "" if run.line is None else f"line {run.line}: "
            problems.append(f"{where}{run.message}")
            continue
        total = run.first + run.count - 1
        known = at_once(run.data, run.count)
        for event in known or ():
            _take(event, path, seen)
        for number, line in _each(run) if known is None else ():
            event_or_why = event_of(line.removesuffix(b"\n"))
            if isinstance(event_or_why, tuple):
                rule, words = event_or_why
                if not line.endswith(b"\n") and is_torn(line):
                    rule = words = "torn tail: the last line has no end"
                bad[rule] += 1
                first_bad.setdefault(rule, (number, words))
                unread += len(line)
            elif event_or_why is not None:
                _take(event_or_why, path, seen)
                continue
            noise += 1
        if noise > MAX_NOISE:
            problems.append(f"line {total + 1}: {NOISE}")
            break
    for rule, n in bad.items():
        number, words = first_bad[rule]
        problems.append(f"line {number}{f' and {n - 1} more' if n > 1 else ''}: {words}")
    if not total and not problems:
        problems.append("empty")
    return FileCheck(str(path), total, unread, problems)


def _each(run: Lines) -> Iterator[tuple[int, bytes]]:
    """Each line of a run, its newline included, with its number."""
    number, begin = run.first, 0
    while begin < len(run.data):
        end = run.data.find(b"\n", begin) + 1 or len(run.data)
        yield number, run.data[begin:end]
        number, begin = number + 1, end


def _take(event: AnyEvent, path: Path, seen: dict[str, _Seen]) -> None:
    """Take one event into account."""
    state = seen.get(event.recording)
    if state is None:
        state = seen[event.recording] = _Seen(path)
    _in_order(state, event)
    if isinstance(event, OpenEvent):
        state.server = state.server or event.server
        state.transport = state.transport or event.transport
        if event.segment is not None:
            state.segments.append(event.segment)
        if event.segment is None or event.segment >= state.latest:
            state.file, state.latest = path, event.segment or 0
    elif isinstance(event, GapEvent):
        state.lost += event.lost or 0
    elif isinstance(event, CloseEvent):
        state.closed, state.promised = event.seq, _counts(event)
    state.counts[_NAMES[type(event)]] += 1


def _counts(event: CloseEvent) -> dict[str, Any] | None:
    try:
        return _COUNTS.decode(event.counts)
    except msgspec.DecodeError:
        return None


def _in_order(state: _Seen, event: AnyEvent) -> None:
    runs = state.runs
    last = runs[-1] if runs else None
    if last is not None and event.seq == last.last + 1:
        state.backwards += event.ts_ns < last.ended
        last.last, last.ended = event.seq, event.ts_ns
        return
    runs.append(_Run(event.seq, event.seq, event.ts_ns, event.ts_ns))
    if len(runs) > state.room:
        state.runs = _merged(state)
        # Where there are holes they stay many: to merge them at each event would take for ever.
        state.room = max(_MAX_RUNS, 2 * len(state.runs))


def _merged(state: _Seen) -> list[_Run]:
    """The runs in order of `seq`, joined; repeats, and times that go back within, are counted."""
    merged: list[_Run] = []
    for run in sorted(state.runs, key=lambda r: (r.first, r.last)):
        before = merged[-1] if merged else None
        if before is None or run.first > before.last + 1:
            merged.append(run)
            continue
        state.repeats += max(0, min(before.last, run.last) - run.first + 1)
        if run.first == before.last + 1:
            state.backwards += run.began < before.ended
        if run.last > before.last:
            before.last, before.ended = run.last, run.ended
    return merged


def _judge(name: str, state: _Seen, held: Callable[[Path], bool]) -> RecordingCheck:
    runs = state.runs = _merged(state)
    state.backwards += sum(b.began < a.ended for a, b in pairwise(runs))
    problems = []
    holes = [(a.last + 1, b.first - 1) for a, b in pairwise(runs)]
    if runs[0].first:
        holes.insert(0, (0, runs[0].first - 1))
    if state.lost:
        problems.append(f"the recorder lost {count(state.lost, 'event')} and says so in a gap")
    # Lost events keep their numbers: what a gap accounts for is told once.
    missing = sum(last - first + 1 for first, last in holes)
    if missing > state.lost:
        listed = ", ".join(_range(*hole) for hole in holes[:_MAX_LISTED])
        more = f" and {len(holes) - _MAX_LISTED} more" if len(holes) > _MAX_LISTED else ""
        absent = count(missing - state.lost, "event is", "events are")
        problems.append(f"{absent} missing at seq {listed}{more}")
    if state.repeats:
        repeated = count(state.repeats, "event has", "events have")
        problems.append(f"{repeated} a seq that was there already")
    if state.backwards:
        problems.append(f"the time goes back {count(state.backwards, 'time')}")
    if state.closed is not None and (
        after := sum(max(0, r.last - max(r.first, state.closed + 1) + 1) for r in runs)
    ):
        problems.append(f"{count(after, 'event')} after close")
    problems += _segments(state)
    if not state.counts["open"]:
        problems.append("no open: its first segment is missing")
    if state.closed is not None and not missing and not state.repeats:
        problems += _promises(state)
    broken = bool(problems)
    verdict: Verdict = "incomplete" if broken else "whole"
    if state.closed is None:
        writing = held(state.file)
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
        twice = count(len(state.segments) - len(found), "segment is", "segments are")
        yield f"{twice} there twice"
    if found and (missing := max(found) + 1 - len(found)):
        gone = islice((str(n) for n in range(max(found)) if n not in found), _MAX_LISTED)
        yield f"{count(missing, 'segment is', 'segments are')} missing: {', '.join(gone)}"


def _promises(state: _Seen) -> Iterator[str]:
    """Where `close` says another number of events than was read."""
    promised = state.promised or {}
    for event, number in promised.items():
        if event not in EVENTS or event == "close" or not isinstance(number, int):
            continue
        if number != state.counts[event]:
            counted = count(number, f"{event} event")
            there = count(state.counts[event], "is", "are")
            yield f"close counts {counted}, {there} there"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def is_held(path: Path) -> bool:
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
