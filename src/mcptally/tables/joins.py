"""Join and sort frames without copying columns that do not change."""

import polars as pl


def left_join_columns(
    rows: pl.DataFrame, other: pl.DataFrame, *on: str, nulls: bool = False
) -> pl.DataFrame:
    """Return `rows` with the columns of `other` for the same keys: a left join that keeps order.

    `DataFrame.join` copies the columns of both sides. This function copies only those of `other`,
    which matters for frames with a hundred columns and long texts.

    Args:
        rows: any frame.
        other: each key should occur once; otherwise this is an ordinary join.
        on: names of the key columns in both frames.
        nulls: whether null keys match each other.
    """
    keys = rows[list(on)]
    found = keys.join(other, on=on, how="left", maintain_order="left", nulls_equal=nulls)
    if found.height != rows.height:
        return rows.join(other, on=on, how="left", maintain_order="left", nulls_equal=nulls)
    return rows.hstack(found[found.columns[len(on) :]])


def in_order(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return `rows` sorted, nulls last; unchanged if already sorted, as most transcripts are."""
    order = rows.select(pl.arg_sort_by(by, nulls_last=True).cast(pl.UInt32)).to_series()
    here = pl.int_range(rows.height, dtype=pl.UInt32, eager=True)
    return rows if order.equals(here) else rows[order]
