"""`STORE/mcptally.duckdb` can be queried by a DuckDB without mcptally."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import duckdb
import pytest

import mcptally as mt
from mcptally.analytics import duckdb_file
from mcptally.analytics.views import question_titles
from mcptally.errors import StoreError
from tests.kept_folder import KeptFolder

pytestmark = pytest.mark.slow

NEED_MCPTALLY = {"tool_scores", "server_scores", "timeline", "change_points"}


@pytest.fixture(scope="module")
def written_once(small_store: mt.Store, tmp_path_factory: pytest.TempPathFactory) -> KeptFolder:
    def make(folder: Path) -> None:
        shutil.copytree(small_store.path, folder / "store")
        duckdb_file.write(folder / "store")

    return KeptFolder(tmp_path_factory.mktemp("written"), make)


@pytest.fixture
def folder(written_once: KeptFolder) -> Path:
    """A store with its file `mcptally.duckdb`."""
    return written_once.restore() / "store"


def answer_of_duckdb(folder: Path, query: str, *settings: str, file: Path | None = None) -> list:
    """Return the answer of DuckDB without mcptally, started in `folder`."""
    with (
        contextlib.chdir(folder),
        duckdb.connect(file or duckdb_file.FILE, read_only=True) as connection,
    ):
        for setting in settings:
            connection.execute(setting)
        return connection.sql(query).fetchall()


COUNT = "SELECT tool, count(*) FROM calls GROUP BY tool"


def test_duckdb_can_query_the_store_from_its_folder_and_from_any_other(
    folder: Path, tmp_path: Path
):
    for query in (COUNT, "SELECT tool, calls FROM latency"):
        assert answer_of_duckdb(folder, query) == [("read", 1)]
        assert answer_of_duckdb(tmp_path, query, file=folder / duckdb_file.FILE) == [("read", 1)]


def test_a_moved_or_copied_store_can_be_queried(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "copy")
    moved = folder.rename(tmp_path / "moved it's here")
    for place in (tmp_path / "copy", moved):
        assert answer_of_duckdb(place, COUNT, "SET VARIABLE store = '.'") == [("read", 1)]
        duckdb_file.refresh(place)
        assert answer_of_duckdb(place, COUNT) == [("read", 1)]


def test_a_run_that_changes_nothing_writes_the_file_of_a_moved_store_again(
    folder: Path, small_store: mt.Store, tmp_path: Path
):
    moved = folder.rename(tmp_path / "moved")
    summary = mt.score([small_store.path.with_name("traces.jsonl")], out=moved)
    assert summary.reused == summary.files == 1
    assert answer_of_duckdb(moved, COUNT) == [("read", 1)]


def test_the_file_has_the_storage_format_of_duckdb_1(folder: Path):
    # The main header: magic bytes after a checksum, then the version number.
    header = (folder / duckdb_file.FILE).read_bytes()[:20]
    assert header[8:12] == b"DUCK"
    assert int.from_bytes(header[12:20], "little") == 64


def test_it_has_a_view_of_every_question_that_plain_duckdb_can_answer(folder: Path):
    rows = answer_of_duckdb(folder, "SELECT view_name FROM duckdb_views() WHERE NOT internal")
    left = question_titles().keys() - {name for (name,) in rows}
    assert left >= NEED_MCPTALLY
    assert not left & {"error_groups", "latency", "sessions", "context_cost", "unused_tools"}


def test_answers_that_need_mcptally_are_tables_until_the_store_is_newer_or_moved(folder: Path):
    assert set(duckdb_file.write_with_answers(folder)) >= NEED_MCPTALLY
    file, manifest = folder / duckdb_file.FILE, folder / "store.json"
    kept, written = file.read_bytes(), file.stat().st_mtime_ns
    duckdb_file.refresh(folder)
    assert answer_of_duckdb(folder, "SELECT tool, calls FROM tool_scores") == [("read", 1)]
    tables = "SELECT count(*) FROM duckdb_tables()"
    os.utime(manifest, ns=(written + 1, written + 1))
    duckdb_file.refresh(folder)
    assert answer_of_duckdb(folder, tables) == [(0,)]
    file.write_bytes(kept)
    for path in (file, manifest):
        os.utime(path, ns=(written, written))
    duckdb_file.refresh(folder)
    assert answer_of_duckdb(folder, tables) != [(0,)]
    folder = folder.rename(folder.with_name("sto"))  # the beginning of its old name
    duckdb_file.refresh(folder)
    assert answer_of_duckdb(folder, tables) == [(0,)]


def test_no_view_calls_if_which_duckdb_1_does_not_know_in_stored_views(folder: Path):
    rows = answer_of_duckdb(folder, "SELECT sql FROM duckdb_views() WHERE NOT internal")
    assert [text for (text,) in rows if re.search(r"(?<!\w)\"?if\"?\(", text)] == []


def test_a_store_whose_name_is_a_pattern_can_be_queried(folder: Path):
    store = folder.rename(folder.with_name("it's a*, b[1]"))
    for name in ("it's a*, b1", "it's aa, b[1]", "it's aa, b1"):  # a pattern would match them
        shutil.copytree(store, store.with_name(name))
    before = {path.name for path in store.iterdir()}
    duckdb_file.refresh(store)
    assert set(duckdb_file.write_with_answers(store)) >= NEED_MCPTALLY
    assert {path.name for path in store.iterdir()} == before
    assert answer_of_duckdb(store, "SELECT tool, calls FROM tool_scores") == [("read", 1)]
    assert answer_of_duckdb(store, COUNT) == [("read", 1)]
    assert mt.open_store(store).sql(COUNT).fetchall() == [("read", 1)]
    assert mt.open_store(store).ask("latency").pl().height == 1


def test_a_failed_write_leaves_no_files(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(duckdb_file, "_create_views", lambda *_: [])  # which takes two seconds
    (folder / duckdb_file.FILE).unlink()
    (folder / duckdb_file.FILE).mkdir()
    before = sorted(folder.iterdir())
    with pytest.raises(StoreError, match="cannot be written"):
        duckdb_file.write_with_answers(folder)
    assert sorted(folder.iterdir()) == before


def test_without_room_on_the_disk_no_file_is_left(folder: Path):
    resource = pytest.importorskip("resource")
    (folder / duckdb_file.FILE).unlink()
    before = sorted(folder.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        duckdb_file.refresh(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(folder.iterdir()) == before


def test_a_name_that_duckdb_cannot_write_to_is_an_error(folder: Path):
    """DuckDB appends the part of the name after a `?` to the suffix of its log."""
    store = folder.rename(folder.with_name("a?b"))
    with pytest.raises(StoreError, match="cannot be written"):
        duckdb_file.write_with_answers(store)


def test_an_open_reader_is_not_affected_by_a_write(folder: Path):
    with duckdb.connect(str(folder / duckdb_file.FILE), read_only=True) as reader:
        views = "SELECT count(*) FROM duckdb_views() WHERE NOT internal"
        before = reader.sql(views).fetchall()
        duckdb_file.write(folder)
        assert reader.sql(views).fetchall() == before != [(0,)]


def test_without_write_permission_no_file_is_written(folder: Path):
    (folder / duckdb_file.FILE).unlink()
    folder.chmod(0o555)
    mine = os.access(folder, os.W_OK)  # root can write everywhere
    try:
        duckdb_file.refresh(folder)
    finally:
        folder.chmod(0o755)
    assert (folder / duckdb_file.FILE).exists() == mine
