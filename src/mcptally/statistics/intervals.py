"""Intervals of rates with sessions as clusters: the one home of their formula, on NumPy arrays.

What it is and why: docs/explanation/statistics.md and docs/decisions/0038.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL: Final = 0.975
"""Where the upper end of a two-sided 95 % interval lies."""


def critical(
    calls: Floats, squares: Floats, n_eff: Floats, sessions: Floats, rarer: Floats
) -> Floats:
    """How many standard errors a rate's 95 % interval goes, where its spread was estimated.

    Args:
        calls: N, the calls of all sessions.
        squares: the sum of the squares of each session's calls.
        n_eff: how many independent calls they are worth.
        sessions: how many there are.
        rarer: sessions with a failure or with a success, whichever are fewer.
    """
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415  (0.2 s, paid by who needs it)

    normal = ndtri(LEVEL)
    # A variance of m residuals of one size and many near zero is worth 2 m degrees of freedom
    # (Satterthwaite); of sessions that differ in size, no more than those of equal size.
    freedom = np.maximum(1, np.minimum(calls**2 / squares - 1, 2 * rarer))
    # The spread of single calls is known; only what sessions add to it was estimated, and that
    # is at most this share: all of a session's calls are alike, DEFF is sum(n^2)/N.
    estimated = 1 - calls / squares
    known = (n_eff >= calls) | (sessions == 1) | (rarer == 0)
    t: Floats = normal + np.where(known, 0, (stdtrit(freedom, LEVEL) - normal) * estimated)
    return t


def wilson(rate: Floats, n_eff: Floats, t: Floats) -> tuple[Floats, Floats]:
    """Low and high end of Wilson's interval; `t` is that of `critical` or a plain quantile.

    A rate and its spread err together: who saw too few failures by chance saw too little spread.
    So the end towards 1/2 takes `t` whole, and the end away from it the less the rarer the rarer
    result is: at 1/2 both are alike, at 0 and 1 it is the normal's.
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


class Rate(NamedTuple):
    """How sure a rate is; NaN where nothing was counted."""

    n_eff: Floats
    """How many independent calls its calls are worth."""
    t: Floats
    """How many standard errors its interval goes: `critical`."""
    low: Floats
    high: Floats
    """Ends of the 95 % interval: `wilson`."""


def of_sums(
    n: Floats, y: Floats, nn: Floats, yy: Floats, yn: Floats, sessions: Floats, rarer: Floats
) -> Rate:
    """What sums over sessions say of rates, one an element.

    Args:
        n: calls.
        y: those that did what the rate is of.
        nn: the sum over sessions of the squares of their calls.
        yy: the same of those that did.
        yn: of the products of both.
        sessions: sessions with a call.
        rarer: sessions with one that did or with one that did not, whichever are fewer.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = y / n
        # Miller 2024 (arXiv 2411.00640): u = y - mean * n a session, V = G/(G-1) sum(u^2)/N^2.
        spread = np.maximum(0, yy - 2 * mean * yn + mean**2 * nn)
        variance = sessions / (sessions - 1) * spread / n**2
        clustered = n / np.maximum(1, variance / (mean * (1 - mean) / n))
        # No spread to measure: as if each session were one call.
        alone = (sessions == 1) | (y == 0) | (y == n)
        n_eff = np.where(n > 0, np.where(alone, sessions, clustered), np.nan)
        t = critical(n, nn, n_eff, sessions, rarer)
        return Rate(n_eff, t, *wilson(mean, n_eff, t))


def rate_bounds(hits: Floats, sizes: Floats) -> tuple[float, float] | tuple[None, None]:
    """The interval of one rate from each session's hits and calls; none without calls."""
    hits, sizes = hits[sizes > 0], sizes[sizes > 0]
    if not len(sizes):
        return None, None
    # SQL gives sessions in any order, and a sum's last digit depends on it.
    order = np.lexsort((hits, sizes))
    hits, sizes = hits[order], sizes[order]
    sums = (sizes.sum(), hits.sum(), (sizes**2).sum(), (hits**2).sum(), (hits * sizes).sum())
    sessions, rarer = len(sizes), min((hits > 0).sum(), (hits < sizes).sum())
    rate = of_sums(*(np.asarray([x], dtype=np.float64) for x in (*sums, sessions, rarer)))
    return float(rate.low[0]), float(rate.high[0])
