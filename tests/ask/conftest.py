"""One store of real traffic for the questions, and its tables as plain rows."""

from pathlib import Path

import polars as pl
import pytest

import mcptally as mt

TRAFFIC = Path(__file__).resolve().parents[2] / ".." / "shared" / "traffic"
SERVERS = (
    *("duckdb-v1", "eslint", "everything-http", "excel-nobody", "fastmcp-sse", "filesystem"),
    *("git", "mysql", "redis-outage", "shell", "time-v1", "todo-v1"),
)
"""Pipes, both kinds of HTTP, outages, servers of four SDKs, and one whose definitions change."""


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> mt.Store:
    if not TRAFFIC.is_dir():
        pytest.skip("no recorded traffic beside the checkout")
    out = tmp_path_factory.mktemp("ask") / "store"
    mt.score([TRAFFIC / f"{name}.jsonl.zst" for name in SERVERS], out=out)
    return mt.open_store(out)


@pytest.fixture(scope="session")
def rows(store: mt.Store) -> dict[str, list[dict]]:
    tables = ("calls", "messages", "findings", "tools", "recordings")
    wide = ["response", "text"]
    found = {}
    for table in tables:
        frame = pl.read_parquet(store.path / table / "**" / "*.parquet")
        found[table] = frame.drop(wide, strict=False).to_dicts()
    return found
