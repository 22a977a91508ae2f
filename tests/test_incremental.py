"""A store that is scored again: only what changed is made anew, and the tables are those of a run
that made everything."""

import json
import os
import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import mcptally as mt
from mcptally import reuse
from mcptally.archive import text_lines
from mcptally.schema import TABLES
from tests.golden import TRACES
from tests.transcripts import c2s, call, event, opened, s2c, text, write

FILES = sorted(TRACES.rglob("*.jsonl*"))


def tables(store: Path) -> dict[str, pl.DataFrame]:
    """Every table of a store, every column, rows sorted."""
    found = {}
    for table in TABLES:
        frame = pl.read_parquet(store / table.name / "*.parquet")
        lists = [name for name, kind in frame.schema.items() if kind.is_nested()]
        frame = frame.with_columns(
            pl.col(lists).map_elements(lambda v: json.dumps(v.to_list(), default=str), pl.String)
        )
        found[table.name] = frame.sort(frame.columns, nulls_last=True)
    return found


def assert_as_made_anew(store: Path, files: Iterable[Path], folder: Path, **how: Any) -> None:
    """The store is what a run over the same files into a new one makes."""
    anew = folder / "anew"
    shutil.rmtree(anew, ignore_errors=True)
    mt.score(list(files), out=anew, **how)
    before, now = tables(anew), tables(store)
    for name, frame in before.items():
        assert_frame_equal(now[name], frame)
    ours, theirs = (json.loads((path / "store.json").read_text()) for path in (store, anew))
    assert ours["rows"] == theirs["rows"]
    same = ("file", "size", "sha256")
    assert [[row[key] for key in same] for row in ours["archive"]] == [
        [row[key] for key in same] for row in theirs["archive"]
    ]


def test_files_that_arrive_one_after_the_other_make_the_tables_of_one_run(tmp_path: Path):
    chance = random.Random(12)
    files = FILES.copy()
    chance.shuffle(files)
    for count in range(1, len(files) + 1):
        summary = mt.score(files[:count], out=tmp_path / "store")
        assert summary.files == count
        assert summary.in_full is None
    assert summary.reused > 0
    assert_as_made_anew(tmp_path / "store", files, tmp_path)
