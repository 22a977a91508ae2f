"""Intervals of quantiles: a bootstrap over whole sessions, studentised, on NumPy arrays.

What it is, and where it gives no interval: docs/explanation/statistics.md, docs/decisions/1104.
"""

import functools
import math
from typing import Final

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
_ROUNDING: Final = 1e-4
_LEVELS: Final = (0.025, 0.975)
_STEPS: Final = np.linspace(0, 3, 13)
"""Where a bound is looked for: so many times as far as the quantile's own error says."""


def quantiles(
    values: Floats, owners: npt.NDArray[np.uint64], lengths: Whole | None = None
) -> list[float | None]:
    """Each of `QUANTILES` with the bounds of its 95 % interval, or none where data are too few.

    Args:
        values: of each call.
        owners: the hash of its session; says who belongs together, and nothing else.
        lengths: where they are given, an owner has so many calls, one after the other.
    """
    ordered = np.sort(values)
    sessions, session = np.unique(owners, return_inverse=True)
    if lengths is not None:
        session = np.repeat(session, lengths)
    sizes = np.bincount(session).astype(np.float64)
    wanted = [q for q in QUANTILES if bears(q, sizes)]
    if len(sessions) > CLUSTERS:
        session %= CLUSTERS
    ends = _bounds(wanted, values, ordered, session) if wanted else {}
    found: list[float | None] = []
    for q in QUANTILES:
        found += [at(ordered, q), *ends.get(q, (None, None))]
    return found


def bears(q: float, sizes: Floats) -> bool:
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


def at(ordered: Floats, q: float) -> float:
    """The quantile of sorted values, between two of them linearly, as `quantile_cont` has it."""
    place = (len(ordered) - 1) * min(max(q, 0.0), 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def _bounds(
    wanted: list[float], values: Floats, ordered: Floats, session: Whole
) -> dict[float, tuple[float, float]]:
    """Low and high end of each quantile for which resampling finds both.

    A value is in the interval where the share of calls no slower than it lies as near to the
    quantile, in standard errors, as shares of resamples lie to that of the sample.
    """
    last = len(ordered) - 1
    sizes = np.bincount(session).astype(np.float64)
    estimates = np.asarray([at(ordered, q) for q in wanted])
    below = _counts(estimates, values, session)
    limits = _limits(below, sizes)
    _, errors = _shares(below, sizes)
    ranks = []
    for q, error, limit in zip(wanted, errors, limits, strict=True):
        shares = q + _STEPS[:, None] * np.where(np.isfinite(limit), limit, 0) * error
        inside = np.clip(np.rint(shares * last), 0, last).astype(np.int64)
        ranks.append(np.sort(np.append(inside, (0, int(q * last), last))))
    every = np.unique(np.concatenate(ranks))
    shares, errors = _shares(_counts(ordered[every], values, session), sizes)
    found = {}
    for q, rank, (least, most) in zip(wanted, ranks, limits, strict=True):
        if np.isfinite((least, most)).all():  # else too many resamples have no call beyond it
            here = np.searchsorted(every, rank)
            distances = _over(shares[here] - q, errors[here])
            low = _crossing(rank, distances, least, distances >= least)
            high = _crossing(rank, distances, most, distances > most)
            found[q] = (float(ordered[int(low)]), float(ordered[math.ceil(high)]))
    return found


def _limits(below: Floats, sizes: Floats) -> Floats:
    """How many standard errors shares of resamples lie below and above theirs; a row each."""
    scale = sizes / sizes.mean()  # single precision would not hold squares of large counts
    rest = below / sizes.mean() - scale[:, None] * (below.sum(0) / sizes.sum())
    rest = np.where(np.abs(rest) > _ROUNDING**2, rest, 0)  # sessions all alike have no spread
    parts = np.column_stack((scale, scale**2, rest, rest**2, rest * scale[:, None]))
    sums = parts.T.astype(np.float32) @ _weights()[:, : len(sizes)]
    calls, squares, *others = np.concatenate(sums, axis=1)[:, :RESAMPLES].astype(np.float64)
    off, spread, mixed = np.reshape(others, (3, -1, RESAMPLES))
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = off / calls
        left = spread - 2 * moved * mixed + moved**2 * squares
        # A resample without a call beyond has no spread at all; rounding leaves some.
        left = np.where(left > _ROUNDING * moved**2 * squares, left, 0)
        errors = np.sqrt(left * _degrees(len(sizes))) / calls
    distances = np.sort(_over(moved, errors))
    limits: Floats = distances[:, [round(level * (RESAMPLES + 1)) - 1 for level in _LEVELS]]
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


def _counts(ends: Floats, values: Floats, session: Whole) -> Floats:
    """How many values of each session are no larger than each of the sorted `ends`."""
    width = len(ends) + 1
    cells = session * width + np.searchsorted(ends, values)
    sessions = int(session.max()) + 1
    table = np.bincount(cells, minlength=sessions * width).reshape(sessions, width)
    counts: Floats = np.cumsum(table[:, :-1], axis=1, dtype=np.float64)
    return counts


def _shares(below: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """The share of calls below each end, and its standard error with sessions as clusters."""
    share = below.sum(0) / sizes.sum()
    rest = below - sizes[:, None] * share
    return share, np.sqrt((rest**2).sum(0) * _degrees(len(sizes))) / sizes.sum()


def _degrees(sessions: int) -> float:
    return sessions / (sessions - 1)


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
