"""A store with anything other than plain files and folders, or with another path, is refused."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.errors import StoreError
from tests.commands import run

pytestmark = pytest.mark.slow


def link(path: Path, aside: Path) -> None:
    """Move a file or folder, and link to it from where it was."""
    path.rename(aside / path.name)
    path.symlink_to(aside / path.name)


def put_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


CHANGES = {
    "a linked table": lambda store, aside: link(store / "calls", aside),
    "a linked part": lambda store, aside: link(next(store.glob("calls/*.parquet")), aside),
    "a linked manifest": lambda store, aside: link(store / "store.json", aside),
    "a pipe as manifest": lambda store, _: put_pipe(store / "store.json"),
    "a pipe beside the parts": lambda store, _: put_pipe(store / "calls" / "z.parquet"),
    "a link to a device": lambda store, _: (store / "tools" / "z").symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_store_with_a_link_or_device_is_refused(small_store, tmp_path, change):
    aside, folder = tmp_path / "aside", shutil.copytree(small_store.path, tmp_path / "store")
    aside.mkdir()
    change(folder, aside)
    with pytest.raises(StoreError, match="plain files and folders only; remove it"):
        mt.open_store(folder)
    done = run("query", folder, "SELECT 1")
    assert done.returncode == 3
    assert str(folder) in done.stderr


def test_the_path_of_a_store_may_be_a_link(small_store: mt.Store, tmp_path: Path):
    (tmp_path / "latest").symlink_to(small_store.path.resolve(), target_is_directory=True)
    linked = mt.open_store(tmp_path / "latest")
    assert linked.sql("SELECT tool FROM calls").fetchall() == [("read",)]


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text")
def test_a_path_that_is_not_utf8_is_refused(small_store: mt.Store, tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(StoreError, match="name another folder"):
        mt.score([small_store.path.parent / "traces.jsonl"], out=folder)
    assert not folder.exists()
    shutil.copytree(small_store.path, folder)
    with pytest.raises(StoreError, match="name another folder"):
        mt.open_store(folder)


def test_a_path_with_a_tilde_that_no_shell_replaced_is_refused(small_store: mt.Store):
    for folder in ("~/store", "~someone/store"):
        with pytest.raises(StoreError, match=r"write \$HOME"):
            mt.score([small_store.path.parent / "traces.jsonl"], out=folder)
        with pytest.raises(StoreError, match=r"write \$HOME"):
            mt.open_store(folder)
