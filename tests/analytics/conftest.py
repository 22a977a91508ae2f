"""A store of the sample traces for the questions, and its tables as rows."""

from pathlib import Path

import polars as pl
import pytest

import mcptally as mt


def plain_rows(store: Path) -> dict[str, list[dict]]:
    """The tables of a store as rows, without long columns."""
    tables = ("calls", "messages", "findings", "tools", "recordings")
    wide = ["response", "text"]
    found = {}
    for table in tables:
        frame = pl.read_parquet(store / table / "**" / "*.parquet")
        found[table] = frame.drop(wide, strict=False).to_dicts()
    return found


@pytest.fixture(scope="session")
def store(sample_store: mt.Store) -> mt.Store:
    return sample_store


@pytest.fixture(scope="session")
def rows(store: mt.Store) -> dict[str, list[dict]]:
    return plain_rows(store.path)
