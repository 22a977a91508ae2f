"""Marks of the charts: where each lies in its drawing. The templates draw them.

Small drawings of our own instead of a chart library: docs/decisions/0061.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

RATE_WIDTH: Final = 150
RATE_TICKS: Final = (0.0, 0.01, 0.1, 0.25, 0.5, 1.0)


def rate_x(share: float) -> float:
    """Where a share lies: square-root scale, so that 0.5 % and 2 % can be told apart."""
    return round(4 + (RATE_WIDTH - 8) * math.sqrt(min(1, max(0, share))), 1)


class Range(NamedTuple):
    """A rate with its interval, drawn."""

    low: float
    at: float
    high: float


def rate(low: float | None, at: float | None, high: float | None) -> Range | None:
    """A rate and its interval; None where there is no rate."""
    if low is None or at is None or high is None:
        return None
    return Range(rate_x(low), rate_x(at), rate_x(high))


class Piece(NamedTuple):
    """A part of a stacked bar."""

    kind: str
    x: float
    width: float
    n: int


def stacked(parts: Mapping[str, int], width: float, total: float | None = None) -> list[Piece]:
    """Parts of a whole side by side; a part that exists is at least half a unit wide."""
    whole = total or sum(parts.values())
    pieces, x = [], 0.0
    for kind, n in parts.items():
        if n <= 0 or whole <= 0:
            continue
        wide = max(0.5, width * n / whole)
        pieces.append(Piece(kind, round(x, 1), round(wide, 1), n))
        x += wide
    return pieces


BINS_PER_OCTAVE: Final = 2
FIRST_BIN: Final = -4
"""Of latencies: 0.25 ms and all that is faster."""
LAST_BIN: Final = 33
"""About two minutes, and all that is slower."""
BIN_WIDTH: Final = 6
HEIGHT: Final = 44
TIMES: Final = ((1, "1 ms"), (10, ""), (100, "0.1 s"), (1_000, ""), (10_000, "10 s"), (100_000, ""))


def time_x(ms: float) -> float:
    """Where a latency lies on the logarithmic axis that all small multiples share."""
    place = BINS_PER_OCTAVE * math.log2(max(ms, 1e-3))
    bounded = min(max(place, FIRST_BIN), LAST_BIN + 1)
    return round((bounded - FIRST_BIN) * BIN_WIDTH, 1)


class Bar(NamedTuple):
    """A bar of a histogram."""

    x: float
    y: float
    height: float


def histogram(bins: Sequence[tuple[int, int]]) -> list[Bar]:
    """Bars of (bin, calls); the tallest fills the height."""
    merged: dict[int, int] = {}
    for place, n in bins:
        inside = min(max(place, FIRST_BIN), LAST_BIN)
        merged[inside] = merged.get(inside, 0) + n
    tallest = max(merged.values(), default=1)
    bars = []
    for place, n in sorted(merged.items()):
        height = round(max(1.0, HEIGHT * n / tallest), 1)
        bars.append(Bar((place - FIRST_BIN) * BIN_WIDTH, round(HEIGHT - height, 1), height))
    return bars


STRIP_WIDTH: Final = 220


def moments(
    events: Sequence[Mapping[str, Any]],
    first: datetime.datetime | None,
    last: datetime.datetime | None,
) -> list[tuple[float, str]]:
    """Where changes of a definition lie between the first and the last call, and their kind."""
    if first is None or last is None:
        return []
    span = (last - first).total_seconds() or 1.0
    return [
        (
            round(6 + (STRIP_WIDTH - 12) * min(1, max(0, (at - first).total_seconds() / span)), 1),
            event["drift"],
        )
        for event in events
        if (at := event["first_seen"]) is not None
    ]
