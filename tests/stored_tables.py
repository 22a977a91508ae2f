"""Reads and compares the tables of stores."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal

from mcptally.store.manifest import live_files, read_manifest
from mcptally.tables.all_tables import TABLES
from mcptally.tables.declaration import Table

PLACES = ("file", "files", "line")
"""Columns that name files and lines."""


def in_order(table: type[Table], frame: pl.DataFrame, *without: str) -> pl.DataFrame:
    """Sort the rows of a table, and drop columns."""
    rows = frame.drop(without, strict=False)
    keys = [key for key in table.key if key in rows.columns]
    return rows.sort(*keys, pl.struct(pl.all()).hash(), nulls_last=True)


def tables(store: Path, *without: str) -> dict[str, pl.DataFrame]:
    """Every table of a store with sorted rows, without these columns."""
    files = live_files(store, read_manifest(store))
    frames = {
        table: pl.read_parquet(files[table.name], glob=False, missing_columns="insert")
        for table in TABLES
    }
    return {table.name: in_order(table, frame, *without) for table, frame in frames.items()}


def assert_equal(these: Mapping[str, pl.DataFrame], others: Mapping[str, pl.DataFrame]) -> None:
    assert these.keys() == others.keys()
    for name, frame in others.items():
        assert_frame_equal(these[name], frame)


def assert_same(store: Path, other: Path, *without: str) -> None:
    """Assert that two stores have the same tables, except for these columns."""
    assert_equal(tables(store, *without), tables(other, *without))
