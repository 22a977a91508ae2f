"""`STORE/mcptally.duckdb`: the store's tables and questions for any DuckDB client.

The file holds views, no data. Their paths are relative, so that a store can be moved and copied;
DuckDB looks such paths up in the folder in which it was started and in `file_search_path`.

Questions that need mcptally's own statistics cannot be views there. `keep` puts their answers into
the file, as tables.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import duckdb

from mcptally import query, store, views
from mcptally.schema import TABLES

FILE: Final = "mcptally.duckdb"


def refresh(folder: Path) -> None:
    """Make the file unless there is one of this store as it was scored last.

    Whoever may only read the store goes without.
    """
    file, manifest = folder / FILE, folder / store.MANIFEST
    # What is wrong with a table is said when the store is opened.
    with contextlib.suppress(OSError, duckdb.Error):
        if not file.exists() or file.stat().st_mtime < manifest.stat().st_mtime:
            write(folder)


def write(folder: Path) -> list[str]:
    """Make the file anew, with views only; gives the questions that cannot be among them."""
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with duckdb.connect(str(draft)) as connection:
        _look_in(connection, folder)
        for table in TABLES:
            connection.execute(
                f'CREATE VIEW "{table.name}" AS '
                f"SELECT * FROM read_parquet('{table.name}/**/*.parquet')"
            )
            connection.execute(f'COMMENT ON VIEW "{table.name}" IS {_text(table.meaning)}')
        left = views.create_plain_questions(connection)
        for name, title in views.questions().items():
            if name not in left:
                connection.execute(f'COMMENT ON VIEW "{name}" IS {_text(title)}')
    os.replace(draft, folder / FILE)  # noqa: PTH105  (the atomic one, by its name)
    return [name for name in left if not name.startswith("_")]


def keep(folder: Path) -> list[str]:
    """Make the file anew, with a table of each answer that cannot be a view; gives their names.

    Raises:
        StoreError: the folder is no store.
    """
    opened = query.open_store(folder)
    left = write(folder)
    with duckdb.connect(str(folder / FILE)) as connection:
        for name in left:
            connection.register("_answer", opened.ask(name).to_arrow_table())
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM _answer')
            connection.unregister("_answer")
            about = f"{views.questions()[name]} As it was answered when this file was made."
            connection.execute(f'COMMENT ON TABLE "{name}" IS {_text(about)}')
    return left


def _look_in(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    connection.execute("SET file_search_path = ?", [str(folder.resolve())])


def _text(words: str) -> str:
    quoted = words.replace("'", "''")
    return f"'{quoted}'"
