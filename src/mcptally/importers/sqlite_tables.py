"""Opens other programs' SQLite databases, which may be in use, damaged or hostile."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mcptally.importers.source import Source

MAGIC: Final = b"SQLite format 3\0"
"""First bytes of a database."""

# The message about a damaged schema quotes the schema, and may not be UTF-8.
BROKEN: Final = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions raised for a damaged database."""


def open_database(path: Path) -> sqlite3.Connection:
    """Return a read-only connection to the database.

    A database in use has a journal beside it, which SQLite must open. If the folder does not allow
    this, the journal is ignored.
    """
    place = quote(str(path.resolve()))
    connection = sqlite3.connect(f"file:{place}?mode=ro", uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except BROKEN:
        connection.close()
        connection = sqlite3.connect(f"file:{place}?mode=ro&immutable=1", uri=True)
    return connection


def has_tables(connection: sqlite3.Connection, tables: Mapping[str, set[str]]) -> bool:
    """Return whether a database has all these tables with these columns."""
    # A view or generated column with that name could run untrusted SQL that never ends.
    kinds = dict(
        connection.execute("SELECT name, type = 'table' AND rootpage > 0 FROM sqlite_master")
    )
    return all(
        kinds.get(table)
        and columns <= {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        for table, columns in tables.items()
    )


def rows(
    source: Source,
    program: str,
    tables: Mapping[str, set[str]],
    query: str,
    text_factory: Callable[[bytes], Any],
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query in a program's database.

    Each row is counted as seen; a missing or unreadable part is counted as one unused row.
    """
    tally, number = source.tally, 0
    try:
        with contextlib.closing(open_database(source.path)) as connection:
            if not has_tables(connection, tables):
                tally.seen += 1
                tally.skip(number, f"not a database of {program}: its tables are missing")
                return
            connection.text_factory = text_factory
            for number, row in enumerate(connection.execute(query), 1):  # noqa: B007
                tally.seen += 1
                yield row
    except BROKEN as error:
        tally.seen += 1
        tally.skip(number, f"reading stopped: {error}")


def is_database(path: Path, tables: Mapping[str, set[str]]) -> bool:
    """Return whether a file is a database with all these tables."""
    try:
        with contextlib.closing(open_database(path)) as connection:
            return has_tables(connection, tables)
    except BROKEN:
        return False
