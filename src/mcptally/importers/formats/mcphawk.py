"""Reads the SQLite database of mcphawk 1.0 (`mcphawk.db`).

mcphawk parses messages and prints them again, redacts them in its own way, and identifies sessions.
It does not store HTTP statuses. Rows are sorted by time, because they are not always stored in
order.
"""

from collections.abc import Iterator
from typing import Any, Final

from mcptally.importers.items import Connection, Item
from mcptally.importers.source import Source
from mcptally.importers.sqlite_tables import rows
from mcptally.transcript.format import Dir

TABLES: Final = {
    "messages": {"id", "session_id", "ts", "direction", "size", "body"},
    "sessions": {"id", "name", "transport", "target", "ended_at", "server_name"},
}
_QUERY: Final = """
    SELECT m.id, m.session_id, m.ts, m.direction, m.size, m.body,
           s.name, s.transport, s.target, s.server_name
    FROM messages m LEFT JOIN sessions s ON s.id = m.session_id
    ORDER BY m.ts, m.id
"""
_TRANSPORTS: Final = {"stdio": "stdio", "sse": "http_sse"}


def read(source: Source) -> Iterator[Item]:
    """Yield the messages in a database, oldest first."""
    tally = source.tally
    last = 0
    for row in rows(source, "mcphawk", TABLES, _QUERY, bytes):
        try:
            item = _item(source, row)
        except (ValueError, TypeError, AttributeError, OverflowError):
            tally.skip(last, "a row with values of the wrong type")
            continue
        last = item.line
        tally.used += 1
        yield item


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
        "message",
        int(number),
        connection,
        source.at(float(time)),
        dir=direction,
        data=body if isinstance(body, bytes) else str(body).encode(),
        size=int(size) if isinstance(size, int) else None,
    )


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) and value else None
