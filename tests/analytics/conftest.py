"""A store of the sample traces for the questions, and its tables as rows."""

from pathlib import Path

import polars as pl
import pytest

import mcptally as mt
from tests import corpus


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
def store(tmp_path_factory) -> mt.Store:
    out = tmp_path_factory.mktemp("ask") / "store"
    mt.score(corpus.SAMPLES, out=out)
    return mt.open_store(out)


@pytest.fixture(scope="session")
def rows(store: mt.Store) -> dict[str, list[dict]]:
    return plain_rows(store.path)
