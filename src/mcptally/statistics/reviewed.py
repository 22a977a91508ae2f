"""Draws a sample of calls for review, and estimates a rate and its interval from the answers.

The calls are stratified by verdict. In a stratum, groups of equal errors that are at least as large
as the sampling step are always drawn; smaller groups are drawn with a probability proportional to
their size (Särndal, Swensson and Wretman 1992, sections 3.6 and 3.7). A stratum's rate is the
Horvitz-Thompson estimate with Wilson's interval, whose width is not zero even if all answers are
equal. The strata are combined by MOVER (Donner and Zou 2012).
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mcptally.statistics.intervals import wilson
from mcptally.statistics.quantiles import t_quantile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_PER_STRATUM: Final = 3
CORRECTED_FROM: Final = 40
"""Number of answers from which groups that are always drawn count as free of sampling error. With
fewer answers, the interval would be too narrow, because each answer represents too many calls."""
LARGE: Final = 2.0
"""Size of a group, in sampling steps, above which two of its calls are reviewed, because their
answers may differ."""
MIXED: Final = (1.0, 25.0)
"""Prior counts of pairs of calls in a group: pairs with different answers, and all pairs. Of 109
pairs of labelled calls with the same server, tool and template, none had different labels
(2026-11-24). With this prior, the coverage is 94 % if 5 % of the groups are mixed."""
SPREAD: Final = (0.45, 0.35, 0.20)
"""Assumed standard deviations of answers in the strata `tool_failure`, `other_error` and `ok`:
strata with less accurate verdicts get more answers."""


class Drawn(NamedTuple):
    """The groups of calls drawn from a stratum for a sample."""

    certain: list[tuple[int, int]]
    """Groups that are always drawn: each group's index, and the number of its calls to review."""
    rest: list[tuple[int, int]]
    """Groups drawn at random: each group's index, and the number of its calls to review."""
    probability: Floats
    """For each group, the probability that it is drawn."""


class Stratum(NamedTuple):
    """The answers for a stratum: 1 for a hit, 0 for a miss, NaN if the reviewer cannot tell."""

    calls: float
    certain: Sequence[tuple[float, Sequence[float]]] = ()
    """Size and answers of each group that is always drawn."""
    rest: Sequence[float] = ()
    """Answers about calls from groups that were drawn at random."""


class Interval(NamedTuple):
    """A rate with its interval; the rate is NaN if a stratum has no answers yet."""

    rate: float
    low: float
    high: float


UNKNOWN: Final = Interval(math.nan, 0.0, 1.0)
"""The interval of a rate without any answers."""


def allocate(sizes: Sequence[int], n: int) -> list[int]:
    """Divide `n` answers among strata according to their sizes and `SPREAD`.

    Each stratum gets at least three answers, or one for each of its calls if it has fewer.
    """
    least = [min(size, LEAST_PER_STRATUM) for size in sizes]
    left = max(0, n - sum(least))
    weights = np.array([size * spread for size, spread in zip(sizes, SPREAD, strict=True)])
    total = weights.sum()
    wanted = [n * float(weight) / total if total else 0.0 for weight in weights]
    more = np.array([max(0.0, w - k) for w, k in zip(wanted, least, strict=True)])
    room = np.array([size - k for size, k in zip(sizes, least, strict=True)])
    given = np.zeros(len(sizes), dtype=np.int64)
    while left and (open_ := (given < room)).any():
        # Give the next answer to the stratum that is furthest below its target.
        behind = np.where(open_, more - given, -np.inf)
        given[int(np.argmax(behind))] += 1
        left -= 1
    return [k + int(extra) for k, extra in zip(least, given, strict=True)]


def draw(sizes: Ints, n: int, rng: np.random.Generator) -> Drawn:
    """Draw `n` calls from groups of the given sizes; a group of one call is drawn at most once."""
    order = np.argsort(-sizes, kind="stable")
    rest_total, left = int(sizes.sum()), min(n, int(sizes.sum()))
    certain: list[tuple[int, int]] = []
    probability = np.ones(len(sizes))
    for group in order:
        size = int(sizes[group])
        if left < 1 or size < rest_total / left:
            break
        is_last = size == rest_total
        wanted = 2 if size >= LARGE * rest_total / left and size > 1 else 1
        asked = min(wanted, left if is_last else left - 1)
        certain.append((int(group), max(1, asked)))
        left -= max(1, asked)
        rest_total -= size
    others = order[len(certain) :]
    rest: list[tuple[int, int]] = []
    if len(others) and left > 0:
        others = rng.permutation(others)
        step = rest_total / left
        points = (rng.random() + np.arange(left)) * step
        ends = np.cumsum(sizes[others])
        hit = np.searchsorted(ends, points, side="right").clip(0, len(others) - 1)
        groups, times = np.unique(others[hit], return_counts=True)
        rest = [(int(group), int(k)) for group, k in zip(groups, times, strict=True)]
        probability[others] = np.minimum(1.0, sizes[others] / step)
    return Drawn(certain, rest, probability)


def reviewed_rate(strata: Sequence[Stratum], *, alpha: float = 0.05) -> Interval:
    """Estimate the rate over all calls, with its interval, from answers about a sample.

    Calls that the reviewer could not judge count as hits only in the upper bound of the interval.
    """
    low = _combined(strata, 0.0, alpha)
    high = _combined(strata, 1.0, alpha)
    return Interval(low.rate, low.low, high.high)


def expected_half_width(
    sizes: Sequence[int], certain: Sequence[Sequence[int]], rest: Sequence[int]
) -> float:
    """Predict the half-width of a rate's interval from the planned sample.

    Args:
        sizes: number of calls in each stratum.
        certain: for each stratum, the sizes of the groups that are always drawn.
        rest: for each stratum, the number of answers about other groups.
    """
    strata = []
    for size, groups, n, share in zip(sizes, certain, rest, EXPECTED, strict=True):
        hits = round(n * share)
        sure = [(float(group), [round(share)]) for group in groups]
        strata.append(Stratum(size, sure, [1.0] * hits + [0.0] * (n - hits)))
    found = reviewed_rate([each for each in strata if each.calls])
    return (found.high - found.low) / 2


EXPECTED: Final = (0.7, 0.1, 0.02)
"""For each stratum, the share of tool failures that is assumed for planning."""


def combined(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Return the weighted sum of independent rates, with its interval by MOVER."""
    rate = sum(weight * part.rate for weight, part in parts)
    down = math.sqrt(sum((weight * (part.rate - part.low)) ** 2 for weight, part in parts))
    up = math.sqrt(sum((weight * (part.high - part.rate)) ** 2 for weight, part in parts))
    return Interval(rate, max(0.0, rate - down), min(1.0, rate + up))


def difference(base: Interval, new: Interval) -> Interval:
    """Return the difference between two independent rates by MOVER (Newcombe 1998, method 10)."""
    change = new.rate - base.rate
    down = math.hypot(new.rate - new.low, base.high - base.rate)
    up = math.hypot(new.high - new.rate, base.rate - base.low)
    return Interval(change, max(-1.0, change - down), min(1.0, change + up))


def _combined(strata: Sequence[Stratum], unknown: float, alpha: float) -> Interval:
    total = sum(stratum.calls for stratum in strata)
    answers = sum(_answers(stratum) for stratum in strata)
    unseen = 0.0
    parts: list[tuple[float, Interval]] = []
    filled = [_with_unknown(stratum, unknown) for stratum in strata]
    mixed = _mixed(filled)
    for stratum in filled:
        cells = _cells(stratum, alpha, mixed, exact=answers >= CORRECTED_FROM)
        for calls, interval in cells:
            if math.isnan(interval.rate):
                unseen += calls / total
            else:
                parts.append((calls / total, interval))
    found = combined(parts)
    if unseen:
        # Without answers, any rate is possible.
        return Interval(math.nan, found.low, min(1.0, found.high + unseen))
    return found


def _answers(stratum: Stratum) -> int:
    return sum(len(answers) for _, answers in stratum.certain) + len(stratum.rest)


def _with_unknown(stratum: Stratum, value: float) -> Stratum:
    def known(answers: Sequence[float]) -> list[float]:
        return [value if math.isnan(answer) else answer for answer in answers]

    return Stratum(
        stratum.calls,
        [(size, known(answers)) for size, answers in stratum.certain],
        known(stratum.rest),
    )


def _mixed(strata: Sequence[Stratum]) -> float:
    """Estimate the share of pairs of calls in the same group that have different answers."""
    differing, pairs = MIXED
    for stratum in strata:
        for _, answers in stratum.certain:
            pairs += len(answers) - 1
            differing += len(set(answers)) - 1
    return differing / pairs


def _cells(
    stratum: Stratum, alpha: float, mixed: float, *, exact: bool
) -> list[tuple[float, Interval]]:
    """Return the number of calls and the rate's interval for each part of a stratum."""
    certain = [(size, answers) for size, answers in stratum.certain if len(answers)]
    covered = sum(size for size, _ in certain)
    rest_calls = max(0.0, stratum.calls - covered)
    if rest_calls and not len(stratum.rest) and not certain:
        return [(stratum.calls, UNKNOWN)]
    sure = sum(size * float(np.mean(answers)) for size, answers in certain)
    if not exact:
        n = _answers(stratum)
        inner = float(np.mean(stratum.rest)) if len(stratum.rest) else math.nan
        if rest_calls and math.isnan(inner):
            return [(covered, _wilson(sure / covered, n, alpha)), (rest_calls, UNKNOWN)]
        rate = (sure + (rest_calls * inner if rest_calls else 0.0)) / stratum.calls
        return [(stratum.calls, _wilson(rate, n, alpha))]
    cells = [(size, _of_group(size, answers, alpha, mixed)) for size, answers in certain]
    if rest_calls and (n := len(stratum.rest)):
        cells.append((rest_calls, _wilson(float(np.mean(stratum.rest)), n, alpha)))
    elif rest_calls:
        cells.append((rest_calls, UNKNOWN))
    return cells


def _of_group(size: float, answers: Sequence[float], alpha: float, mixed: float) -> Interval:
    """Return the rate, with its interval, in a group that is always drawn.

    The interval allows for calls of the group that would get a different answer.
    """
    rate, n = float(np.mean(answers)), len(answers)
    if rate not in (0.0, 1.0):
        return _wilson(rate, n, alpha)
    if size <= n:
        return Interval(rate, rate, rate)
    # The variance of a single randomly chosen call is half the share of pairs with different
    # answers.
    half = _normal(alpha) * math.sqrt(mixed / 2 / n)
    return Interval(rate, max(0.0, rate - half), min(1.0, rate + half))


def _normal(alpha: float) -> float:
    return float(t_quantile(1 - alpha / 2, math.inf))


def _wilson(rate: float, n: float, alpha: float) -> Interval:
    t = np.asarray(_normal(alpha))
    low, high = wilson(np.asarray(min(1.0, max(0.0, rate))), np.asarray(float(n)), t)
    return Interval(rate, float(low), float(high))
