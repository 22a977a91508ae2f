"""Opens other programs' SQLite databases, which may be in use, damaged or malicious."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mcptally.importers.source import Source

MAGIC: Final = b"SQLite format 3\0"
"""First bytes of an SQLite database."""

# The message about a damaged schema quotes the schema, which may not be UTF-8.
BROKEN: Final = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions that a damaged database can raise."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open a database read-only.

    A database in use has a journal next to it, which SQLite must open. If the folder does not
    permit this, the journal is ignored.
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
    """Return whether a database has all the given tables and columns."""
    # A view or generated column of the same name could run untrusted SQL that never terminates.
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
    """Run a query on a program's database; yield the rows.

    Each row is counted as seen; missing tables and errors are each counted as one unused row.
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
    """Return whether a file is a database with all the given tables and columns."""
    try:
        with contextlib.closing(open_database(path)) as connection:
            return has_tables(connection, tables)
    except BROKEN:
        return False
