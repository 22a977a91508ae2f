"""Joins and sorts frames without copying unchanged columns."""

import numpy as np
import polars as pl

from mcptally.tables.arrow import series_from_numpy
from mcptally.tables.queries import run_query


def left_join_columns(
    rows: pl.DataFrame, other: pl.DataFrame | pl.LazyFrame, *on: str
) -> pl.DataFrame:
    """Add the columns of `other` to the rows with the same keys (a left join that keeps row order).

    `DataFrame.join` copies the columns of both sides. This function copies only the columns of
    `other`, which saves time if `rows` has a hundred columns and long texts.

    Args:
        rows: any frame.
        other: the frame with the new columns. Each key should occur once; with repeated keys, the
            function does an ordinary join.
        on: names of the key columns in both frames.
    """
    keys = rows[list(on)]
    if isinstance(other, pl.DataFrame):
        columns = [column for column in other if column.name not in on]
        if not other.height:
            return rows.hstack(
                [
                    pl.Series(column.name, [None], dtype=column.dtype).new_from_index(
                        0, rows.height
                    )
                    for column in columns
                ]
            )
        if keys.equals(other[list(on)], null_equal=False):
            return rows.hstack(columns)
    joined = keys.lazy().join(other.lazy(), on=on, how="left", maintain_order="left")
    found = joined.drop(on).pipe(run_query)
    if found.height != rows.height:
        return (
            rows.lazy().join(other.lazy(), on=on, how="left", maintain_order="left").pipe(run_query)
        )
    return rows.hstack(found)


def row_mask(found: pl.DataFrame | pl.LazyFrame, height: int) -> pl.Series:
    """Return a mask of `height` rows that is true at the numbers in the column `row`."""
    mask = np.zeros(height, dtype=np.bool_)
    mask[found.lazy().select("row").pipe(run_query).to_series().to_numpy()] = True
    return series_from_numpy(mask)


def in_order(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return `rows` sorted by the columns `by`, nulls last.

    Rows that are already in order (the usual case) are returned without copying.
    """
    order = rows.select(pl.arg_sort_by(by, nulls_last=True)).to_series()
    return rows if order.is_sorted() else rows[order]
