"""What is wrong with an archive as such: events twice, holes, gaps, segments that are missing.

Events → Events without what is there twice, and with findings on the damage
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from mcptally.archive import Lines, lines
from mcptally.decode import Events
from mcptally.repeats import repeated
from mcptally.schema import Findings, Severity

_FRAMES = ("messages", "raws", "http", "opens", "closes", "gaps", "stderr")
MAX_ODD: Final = 10_000
"""Messages of a partition, longer than their members, that are looked at once more."""

_ENVELOPE = ("file", "line", "recording", "seq", "ts_ns")


def mend(events: Events, names: list[str], files: Sequence[Path]) -> Events:
    """Drop events that a duplicate file brings again, and report all damage.

    An event is a copy if all of it is the same. `names` are what findings call the files.
    """
    every = pl.concat(
        [
            getattr(events, name).select(*_ENVELOPE).with_columns(kind=pl.lit(name))
            for name in _FRAMES
        ]
    ).unique(["file", "line"], maintain_order=True)
    once = ["recording", "seq", "ts_ns", "kind"]
    twice = every.filter(pl.len().over(once) > 1).sort("file", "line")
    conflicts = twice
    if twice.height:
        said = twice.with_columns(content=_contents(twice, files))
        same = pl.struct(*once, "content").is_first_distinct()
        conflicts = said.filter(same & ~pl.struct(once).is_first_distinct())
        twice = said.filter(~same)
        kept = {
            name: getattr(events, name).join(twice, on=["file", "line"], how="anti")
            for name in _FRAMES
        }
        events = dataclasses.replace(events, **kept)
        every = every.join(twice, on=["file", "line"], how="anti")
    ordered = every.sort("recording", "seq", "file", "line").with_columns(
        step=pl.col("seq").diff().over("recording"),
        back=pl.col("ts_ns").diff().over("recording") < 0,
        first=pl.col("recording").is_first_distinct(),
    )
    hole = pl.col("step") - 1
    again = twice.group_by("recording", "file", maintain_order=True).agg(
        pl.col("line", "seq").first(), count=pl.len()
    )
    opens = events.opens.drop_nulls("segment").sort("recording", "segment")
    missing = opens.unique(["recording", "segment"], maintain_order=True).with_columns(
        before=(pl.col("segment").diff() - 1).over("recording").fill_null(pl.col("segment"))
    )
    closed = events.closes.select("recording").unique()
    ends = ordered.unique("recording", keep="last", maintain_order=True)
    found = [
        _rows(
            again,
            "archive.duplicate_events",
            "warning",
            pl.format("{} events of this recording are here a second time", "count"),
        ),
        _rows(
            ordered.filter(pl.col("step") > 1),
            "archive.sequence_hole",
            "warning",
            pl.format("{} events are missing before this one", hole),
        ),
        _rows(
            conflicts,
            "archive.conflicting_events",
            "error",
            pl.lit("another event has the same recording, seq and time, and says something else"),
        ),
        _rows(
            ordered.filter(pl.col("step") == 0).join(conflicts, on=["file", "line"], how="anti"),
            "archive.sequence_repeat",
            "warning",
            pl.lit("another event of this recording has the same seq"),
        ),
        _rows(
            ordered.filter(pl.col("first") & (pl.col("seq") > 0)),
            "archive.begins_late",
            "warning",
            pl.format("the recording's first {} events are missing", "seq"),
        ),
        _rows(
            ordered.filter("back"),
            "archive.time_goes_back",
            "warning",
            pl.lit("ts_ns is smaller than that of the event before"),
        ),
        _rows(
            missing.filter(pl.col("before") > 0),
            "archive.segment_missing",
            "warning",
            pl.format("{} segments are missing before this one", "before"),
        ),
        _rows(
            _members_twice(events, every, files),
            "protocol.member_twice",
            "warning",
            pl.format("a member stands twice: {}; the last one counts here", "names"),
        ).with_columns(about=pl.lit("message")),
        _rows(
            events.gaps,
            "archive.gap",
            "warning",
            pl.format(
                "the recorder lost {} events: {}",
                pl.col("lost").fill_null(0),
                pl.col("why").fill_null("no reason given"),
            ),
        ),
        _rows(
            ends.join(closed, on="recording", how="anti"),
            "archive.no_close",
            "info",
            pl.lit("the recording has no close event: still running, or stopped hard"),
        ),
    ]
    file_names = pl.DataFrame(
        {"file": pl.Series(range(len(names)), dtype=pl.UInt32), "name": names}
    )
    damage = (
        pl.concat(found)
        .join(file_names, on="file", how="left", maintain_order="left")
        .drop("file")
        .rename({"name": "file"})
    )
    return dataclasses.replace(
        events, findings=pl.concat([events.findings, Findings.frame(damage)])
    )


def _contents(events: pl.DataFrame, files: Sequence[Path]) -> pl.Series:
    """A hash of what each of a few events says, however it is spelt: their lines are read again."""
    found = {place: hash(_plainly(line)) for place, line in _lines_of(events, files)}
    hashes = [found.get(place) for place in events.select("file", "line").iter_rows()]
    return pl.Series(hashes, dtype=pl.Int64)


def _members_twice(events: Events, every: pl.DataFrame, files: Sequence[Path]) -> pl.DataFrame:
    """Events whose message has a member twice, and the `names` of such members."""
    odd = events.unequal.head(MAX_ODD)
    rows = [
        (*place, ", ".join(map(repr, names))[:200])
        for place, line in _lines_of(odd, files)
        if (names := repeated(line))
    ]
    schema = odd.schema | {"names": pl.String()}
    twice = pl.DataFrame(rows, schema=schema, orient="row").sort("file", "line")
    return twice.join(every, on=["file", "line"], maintain_order="left")


def _lines_of(
    events: pl.DataFrame, files: Sequence[Path]
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """The lines of a few events, read again, each with its file and number."""
    wanted = events.group_by("file", maintain_order=True).agg(pl.col("line"))
    for number, places in wanted.iter_rows():
        left = set(places)
        for run in lines(files[number]):
            if isinstance(run, Lines):
                here = left.intersection(range(run.first, run.first + run.count))
                texts = run.data.split(b"\n") if here else []
                yield from (((number, line), texts[line - run.first]) for line in sorted(here))
                left -= here
            if not left:
                break


def _plainly(line: bytes) -> bytes:
    """A line as it is, whatever its spaces and the order of its members."""
    try:
        return msgspec.json.encode(msgspec.json.decode(line), order="sorted")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return line


def _rows(frame: pl.DataFrame, rule: str, severity: Severity, message: pl.Expr) -> pl.DataFrame:
    return frame.select(
        "file",
        "line",
        "recording",
        "seq",
        rule=pl.lit(rule),
        severity=pl.lit(severity),
        about=pl.lit("recording"),
        message=message,
    )
