"""Computes intervals of rates with sessions as clusters, on NumPy arrays.

docs/explanation/statistics.md explains the formula, docs/decisions/0038 the reasons for it.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL: Final = 0.975
"""The quantile at the upper end of a two-sided 95 % interval."""


def critical_value(
    calls: Floats, squares: Floats, n_eff: Floats, sessions: Floats, rarer: Floats
) -> Floats:
    """The half-width of a rate's 95 % interval in standard errors, as its variance is estimated.

    Args:
        calls: N, the number of calls of all sessions.
        squares: sum over sessions of the square of their number of calls.
        n_eff: effective sample size.
        sessions: number of sessions.
        rarer: number of sessions with a failure or with a success, whichever is smaller.
    """
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415  (takes 0.2 s, and few questions need it)

    normal = ndtri(LEVEL)
    # A variance from m residuals of one size and many near zero has 2 m degrees of freedom
    # (Satterthwaite). With sessions of different sizes it has at most as many as so many sessions
    # of equal size.
    freedom = np.maximum(1, np.minimum(calls**2 / squares - 1, 2 * rarer))
    # The binomial variance of single calls is known. Only the variance between sessions was
    # estimated. Its share is largest if all calls of a session are alike: DEFF is sum(n^2)/N.
    estimated = 1 - calls / squares
    known = (n_eff >= calls) | (sessions == 1) | (rarer == 0)
    t: Floats = normal + np.where(known, 0, (stdtrit(freedom, LEVEL) - normal) * estimated)
    return t


def wilson(rate: Floats, n_eff: Floats, t: Floats) -> tuple[Floats, Floats]:
    """Low and high end of Wilson's interval; `t` is a `critical_value` or a quantile of t.

    The errors of a rate and of its variance are correlated: a sample with too few failures by
    chance also has too small a variance. So the end towards 1/2 uses all of `t`. The other end uses
    a value between the normal quantile (at rates 0 and 1) and `t` (at 1/2).
    """
    from scipy.special import ndtri  # noqa: PLC0415  (as above)

    normal = ndtri(LEVEL)
    outer = normal + (t - normal) * 2 * np.minimum(rate, 1 - rate)
    low, _ = _ends(rate, n_eff, np.where(rate <= 0.5, outer, t))
    _, high = _ends(rate, n_eff, np.where(rate <= 0.5, t, outer))
    return np.maximum(0, low), np.minimum(1, high)


def _ends(rate: Floats, n_eff: Floats, t: Floats) -> tuple[Floats, Floats]:
    scale = 1 + t**2 / n_eff
    centre = (rate + t**2 / (2 * n_eff)) / scale
    half = t / scale * np.sqrt(rate * (1 - rate) / n_eff + t**2 / (4 * n_eff**2))
    return centre - half, centre + half


class RateInterval(NamedTuple):
    """The intervals of rates; NaN if nothing was counted."""

    n_eff: Floats
    """Effective sample size: the number of independent calls with the same variance."""
    t: Floats
    """Half-width of the interval in standard errors: `critical_value`."""
    low: Floats
    high: Floats
    """Ends of the 95 % interval: `wilson`."""


def rate_intervals(
    n: Floats, y: Floats, nn: Floats, yy: Floats, yn: Floats, sessions: Floats, rarer: Floats
) -> RateInterval:
    """The intervals of rates from sums over sessions; each array has one element per rate.

    Args:
        n: calls.
        y: hits: calls that the rate is the share of.
        nn: sum over sessions of their calls squared.
        yy: sum over sessions of their hits squared.
        yn: sum over sessions of hits times calls.
        sessions: number of sessions with a call.
        rarer: number of sessions with a hit or with a miss, whichever is smaller.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = y / n
        # Miller 2024 (arXiv 2411.00640): u = y - mean * n per session, V = G/(G-1) sum(u^2)/N^2.
        spread = np.maximum(0, yy - 2 * mean * yn + mean**2 * nn)
        variance = sessions / (sessions - 1) * spread / n**2
        clustered = n / np.maximum(1, variance / (mean * (1 - mean) / n))
        # Without a variance to estimate, each session counts as one call.
        no_variance = (sessions == 1) | (y == 0) | (y == n)
        n_eff = np.where(n > 0, np.where(no_variance, sessions, clustered), np.nan)
        t = critical_value(n, nn, n_eff, sessions, rarer)
        return RateInterval(n_eff, t, *wilson(mean, n_eff, t))


def rate_bounds(hits: Floats, sizes: Floats) -> tuple[float, float] | tuple[None, None]:
    """The interval of one rate from the hits and calls of each session; None without calls."""
    hits, sizes = hits[sizes > 0], sizes[sizes > 0]
    if not len(sizes):
        return None, None
    # Sorted, since SQL returns sessions in any order and floating-point sums depend on it.
    order = np.lexsort((hits, sizes))
    hits, sizes = hits[order], sizes[order]
    sums = (sizes.sum(), hits.sum(), (sizes**2).sum(), (hits**2).sum(), (hits * sizes).sum())
    sessions, rarer = len(sizes), min((hits > 0).sum(), (hits < sizes).sum())
    rate = rate_intervals(*(np.asarray([x], dtype=np.float64) for x in (*sums, sessions, rarer)))
    return float(rate.low[0]), float(rate.high[0])
