"""Writes `STORE/mcptally.duckdb`, which offers tables and questions to any DuckDB client.

The file contains views, not data. The views contain the store's absolute path. After a store is
moved or copied, `refresh` writes the file again; without mcptally, set the DuckDB variable `store`
to the folder.

Questions that need mcptally's own statistics cannot be views in the file; `write_with_answers`
stores their answers as tables.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from mcptally.analytics import store as analytics_store
from mcptally.analytics import views
from mcptally.errors import StoreError
from mcptally.store.manifest import (
    MANIFEST,
    VIEWS,
    LiveFiles,
    as_pattern,
    live_files,
    place_in_views,
    read_manifest,
    views_are_current,
)
from mcptally.tables.all_tables import TABLES

FILE: Final = VIEWS
"""Name of the DuckDB file in the store's folder."""
OLDEST_DUCKDB: Final = "v1.0.0"
"""DuckDB version whose storage format the file has, so that this and later versions can read it."""


def refresh(folder: Path) -> None:
    """Write `mcptally.duckdb` in the store's folder again, unless it is up to date.

    If the store is not writable, nothing is done.
    """
    # Ignore damaged tables: they are reported when the store is opened.
    with contextlib.suppress(OSError, duckdb.Error, StoreError):
        if not views_are_current(folder):
            write(folder)


def write(folder: Path) -> list[str]:
    """Write `mcptally.duckdb` with views only; return the names of the questions left out."""
    with _replacing(folder) as (connection, files):
        return _create_views(connection, folder, files)


def write_with_answers(folder: Path) -> list[str]:
    """Write `mcptally.duckdb`, with tables for the questions that cannot be views.

    Returns:
        The names of these questions.

    Raises:
        StoreError: the folder is not a store or is not writable.
    """
    opened = analytics_store.open_store(folder)
    try:
        with _replacing(folder) as (connection, files):
            left = _create_views(connection, folder, files)
            for name in left:
                connection.register("_answer", opened.ask(name).to_arrow_table())
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM _answer')
                connection.unregister("_answer")
                comment = f"{views.question_titles()[name]} Answered when this file was written."
                connection.execute(f'COMMENT ON TABLE "{name}" IS {_sql_string(comment)}')
    except (OSError, duckdb.IOException, duckdb.TransactionException) as error:
        raise StoreError(f"{folder / FILE}: cannot be written: {error}") from error
    return left


@contextlib.contextmanager
def _replacing(folder: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, LiveFiles]]:
    """Yield a new database, which replaces the file on success, and the store's live files.

    The paths of the live files are relative to the folder. On an error, the new database is
    removed.
    """
    draft = folder / f".{FILE}.{os.getpid()}"
    _remove(draft)
    try:
        changed = (folder / MANIFEST).stat().st_mtime_ns
        files = live_files(Path(), read_manifest(folder, archive=False))
        with duckdb.connect(
            str(draft), config={"storage_compatibility_version": OLDEST_DUCKDB}
        ) as connection:
            yield connection, files
        # Equal modification times mean that the file is up to date with store.json.
        os.utime(draft, ns=(changed, changed))
        os.replace(draft, folder / FILE)  # noqa: PTH105  (atomic on every system)
    finally:
        _remove(draft)


def _remove(database: Path) -> None:
    """Remove a database, and the write-ahead log that DuckDB leaves behind after an error."""
    database.unlink(missing_ok=True)
    database.with_name(f"{database.name}.wal").unlink(missing_ok=True)


def _create_views(
    connection: duckdb.DuckDBPyConnection, folder: Path, files: LiveFiles
) -> list[str]:
    """Create views of tables and questions; return the names of questions that cannot be views."""
    place = f"coalesce(getvariable('store') || '/', {_sql_string(place_in_views(folder))})"
    for table in TABLES:
        names = [f"{place} || {_sql_string(as_pattern(path))}" for path in files[table.name]]
        source = f"read_parquet([{', '.join(names)}])"
        connection.execute(f'CREATE VIEW "{table.name}" AS SELECT * FROM {source}')
        connection.execute(f'COMMENT ON VIEW "{table.name}" IS {_sql_string(table.meaning)}')
    left = views.create_plain_questions(connection)
    for name, title in views.question_titles().items():
        if name not in left:
            connection.execute(f'COMMENT ON VIEW "{name}" IS {_sql_string(title)}')
    return [name for name in left if not name.startswith("_")]


def _sql_string(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
