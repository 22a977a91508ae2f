"""Measures the quality of a classification by counts, rates and confidence intervals."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.evaluation.labels import VERDICTS, DecidedCalls
from mcptally.statistics.intervals import share_interval
from mcptally.verdict import error_template

RESAMPLES: Final = 1000
"""Number of bootstrap samples. Whole server families are resampled, because the labels of a server
are not independent."""
SURE: Final = 95.0
"""Certainty, in percent, from which a verdict counts as sure."""
BINS: Final = 6
"""Number of equal-sized bins in the reliability table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """A share (0 to 1) with its 95 % Wilson interval; NaN if `n` is 0."""

    k: int
    n: int
    value: float
    """The share `k / n`."""
    low: float
    high: float

    @classmethod
    def of(cls, k: int, n: int) -> "Rate":
        """Compute the share `k / n` and its interval."""
        if not n:
            return cls(0, 0, math.nan, math.nan, math.nan)
        return cls(k, n, k / n, *share_interval(k / n, n))


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval from a bootstrap over server families."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class WeightedShares:
    """Shares of the labelled errors under one weighting (0 to 1; NaN without errors)."""

    weighting: str
    """The unit that has equal weight: each label (`text`), each group of labels with the same
    server, tool and template (`group`), each recorded call (`calls`) or each server family
    (`server`)."""
    accuracy: float
    """Share of correct verdicts."""
    sure: float
    """Share of correct verdicts among the verdicts with a certainty of 95 % or more."""
    tool_precision: float
    """Share of correct verdicts among the verdicts `tool_failure`."""
    tool_recall: float
    """Share of the labelled tool failures that were detected."""


def weighted_shares(rows: pl.DataFrame) -> list[WeightedShares]:
    """Compute the shares of correct verdicts with each weighting.

    The weighting `calls` is omitted if no call was recorded.

    Args:
        rows: `DecidedCalls` labelled with a verdict.
    """
    group = [DecidedCalls.server.col, DecidedCalls.tool.col, pl.col("template")]
    labels = pl.len().over(*group, DecidedCalls.verdict.col)
    weighed = rows.with_columns(
        error_template.templates(rows.get_column(DecidedCalls.text.name)).alias("template")
    ).with_columns(
        text=pl.lit(1.0),
        group=1 / pl.len().over(*group),
        calls=DecidedCalls.calls.col / labels,
        server=1 / pl.len().over(DecidedCalls.family.col),
    )
    is_tool = DecidedCalls.label.col == "tool_failure"
    says_tool = DecidedCalls.verdict.col == "tool_failure"
    recorded = rows.get_column(DecidedCalls.recording.name).null_count() < rows.height
    weightings = ["text", "group", *(["calls"] if recorded else []), "server"]
    return [
        WeightedShares(
            name,
            *(
                _weighted_share(weighed.filter(some), name)
                for some in (pl.lit(value=True), pl.col("certainty") >= SURE, says_tool, is_tool)
            ),
        )
        for name in weightings
    ]


def _weighted_share(rows: pl.DataFrame, weighting: str) -> float:
    """Return the weighted share of correct verdicts, or NaN if there are no rows."""
    weight = rows.get_column(weighting)
    right = rows.get_column(DecidedCalls.correct.name)
    return float((weight * right).sum()) / float(weight.sum()) if rows.height else math.nan


def confusion(label: pl.Series, verdict: pl.Series) -> dict[str, dict[str, int]]:
    """Count the verdicts for each label, as nested dicts; the key `none` means no verdict."""
    frame = pl.DataFrame({"label": label, "verdict": verdict.fill_null("none")})
    counts = {(row[0], row[1]): row[2] for row in frame.group_by("label", "verdict").len().rows()}
    columns = [*VERDICTS, "ambiguous", "none"]
    return {
        name: {column: counts.get((name, column), 0) for column in columns} for name in VERDICTS
    }


def two_by_two(label: pl.Series, predicted: pl.Series) -> tuple[int, int, int, int]:
    """Count true positives, false negatives, false positives and true negatives, in this order."""
    return (
        int((label & predicted).sum()),
        int((label & ~predicted).sum()),
        int((~label & predicted).sum()),
        int((~label & ~predicted).sum()),
    )


def balanced_accuracy(tp: int, fn: int, fp: int, tn: int) -> float:
    """Return the mean of sensitivity and specificity, or NaN without positives or negatives."""
    if not tp + fn or not fp + tn:
        return math.nan
    return (tp / (tp + fn) + tn / (fp + tn)) / 2


def matthews(tp: int, fn: int, fp: int, tn: int) -> float:
    """Return the Matthews correlation coefficient; 0 if a row or column of the table is empty."""
    scale = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return (tp * tn - fp * fn) / scale if scale else 0.0


def clustered(label: pl.Series, predicted: pl.Series, families: pl.Series) -> dict[str, Estimate]:
    """Estimate `balanced_accuracy` and `matthews` with intervals that resample server families.

    The intervals are percentiles of `RESAMPLES` samples with a fixed seed.
    """
    said = pl.col("predicted")
    counts = (
        pl.DataFrame({"family": families, "label": label, "predicted": predicted})
        .group_by("family")
        .agg(
            tp=(DecidedCalls.label.col & said).sum(),
            fn=(DecidedCalls.label.col & ~said).sum(),
            fp=(~DecidedCalls.label.col & said).sum(),
            tn=(~DecidedCalls.label.col & ~said).sum(),
        )
        .sort("family")
        .select("tp", "fn", "fp", "tn")
        .to_numpy()
        .astype(np.int64)
    )
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(counts), size=(RESAMPLES, len(counts)))
    totals = counts[drawn].sum(axis=1)
    whole = tuple(int(each) for each in counts.sum(axis=0))
    return {
        name: _estimate(measure(*whole), np.array([measure(*map(int, row)) for row in totals]))
        for name, measure in (("balanced_accuracy", balanced_accuracy), ("matthews", matthews))
    }


def _estimate(value: float, samples: npt.NDArray[np.float64]) -> Estimate:
    known = samples[~np.isnan(samples)]
    if not len(known):
        return Estimate(value, math.nan, math.nan)
    low, high = np.quantile(known, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def brier(certainty: pl.Series, right: pl.Series) -> float:
    """Return the Brier score of certainties from 0 to 100.

    This is the mean squared difference between certainty and correctness (0 to 1; NaN if empty).
    """
    distance = (certainty / 100).to_numpy() - right.to_numpy().astype(np.float64)
    total: float = np.square(distance).sum()
    return total / len(distance) if len(distance) else math.nan


def reliability(certainty: pl.Series, right: pl.Series) -> list[dict[str, Any]]:
    """Return the reliability table: `BINS` bins of equal size, least certain results first.

    Each row has `from` and `to` (certainties, 0 to 100), `n`, `mean_certainty` (0 to 1) and
    `right`, a `Rate`. Results with the same certainty are distributed among bins at random.
    """
    shuffled = np.random.default_rng(0).permutation(len(certainty))
    values, hits = certainty.to_numpy()[shuffled], right.to_numpy()[shuffled]
    return [
        {
            "from": float(values[inside].min()),
            "to": float(values[inside].max()),
            "n": len(inside),
            "mean_certainty": float(values[inside].mean()) / 100,
            "right": Rate.of(int(hits[inside].sum()), len(inside)),
        }
        for inside in np.array_split(np.argsort(values, kind="stable"), BINS)
        if len(inside)
    ]


def calibration_error(table: Sequence[dict[str, Any]]) -> float:
    """Return the expected calibration error of a `reliability` table; NaN if it is empty.

    This is the mean absolute difference between certainty and the share of correct results,
    weighted by bin size.
    """
    total = sum(row["n"] for row in table)
    gaps = [float(row["n"] * abs(row["mean_certainty"] - row["right"].value)) for row in table]
    error: float = sum(gaps) / total if total else math.nan
    return error
