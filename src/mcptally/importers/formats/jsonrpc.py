"""Reads plain JSON-RPC, one message per line, bare or in an envelope.

    {"jsonrpc":"2.0","id":1,"method":"tools/call",…}
    {"time":"2026-03-01T09:44:53Z","dir":"c2s","msg":{…}}

The envelope's fields have common names or the names that the user gives. Without an envelope, the
direction follows from the protocol if only one side can send the message: requests that only
clients make, and replies to known requests. A message that either side may send is assumed to have
the usual direction, and is counted.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers.items import MAX_PENDING_CALLS, Item
from mcptally.importers.source import Source
from mcptally.transcript.format import Dir
from mcptally.wire.json_text import ANY, decode_or_none

MESSAGE: Final = ("message", "msg", "frame", "payload", "raw", "data", "body", "content", "rpc")
TIME: Final = ("ts_ns", "ts", "time", "timestamp", "at", "@timestamp", "t", "date", "when")
DIRECTION: Final = ("direction", "dir", "flow")
SESSION: Final = ("session", "session_id", "sessionId", "recording", "connection", "conn_id")
"""Common names of an envelope's fields; the first name that exists is used."""

_WORDS: Final[dict[Dir, str]] = {
    "c2s": "c2s client_to_server client->server client-to-server clienttoserver client to_server "
    "editor->server host->server >>> -> → c→s client→server",
    "s2c": "s2c server_to_client server->client server-to-client servertoclient server to_client "
    "server->editor server->host <<< <- ← s→c server→client",
}
_DIRECTIONS: Final[dict[str, Dir]] = {w: d for d, words in _WORDS.items() for w in words.split()}

_SENT_BY_SERVERS: Final = re.compile(
    r"sampling/|roots/list\Z|elicitation/create\Z|notifications/(?:message|resources/|tools/|"
    r"prompts/|elicitation/|subscriptions/|progress\Z|tasks)"
)
_SENT_BY_EITHER: Final = re.compile(r"ping\Z|tasks/|notifications/(?:cancelled|progress|tasks)")


class _Message(msgspec.Struct):
    method: object = None
    id: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()

    @property
    def is_jsonrpc(self) -> bool:
        return isinstance(self.method, str) or bool(len(self.result) or len(self.error))


_DECODE: Final = msgspec.json.Decoder(_Message)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(source: Source) -> Iterator[Item]:
    """Yield the messages in a file."""
    tally = source.tally
    senders: dict[tuple[str, bytes], Dir] = {}
    for line, data in source.lines():
        text = data.strip()
        if not text:
            tally.context["blank"] += 1
            continue
        fields = decode_or_none(_FIELDS, text)
        found = _frame(source, text, fields)
        if found is None:
            why = "JSON without a message" if fields is not None else "neither JSON nor an envelope"
            tally.skip(line, why)
            continue
        frame, size = found
        envelope = None if frame is text else fields
        session = _scalar_text(_find(envelope, source.envelope.session, SESSION)) or ""
        item = Item("message", line, source.connection(session), data=frame, size=size)
        item.at = source.at(_decoded(_find(envelope, source.envelope.time, TIME)))
        item.dir = _stated_direction(source, envelope) or _inferred_direction(
            source, session, frame, senders
        )
        tally.used += 1
        yield item


def _frame(
    source: Source, text: bytes, fields: dict[str, msgspec.Raw] | None
) -> tuple[bytes, int | None] | None:
    """Return a line's message, and its size in bytes if the line contains the original bytes."""
    message = decode_or_none(_DECODE, text)
    is_bare = text[:1] == b"[" or (message is not None and message.is_jsonrpc)
    if source.envelope.message is None and is_bare:
        return text, len(text)
    if fields is None:
        return None
    value = _find(fields, source.envelope.message, MESSAGE)
    if value is None:
        return None
    if value[:1] == b'"':
        inner = _decoded(value)
        # A string contains the original frame; `TranscriptBuilder` checks whether it is JSON.
        return (inner.encode(), len(inner.encode())) if isinstance(inner, str) else None
    return (value, None) if value[:1] in {b"{", b"["} else None


def _find(
    fields: dict[str, msgspec.Raw] | None, name: str | None, usual: tuple[str, ...]
) -> bytes | None:
    """Return a field's JSON text, from the dotted path `name` or from the field's common names."""
    if fields is None:
        return None
    if name is None:
        return next((bytes(fields[key]) for key in usual if key in fields), None)
    if name in fields:
        return bytes(fields[name])
    value: bytes | None = None
    inner: dict[str, msgspec.Raw] | None = fields
    for part in name.split("."):
        if inner is None or part not in inner:
            return None
        value = bytes(inner[part])
        inner = decode_or_none(_FIELDS, value)
    return value


def _decoded(value: bytes | None) -> Any:
    return None if value is None else decode_or_none(ANY, value)


def _scalar_text(value: bytes | None) -> str | None:
    plain = _decoded(value)
    return str(plain) if isinstance(plain, (str, int)) and not isinstance(plain, bool) else None


def _stated_direction(source: Source, fields: dict[str, msgspec.Raw] | None) -> Dir | None:
    word = _scalar_text(_find(fields, source.envelope.direction, DIRECTION))
    if word is None:
        return None
    if word in source.envelope.c2s:
        return "c2s"
    if word in source.envelope.s2c:
        return "s2c"
    return _DIRECTIONS.get(re.sub(r"\s", "", word.lower()))


def _inferred_direction(
    source: Source, session: str, frame: bytes, senders: dict[tuple[str, bytes], Dir]
) -> Dir:
    """Infer a message's direction from the protocol, and count whether it is certain."""
    notes = source.tally.notes
    message = decode_or_none(_DECODE, frame)
    if message is None:
        notes["unknown direction: client to server assumed"] += 1
        return "c2s"
    either = isinstance(message.method, str) and _SENT_BY_EITHER.match(message.method)
    notes[
        "unknown direction: the usual one assumed"
        if either
        else "direction derived from the protocol"
    ] += 1
    key = (session, bytes(message.id))
    if not isinstance(message.method, str):
        sender = senders.pop(key, "c2s")
        return "s2c" if sender == "c2s" else "c2s"
    direction: Dir = "s2c" if _SENT_BY_SERVERS.match(message.method) else "c2s"
    if len(message.id):
        if len(senders) >= MAX_PENDING_CALLS:
            del senders[next(iter(senders))]
        senders[key] = direction
    return direction
