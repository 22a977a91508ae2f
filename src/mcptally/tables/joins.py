"""Frames put beside each other and in order, without a copy of what is there already."""

import polars as pl


def left_join_columns(
    rows: pl.DataFrame, other: pl.DataFrame, *on: str, nulls: bool = False
) -> pl.DataFrame:
    """`rows` and, beside them, what `other` has for the same keys: a left join in order.

    A join copies every column of both sides; here only those of `other` are made, as long as it
    has each key once, and a hundred columns with long texts stay where they are.

    Args:
        rows: any frame.
        other: has each key once.
        on: names of the keys, in both.
        nulls: whether null is a key like others.
    """
    found = rows.select(on).join(other, on=on, how="left", maintain_order="left", nulls_equal=nulls)
    if found.height != rows.height:
        return rows.join(other, on=on, how="left", maintain_order="left", nulls_equal=nulls)
    return rows.hstack(found.drop(on))


def in_order(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """`rows` sorted, nulls last; itself where it is in order, as transcripts mostly are."""
    order = rows.select(pl.arg_sort_by(by, nulls_last=True).cast(pl.UInt32)).to_series()
    here = pl.int_range(rows.height, dtype=pl.UInt32, eager=True)
    return rows if order.equals(here) else rows[order]
