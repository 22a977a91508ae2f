"""Writes `STORE/mcptally.duckdb`: the store's tables and questions for any DuckDB client.

The file contains views and no data. Their paths are relative, so that a store can be moved and
copied; DuckDB resolves them in its working folder and in `file_search_path`.

Questions that need mcptally's own statistics cannot be views there. `keep` writes their answers to
the file as tables.
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
from mcptally.store.manifest import MANIFEST, VIEWS, LiveFiles, has_views, live_files, read_manifest
from mcptally.tables.all_tables import TABLES

FILE: Final = VIEWS
"""The name of the file in the store's folder."""


def refresh(folder: Path) -> None:
    """Write the file unless it is up to date.

    Without permission to write to the store, nothing happens.
    """
    # A damaged table is reported when the store is opened.
    with contextlib.suppress(OSError, duckdb.Error, StoreError):
        if not has_views(folder):
            write(folder)


def write(folder: Path) -> list[str]:
    """Write the file with views only; return the questions that cannot be views."""
    with _replacing(folder) as (connection, files):
        return _create_views(connection, files)


def write_with_answers(folder: Path) -> list[str]:
    """Write the file with a table for each question that cannot be a view; return their names.

    Raises:
        StoreError: the folder is not a store, or cannot be written.
    """
    opened = analytics_store.open_store(folder)
    try:
        with _replacing(folder) as (connection, files):
            left = _create_views(connection, files)
            for name in left:
                connection.register("_answer", opened.ask(name).to_arrow_table())
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM _answer')
                connection.unregister("_answer")
                comment = f"{views.question_titles()[name]} Answered when this file was written."
                connection.execute(f'COMMENT ON TABLE "{name}" IS {_sql_string(comment)}')
    except (OSError, duckdb.IOException) as error:
        raise StoreError(f"{folder / FILE}: cannot be written: {error}") from error
    return left


@contextlib.contextmanager
def _replacing(folder: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, LiveFiles]]:
    """A new database that replaces the file on success, and the store's live files.

    The paths of the live files are relative to the folder. On an error the new database is removed.
    """
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    try:
        changed = (folder / MANIFEST).stat().st_mtime_ns
        files = live_files(Path(), read_manifest(folder))
        with duckdb.connect(str(draft)) as connection, _pattern_free_path(folder) as place:
            connection.execute("SET file_search_path = ?", [str(place)])
            yield connection, files
        # Equal times mark the file as up to date with store.json.
        os.utime(draft, ns=(changed, changed))
        os.replace(draft, folder / FILE)  # noqa: PTH105  (atomic on every system)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _pattern_free_path(folder: Path) -> Iterator[Path]:
    """A path to the folder that DuckDB does not read as a list of paths or as a pattern."""
    place = folder.resolve()
    if not set(",*?[") & set(str(place)):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="mcptally-") as temporary:
        link = Path(temporary) / "store"
        link.symlink_to(place, target_is_directory=True)
        yield link


def _create_views(connection: duckdb.DuckDBPyConnection, files: LiveFiles) -> list[str]:
    """Create views of tables and questions; return the questions that cannot be views."""
    for table in TABLES:
        connection.execute(
            f'CREATE VIEW "{table.name}" AS SELECT * FROM {union.read(files[table.name])}'
        )
        connection.execute(f'COMMENT ON VIEW "{table.name}" IS {_sql_string(table.meaning)}')
    left = views.create_plain_questions(connection)
    for name, title in views.question_titles().items():
        if name not in left:
            connection.execute(f'COMMENT ON VIEW "{name}" IS {_sql_string(title)}')
    return [name for name in left if not name.startswith("_")]


def _sql_string(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
