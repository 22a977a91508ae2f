"""Tests whether a rate differs between two groups of sessions, by permuting sessions.

docs/explanation/statistics.md explains the test; docs/design/questions.md explains the choice.
"""

import functools
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mcptally.statistics import intervals
from mcptally.statistics.quantiles import LEVEL, t_quantile

Floats = npt.NDArray[np.float64]

PERMUTATIONS: Final = 9_999
FIRST: Final = 999
"""Number of permutations after which a test stops if its p-value exceeds `CLEARLY_UNCHANGED`."""
CLEARLY_UNCHANGED: Final = 0.1
MIN_EXTREME: Final = 10
"""Minimum number of permutations at least as extreme as the data. With fewer, the p-value of
Student's t is used if it is smaller."""
MAX_SESSIONS: Final = 1_000
"""Total number of sessions above which the p-value comes from Student's t-distribution."""
SEED: Final = 20261122
"""A fixed seed, so that the same sessions always give the same p-value."""


class RateChange(NamedTuple):
    """The change in a rate from one group of sessions to another."""

    p_value: float
    """Two-sided p-value; 1 if all calls have the same result."""
    low: float
    high: float
    """Upper end of the 95 % interval for the change; `low` is the lower end."""


class _Side(NamedTuple):
    rate: float
    """The rate, as a weighted mean over sessions."""
    n_eff: float
    """Number of independent calls that would carry as much information."""


def rate_change(
    base_hits: Floats, base_sizes: Floats, new_hits: Floats, new_sizes: Floats
) -> RateChange:
    """Estimate and test the change in a rate between two groups of sessions.

    A session of n calls has the weight n / (1 + (n - 1) * rho), where rho is the correlation of
    calls within a session, estimated from both groups.

    Args:
        base_hits: number of hits in each session of the first group.
        base_sizes: number of calls in each session of the first group; at least 1.
        new_hits: number of hits in each session of the second group.
        new_sizes: number of calls in each session of the second group; at least 1.
    """
    split, sessions = len(base_sizes), len(base_sizes) + len(new_sizes)
    # Sort, since SQL returns sessions in any order.
    before, after = np.lexsort((base_hits, base_sizes)), np.lexsort((new_hits, new_sizes))
    hits = np.concatenate((base_hits[before], new_hits[after]))
    sizes = np.concatenate((base_sizes[before], new_sizes[after]))
    known = min(int((hits > 0).sum()), int((hits < sizes).sum()), sessions - 2)
    alike = _correlation(hits, sizes, known)
    weights = sizes / (1 + (sizes - 1) * alike)
    sides = slice(None, split), slice(split, None)
    base, new = (_side(hits[side], sizes[side], weights[side]) for side in sides)
    return RateChange(
        _p_value(weights * (hits / sizes), weights, split, known),
        *_interval(base, new, known, sessions),
    )


def _correlation(hits: Floats, sizes: Floats, known: int) -> float:
    """Return the correlation of calls within a session, around the pooled rate of both groups.

    The result is a weighted mean of Fleiss and Cuzick's estimate and 1/2; the latter has the weight
    of `PRIOR_SESSIONS` sessions. The correlation and the sessions' weights are the same for all
    permutations.
    """
    rate = hits.sum() / sizes.sum()
    expected = (sizes - 1).sum() * rate * (1 - rate)
    mixed = (hits * (sizes - hits) / sizes).sum()
    found = min(1.0, max(0.0, 1 - mixed / expected)) if expected else 0.0
    prior = intervals.PRIOR_SESSIONS
    return float((known * found + prior / 2) / (known + prior))


def _side(hits: Floats, sizes: Floats, weights: Floats) -> _Side:
    total, sessions = weights.sum(), len(weights)
    rate = (weights * hits / sizes).sum() / total
    if sessions == 1:
        return _Side(rate, 1.0)
    spread = ((weights * (hits / sizes - rate)) ** 2).sum() * sessions / (sessions - 1)
    shown = spread / total**2 / (rate * (1 - rate)) if 0 < rate < 1 else 0.0
    return _Side(rate, 1 / max(shown, 1 / total))


def _interval(base: _Side, new: _Side, known: int, sessions: int) -> tuple[float, float]:
    """Return Newcombe's interval for a difference, from the Wilson intervals of both groups."""
    rates, n_eff = np.asarray([base, new]).T
    t = np.full(2, t_quantile(LEVEL, max(1, min(sessions - 2, 2 * known))))
    low, high = intervals.wilson(rates, n_eff, t)
    below, above = rates - low, high - rates
    change = new.rate - base.rate
    return change - np.hypot(below[1], above[0]), change + np.hypot(above[1], below[0])


def _p_value(weighted: Floats, weights: Floats, split: int, known: int) -> float:
    """Return the share of session permutations with a difference at least as large as observed."""
    from scipy.special import stdtr  # noqa: PLC0415  (takes 0.2 s, and few questions need it)

    sessions = len(weights)
    # Scores sum to 0, so the sum over one group is far from 0 if the groups differ.
    scores = weighted - weights * weighted.sum() / weights.sum()
    seen = abs(scores[split:].sum())
    variance = (scores**2).sum() * split * (sessions - split) / (sessions * (sessions - 1))
    if not known or variance <= 0:
        return 1.0
    approximate = 2 * stdtr(min(sessions - 2, 2 * known), -seen / np.sqrt(variance))
    if sessions > MAX_SESSIONS:
        return float(approximate)
    order = _orders(sessions)
    limit = seen - 1e-9 * np.abs(scores).sum()
    extreme = count = 0
    for rows in (slice(FIRST), slice(FIRST, PERMUTATIONS)):
        sums = scores[order[rows, split:]].sum(1)
        extreme, count = extreme + int((np.abs(sums) >= limit).sum()), count + len(sums)
        if extreme > CLEARLY_UNCHANGED * count:
            break
    p_value = (extreme + 1) / (count + 1)
    return float(min(p_value, approximate) if extreme < MIN_EXTREME else p_value)


@functools.lru_cache(maxsize=16)
def _orders(sessions: int) -> npt.NDArray[np.int16]:
    """Return `PERMUTATIONS` random orders of this number of sessions, one per row."""
    random = np.random.default_rng((SEED, sessions))
    return random.random((PERMUTATIONS, sessions), np.float32).argsort(1).astype(np.int16)
