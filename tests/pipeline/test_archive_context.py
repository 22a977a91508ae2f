"""The tables do not depend on how many of the archive's facts fit into memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import mcptally as mt
from mcptally.messages.tool_definitions import add_definitions, listing_changes
from mcptally.pipeline import archive_context, incremental
from mcptally.pipeline.archive_context import ArchiveContext, StoredSummaries
from mcptally.store.manifest import SUMMARIES
from tests.pipeline.golden import TRACES
from tests.stored_tables import PLACES, assert_same

pytestmark = pytest.mark.slow

FILES = sorted(TRACES.rglob("*.jsonl*"))


def test_facts_on_disk_give_the_tables_of_facts_in_memory(
    tmp_path: Path, monkeypatch, sample_store
):
    monkeypatch.setattr(archive_context, "ROWS", 10)
    monkeypatch.setattr(archive_context, "COMPACT_FROM", 3)
    monkeypatch.setattr(archive_context, "AT_A_TIME", 2)
    mt.score(FILES, out=tmp_path / "store", partition_bytes=900_000)
    assert_same(tmp_path / "store", sample_store.path, *PLACES)


def test_an_incremental_run_with_facts_on_disk_gives_the_tables_of_a_full_run(
    tmp_path: Path, monkeypatch, sample_store
):
    monkeypatch.setattr(archive_context, "ROWS", 10)
    monkeypatch.setattr(archive_context, "COMPACT_FROM", 3)
    monkeypatch.setattr(incremental, "IN_MEMORY", 0)
    mt.score(FILES[::2], out=tmp_path / "store", partition_bytes=900_000)
    assert mt.score(FILES, out=tmp_path / "store", partition_bytes=900_000, jobs=2).reused
    assert_same(tmp_path / "store", sample_store.path, *PLACES)


class CountedSummaries(StoredSummaries):
    """Summaries that count how often each kind is read."""

    reads: ClassVar[list[str]] = []

    def read(self, kind: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        self.reads.append(kind)
        return super().read(kind, columns)


def test_listings_are_read_once_however_many_there_are(
    sample_store: mt.Store, tmp_path, monkeypatch
):
    folder = sample_store.path / SUMMARIES
    parts = [path.stem for path in (folder / "listed").iterdir()]
    whole = ArchiveContext([StoredSummaries(folder, parts)], tmp_path)
    monkeypatch.setattr(archive_context, "ROWS", 10)
    found = ArchiveContext([CountedSummaries(folder, parts)], tmp_path)
    assert CountedSummaries.reads.count("listed") == 1
    assert_frame_equal(found.timeline, whole.timeline, check_row_order=False)


def test_the_timeline_gives_the_definitions_in_force_of_all_listings():
    listed = pl.DataFrame(
        {
            "server": ["s"] * 9,
            "tool": ["t"] * 8 + ["u"],
            "listed_ns": [1, 2, 3, 3, 5, 6, 7, 8, 2],
            "definition": list("aabaaabba"),
        },
        schema_overrides={"listed_ns": pl.Int64},
    )
    at = list(range(10))
    calls = pl.DataFrame(
        {"tool": ["t"] * 10 + ["u"] * 10, "ts_ns": at + at, "pos": range(20)},
        schema_overrides={"ts_ns": pl.Int64, "pos": pl.UInt32},
    ).with_columns(
        call_id=pl.col("pos").cast(pl.String),
        session=pl.lit("mine"),
        server=pl.lit("s"),
        dir=pl.lit("c2s"),
    )
    schema = {"session": pl.String, "tool": pl.String, "pos": pl.UInt32, "definition": pl.String}
    own = pl.DataFrame(schema=schema)
    short = listing_changes(listed)
    assert short.height < listed.height
    assert_frame_equal(add_definitions(calls, own, short), add_definitions(calls, own, listed))
