"""Reads mcpsnoop's session logs (`sessions/*.jsonl`).

White space between a frame's tokens is lost, so its length on the wire is unknown. Over HTTP, the
connection's id is used as the exchange's id.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.source import Source

_TRANSPORTS: Final = {"stdio": "stdio", "http": "streamable_http"}


class _Envelope(msgspec.Struct):
    session: str = msgspec.field(name="session_id")
    direction: str
    label: str | None = msgspec.field(default=None, name="server_label")
    ts: object = None
    transport: str | None = None
    raw: msgspec.Raw = msgspec.Raw()
    text: str = ""
    conn: str | None = msgspec.field(default=None, name="conn_id")
    truncated: bool = False
    status: int | None = None


class _Meta(msgspec.Struct):
    command: list[str] = []


_DECODE: Final = msgspec.json.Decoder(_Envelope)
_META: Final = msgspec.json.Decoder(_Meta)


def read(source: Source) -> Iterator[Item]:
    """Yield the frames, stderr lines and commands in a file."""
    tally = source.tally
    for line, seen in source.records(_DECODE, "not an event of mcpsnoop"):
        connection = source.connection(
            seen.session, server=seen.label or None, transport=_TRANSPORTS.get(seen.transport or "")
        )
        item = Item("message", line, connection, source.at(seen.ts))
        if seen.direction == "meta":
            tally.context["the command"] += 1
            item.kind, item.extra = "begin", {"new": False}
            try:
                item.extra["command"] = _META.decode(seen.raw).command
            except (msgspec.DecodeError, RecursionError, ValueError):
                tally.notes["a command that cannot be decoded"] += 1
            yield item
            continue
        if seen.direction == "stderr":
            item.kind = "stderr"
        elif seen.direction in {"c2s", "s2c"}:
            item.dir = "c2s" if seen.direction == "c2s" else "s2c"
            item.scope = seen.conn or None
        else:
            tally.skip(line, "an unknown direction")
            continue
        tally.used += 1
        item.data = bytes(seen.raw) or seen.text.encode(errors="replace")
        if seen.status and item.scope:
            extra = {"phase": "response", "status": seen.status}
            yield Item("http", line, connection, item.at, dir="s2c", scope=item.scope, extra=extra)
        if item.kind == "message" and not item.data:
            tally.notes["frames without content"] += 1
            continue
        yield item
