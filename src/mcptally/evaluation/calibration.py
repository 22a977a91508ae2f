"""How often each rule was right, by server family: what the confidence of a rule is made of."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from mcptally.verdict import confidence
from mcptally.verdict.rule_model import TextRule

PER_FAMILY: Final = 1.0
"""Most observations that one server family adds to a rule: fifty times the same message of one
server is not fifty times the evidence. Tried with 1, 3 and no limit, and prior weights from 2 to
25, on families whose texts nobody had read: 1 with a strong prior was calibrated best."""


def counts(decided: pl.DataFrame) -> pl.DataFrame:
    """For every rule and family `hits` and `right`, at most `PER_FAMILY` hits each.

    Args:
        decided: `rule`, `family`, and `correct` of each labelled call.
    """
    weight = pl.min_horizontal(pl.len().cast(pl.Float64), pl.lit(PER_FAMILY))
    return (
        decided.drop_nulls("rule")
        .group_by("rule", "family")
        .agg(hits=weight, right=weight * pl.col("correct").mean())
        .sort("rule", "family")
    )


def held_out(ruleset: Sequence[TextRule], decided: pl.DataFrame) -> pl.Series:
    """For every row of `decided` the confidence its rule has from other families alone, 0 to 100.

    Null where no rule decided.
    """
    every = counts(decided)
    parts = []
    for (family,) in decided.select("family").unique().iter_rows():
        others = total(every.filter(pl.col("family") != family))
        parts.append(
            pl.DataFrame(
                {
                    "family": [family] * len(ruleset),
                    "rule": [rule.id for rule in ruleset],
                    "held_out": confidence.percent(ruleset, others),
                }
            )
        )
    return decided.join(pl.concat(parts), on=["family", "rule"], how="left", maintain_order="left")[
        "held_out"
    ]


def total(by_family: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Hits and right by rule id, of `counts` summed over families."""
    summed = by_family.group_by("rule").agg(pl.col("hits").sum(), pl.col("right").sum())
    return {rule: (hits, right) for rule, hits, right in summed.iter_rows()}
