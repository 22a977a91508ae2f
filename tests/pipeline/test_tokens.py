"""Tests of the estimate of tokens, and of the documented query about their cost."""

import re
import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest

from mcptally.analytics import duckdb_file
from mcptally.pipeline.tokens import count_tokens

ROOT = Path(__file__).parents[2]


def test_tokens_are_bytes_over_four():
    texts = pl.Series(["", "abc", "abcd", "é" * 4, None])
    assert count_tokens(texts).to_list() == [0, 0, 1, 2, None]


@pytest.mark.slow
def test_the_documented_query_gives_what_a_server_costs(sample_store, tmp_path):
    page = (ROOT / "docs" / "how-to" / "count-tokens.md").read_text()
    sql = re.search(r"```sql\n(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "prices.csv").write_text("model,usd_per_million\nlarge,3\nsmall,0.5\n")
    store = Path(shutil.copytree(sample_store.path, tmp_path / "store"))
    duckdb_file.write(store)
    with duckdb.connect(store / "mcptally.duckdb", read_only=True) as db:
        found = db.sql(sql.replace("prices.csv", str(tmp_path / "prices.csv"))).fetchall()
    costs = {(model, server): rest for model, server, *rest in found}
    calls, tools = (pl.read_parquet(store / t / "*.parquet") for t in ("calls", "tools"))
    calls, tools = (frame.filter(pl.col("server") == "git") for frame in (calls, tools))
    tokens = (
        calls.filter(pl.col("method") == "tools/call")["response_tokens"].sum()
        + tools.select(pl.col("tokens") * pl.col("sessions")).sum().item()
    )
    sessions = calls["session"].n_unique()
    assert costs["large", "git"][0] == round(tokens / sessions)
    assert costs["large", "git"][1] == pytest.approx(tokens / sessions * 3 / 1e6)
    unused = tools.filter(~pl.col("tool").is_in(calls["tool"].drop_nulls().implode()))
    listed = unused.select(pl.col("tokens") * pl.col("sessions")).sum().item()
    assert listed > 0
    assert costs["small", "git"][2] == pytest.approx(listed * 0.5 / 1e6)
