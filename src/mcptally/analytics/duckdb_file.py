"""`STORE/mcptally.duckdb`: the store's tables and questions for any DuckDB client.

The file holds views, no data. Their paths are relative, so that a store can be moved and copied;
DuckDB looks such paths up in the folder in which it was started and in `file_search_path`.

Questions that need mcptally's own statistics cannot be views there. `keep` puts their answers into
the file, as tables.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from mcptally.analytics import store as analytics_store
from mcptally.analytics import union, views
from mcptally.errors import StoreError
from mcptally.store import files as store_files
from mcptally.tables.all_tables import TABLES

FILE: Final = store_files.VIEWS
"""Its name in the store's folder."""


def refresh(folder: Path) -> None:
    """Make the file unless there is one of this store as it was scored last.

    Whoever may only read the store goes without.
    """
    # What is wrong with a table is said when the store is opened.
    with contextlib.suppress(OSError, duckdb.Error, StoreError):
        if not store_files.has_views(folder):
            write(folder)


def write(folder: Path) -> list[str]:
    """Make the file anew, with views only; gives the questions that cannot be among them."""
    with _anew(folder) as (connection, files):
        return _make_views(connection, files)


def keep(folder: Path) -> list[str]:
    """Make the file anew, with a table of each answer that cannot be a view; gives their names.

    Raises:
        StoreError: the folder is no store, or may not be written.
    """
    opened = analytics_store.open_store(folder)
    try:
        with _anew(folder) as (connection, files):
            left = _make_views(connection, files)
            for name in left:
                connection.register("_answer", opened.ask(name).to_arrow_table())
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM _answer')
                connection.unregister("_answer")
                about = f"{views.questions()[name]} As it was answered when this file was made."
                connection.execute(f'COMMENT ON TABLE "{name}" IS {_text(about)}')
    except (OSError, duckdb.IOException) as error:
        raise StoreError(f"{folder / FILE}: cannot be written: {error}") from error
    return left


@contextlib.contextmanager
def _anew(folder: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, store_files.Files]]:
    """A database that takes the file's place when it is done, and is gone if it is not.

    With it the live files that its views are to name, by their paths from the folder.
    """
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    try:
        changed = (folder / store_files.MANIFEST).stat().st_mtime_ns
        files = store_files.live(Path(), store_files.read_manifest(folder))
        with duckdb.connect(str(draft)) as connection, _plainly_named(folder) as place:
            connection.execute("SET file_search_path = ?", [str(place)])
            yield connection, files
        # Whether it is of the store as it is now can be seen from outside.
        os.utime(draft, ns=(changed, changed))
        os.replace(draft, folder / FILE)  # noqa: PTH105  (the atomic one, by its name)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _plainly_named(folder: Path) -> Iterator[Path]:
    """A path of the folder that DuckDB takes for neither a list of paths nor a pattern."""
    place = folder.resolve()
    if not set(",*?[") & set(str(place)):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="mcptally-") as aside:
        link = Path(aside) / "store"
        link.symlink_to(place, target_is_directory=True)
        yield link


def _make_views(connection: duckdb.DuckDBPyConnection, files: store_files.Files) -> list[str]:
    """Tables and questions as views; gives the questions that cannot be."""
    for table in TABLES:
        connection.execute(
            f'CREATE VIEW "{table.name}" AS SELECT * FROM {union.read(files[table.name])}'
        )
        connection.execute(f'COMMENT ON VIEW "{table.name}" IS {_text(table.meaning)}')
    left = views.create_plain_questions(connection)
    for name, title in views.questions().items():
        if name not in left:
            connection.execute(f'COMMENT ON VIEW "{name}" IS {_text(title)}')
    return [name for name in left if not name.startswith("_")]


def _text(words: str) -> str:
    quoted = words.replace("'", "''")
    return f"'{quoted}'"
