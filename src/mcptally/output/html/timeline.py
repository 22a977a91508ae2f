"""Prepares the answer to `timeline` for a stacked chart."""

from typing import Final

import polars as pl

CAUSES: Final = ("ok", "tool_failures", "infrastructure", "ambiguous", "business", "other")
"""The results of calls, in stacking order."""


def stacked(timeline: pl.DataFrame) -> pl.DataFrame:
    """Return one row per period and cause, with its number of `calls`.

    `other` are calls that were cancelled or have no result yet. A cause without calls has no row in
    the period; calls at an unknown time have no row.

    Args:
        timeline: the answer to the question `timeline`, or some of its rows.
    """
    keys = ["level", "server", "tool", "start", "seconds"]
    return (
        timeline.filter(pl.col("start").is_not_null())
        .with_columns(other=pl.col("calls") - pl.sum_horizontal(CAUSES[:-1]))
        .select(*keys, *CAUSES)
        .unpivot(CAUSES, index=keys, variable_name="cause", value_name="calls")
        .filter(pl.col("calls") > 0)
        .with_columns(pl.col("cause").cast(pl.Enum(CAUSES)))
        .sort(*keys, "cause")
    )
