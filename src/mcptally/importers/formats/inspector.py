"""Reads exports from MCP Inspector 2's Protocol tab (`inspector-protocol-*.json`).

    [{"id":"…","timestamp":"2026-11-28T10:00:00.000Z","direction":"request","origin":"client",
      "message":{…},"response":{…},"duration":3}]

A request contains its reply, which arrived `duration` ms later. The file name contains the server's
name. The Inspector keeps the last 1,000 messages.
"""

import re
import urllib.parse
from collections.abc import Iterator
from typing import Final

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.timestamps import add_duration
from mcptally.transcript.format import Dir

_NAME: Final = re.compile(r"inspector-protocol-(?P<server>.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d")


class _Entry(msgspec.Struct):
    direction: str
    origin: str
    message: msgspec.Raw
    timestamp: object = None
    response: msgspec.Raw = msgspec.Raw()
    duration: float | None = None


_ENTRY: Final = msgspec.json.Decoder(_Entry)


def read(source: Source) -> Iterator[Item]:
    """Yield the messages in an export."""
    named = _NAME.match(source.stem)
    server = urllib.parse.unquote(named["server"]) if named else None
    connection = source.connection(server=server)
    for line, entry in source.elements((), _ENTRY, "not a message of the Inspector"):
        source.tally.used += 1
        sent: Dir = "s2c" if entry.origin == "server" else "c2s"
        at = source.at(entry.timestamp)
        yield Item("message", line, connection, at, dir=sent, data=_unspaced(entry.message))
        if entry.response:
            took = None if entry.duration is None else entry.duration * 1e6
            yield Item(
                "message",
                line,
                connection,
                add_duration(at, took),
                dir="c2s" if sent == "s2c" else "s2c",
                data=_unspaced(entry.response),
            )


def _unspaced(message: msgspec.Raw) -> bytes:
    """Return the message without the white space that the export adds between tokens."""
    return msgspec.json.format(bytes(message), indent=-1)
