"""A disk that is full, and a disk that loses what was not synced."""

import contextlib
import errno
import os
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import mcptally as mt
from mcptally.disk_space import is_full
from mcptally.store.manifest import MANIFEST, listed_files
from tests.commands import run

pytestmark = pytest.mark.slow

LIBRARY_ERRORS = [
    pl.exceptions.ComputeError("zstd: could not write"),
    pa.ArrowInvalid("could not close"),
    duckdb.IOException("could not write block"),
]


@pytest.mark.parametrize("error", LIBRARY_ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_a_library_is_about_a_full_disk_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    assert not is_full(error, tmp_path / "store")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    assert is_full(error, tmp_path / "store")
    assert not is_full(ValueError("a defect"), tmp_path / "store")


def test_an_error_of_sqlite_says_itself_that_the_disk_is_full():
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA max_page_count = 2")
        database.execute("CREATE TABLE items (item BLOB)")
        with pytest.raises(sqlite3.OperationalError) as failed:
            database.execute("INSERT INTO items VALUES (zeroblob(100000))")
    assert is_full(failed.value)


@pytest.fixture
def traces(small_store: mt.Store) -> Path:
    return small_store.path.with_name("traces.jsonl")


def test_a_full_disk_is_one_sentence_whichever_library_notices_it(
    tmp_path: Path, traces: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    done = run("score", traces, "-o", tmp_path / "store")
    assert done.returncode == 3
    assert done.stderr == (
        f"mcptally: {tmp_path / 'store'}: cannot be written, the disk is full; there is no store; "
        "free some space and start the command again\n"
    )
    assert not (tmp_path / "store").exists()


def test_the_disk_has_all_parts_before_the_manifest_and_the_manifest_before_old_parts_go(
    tmp_path: Path, traces: Path, monkeypatch: pytest.MonkeyPatch
):
    store = tmp_path / "store"
    mt.score(traces, out=store)
    old = [store / name for name in listed_files(store)]
    synced: set[int] = set()
    checked: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note(file: int) -> None:
        fsync(file)
        synced.add(os.fstat(file).st_ino)
        if synced & {store.stat().st_ino} and checked == ["replaced"]:
            assert all(path.exists() for path in old)
            checked.append("synced")

    def check(draft: Path, target: Path) -> None:
        if target == store / MANIFEST:
            parts = [path for path in store.rglob("*.parquet") if path not in old]
            assert len(parts) >= len(old)
            assert {path.stat().st_ino for path in parts} <= synced
            assert {path.parent.stat().st_ino for path in parts} <= synced
            assert draft.stat().st_ino in synced
            checked.append("replaced")
            synced.clear()
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", check)
    mt.score(traces, out=store, full=True)
    assert checked == ["replaced", "synced"]
    assert not any(path.exists() for path in old)
