"""Reads the SQLite database of mcphawk 1.0 (`mcphawk.db`).

mcphawk parses and reprints messages, applies its own redaction, and identifies sessions. It stores
no HTTP statuses. Rows are sorted by time, because they are not always written in that order.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mcptally.importers.items import Connection, Item
from mcptally.importers.source import Source
from mcptally.transcript.format import Dir

_TABLES: Final = {
    "messages": {"id", "session_id", "ts", "direction", "size", "body"},
    "sessions": {"id", "name", "transport", "target", "ended_at", "server_name"},
}
_QUERY: Final = """
    SELECT m.id, m.session_id, m.ts, m.direction, m.size, m.body,
           s.name, s.transport, s.target, s.server_name
    FROM messages m LEFT JOIN sessions s ON s.id = m.session_id
    ORDER BY m.ts, m.id
"""
# The message about a damaged schema quotes it, and may not be UTF-8.
_BROKEN: Final = (sqlite3.Error, UnicodeDecodeError)
_TRANSPORTS: Final = {"stdio": "stdio", "sse": "http_sse"}


def is_database(path: Path) -> bool:
    """Whether an SQLite file has mcphawk's tables."""
    try:
        with contextlib.closing(_open(path)) as connection:
            return _has_tables(connection)
    except _BROKEN:
        return False


def _has_tables(connection: sqlite3.Connection) -> bool:
    # A view or generated column of that name could run untrusted SQL that never ends.
    kinds = dict(
        connection.execute("SELECT name, type = 'table' AND rootpage > 0 FROM sqlite_master")
    )
    return all(
        kinds.get(table)
        and columns <= {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        for table, columns in _TABLES.items()
    )


def read(source: Source) -> Iterator[Item]:
    """Yield the messages of a database, oldest first."""
    tally = source.tally
    last = 0
    try:
        with contextlib.closing(_open(source.path)) as connection:
            if not _has_tables(connection):
                tally.seen += 1
                tally.skip(last, "not a database of mcphawk: its tables are missing")
                return
            connection.text_factory = bytes
            for row in connection.execute(_QUERY):
                tally.seen += 1
                try:
                    item = _item(source, row)
                except (ValueError, TypeError, AttributeError, OverflowError):
                    tally.skip(last, "a row with values of the wrong type")
                    continue
                last = item.line
                tally.used += 1
                yield item
    except _BROKEN as error:
        tally.seen += 1
        tally.skip(last, f"reading stopped: {error}")


def _item(source: Source, row: tuple[Any, ...]) -> Item:
    number, session, time, sent, size, body, name, transport, target, said = row
    direction: Dir = "s2c" if sent == b"s2c" else "c2s"
    carried = _text(transport) or ""
    label = _text(name) or _text(said) or _text(target)
    connection: Connection = source.connection(
        _text(session) or "",
        server=label,
        transport=_TRANSPORTS.get(carried, "streamable_http" if "http" in carried else None),
    )
    return Item(
        kind="message",
        line=int(number),
        connection=connection,
        at=source.at(float(time)),
        dir=direction,
        data=body if isinstance(body, bytes) else str(body).encode(),
        size=int(size) if isinstance(size, int) else None,
    )


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) and value else None


def _open(path: Path) -> sqlite3.Connection:
    """A read-only connection to the database.

    A database in use has a journal next to it, which SQLite must open. If the folder does not
    allow that, the journal is ignored.
    """
    place = quote(str(path.resolve()))
    connection = sqlite3.connect(f"file:{place}?mode=ro", uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except _BROKEN:
        connection.close()
        connection = sqlite3.connect(f"file:{place}?mode=ro&immutable=1", uri=True)
    return connection
