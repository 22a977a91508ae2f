"""Computes the agreement between two reviewers: the share of equal answers, and Cohen's kappa."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mcptally.statistics.quantiles import NORMAL


class Agreement(NamedTuple):
    """The agreement between two reviewers; a value that cannot be computed is NaN."""

    n: int
    """Number of items that both reviewers answered."""
    share: float
    """Share of equal answers."""
    kappa: float
    """Cohen's kappa (1960): agreement beyond chance, at most 1; NaN if all answers are equal."""
    low: float
    high: float
    """The 95 % interval of kappa, from its asymptotic standard error (Fleiss, Cohen and Everitt
    1969)."""


def agreement(pairs: Sequence[tuple[str, str]]) -> Agreement:
    """Compute the agreement between two reviewers from their pairs of answers to the same items."""
    n = len(pairs)
    if not n:
        return Agreement(0, math.nan, math.nan, math.nan, math.nan)
    both = Counter(pairs)
    rows, columns = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    observed = sum(count for (one, other), count in both.items() if one == other) / n
    chance = sum(rows[name] * columns[name] for name in rows) / n**2
    if math.isclose(chance, 1):
        return Agreement(n, observed, math.nan, math.nan, math.nan)
    kappa = (observed - chance) / (1 - chance)
    # The three terms of the asymptotic variance.
    equal = sum(
        both[name, name]
        / n
        * ((1 - chance) - (rows[name] + columns[name]) / n * (1 - observed)) ** 2
        for name in rows
    )
    different = (1 - observed) ** 2 * sum(
        count / n * ((columns[one] + rows[other]) / n) ** 2
        for (one, other), count in both.items()
        if one != other
    )
    last = (observed * chance - 2 * chance + observed) ** 2
    variance = max(0.0, equal + different - last) / (n * (1 - chance) ** 4)
    half = NORMAL * math.sqrt(variance)
    if not half:  # if all answers agree, use a one-sided 95 % bound for the share (rule of three)
        share_low = 0.05 ** (1 / n)
        return Agreement(n, observed, kappa, (share_low - chance) / (1 - chance), kappa)
    return Agreement(n, observed, kappa, max(-1.0, kappa - half), min(1.0, kappa + half))
