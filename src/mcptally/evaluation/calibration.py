"""Counts how often each rule was right per server family, and computes certainties from this."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from mcptally.evaluation.labels import DecidedCalls
from mcptally.verdict import certainty
from mcptally.verdict.rule_model import TextRule

PER_FAMILY: Final = 1.0
"""The maximum number of hits that one server family adds to a rule: a message repeated 50 times by
one server is not 50 independent observations. Limits of 1, 3 and none, with prior weights from 2 to
25, were tried on families not used to write the rules; 1 with a strong prior gave the best
calibration."""


def counts(decided: pl.DataFrame) -> pl.DataFrame:
    """Return `hits` and `right` per rule and family, scaled to at most `PER_FAMILY` hits.

    Args:
        decided: one row per labelled call with `rule`, `family` and `correct`.
    """
    weight = pl.min_horizontal(pl.len().cast(pl.Float64), pl.lit(PER_FAMILY))
    return (
        decided.drop_nulls("rule")
        .group_by("rule", "family")
        .agg(hits=weight, right=weight * DecidedCalls.correct.col.mean())
        .sort("rule", "family")
    )


def held_out(ruleset: Sequence[TextRule], decided: pl.DataFrame) -> pl.Series:
    """Return the certainty of each row's rule, 0 to 100, computed without the row's family.

    The certainty is null if no rule decided.
    """
    by_family = counts(decided)
    parts = []
    for (family,) in decided.select("family").unique().iter_rows():
        others = total(by_family.filter(DecidedCalls.family.col != family))
        parts.append(
            pl.DataFrame(
                {
                    "family": [family] * len(ruleset),
                    "rule": [rule.id for rule in ruleset],
                    "held_out": certainty.certainty_percent(ruleset, others),
                }
            )
        )
    return decided.join(pl.concat(parts), on=["family", "rule"], how="left", maintain_order="left")[
        "held_out"
    ]


def total(by_family: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Return rule id → (hits, right): the result of `counts`, summed over families."""
    summed = by_family.group_by("rule").agg(pl.sum("hits", "right"))
    return {rule: (hits, right) for rule, hits, right in summed.iter_rows()}
