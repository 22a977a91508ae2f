"""Checks line by line whether an archive is complete, and lists what is missing.

Lines are parsed exactly as in `score`; payloads are not examined. Memory is needed only for one
read buffer and a few numbers per recording and per gap in its numbering.
"""

import dataclasses
import fcntl
import functools
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from mcptally.errors import UnreadableError
from mcptally.plural import count
from mcptally.transcript.discover import SkippedFile, discover
from mcptally.transcript.events import FRAME_OF_EVENT as EVENT_TYPES
from mcptally.transcript.events import AnyEvent, CloseEvent, GapEvent, OpenEvent
from mcptally.transcript.files import Damage, DecompressionBudget, read_lines
from mcptally.transcript.format import EVENT_NAMES
from mcptally.transcript.parse import (
    MAX_NOISE_LINES,
    NOISE_MESSAGE,
    is_torn,
    parse_event,
    parse_lines,
)
from mcptally.transcript.unread import ReadTally, Unread, UnreadFile, summarize
from mcptally.wire.json_text import decode_or_none
from mcptally.wire.nesting import with_raised_recursion_limit

CheckVerdict = Literal["whole", "writing", "unclosed", "incomplete"]
"""State of a recording. `writing` and `unclosed` recordings have no `close` event. A `writing`
recording is still being written. A recording is `unclosed` if its recorder was killed or its file
was copied too early. In an `incomplete` recording, events are missing or contradict each other."""

_MAX_RUNS: Final = 4096
"""Number of `seq` runs per recording above which runs are merged, to bound memory for shuffled
files."""
_MAX_LISTED: Final = 20

_PARTITION_BYTES: Final = 16 << 20
"""Total size of files that share one `DecompressionBudget`, as in a partition of `score`."""

_EVENT_NAME: Final = {shape: str(shape.__struct_config__.tag) for shape in EVENT_TYPES}
_COUNTS: Final = msgspec.json.Decoder(dict[str, Any])


@dataclasses.dataclass(slots=True)
class _SeqRun:
    """A run of consecutive `seq` values, and the times of its first and last event."""

    first: int
    last: int
    began: int
    ended: int


@dataclasses.dataclass(slots=True)
class _RecordingState:
    """What is known about a recording from the events read so far."""

    file: Path
    server: str | None = None
    transport: str | None = None
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    runs: list[_SeqRun] = dataclasses.field(default_factory=list)
    max_runs: int = _MAX_RUNS
    """Number of runs at which runs are merged."""
    segments: list[int] = dataclasses.field(default_factory=list)
    latest: int = 0
    """The highest segment number so far; `file` contains that segment."""
    lost: int = 0
    backwards: int = 0
    repeats: int = 0
    closed: int | None = None
    """The `seq` of the `close` event."""
    counts_in_close: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingCheck:
    """The result of checking one recording."""

    recording: str
    server: str | None
    transport: str | None
    verdict: CheckVerdict
    events: int
    """Number of events read."""
    segments: int
    """Number of segments read: `open` events with different segment numbers."""
    problems: list[str]
    """Messages about what is missing or contradictory; empty if the verdict is `whole`."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileCheck:
    """The problems of one file."""

    file: str
    lines: int
    bytes_not_read: int
    """Decompressed size of the lines that are not events of format 1."""
    share_not_read: float
    """Minimum share of the file that could not be read. The share is higher if the file is
    truncated."""
    problems: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """The result of checking an archive."""

    whole: bool
    files: int
    events: int
    recordings: list[RecordingCheck]
    damaged_files: list[FileCheck]
    unread: Unread | None
    """The parts that could not be read; None if everything was read."""


@with_raised_recursion_limit
def check(paths: str | Path | Iterable[str | Path]) -> ArchiveCheck:
    """Check whether an archive is complete: no event lost or torn, and every recording closed.

    Args:
        paths: one or several files, folders or patterns, as for `score`.

    Raises:
        UnreadableError: there are no files, or no file contains a transcript event.
    """
    seen: dict[str, _RecordingState] = {}
    damaged: list[FileCheck] = []
    read: list[UnreadFile] = []
    out: list[SkippedFile] = []
    names = discover([paths] if isinstance(paths, str | Path) else paths, out.append)
    room, together = DecompressionBudget(), 0
    for path in map(Path, names):
        together += _size(path)
        if together > _PARTITION_BYTES:
            room, together = DecompressionBudget(), 0
        report, tally = _check_file(path, seen, room)
        read.append(UnreadFile(str(path), _size(path), tally.share, tally.fault))
        if report.problems:
            damaged.append(report)
    damaged += [FileCheck(each.name, 0, 0, 1.0, [f"skipped: {each.why}"]) for each in out]
    if not seen:
        faults = [f"{each.file}: {each.problems[0]}" for each in damaged[:5]]
        message = f"nothing readable in {count(len(names), 'file')}"
        raise UnreadableError("\n".join([message, *faults]))
    is_held_cached = functools.cache(is_locked)  # one file may contain a million recordings
    recordings = [_check_recording(name, state, is_held_cached) for name, state in seen.items()]
    return ArchiveCheck(
        whole=not damaged and all(r.verdict == "whole" for r in recordings),
        files=len(names),
        events=sum(r.events for r in recordings),
        recordings=recordings,
        damaged_files=damaged,
        unread=summarize(read),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # the error is reported when the file is read


def _check_file(
    path: Path, seen: dict[str, _RecordingState], room: DecompressionBudget
) -> tuple[FileCheck, ReadTally]:
    problems: list[str] = []
    unread = total = noise = 0
    tally = ReadTally()
    bad: Counter[str] = Counter()
    first_bad: dict[str, tuple[int, str]] = {}
    for run in read_lines(path, room=room):
        tally.add(run)
        if isinstance(run, Damage):
            where = "" if run.line is None else f"line {run.line}: "
            problems.append(f"{where}{run.message}")
            continue
        total = run.first + run.count - 1
        known = parse_lines(run.data, run.ends)
        for event in known or ():
            _add_event(event, path, seen)
        for number, line in enumerate(io.BytesIO(run.data), run.first) if known is None else ():
            event_or_why = parse_event(line.removesuffix(b"\n"))
            if isinstance(event_or_why, tuple):
                rule, words = event_or_why
                if not line.endswith(b"\n") and is_torn(line):
                    rule = words = "torn tail: the last line is incomplete"
                else:
                    tally.add_fault(number, words, len(line))
                bad[rule] += 1
                first_bad.setdefault(rule, (number, words))
                unread += len(line)
            elif event_or_why is not None:
                _add_event(event_or_why, path, seen)
                continue
            noise += 1
        if noise > MAX_NOISE_LINES:
            problems.append(f"line {total + 1}: {NOISE_MESSAGE}")
            tally.note(total + 1, NOISE_MESSAGE)
            break
    for rule, n in bad.items():
        number, words = first_bad[rule]
        problems.append(f"line {number}{f' and {n - 1} more' if n > 1 else ''}: {words}")
    if not total and not problems:
        problems.append("empty")
    return FileCheck(str(path), total, unread, round(tally.share, 6), problems), tally


def _add_event(event: AnyEvent, path: Path, seen: dict[str, _RecordingState]) -> None:
    """Update the state of an event's recording."""
    state = seen.get(event.recording)
    if state is None:
        state = seen[event.recording] = _RecordingState(path)
    _note_seq(state, event)
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
        state.closed, state.counts_in_close = event.seq, decode_or_none(_COUNTS, event.counts)
    state.counts[_EVENT_NAME[type(event)]] += 1


def _note_seq(state: _RecordingState, event: AnyEvent) -> None:
    runs = state.runs
    last = runs[-1] if runs else None
    if last is not None and event.seq == last.last + 1:
        state.backwards += event.ts_ns < last.ended
        last.last, last.ended = event.seq, event.ts_ns
        return
    runs.append(_SeqRun(event.seq, event.seq, event.ts_ns, event.ts_ns))
    if len(runs) > state.max_runs:
        state.runs = _merged(state)
        # Gaps prevented merging. Raise the limit, because merging at every further event would be
        # slow.
        state.max_runs = max(_MAX_RUNS, 2 * len(state.runs))


def _merged(state: _RecordingState) -> list[_SeqRun]:
    """Sort and merge the runs; count repeated `seq` values and times that go backwards."""
    merged: list[_SeqRun] = []
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


def _check_recording(
    name: str, state: _RecordingState, is_held_cached: Callable[[Path], bool]
) -> RecordingCheck:
    runs = state.runs = _merged(state)
    state.backwards += sum(b.began < a.ended for a, b in pairwise(runs))
    problems = []
    holes = [(a.last + 1, b.first - 1) for a, b in pairwise(runs)]
    if runs[0].first:
        holes.insert(0, (0, runs[0].first - 1))
    if state.lost:
        problems.append(f"the recorder lost {count(state.lost, 'event')}, as its gap events say")
    # Lost events keep their numbers: do not report events that a gap event already reports.
    missing = sum(last - first + 1 for first, last in holes)
    if missing > state.lost:
        listed = ", ".join(_range_text(*hole) for hole in holes[:_MAX_LISTED])
        more = f" and {len(holes) - _MAX_LISTED} more" if len(holes) > _MAX_LISTED else ""
        absent = count(missing - state.lost, "event is", "events are")
        problems.append(f"{absent} missing at seq {listed}{more}")
    if state.repeats:
        repeated = count(state.repeats, "event repeats", "events repeat")
        problems.append(f"{repeated} a seq")
    if state.backwards:
        problems.append(f"the time goes back {count(state.backwards, 'time')}")
    if state.closed is not None and (
        after := sum(max(0, r.last - max(r.first, state.closed + 1) + 1) for r in runs)
    ):
        problems.append(f"{count(after, 'event')} after the close event")
    problems += _segment_problems(state)
    if not state.counts["open"]:
        problems.append("no open event: the first segment is missing")
    if state.closed is not None and not missing and not state.repeats:
        problems += _count_mismatches(state)
    broken = bool(problems)
    verdict: CheckVerdict = "incomplete" if broken else "whole"
    if state.closed is None:
        writing = is_held_cached(state.file)
        problems.append("still being written" if writing else "no close event: killed or cut off")
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


def _segment_problems(state: _RecordingState) -> Iterator[str]:
    found = set(state.segments)
    if len(found) < len(state.segments):
        repeated = count(len(state.segments) - len(found), "segment is", "segments are")
        yield f"{repeated} repeated"
    if found and (missing := max(found) + 1 - len(found)):
        gone = islice((str(n) for n in range(max(found)) if n not in found), _MAX_LISTED)
        yield f"{count(missing, 'segment is', 'segments are')} missing: {', '.join(gone)}"


def _count_mismatches(state: _RecordingState) -> Iterator[str]:
    """Yield a message for each kind of event whose number differs from `counts` in `close`."""
    counts_in_close = state.counts_in_close or {}
    for event, number in counts_in_close.items():
        if event not in EVENT_NAMES or event == "close" or not isinstance(number, int):
            continue
        if number != state.counts[event]:
            counted = count(number, f"{event} event")
            read = count(state.counts[event], "was", "were")
            yield f"the close event counts {counted}, {read} read"


def _range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def is_locked(path: Path) -> bool:
    """Return whether a recorder holds a lock on this file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
