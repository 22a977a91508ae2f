"""Intervals of quantiles: a bootstrap over whole sessions, studentised, on NumPy arrays.

What it is, and where it gives no interval: docs/explanation/statistics.md, docs/decisions/0038.
"""

import functools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

QUANTILES: Final = (0.5, 0.95, 0.99)
SESSIONS: Final = 30
"""Sessions that an interval of a quantile needs."""
CALLS_BEYOND: Final = 10
"""Calls that have to lie beyond a quantile, the rarer side, for an interval of it."""
SESSIONS_BEYOND: Final = 3
"""How many sessions' worth of calls that is at least, were all calls of a session alike."""
RESAMPLES: Final = 599
"""Bootstrap samples; the 2.5 % on either side are fifteen of them."""
CLUSTERS: Final = 256
"""Sessions that are resampled one by one; more are dealt into so many groups by their hashes."""
SEED: Final = 20261122
"""The same calls in the same sessions give the same interval."""

_SLICE: Final = 60
_TOGETHER: Final = 32
"""Samples that are worked out together, in few long steps, beside which other threads may run."""
_ROUNDING: Final = 1e-4
_LEVELS: Final = (0.025, 0.975)
_STEPS: Final = np.linspace(0, 3, 13)
"""Where a bound is looked for: so many times as far as the quantile's own error says."""


class Sample(NamedTuple):
    """The calls of which quantiles are asked."""

    values: Floats
    """Of each call: its latency."""
    owners: npt.NDArray[np.uint64]
    """The hash of its session; says who belongs together, and nothing else."""
    lengths: Whole | None = None
    """Where they are given, an owner has so many calls, one after the other."""


def quantiles(samples: Sequence[Sample]) -> list[list[float | None]]:
    """Each of `QUANTILES` with the bounds of its 95 % interval, or none where data are too few.

    Nine numbers a sample. Samples do not depend on each other; of many at once, each costs less.
    """
    found: list[list[float | None]] = []
    for first in range(0, len(samples), _TOGETHER):
        found += _quantiles([_clustered(sample) for sample in samples[first : first + _TOGETHER]])
    return found


class _Clustered(NamedTuple):
    """A sample as it is resampled."""

    values: Floats
    ordered: Floats
    session: Whole
    """Of each value: the number of its session, or of the group its session is in."""
    sizes: Floats
    """How many calls each of those has."""
    bears: list[bool]
    """Which of `QUANTILES` have an interval."""


def _clustered(sample: Sample) -> _Clustered:
    owners, session = np.unique(sample.owners, return_inverse=True)
    if sample.lengths is not None:
        session = np.repeat(session, sample.lengths)
    sizes = np.bincount(session).astype(np.float64)
    borne = [has_enough_data(q, sizes) for q in QUANTILES]
    if len(owners) > CLUSTERS:
        session %= CLUSTERS
        sizes = np.bincount(session).astype(np.float64)
    return _Clustered(sample.values, np.sort(sample.values), session, sizes, borne)


def _quantiles(samples: list[_Clustered]) -> list[list[float | None]]:
    estimates = [[quantile(sample.ordered, q) for q in QUANTILES] for sample in samples]
    asked = [i for i, sample in enumerate(samples) if any(sample.bears)]
    bounds = iter(_bounds([samples[i] for i in asked], [estimates[i] for i in asked]))
    found: list[list[float | None]] = []
    for sample, estimate in zip(samples, estimates, strict=True):
        ends = next(bounds) if any(sample.bears) else [(None, None)] * len(QUANTILES)
        found.append(
            [x for value, pair in zip(estimate, ends, strict=True) for x in (value, *pair)]
        )
    return found


def has_enough_data(q: float, sizes: Floats) -> bool:
    """Whether sessions of these sizes can say how sure the quantile `q` is.

    It looks at sizes only. A rule that looked at the times would say yes where by chance slow
    calls lie well apart, and just there the interval would be too short.
    """
    beyond, calls = min(q, 1 - q), float(sizes.sum())
    return (
        len(sizes) >= SESSIONS
        and beyond * calls >= CALLS_BEYOND
        and beyond * calls**2 / float((sizes**2).sum()) >= SESSIONS_BEYOND
    )


def quantile(ordered: Floats, q: float) -> float:
    """The quantile of sorted values, between two of them linearly, as `quantile_cont` has it."""
    place = (len(ordered) - 1) * min(max(q, 0.0), 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


_Ends: TypeAlias = tuple[float, float] | tuple[None, None]


def _bounds(samples: list[_Clustered], estimates: list[list[float]]) -> list[list[_Ends]]:
    """Low and high end of each quantile of each sample."""
    if not samples:
        return []
    sizes = np.zeros((len(samples), CLUSTERS))
    below = np.zeros((len(samples), CLUSTERS, len(QUANTILES)))
    for i, (sample, estimate) in enumerate(zip(samples, estimates, strict=True)):
        sizes[i, : len(sample.sizes)] = sample.sizes
        below[i, : len(sample.sizes)] = _counts(np.asarray(estimate), sample)
    return [
        _ends(sample, some[: len(sample.sizes)], limits)
        for sample, some, limits in zip(samples, below, _limits(below, sizes), strict=True)
    ]


def _ends(sample: _Clustered, below: Floats, limits: Floats) -> list[_Ends]:
    """Low and high end of each quantile that the sample bears and for which resampling finds both.

    A value is in the interval where the share of calls no slower than it lies as near to the
    quantile, in standard errors, as shares of resamples lie to that of the sample.
    """
    last = len(sample.ordered) - 1
    _, errors = _shares(below, sample.sizes)
    ranks: dict[float, Whole] = {}
    for q, bears_it, limit, error in zip(QUANTILES, sample.bears, limits, errors, strict=True):
        if bears_it and np.isfinite(limit).all():  # else many resamples have no call beyond it
            inside = np.rint((q + _STEPS[:, None] * limit * error) * last)
            inside = np.clip(inside, 0, last).astype(np.int64)
            ranks[q] = np.sort(np.append(inside, (0, int(q * last), last)))
    if not ranks:
        return [(None, None)] * len(QUANTILES)
    every = np.unique(np.concatenate(list(ranks.values())))
    shares, errors = _shares(_counts(sample.ordered[every], sample), sample.sizes)
    found: list[_Ends] = []
    for q, (least, most) in zip(QUANTILES, limits, strict=True):
        if q not in ranks:
            found.append((None, None))
            continue
        here = np.searchsorted(every, ranks[q])
        distances = _over(shares[here] - q, errors[here])
        low = _crossing(ranks[q], distances, least, distances >= least)
        high = _crossing(ranks[q], distances, most, distances > most)
        found.append((float(sample.ordered[int(low)]), float(sample.ordered[math.ceil(high)])))
    return found


def _limits(below: Floats, sizes: Floats) -> Floats:
    """How many standard errors shares of resamples lie below and above theirs.

    Args:
        below: of each sample and session: how many calls are no slower than each quantile.
        sizes: how many it has; none where there are fewer sessions than columns.

    Returns:
        of each sample and quantile the two.
    """
    sessions = (sizes > 0).sum(1)
    calls = sizes.sum(1)
    scale = sizes / (calls / sessions)[:, None]
    rest = below / (calls / sessions)[:, None, None]
    rest -= scale[:, :, None] * (below.sum(1) / calls[:, None])[:, None]
    rest[np.abs(rest) <= _ROUNDING**2] = 0  # sessions all alike have no spread
    parts = np.concatenate(
        (scale[:, :, None], scale[:, :, None] ** 2, rest, rest**2, rest * scale[:, :, None]), 2
    )
    # (Single precision would not hold squares of large counts, but it holds those to scale.)
    made = parts.transpose(0, 2, 1).astype(np.float32)[:, None] @ _weights()
    sums = np.concatenate(made.transpose(1, 0, 2, 3), axis=2)[:, :, :RESAMPLES].astype(np.float64)
    drawn, squares = sums[:, 0, None], sums[:, 1, None]
    off, spread, mixed = np.split(sums[:, 2:], 3, axis=1)
    degrees = _degrees(sessions)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = off / drawn
        left = spread - 2 * moved * mixed + moved**2 * squares
        # A resample without a call beyond has no spread at all; rounding leaves some.
        left = np.where(left > _ROUNDING * moved**2 * squares, left, 0)
        errors = np.sqrt(left * degrees) / drawn
    distances = np.sort(_over(moved, errors))
    limits: Floats = distances[:, :, [round(level * (RESAMPLES + 1)) - 1 for level in _LEVELS]]
    return limits


@functools.cache
def _weights() -> npt.NDArray[np.float32]:
    """How often each session is in each resample, in slices of so many resamples.

    A product with a slice is small enough to be made at once; a larger one would wake a thread a
    core for a tenth of a millisecond's work, thousands of times.
    """
    drawn = np.zeros((CLUSTERS, -(-RESAMPLES // _SLICE) * _SLICE), np.float32)
    drawn[:, :RESAMPLES] = np.random.default_rng(SEED).poisson(1, (CLUSTERS, RESAMPLES))
    return np.ascontiguousarray(drawn.reshape(CLUSTERS, -1, _SLICE).transpose(1, 0, 2))


def _counts(ends: Floats, sample: _Clustered) -> Floats:
    """How many values of each session are no larger than each of the sorted `ends`."""
    width = len(ends) + 1
    cells = sample.session * width + np.searchsorted(ends, sample.values)
    sessions = len(sample.sizes)
    table = np.bincount(cells, minlength=sessions * width).reshape(sessions, width)
    counts: Floats = np.cumsum(table[:, :-1], axis=1, dtype=np.float64)
    return counts


def _shares(below: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """The share of calls below each end, and its standard error with sessions as clusters."""
    share = below.sum(0) / sizes.sum()
    rest = below - sizes[:, None] * share
    return share, np.sqrt((rest**2).sum(0) * _degrees(len(sizes))) / sizes.sum()


def _degrees(sessions: Whole | int) -> Floats:
    return np.asarray(sessions / (sessions - 1), np.float64)


def _over(moved: Floats, error: Floats) -> Floats:
    """How many errors something moved; as far as can be where it moved and there is none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        distance: Floats = np.where(moved == 0, 0, moved / error)
    return distance


def _crossing(rank: Whole, distances: Floats, limit: float, beyond: npt.NDArray[np.bool_]) -> float:
    """Where, between two ranks linearly, the distance comes to the limit."""
    first = int(np.argmax(beyond)) if beyond[-1] else len(rank) - 1
    here, before = rank[first], max(first - 1, 0)
    near = distances[[before, first]]
    if here - rank[before] <= 1 or not np.isfinite(near).all():
        return float(here)
    part = (limit - near[0]) / (near[1] - near[0])
    return float(rank[before] + part * (here - rank[before]))
