"""Prepares the answer to `timeline` for a chart with stacked bars."""

from typing import Final

import polars as pl

CAUSES: Final = ("ok", "tool_failures", "infrastructure", "ambiguous", "business", "other")
"""Causes of calls' outcomes, in stacking order."""


def stacked(timeline: pl.DataFrame) -> pl.DataFrame:
    """Return one row per period and cause, with the number of `calls`.

    The cause `other` includes calls that were cancelled or have no result yet. Causes without calls
    in a period and calls at unknown times have no row.

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
