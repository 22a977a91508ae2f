"""Computes the coordinates of the page's charts, which the templates draw.

docs/design/output.md explains why no chart library is used.
"""

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from mcptally.tables.queries import run_query

RATE_WIDTH: Final = 150
RATE_TICKS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def rate_x(share: float) -> float:
    """Return the x coordinate of a share from 0 to 1."""
    return round(4 + (RATE_WIDTH - 8) * min(1, max(0, share)), 1)


class Range(NamedTuple):
    """The x coordinates of a rate and its interval."""

    low: float
    value: float
    high: float


def rate_range(low: float | None, value: float | None, high: float | None) -> Range | None:
    """Return the x coordinates of a rate and its interval, or None if a value is missing."""
    if low is None or value is None or high is None:
        return None
    return Range(rate_x(low), rate_x(value), rate_x(high))


class ContrastBar(NamedTuple):
    """A bar for the share of calls that fail, and its interval."""

    label: str
    failed: int
    calls: int
    range: Range | None


def contrast_bars(row: Mapping[str, Any]) -> list[ContrastBar]:
    """Return two bars for a row of `contrasts` with a fact.

    They show the share of calls that fail with the group's error if the fact is true, and the share
    if it is false.
    """
    bars = []
    for side, label in (("with", "when it holds"), ("without", "otherwise")):
        failed, calls = row[f"failed_{side}"] or 0, row[f"calls_{side}"] or 0
        low, high = row[f"share_{side}_low"], row[f"share_{side}_high"]
        bars.append(
            ContrastBar(label, failed, calls, rate_range(low, failed / max(1, calls), high))
        )
    return bars


class Piece(NamedTuple):
    """A segment of a stacked bar."""

    kind: str
    x: float
    width: float
    n: int


def stacked(parts: Mapping[str, int], width: float, total: float | None = None) -> list[Piece]:
    """Return the segments of a stacked bar.

    The segment of an amount above 0 is at least half a unit wide.

    Args:
        parts: maps kinds to amounts.
        width: the bar's width for `total`.
        total: the amount that fills the bar; by default, the sum of the parts.
    """
    whole = total or sum(parts.values())
    pieces, x = [], 0.0
    for kind, n in parts.items():
        if n <= 0 or whole <= 0:
            continue
        piece_width = max(0.5, width * n / whole)
        pieces.append(Piece(kind, round(x, 1), round(piece_width, 1), n))
        x += piece_width
    return pieces


BINS_PER_OCTAVE: Final = 2
FIRST_BIN: Final = -4
"""Bin for latencies up to 0.25 ms."""
LAST_BIN: Final = 33
"""Bin for latencies of about two minutes or more."""
BIN_WIDTH: Final = 6
HEIGHT: Final = 44
TIMES: Final = ((1, "1 ms"), (10, ""), (100, "0.1 s"), (1_000, ""), (10_000, "10 s"), (100_000, ""))


def time_x(ms: float) -> float:
    """Return a latency's x coordinate on the logarithmic axis that all histograms share."""
    position = BINS_PER_OCTAVE * math.log2(max(ms, 1e-3))
    bounded = min(max(position, FIRST_BIN), LAST_BIN + 1)
    return round((bounded - FIRST_BIN) * BIN_WIDTH, 1)


class Bar(NamedTuple):
    """A bar of a histogram."""

    x: float
    y: float
    height: float


def histogram(bins: Sequence[tuple[int, int]]) -> list[Bar]:
    """Return a histogram's bars from (bin, calls) pairs; the tallest bar fills the height."""
    merged: dict[int, int] = {}
    for number, n in bins:
        inside = min(max(number, FIRST_BIN), LAST_BIN)
        merged[inside] = merged.get(inside, 0) + n
    tallest = max(merged.values(), default=1)
    bars = []
    for number, n in sorted(merged.items()):
        height = round(max(1.0, HEIGHT * n / tallest), 1)
        bars.append(Bar((number - FIRST_BIN) * BIN_WIDTH, round(HEIGHT - height, 1), height))
    return bars


TIMELINE_WIDTH: Final = 220


def timeline(
    changes: Sequence[Mapping[str, Any]],
    first: datetime.datetime | None,
    last: datetime.datetime | None,
) -> list[tuple[float, str]]:
    """Return the x coordinate and the kind of each change to a definition.

    The axis runs from the first call to the last.
    """
    if first is None or last is None:
        return []
    span = (last - first).total_seconds() or 1.0
    return [
        (
            round(
                6 + (TIMELINE_WIDTH - 12) * min(1, max(0, (at - first).total_seconds() / span)), 1
            ),
            change["drift"],
        )
        for change in changes
        if (at := change["first_seen"]) is not None
    ]


TIME_WIDTH: Final = 1000
TIME_HEIGHT: Final = 100
_CAUSES: Final = {
    "ok": "ok",
    "tool_failures": "tool_failure",
    "infrastructure": "infrastructure",
    "ambiguous": "ambiguous",
    "business": "business",
}
"""Maps columns of the answer to `timeline` to the page's outcomes, in stacking order. All other
calls are `open`: they were cancelled or have no result yet."""
_UNITS: Final = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


@dataclasses.dataclass(frozen=True, slots=True)
class OverTime:
    """A stacked bar chart of the calls per period."""

    paths: list[tuple[str, str]]
    """Pairs of a kind of outcome and an SVG path that draws its bars in all periods."""
    changes: list[tuple[float, str]]
    """The x coordinate and the direction of each change in a success rate."""
    first: datetime.datetime
    last: datetime.datetime
    """End of the last period."""
    period: str
    """Length of a period."""
    most: int
    """Number of calls in the busiest period."""


def over_time(periods: pl.DataFrame, changes: pl.DataFrame) -> OverTime | None:
    """Return the calls over time by outcome; None if there are fewer than two periods.

    Args:
        periods: rows with `start`, `seconds`, `calls` and numbers of calls by cause, as in the
            answer to `timeline`. Rows with the same `start` are added up.
        changes: the answer to the question `change_points`.
    """
    rows = (
        periods.lazy()
        .drop_nulls("start")
        .group_by("start", "seconds")
        .agg(pl.col("calls", *_CAUSES).sum())
        .sort("start")
        .pipe(run_query)
        .to_dicts()
    )
    if len(rows) < 2:
        return None
    first, seconds = rows[0]["start"], rows[0]["seconds"]
    last = rows[-1]["start"] + datetime.timedelta(seconds=seconds)
    scale = TIME_WIDTH / (last - first).total_seconds()
    most = max(row["calls"] for row in rows)
    width = max(0.5, seconds * scale - 1)
    drawn: dict[str, list[str]] = {}
    for row in rows:
        x, y = (row["start"] - first).total_seconds() * scale, float(TIME_HEIGHT)
        counts = {_CAUSES[cause]: row[cause] for cause in _CAUSES}
        for kind, n in (counts | {"open": row["calls"] - sum(counts.values())}).items():
            if n:
                height = TIME_HEIGHT * n / most
                y -= height
                bar = f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
                drawn.setdefault(kind, []).append(bar)
    times = changes.select("changed_at", "direction").drop_nulls().unique().sort("changed_at")
    return OverTime(
        paths=[(kind, "".join(parts)) for kind, parts in drawn.items()],
        changes=[
            (round((at - first).total_seconds() * scale, 1), direction)
            for at, direction in times.iter_rows()
            if first <= at <= last
        ],
        first=first,
        last=last,
        period=_length(seconds),
        most=most,
    )


def _length(seconds: int) -> str:
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    n = seconds // size
    return unit if n == 1 else f"{n} {unit}s"
