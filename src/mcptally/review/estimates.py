"""Estimates rates from a reviewed sample, for the recorded calls and for the service in general."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
import polars as pl

from mcptally.review.answers import CANNOT_TELL, RATES, CallKey, Drawn, Sample
from mcptally.review.answers import group_id as id_of_group
from mcptally.review.sample import FILTERED, SHOWN_TEMPLATE, ReviewedStore, stratified
from mcptally.review.settled import Settled
from mcptally.statistics import intervals
from mcptally.statistics.reviewed import Interval, Stratum, reviewed_rate
from mcptally.tables.outcomes import FAILED, Verdict, sql_list

ALPHA: Final = 0.05


class ReviewedRate(msgspec.Struct, frozen=True):
    """A rate estimated from a completely reviewed sample."""

    metric: str
    server: str | None
    """The server to whose calls the rate applies; null for all calls."""
    tool: str | None
    sample: str
    answers: int
    calls: int
    rate: float
    """Share of hits among the recorded calls."""
    low: float
    high: float
    """Upper end of the interval.

    The first sample of a frame has a 95 % interval, the second 97.5 %, the third 98.75 %, and so
    on.
    """
    service_low: float
    service_high: float
    """Upper end of the interval for the service, whose usage the sessions are assumed to
    represent."""
    n_eff: float
    """The effective number of calls, given how failures cluster in sessions."""

    @property
    def service(self) -> Interval:
        """The rate of the service in general, beyond the recorded calls, with its interval."""
        return Interval(self.rate, self.service_low, self.service_high)


def missing(sample: Sample, settled: Settled) -> list[Drawn]:
    """Return the sample's calls that have no answer; conflicting answers count as an answer."""
    known = settled.calls.keys() | {each.key for each in settled.conflicts}
    return [each for each in sample.drawn if each.key not in known]


def rates(store: ReviewedStore, sample: Sample, settled: Settled) -> list[ReviewedRate]:
    """Return the rates estimated from a sample; the list is empty while an answer is missing.

    The size of a sample is fixed when it is drawn: an interval that is checked repeatedly during
    a review is not valid.
    """
    if missing(sample, settled):
        return []
    return [_rate(store, sample, settled, metric) for metric in RATES]


def _rate(store: ReviewedStore, sample: Sample, settled: Settled, metric: str) -> ReviewedRate:
    alpha = ALPHA / 2 ** (sample.look - 1)
    found = reviewed_rate(strata(sample, settled, metric), alpha=alpha)
    n_eff, t = _sessions(store, sample, settled, metric)
    service = _of_service(found, n_eff, t)
    return ReviewedRate(
        metric,
        sample.server,
        sample.tool,
        sample.id,
        len(sample.drawn),
        sample.calls,
        *found,
        service.low,
        service.high,
        n_eff,
    )


def strata(sample: Sample, settled: Settled, metric: str = "failure_rate") -> list[Stratum]:
    """Group the answers about the sampled calls by stratum; ignore answers about other calls."""
    answers = {
        each.key: _value(settled.calls[each.key].answer, RATES[metric])
        if each.key in settled.calls
        else math.nan
        for each in sample.drawn
    }
    return list(by_stratum(sample, answers).values())


def by_stratum(sample: Sample, answers: Mapping[CallKey, float]) -> dict[str, Stratum]:
    """Map the sample's non-empty strata to the `answers` about their calls."""
    return {
        name: Stratum(
            sample.strata[name],
            [(float(calls[0].size), [answers[each.key] for each in calls]) for calls in certain],
            [answers[each.key] for each in rest],
        )
        for name, certain, rest in stratified(sample)
        if sample.strata[name]
    }


def weights(sample: Sample) -> dict[CallKey, float]:
    """Map each drawn call to the number of calls that it represents."""
    found: dict[CallKey, float] = {}
    for name, certain, rest in stratified(sample):
        left = sample.strata[name] - sum(calls[0].size for calls in certain)
        found |= {each.key: calls[0].size / len(calls) for calls in certain for each in calls}
        found |= {each.key: left / len(rest) for each in rest}
    return found


def _value(answer: str, hits: Iterable[str]) -> float:
    return math.nan if answer == CANNOT_TELL else float(answer in hits)


_COUNTS: Final = f"""
SELECT session, server, tool, {SHOWN_TEMPLATE} AS shown, verdict,
    outcome IN {sql_list(FAILED)} AS failed, count(*) AS calls
FROM calls WHERE {FILTERED} GROUP BY ALL
"""
_VERDICTS: Final = {
    "failure_rate": Verdict.TOOL_FAILURE,
    "refusal_rate": Verdict.BUSINESS,
    "infrastructure_rate": Verdict.INFRASTRUCTURE,
}


def _sessions(
    store: ReviewedStore, sample: Sample, settled: Settled, metric: str
) -> tuple[float, float]:
    """Return `n_eff` and `t` of the rate over all calls; answers replace their groups' verdicts."""
    counts: pl.DataFrame = store.sql(_COUNTS, params=[sample.server, sample.tool]).pl()
    groups = counts.filter("failed").select("server", "tool", "shown").unique()
    known = _shares_of_groups(sample, settled, metric)
    share = [known.get(id_of_group(*row)) for row in groups.iter_rows()]
    corrected = counts.join(
        groups.with_columns(share=pl.Series(share, dtype=pl.Float64), failed=pl.lit(value=True)),
        on=["server", "tool", "shown", "failed"],
        how="left",
        nulls_equal=True,
    ).with_columns(
        hits=pl.col("calls")
        * pl.coalesce("share", (pl.col("verdict") == str(_VERDICTS[metric])).fill_null(value=False))
    )
    sums = corrected.group_by("session").agg(pl.col("calls", "hits").sum())
    n = sums.get_column("calls").cast(pl.Float64).to_numpy()
    y = sums.get_column("hits").to_numpy()
    mixed = (y * (n - y) / n).sum()
    found = intervals.rate_intervals(
        *(
            np.asarray([float(each)])
            for each in (
                n.sum(),
                y.sum(),
                (n**2).sum(),
                (y**2).sum(),
                (n * y).sum(),
                mixed,
                len(n),
                min((y > 0).sum(), (y < n).sum()),
            )
        )
    )
    return float(found.n_eff[0]), float(found.t[0])


def _shares_of_groups(sample: Sample, settled: Settled, metric: str) -> dict[str, float]:
    """Map each group to the share of hits among the answers about its drawn calls."""
    answers: dict[str, list[float]] = defaultdict(list)
    for each in sample.drawn:
        if each.group and each.key in settled.calls:
            value = _value(settled.calls[each.key].answer, RATES[metric])
            answers[each.group].append(0.0 if math.isnan(value) else value)
    return {group: float(np.mean(values)) for group, values in answers.items()}


def _of_service(found: Interval, n_eff: float, t: float) -> Interval:
    """Return the service rate's interval.

    It combines the sample's interval with the variation between sessions (MOVER).
    """
    if math.isnan(found.rate) or math.isnan(n_eff):
        return Interval(found.rate, 0.0, 1.0)
    low, high = intervals.wilson(*(np.asarray(value) for value in (found.rate, n_eff, t)))
    down = math.hypot(found.rate - found.low, found.rate - float(low))
    up = math.hypot(found.high - found.rate, float(high) - found.rate)
    return Interval(found.rate, max(0.0, found.rate - down), min(1.0, found.rate + up))
