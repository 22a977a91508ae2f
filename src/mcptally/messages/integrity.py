"""Drops duplicate events, and reports damage: duplicates, missing events, gaps, missing segments.

Events → Events without duplicates, with findings about damage
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from mcptally.messages.decode import Events
from mcptally.messages.event_tables import DecodedMessages, Event, Gaps, Opens
from mcptally.tables.declaration import Column
from mcptally.tables.findings import Findings, Severity
from mcptally.tables.formatting import counted, formatted
from mcptally.tables.queries import run_query
from mcptally.transcript.events import FRAME_OF_EVENT
from mcptally.transcript.files import LineRun, read_lines

_FRAMES: Final = tuple(FRAME_OF_EVENT.values())


class _Ordered(Event):
    """One row per event, sorted by recording and seq."""

    kind = Column(pl.String, "Kind of the event.")
    first = Column(pl.Boolean, "Whether the event is the first of its recording.")
    step = Column(pl.Int64, "Difference in seq from the event before; null for the first.")
    back = Column(pl.Boolean, "Whether its time is before that of the event before.")
    last = Column(pl.Boolean, "Whether it is the last of its recording.")


def deduplicate(events: Events, names: list[str], files: Sequence[Path]) -> Events:
    """Drop duplicate events, and add findings about any damage.

    Events are duplicates if their contents are equal. Contents are compared by reading `files`
    again, but only for events with the same recording, seq, time and kind. Findings refer to the
    files by `names`.
    """
    ordered = _in_order(_event_rows(events))
    twice, conflicts = _duplicates(ordered, files)
    if twice.height:
        kept = {
            name: getattr(events, name).join(twice, on=["file", "line"], how="anti")
            for name in _FRAMES
        }
        events = msgspec.structs.replace(events, **kept)
        ordered = _in_order(ordered.lazy().join(twice.lazy(), on=["file", "line"], how="anti"))
    file = pl.lit(pl.Series(names, dtype=pl.String)).gather(Event.file.col)
    odd = _odd_places(ordered)
    found = [
        _duplicate_events(twice),
        *_damage_of_order(odd, conflicts),
        _missing_segments(events),
        _repeated_members(events, ordered),
        _gaps(events),
        _unclosed_recordings(events, odd),
    ]
    damage = pl.concat(found).with_columns(file=file).pipe(run_query)
    if not damage.height:
        return events
    findings = pl.concat([events.findings, Findings.frame(damage)])
    return msgspec.structs.replace(events, findings=findings)


def _duplicates(ordered: pl.DataFrame, files: Sequence[Path]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the duplicate events, and the conflicting events (same `seq`, different content)."""
    identity = ["recording", "seq", "ts_ns", "kind"]
    # Duplicates have the same seq, so they are adjacent.
    near = (_Ordered.step.col == 0) | (_Ordered.step.col.shift(-1) == 0)
    twice = (
        ordered.lazy()
        .filter(near)
        .filter(pl.len().over(identity) > 1)
        .sort("file", "line")
        .pipe(run_query)
    )
    if not twice.height:
        return twice, twice
    candidates = twice.with_columns(content=_contents(twice, files))
    same = pl.struct(*identity, "content").is_first_distinct()
    conflicts = candidates.filter(same & ~pl.struct(identity).is_first_distinct())
    twice = candidates.filter(~same)
    return twice, conflicts


def _odd_places(ordered: pl.DataFrame) -> pl.LazyFrame:
    """Return the rows of `_Ordered` that are out of sequence or are the last in their recording."""
    return (
        ordered.lazy()
        .with_columns(last=_Ordered.first.col.shift(-1, fill_value=True))
        .filter(
            (_Ordered.step.col != 1)
            | (_Ordered.first.col & (Event.seq.col > 0))
            | _Ordered.back.col
            | _Ordered.last.col
        )
    )


def _duplicate_events(twice: pl.DataFrame) -> pl.LazyFrame:
    again = (
        twice.lazy()
        .group_by("recording", "file", maintain_order=True)
        .agg(pl.col("line", "seq").first(), count=pl.len())
    )
    of_recording = ("event of this recording occurs", "events of this recording occur")
    return _findings(
        again,
        "archive.duplicate_events",
        "warning",
        formatted("{} a second time here", counted("count", *of_recording)),
    )


def _damage_of_order(odd: pl.LazyFrame, conflicts: pl.DataFrame) -> Iterator[pl.LazyFrame]:
    """Yield findings about missing, repeated and out-of-order events."""
    hole = _Ordered.step.col - 1
    yield _findings(
        odd.filter(_Ordered.step.col > 1),
        "archive.sequence_hole",
        "warning",
        formatted("{} missing before this one", counted(hole, "event is", "events are")),
    )
    yield _findings(
        conflicts.lazy(),
        "archive.conflicting_events",
        "error",
        pl.lit("another event has the same recording, seq and time, but other content"),
    )
    yield _findings(
        odd.filter(_Ordered.step.col == 0).join(conflicts.lazy(), on=["file", "line"], how="anti"),
        "archive.sequence_repeat",
        "warning",
        pl.lit("another event of this recording has the same seq"),
    )
    yield _findings(
        odd.filter(_Ordered.first.col & (Event.seq.col > 0)),
        "archive.begins_late",
        "warning",
        formatted("the recording's first {} missing", counted("seq", "event is", "events are")),
    )
    yield _findings(
        odd.filter("back"),
        "archive.time_goes_back",
        "warning",
        pl.lit("ts_ns is smaller than that of the event before"),
    )


def _missing_segments(events: Events) -> pl.LazyFrame:
    missing = (
        events.opens.lazy()
        .drop_nulls("segment")
        .sort("recording", "segment")
        .unique(["recording", "segment"], maintain_order=True)
        .with_columns(
            before=(Opens.segment.col.diff() - 1).over("recording").fill_null(Opens.segment.col)
        )
    )
    return _findings(
        missing.filter(pl.col("before") > 0),
        "archive.segment_missing",
        "warning",
        formatted("{} missing before this one", counted("before", "segment is", "segments are")),
    )


def _repeated_members(events: Events, ordered: pl.DataFrame) -> pl.LazyFrame:
    return _findings(
        events.duplicate_members.lazy().join(
            ordered.lazy(), on=["file", "line"], maintain_order="left"
        ),
        "protocol.member_twice",
        "warning",
        formatted("a member occurs twice: {}; the last one is used", "names"),
        about="message",
    )


def _gaps(events: Events) -> pl.LazyFrame:
    return _findings(
        events.gaps.lazy(),
        "archive.gap",
        "warning",
        formatted(
            "the recorder lost {}: {}",
            counted(Gaps.lost.col.fill_null(0), "event", "events"),
            Gaps.why.col.fill_null("no reason given"),
        ),
    )


def _unclosed_recordings(events: Events, odd: pl.LazyFrame) -> pl.LazyFrame:
    closed = events.closes.lazy().select("recording").unique()
    return _findings(
        odd.filter("last").join(closed, on="recording", how="anti"),
        "archive.no_close",
        "info",
        pl.lit("the recording has no close event: still running, or killed"),
    )


def _event_rows(events: Events) -> pl.LazyFrame:
    """Combine the tables of events into one row per event.

    A batch has one row, and so has a truncated frame, which is both a raw frame and a message.
    """
    first = events.messages.lazy().filter(DecodedMessages.index.col == 0)
    heads = first.filter("truncated").select("file", "line")
    raws = events.raws.lazy().join(heads, on=["file", "line"], how="anti")
    frames = {name: getattr(events, name).lazy() for name in _FRAMES}
    frames |= {"messages": first, "raws": raws}
    every: pl.LazyFrame = pl.concat(
        frame.select(*Event.columns(), kind=pl.lit(name)) for name, frame in frames.items()
    )
    return every


def _in_order(every: pl.LazyFrame) -> pl.DataFrame:
    """Sort the events, and add the columns of `_Ordered` except `last`."""
    # Sort by category number, which is faster than sorting by text. The order of recordings is
    # irrelevant.
    number = Event.recording.col.cast(pl.Categorical).to_physical()
    first = Event.recording.col.ne_missing(Event.recording.col.shift())
    return (
        every.sort(number, "seq", "file", "line", maintain_order=True)
        .with_columns(first=first)
        .with_columns(
            step=pl.when(~_Ordered.first.col).then(Event.seq.col.diff()),
            back=pl.when(~_Ordered.first.col).then(Event.ts_ns.col.diff() < 0),
        )
        .pipe(run_query)
    )


def _contents(events: pl.DataFrame, files: Sequence[Path]) -> pl.Series:
    """Read the events' lines again, and return a hash of each event's content."""
    found = {place: hash(_canonical(line)) for place, line in _lines_of(events, files)}
    hashes = [found.get(place) for place in events.select("file", "line").iter_rows()]
    return pl.Series(hashes, dtype=pl.Int64)


def _lines_of(
    events: pl.DataFrame, files: Sequence[Path]
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield each event's place (index of the file, line number), and its line."""
    wanted = events.group_by("file", maintain_order=True).agg(Event.line.col)
    for number, places in wanted.iter_rows():
        left = set(places)
        for run in read_lines(files[number]):
            if isinstance(run, LineRun):
                here = left.intersection(range(run.first, run.first + run.count))
                yield from (((number, line), run.line(line)) for line in sorted(here))
                left -= here
            if not left:
                break


def _canonical(line: bytes) -> bytes:
    """Return a line's JSON with normalised white space and sorted members."""
    try:
        return msgspec.json.encode(msgspec.json.decode(line), order="sorted")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return line


def _findings(
    rows: pl.LazyFrame, rule: str, severity: Severity, message: pl.Expr, about: str = "recording"
) -> pl.LazyFrame:
    """Return one finding per row, in which `file` is still an index, not a name."""
    return rows.select(
        "file",
        "line",
        "recording",
        "seq",
        rule=pl.lit(rule),
        severity=pl.lit(severity),
        about=pl.lit(about),
        message=message,
    )
