"""Computes intervals for rates, clustered by session, with NumPy.

docs/explanation/statistics.md explains the formula; docs/design/statistics.md explains the choice.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mcptally.statistics.quantiles import LEVEL, NORMAL, t_quantile

Floats = npt.NDArray[np.float64]

PRIOR_SESSIONS: Final = 1.5
"""Weight of the prior assumption that a session counts as one call, as a number of sessions with
the rarer result."""


def wilson(rate: Floats, n_eff: Floats, t: Floats) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of Wilson's interval.

    The errors of a rate and of its variance are correlated: a sample with too few failures by
    chance also has too small a variance. So the end nearer to 1/2 uses `t`. The other end uses a
    value between the normal quantile (at rates 0 and 1) and `t` (at 1/2).

    Args:
        rate: the observed rates.
        n_eff: effective sample sizes.
        t: `RateInterval.t`, or a quantile of Student's t.
    """
    outer = NORMAL + (t - NORMAL) * 2 * np.minimum(rate, 1 - rate)
    low, _ = _ends(rate, n_eff, np.where(rate <= 0.5, outer, t))
    _, high = _ends(rate, n_eff, np.where(rate <= 0.5, t, outer))
    # At rates 0 and 1, the exact end is the rate; rounding must not move the end past it.
    return np.clip(low, 0, rate), np.clip(high, rate, 1)


def share_interval(share: float, n_eff: float) -> tuple[float, float]:
    """Return the ends of the 95 % interval of one share, by `wilson`."""
    low, high = wilson(np.asarray(share), np.asarray(n_eff), np.asarray(NORMAL))
    return float(low), float(high)


def _ends(rate: Floats, n_eff: Floats, t: Floats) -> tuple[Floats, Floats]:
    scale = 1 + t**2 / n_eff
    centre = (rate + t**2 / (2 * n_eff)) / scale
    half = t / scale * np.sqrt(rate * (1 - rate) / n_eff + t**2 / (4 * n_eff**2))
    return centre - half, centre + half


class RateInterval(NamedTuple):
    """The intervals of rates; NaN for rates without calls."""

    n_eff: Floats
    """Effective sample size: the number of independent calls that would give the same variance."""
    t: Floats
    """Distance between the rate and the interval's end nearer to 1/2, in standard errors."""
    low: Floats
    high: Floats
    """Upper end of the 95 % interval from `wilson`; `low` is the lower end."""


def rate_intervals(
    n: Floats,
    y: Floats,
    nn: Floats,
    yy: Floats,
    yn: Floats,
    mixed: Floats,
    sessions: Floats,
    rarer: Floats,
    alike_of_all: Floats | None = None,
    known_of_all: Floats | None = None,
) -> RateInterval:
    """Compute the intervals of rates from sums over sessions; arrays have one element per rate.

    Args:
        n: number of calls.
        y: number of hits; the rate is their share of the calls.
        nn: sum over sessions of the squared number of calls.
        yy: sum over sessions of the squared number of hits.
        yn: sum over sessions of hits times calls.
        mixed: sum over sessions of hits times misses, divided by calls.
        sessions: number of sessions with a call.
        rarer: number of sessions with a hit or with a miss, whichever is smaller.
        alike_of_all: correlation of calls within a session, estimated from all tools together; used
            for rates of 0 and 1. NaN if unknown.
        known_of_all: number of sessions behind this estimate: the sum over tools of `rarer`.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = y / n
        binomial = mean * (1 - mean)
        # The correlation of calls within a session (Fleiss and Cuzick 1979).
        alike = 1 - mixed / ((n - sessions) * binomial)
        alike = np.where((n > sessions) & (binomial > 0), np.clip(alike, 0, 1), 0)
        known = np.minimum(rarer, sessions - 1)
        weight = known / (known + PRIOR_SESSIONS)
        # The weighted geometric mean of Kish's design effect and n / sessions, which is the design
        # effect if each session counts as one call.
        effect = (1 + (nn / n - 1) * alike) ** weight * (n / sessions) ** (1 - weight)
        uniform = (binomial == 0) & (sessions > 1)
        if alike_of_all is not None and known_of_all is not None:
            weight_of_all = known_of_all / (known_of_all + PRIOR_SESSIONS)
            likely = 1 + (nn / n - 1) * np.clip(alike_of_all, 0, 1)
            likely = likely**weight_of_all * (n / sessions) ** (1 - weight_of_all)
            # Long sessions give no more information here, so use at most one call per session.
            effect = np.where(uniform, np.fmin(effect, likely), effect)
        # Use at least the observed design effect, which is larger if long sessions have another
        # rate.
        spread = np.maximum(0, yy - 2 * mean * yn + mean**2 * nn)
        shown = sessions / (sessions - 1) * spread / n / binomial
        effect = np.where(known > 0, np.fmax(effect, shown), effect)
        n_eff = np.where(n > 0, n / effect, np.nan)
        # The variance of individual calls is known. Only the variance between sessions is
        # estimated: it has this weight in the interval's width.
        freedom = np.maximum(1, np.minimum(sessions - 1, 2 * known))
        t = NORMAL + (t_quantile(LEVEL, freedom) - NORMAL) * weight * (1 - 1 / effect)
        low, high = wilson(mean, n_eff, t)
        # Clopper and Pearson's exact bound.
        bound = (1 - LEVEL) ** (1 / n_eff)
        low, high = np.where(mean == 1, bound, low), np.where(mean == 0, 1 - bound, high)
        return RateInterval(n_eff, t, low, high)
