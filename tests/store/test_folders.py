"""Names of folders are never read as patterns, lists or SQL."""

from pathlib import Path

import pytest

import mcptally as mt
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow


def said(name: str) -> list:
    return [opened(name, server=name), c2s(1, call(1, "read"), name), s2c(2, text(1), name)]


def test_every_stage_works_in_a_folder_of_any_name(tmp_path: Path):
    name = "it's {b}, a*, a?b[1]"
    for other in ("b", "a-", "aab1", f"{name[:-3]}1", name.replace("?", "a"), "it's b, aa, aab1"):
        # A pattern or a list would match some of these, too.
        (tmp_path / other / "store" / "calls").mkdir(parents=True)
        (tmp_path / other / "store" / "calls" / "000000.parquet").write_bytes(b"no Parquet")
    folder = tmp_path / name
    folder.mkdir()
    traces = [write(folder / f"{server}.jsonl", said(server)) for server in ("one", "two")]
    store, second, both = (folder / each for each in ("store", "second", "both"))
    assert mt.score(traces[:1], out=store).reused == 0
    assert mt.score(traces, out=store).reused == 1
    assert mt.open_store(store).ask("tool_scores").pl().height == 2
    assert len(mt.open_store(store).compare(mt.open_store(store)).tools.fetchall()) == 4
    mt.score(traces[1:], out=second)
    mt.merge_stores([store, second], out=both)
    assert mt.open_store(both).sql("SELECT count(*) FROM calls").fetchall() == [(2,)]
    assert "No tool was called" not in mt.report(store)
