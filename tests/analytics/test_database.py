"""`STORE/mcptally.duckdb` in a DuckDB that knows nothing of mcptally."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import mcptally as mt
from mcptally.analytics import duckdb_file
from mcptally.analytics.views import questions
from mcptally.errors import StoreError
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow

NEED_US = {"tool_scores", "server_scores", "failure_trend"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    events = [opened(), c2s(1, call(1, "read")), s2c(2, text(1, "fine"))]
    write(tmp_path / "traces.jsonl", events)
    mt.score([tmp_path / "traces.jsonl"], out=tmp_path / "store")
    duckdb_file.write(tmp_path / "store")
    return tmp_path / "store"


def plainly(folder: Path, query: str, *settings: str, file: Path | None = None) -> list:
    """What a plain DuckDB says that was started in `folder`."""
    code = (
        "import duckdb, sys\n"
        "connection = duckdb.connect(sys.argv[1], read_only=True)\n"
        "for setting in sys.argv[3:]: connection.execute(setting)\n"
        "print(repr(connection.sql(sys.argv[2]).fetchall()))"
    )
    command = [sys.executable, "-c", code, str(file or duckdb_file.FILE), query, *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return eval(done.stdout)  # noqa: S307  (our own output)


COUNT = "SELECT tool, count(*) FROM calls GROUP BY tool"


def test_started_in_the_store_it_answers(folder: Path):
    assert plainly(folder, COUNT) == [("read", 1)]
    assert plainly(folder, "SELECT server, tool, calls FROM latency") == [("demo", "read", 1)]


def test_moved_and_copied_it_answers(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "copy")
    moved = folder.rename(tmp_path / "moved it's here")
    for place in (tmp_path / "copy", moved):
        assert plainly(place, COUNT) == [("read", 1)]


def test_from_elsewhere_it_answers_once_told_where_to_look(folder: Path, tmp_path: Path):
    look = f"SET file_search_path = '{folder}'"
    assert plainly(tmp_path, COUNT, look, file=folder / duckdb_file.FILE) == [("read", 1)]


def test_it_holds_every_question_that_duckdb_can_answer_alone(folder: Path):
    rows = plainly(folder, "SELECT view_name FROM duckdb_views() WHERE NOT internal")
    left = questions().keys() - {name for (name,) in rows}
    assert left >= NEED_US
    assert len(left) < len(questions()) / 2


def test_answers_that_need_mcptally_can_be_kept_as_tables(folder: Path):
    assert set(duckdb_file.keep(folder)) >= NEED_US
    assert plainly(folder, "SELECT tool, calls FROM tool_scores") == [("read", 1)]


@pytest.mark.parametrize("name", ["a,b", "a[1]", "a*b", "it's"])
def test_whatever_the_store_is_called(folder: Path, name: str):
    store = folder.rename(folder.with_name(name))
    shutil.copytree(store, store.with_name("a-b"))  # what a pattern would find, too
    before = {path.name for path in store.iterdir()}
    duckdb_file.refresh(store)
    assert set(duckdb_file.keep(store)) >= NEED_US
    assert {path.name for path in store.iterdir()} == before
    assert plainly(store, "SELECT tool, calls FROM tool_scores") == [("read", 1)]
    assert plainly(store, COUNT) == [("read", 1)]
    assert mt.open_store(store).sql(COUNT).fetchall() == [("read", 1)]
    assert mt.open_store(store, store).ask("latency").pl().height == 1


def test_where_it_cannot_be_written_nothing_is_left_behind(folder: Path):
    (folder / duckdb_file.FILE).unlink()
    (folder / duckdb_file.FILE).mkdir()
    before = sorted(folder.iterdir())
    with pytest.raises(StoreError, match="cannot be written"):
        duckdb_file.keep(folder)
    assert sorted(folder.iterdir()) == before


def test_a_reader_that_has_the_file_open_is_not_disturbed(folder: Path):
    with duckdb.connect(str(folder / duckdb_file.FILE), read_only=True) as reader:
        views = "SELECT count(*) FROM duckdb_views() WHERE NOT internal"
        before = reader.sql(views).fetchall()
        duckdb_file.write(folder)
        assert reader.sql(views).fetchall() == before != [(0,)]


def test_it_is_made_anew_where_the_store_is_newer(folder: Path):
    duckdb_file.keep(folder)
    duckdb_file.refresh(folder)
    assert plainly(folder, "SELECT tool FROM tool_scores") == [("read",)]
    later = (folder / duckdb_file.FILE).stat().st_mtime + 10
    os.utime(folder / "store.json", (later, later))
    duckdb_file.refresh(folder)
    assert plainly(folder, "SELECT count(*) FROM duckdb_tables()") == [(0,)]


def test_who_may_only_read_goes_without(folder: Path):
    (folder / duckdb_file.FILE).unlink()
    folder.chmod(0o555)
    mine = os.access(folder, os.W_OK)  # as root's everything is
    try:
        duckdb_file.refresh(folder)
    finally:
        folder.chmod(0o755)
    assert (folder / duckdb_file.FILE).exists() == mine
