"""Tokens of definitions and results: bytes over four, or counted by a tokenizer."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import duckdb
import polars as pl
import pytest

from mcptally.analytics import duckdb_file
from mcptally.errors import StoreError, UsageError
from mcptally.maintenance.merge import merge_stores
from mcptally.output.html import caveats
from mcptally.pipeline.run import score
from mcptally.pipeline.tokens import Tokenizer, count_tokens

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "sample_traces"
WORDS = {
    "version": "1.0",
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
}
"""A tokenizer that counts words and runs of punctuation."""


@pytest.fixture
def tokenizer(tmp_path):
    pytest.importorskip("tokenizers", reason="the extra `tokens` is not installed")
    path = tmp_path / "words.json"
    path.write_text(json.dumps(WORDS))
    return path


def test_tokens_are_bytes_over_four_without_a_tokenizer():
    texts = pl.Series(["", "1234567", "ééé", None])
    assert count_tokens(texts, None).to_list() == [0, 1, 1, None]


def test_a_tokenizer_counts_each_text_and_long_ones_in_pieces(tokenizer, monkeypatch):
    words = Tokenizer.load(tokenizer)
    texts = pl.Series(["one two, three", "", None, "one two, three"])
    assert count_tokens(texts, words).to_list() == [4, 0, None, 4]
    monkeypatch.setattr("mcptally.pipeline.tokens._PIECE", 4)
    assert words.count("one two six ") == 3


@pytest.mark.usefixtures("tokenizer")
@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), (b"\xff", "is not UTF-8"), (b"{}", "is not a tokenizer")],
)
def test_a_file_that_is_not_a_tokenizer_is_an_error_that_says_what_to_give(tmp_path, content, said):
    path = tmp_path / "given.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=f"given.json: {said}.*give the tokenizer.json of a model"):
        Tokenizer.load(path)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    path = tmp_path / "other.json"
    path.write_text(json.dumps({**WORDS, "added_tokens": []}))
    with pytest.raises(UsageError, match=r"pip install 'mcptally\[tokens\]'"):
        Tokenizer.load(path)


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


@pytest.mark.slow
def test_a_store_has_the_tokens_of_its_tokenizer_and_is_scored_again_with_another(
    tokenizer, tmp_path
):
    words = Tokenizer.load(tokenizer)
    out = tmp_path / "store"
    score(TRACES / "time.jsonl", out=out, tokenizer=tokenizer)
    calls = pl.read_parquet(out / "calls" / "*.parquet").drop_nulls("response")
    assert calls["response_tokens"].to_list() == [words.count(r) for r in calls["response"]]
    tools = pl.read_parquet(out / "tools" / "*.parquet")
    assert (tools["tokens"] != tools["bytes"] // 4).all()
    assert score(TRACES / "time.jsonl", out=out, tokenizer=tokenizer).reused == 1
    manifest = json.loads((out / "store.json").read_text())
    assert "counted by the tokenizer words.json" in caveats._tokens(
        SimpleNamespace(manifest=manifest)
    )
    with pytest.raises(StoreError, match=r"another tokenizer.*--tokenizer"):
        merge_stores([out], out=tmp_path / "merged")
    merge_stores([out], out=tmp_path / "merged", tokenizer=tokenizer)
    merged = pl.read_parquet(tmp_path / "merged" / "tools" / "*.parquet")
    assert merged["tokens"].to_list() == tools["tokens"].to_list()
    again = score(TRACES / "time.jsonl", out=out)
    assert "another tokenizer" in again.in_full
    tools = pl.read_parquet(out / "tools" / "*.parquet")
    assert tools["tokens"].to_list() == (tools["bytes"] // 4).to_list()
