"""Computes intervals for quantiles by a studentised bootstrap over whole sessions, with NumPy.

docs/explanation/statistics.md describes the method and the cases without an interval;
docs/design/statistics.md explains the choice.
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
MIN_SESSIONS: Final = 30
"""Minimum number of sessions for an interval."""
MIN_CALLS_BEYOND: Final = 10
"""Minimum number of calls that must lie on the smaller side of a quantile for an interval."""
MIN_SESSIONS_BEYOND: Final = 3
"""Minimum number of sessions that would contain all calls beyond the quantile if the calls of each
session were equally slow."""
RESAMPLES: Final = 599
"""Number of resamples. Each 2.5 % tail then contains fifteen resamples."""
MAX_CLUSTERS: Final = 256
"""Maximum number of units to resample. If there are more sessions, sessions are grouped by hash."""
SEED: Final = 20261122
"""A fixed seed, so that the same calls and sessions always give the same interval."""

_SLICE: Final = 60
"""Number of resamples in each matrix product; see `_weights`."""
_BATCH: Final = 32
"""Number of samples that one NumPy step processes. With larger steps, other threads would wait
longer."""
_ROUNDING: Final = 1e-4
"""Relative size below which a variance in single precision is treated as zero."""
_LEVELS: Final = (0.025, 0.975)
_STEPS: Final = np.linspace(0, 3, 13)
"""Distances from the quantile at which a bound is searched, as multiples of its expected distance.
"""


class Sample(NamedTuple):
    """The calls for which quantiles are computed."""

    values: Floats
    """The latency of each call."""
    owners: npt.NDArray[np.uint64]
    """The hash of each call's session; if `lengths` is given, one hash per session."""
    lengths: Whole | None = None
    """The number of consecutive calls in each session; None if `owners` has a hash for each call.
    """


def quantiles(samples: Sequence[Sample]) -> list[list[float | None]]:
    """Estimate each of `QUANTILES`, with its 95 % interval, for each sample.

    Returns nine numbers per sample: for each quantile, its estimate, lower bound and upper bound.
    The bounds are None if there is too little data. Samples are independent; passing many samples
    in one call takes less time per sample.
    """
    found: list[list[float | None]] = []
    for first in range(0, len(samples), _BATCH):
        found += _quantiles([_clustered(sample) for sample in samples[first : first + _BATCH]])
    return found


class _Clustered(NamedTuple):
    """A sample prepared for resampling."""

    values: Floats
    ordered: Floats
    session: Whole
    """For each value, the index of its session or group of sessions."""
    sizes: Floats
    """The number of calls in each session or group."""
    has_interval: list[bool]
    """For each of `QUANTILES`, whether there is enough data for an interval."""


def _clustered(sample: Sample) -> _Clustered:
    owners, session = np.unique(sample.owners, return_inverse=True)
    if sample.lengths is not None:
        session = np.repeat(session, sample.lengths)
    sizes = np.bincount(session).astype(np.float64)
    has_interval = [has_enough_data(q, sizes) for q in QUANTILES]
    if len(owners) > MAX_CLUSTERS:
        session %= MAX_CLUSTERS
        sizes = np.bincount(session).astype(np.float64)
    return _Clustered(sample.values, np.sort(sample.values), session, sizes, has_interval)


def _quantiles(samples: list[_Clustered]) -> list[list[float | None]]:
    estimates = [[quantile(sample.ordered, q) for q in QUANTILES] for sample in samples]
    asked = [i for i, sample in enumerate(samples) if any(sample.has_interval)]
    bounds = iter(_bounds([samples[i] for i in asked], [estimates[i] for i in asked]))
    found: list[list[float | None]] = []
    for sample, estimate in zip(samples, estimates, strict=True):
        ends = next(bounds) if any(sample.has_interval) else [(None, None)] * len(QUANTILES)
        found.append(
            [x for value, pair in zip(estimate, ends, strict=True) for x in (value, *pair)]
        )
    return found


def has_enough_data(q: float, sizes: Floats) -> bool:
    """Return whether sessions of these sizes have enough data for an interval of the quantile `q`.

    The latencies have no effect. A rule that used latencies would accept samples whose slow calls
    are spread over several sessions by chance, and the resulting intervals would be too narrow.
    """
    beyond, calls = min(q, 1 - q), float(sizes.sum())
    return (
        len(sizes) >= MIN_SESSIONS
        and beyond * calls >= MIN_CALLS_BEYOND
        and beyond * calls**2 / float((sizes**2).sum()) >= MIN_SESSIONS_BEYOND
    )


def quantile(ordered: Floats, q: float) -> float:
    """Return a quantile of sorted values by linear interpolation, like DuckDB's `quantile_cont`."""
    position = (len(ordered) - 1) * min(max(q, 0.0), 1.0)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (position - low))


_Ends: TypeAlias = tuple[float, float] | tuple[None, None]


def _bounds(samples: list[_Clustered], estimates: list[list[float]]) -> list[list[_Ends]]:
    """Return the bounds of the interval for each quantile of each sample."""
    if not samples:
        return []
    sizes = np.zeros((len(samples), MAX_CLUSTERS))
    below = np.zeros((len(samples), MAX_CLUSTERS, len(QUANTILES)))
    for i, (sample, estimate) in enumerate(zip(samples, estimates, strict=True)):
        sizes[i, : len(sample.sizes)] = sample.sizes
        below[i, : len(sample.sizes)] = _counts(np.asarray(estimate), sample)
    return [
        _ends(sample, some[: len(sample.sizes)], limits)
        for sample, some, limits in zip(samples, below, _limits(below, sizes), strict=True)
    ]


def _ends(sample: _Clustered, below: Floats, limits: Floats) -> list[_Ends]:
    """Return the lower and upper bound for each quantile of a sample, or None without an interval.

    A value is in the interval if the share of calls up to that value differs from the quantile's
    probability by a number of standard errors within `limits`.
    """
    last = len(sample.ordered) - 1
    _, errors = _shares(below, sample.sizes)
    ranks: dict[float, Whole] = {}
    for q, wanted, limit, error in zip(QUANTILES, sample.has_interval, limits, errors, strict=True):
        if (
            wanted and np.isfinite(limit).all()
        ):  # if data is scarce, too many resamples have no call beyond the quantile
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
        distances = _in_errors(shares[here] - q, errors[here])
        low = _crossing(ranks[q], distances, least, distances >= least)
        high = _crossing(ranks[q], distances, most, distances > most)
        found.append((float(sample.ordered[int(low)]), float(sample.ordered[math.ceil(high)])))
    return found


def _limits(below: Floats, sizes: Floats) -> Floats:
    """Return the 2.5 % and 97.5 % quantiles of the resampled t values, per sample and quantile.

    A t value is the share of calls below the quantile in a resample, minus the share in the sample,
    divided by the standard error of the resample's share.

    Args:
        below: number of calls that are not slower than the quantile, per sample, session and
            quantile.
        sizes: number of calls per sample and session; 0 in unused columns.
    """
    sessions = (sizes > 0).sum(1)
    calls = sizes.sum(1)
    scale = sizes / (calls / sessions)[:, None]
    rest = below / (calls / sessions)[:, None, None]
    rest -= scale[:, :, None] * (below.sum(1) / calls[:, None])[:, None]
    rest[np.abs(rest) <= _ROUNDING**2] = 0  # identical sessions have no variance
    parts = np.concatenate(
        (scale[:, :, None], scale[:, :, None] ** 2, rest, rest**2, rest * scale[:, :, None]), 2
    )
    # Scaled counts fit into single precision; squares of large counts would not.
    made = parts.transpose(0, 2, 1).astype(np.float32)[:, None] @ _weights()
    sums = np.concatenate(made.transpose(1, 0, 2, 3), axis=2)[:, :, :RESAMPLES].astype(np.float64)
    drawn, squares = sums[:, 0, None], sums[:, 1, None]
    off, spread, mixed = np.split(sums[:, 2:], 3, axis=1)
    correction = _correction(sessions)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = off / drawn
        variance = spread - 2 * difference * mixed + difference**2 * squares
        # A resample without calls above the quantile has no variance, except for rounding errors.
        variance = np.where(variance > _ROUNDING * difference**2 * squares, variance, 0)
        errors = np.sqrt(variance * correction) / drawn
    distances = np.sort(_in_errors(difference, errors))
    limits: Floats = distances[:, :, [round(level * (RESAMPLES + 1)) - 1 for level in _LEVELS]]
    return limits


@functools.cache
def _weights() -> npt.NDArray[np.float32]:
    """Return how often each session occurs in each resample, in slices of `_SLICE` resamples.

    The product with one slice is small enough for one thread. For larger products, NumPy would
    start one thread per core thousands of times, each for a tenth of a millisecond.
    """
    drawn = np.zeros((MAX_CLUSTERS, -(-RESAMPLES // _SLICE) * _SLICE), np.float32)
    drawn[:, :RESAMPLES] = np.random.default_rng(SEED).poisson(1, (MAX_CLUSTERS, RESAMPLES))
    return np.ascontiguousarray(drawn.reshape(MAX_CLUSTERS, -1, _SLICE).transpose(1, 0, 2))


def _counts(ends: Floats, sample: _Clustered) -> Floats:
    """Count, in each session, the values that do not exceed each of the sorted `ends`."""
    width = len(ends) + 1
    cells = sample.session * width + np.searchsorted(ends, sample.values)
    sessions = len(sample.sizes)
    table = np.bincount(cells, minlength=sessions * width).reshape(sessions, width)
    counts: Floats = np.cumsum(table[:, :-1], axis=1, dtype=np.float64)
    return counts


def _shares(below: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Return the share of calls up to each end, and the share's standard error over sessions."""
    share = below.sum(0) / sizes.sum()
    rest = below - sizes[:, None] * share
    return share, np.sqrt((rest**2).sum(0) * _correction(len(sizes))) / sizes.sum()


def _correction(sessions: Whole | int) -> Floats:
    """Return the small-sample correction of a variance estimated from this number of sessions."""
    return np.asarray(sessions / (sessions - 1), np.float64)


def _in_errors(difference: Floats, error: Floats) -> Floats:
    """Divide differences by their standard errors; 0/0 gives 0, and x/0 gives infinity."""
    with np.errstate(invalid="ignore", divide="ignore"):
        distance: Floats = np.where(difference == 0, 0, difference / error)
    return distance


def _crossing(rank: Whole, distances: Floats, limit: float, beyond: npt.NDArray[np.bool_]) -> float:
    """Return the rank at which the distance reaches the limit, interpolated between two ranks."""
    first = int(np.argmax(beyond)) if beyond[-1] else len(rank) - 1
    here, before = rank[first], max(first - 1, 0)
    near = distances[[before, first]]
    if here - rank[before] <= 1 or not np.isfinite(near).all():
        return float(here)
    part = (limit - near[0]) / (near[1] - near[0])
    return float(rank[before] + part * (here - rank[before]))
