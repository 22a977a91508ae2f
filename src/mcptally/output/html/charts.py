"""Computes the coordinates of the marks in the page's charts; the templates draw them.

Why the page draws its own charts: docs/decisions/0061.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

RATE_WIDTH: Final = 150
RATE_TICKS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def rate_x(share: float) -> float:
    """The x coordinate of a share."""
    return round(4 + (RATE_WIDTH - 8) * min(1, max(0, share)), 1)


class Range(NamedTuple):
    """The x coordinates of a rate and of the ends of its interval."""

    low: float
    value: float
    high: float


def rate_range(low: float | None, value: float | None, high: float | None) -> Range | None:
    """The x coordinates of a rate and its interval; None if there is no rate."""
    if low is None or value is None or high is None:
        return None
    return Range(rate_x(low), rate_x(value), rate_x(high))


class Piece(NamedTuple):
    """A part of a stacked bar."""

    kind: str
    x: float
    width: float
    n: int


def stacked(parts: Mapping[str, int], width: float, total: float | None = None) -> list[Piece]:
    """The pieces of a stacked bar; each part above 0 is at least half a unit wide.

    Args:
        parts: kind → amount.
        width: the width of the bar for `total`.
        total: the amount that fills the bar; by default the sum of the parts.
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
"""The bin of latencies of 0.25 ms and less."""
LAST_BIN: Final = 33
"""The bin of latencies of about two minutes and more."""
BIN_WIDTH: Final = 6
HEIGHT: Final = 44
TIMES: Final = ((1, "1 ms"), (10, ""), (100, "0.1 s"), (1_000, ""), (10_000, "10 s"), (100_000, ""))


def time_x(ms: float) -> float:
    """The x coordinate of a latency on the logarithmic axis that all histograms share."""
    position = BINS_PER_OCTAVE * math.log2(max(ms, 1e-3))
    bounded = min(max(position, FIRST_BIN), LAST_BIN + 1)
    return round((bounded - FIRST_BIN) * BIN_WIDTH, 1)


class Bar(NamedTuple):
    """A bar of a histogram."""

    x: float
    y: float
    height: float


def histogram(bins: Sequence[tuple[int, int]]) -> list[Bar]:
    """The bars of a histogram of (bin, calls); the tallest fills the height."""
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
    """The x coordinate and kind of each change of a definition, from the first to the last call."""
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
