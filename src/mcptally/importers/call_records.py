"""Builds a request and a reply from the record of a call, for logs that contain no frames.

The items are marked as `derived`. If a record lacks the arguments or the result, the item is a
`head`: only the id is known, and all other values are null in every table, as for a frame that was
too large to record.
"""

import json
import re
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.importers.items import MAX_PENDING_CALLS, Connection, Item, ItemKind, Tally
from mcptally.importers.values import ERROR_CODE
from mcptally.transcript.format import Dir
from mcptally.wire.strict_json import strict_json_error

_encode: Final = msgspec.json.Encoder().encode
NOT_RECORDED: Final = msgspec.Raw()
"""Placeholder for a JSON value that the record lacks."""

_VERSION_KEY: Final = b'"io.modelcontextprotocol/protocolVersion"'

PENDING_BYTES: Final = 64 << 20
"""Maximum total size of the requests in a `PendingCalls`, in bytes."""

MAX_MODEL: Final = 200
"""Maximum length of a model's name in characters; longer names are cut."""

FORGOTTEN: Final = "calls dropped: too many without a reply"
OUTCOME_UNKNOWN: Final = "a reply: whether it is an error is not recorded"
REFUSED: Final = "calls that the client itself refused: left out"

TIMED_OUT: Final = re.compile(
    r"MCP error -32001: Request timed out\b"
    r"|MCP server \"[^\"\n]{1,200}\" tool \"[^\"\n]{1,200}\" timed out after "
    r"|tool call error: tool call failed for `[^`\n]{1,400}`\s+Caused by:\s+timed out awaiting "
)
"""Matches the errors that the TypeScript SDK, Claude Code and Codex report when a server does not
answer in time."""


class PendingCalls:
    """Requests that have no reply so far; those with the same key are answered in order.

    Above a limit, the oldest request of the oldest key is dropped and counted.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._items: dict[Hashable, deque[Item]] = {}
        self._count = 0
        self._size = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def add(self, key: Hashable, request: Item) -> None:
        """Add a request; the key is the call's id, or what else the log says about the call."""
        self._items.setdefault(key, deque()).append(request)
        self._count += 1
        self._size += len(request.data)
        while self._count > MAX_PENDING_CALLS or self._size > PENDING_BYTES:
            self.pop(next(iter(self._items)))
            self._tally.notes[FORGOTTEN] += 1

    def pop(self, key: Hashable) -> Item | None:
        """Remove and return the oldest request with a key, or return None if none is kept."""
        if key not in self._items:
            return None
        request = self._items[key].popleft()
        if not self._items[key]:
            del self._items[key]
        self._count -= 1
        self._size -= len(request.data)
        return request

    def unanswered(self) -> Iterator[Item]:
        """Yield the requests without a reply, oldest key first."""
        for waiting in self._items.values():
            yield from waiting


def request(
    connection: Connection,
    call: str,
    line: int,
    at: int | None,
    *,
    tool: str | None = None,
    method: str = "tools/call",
    uri: str | None = None,
    arguments: bytes = NOT_RECORDED,
    version: str | None = None,
    model: str | None = None,
    direction: Dir = "c2s",
) -> Item:
    """Return a request item. If neither `arguments` nor `uri` is given, the item has no content.

    `version` is the protocol revision, which is written to `_meta` as in 2026-07-28. `model` is the
    language model that requested the call, which is written to the event, outside the frame.
    """
    item = Item("head", line, connection, at, dir=direction, derived=True)
    params = b""
    meta = b"" if version is None else b',"_meta":{%b:%b}' % (_VERSION_KEY, _encode(version))
    if uri is not None:
        params = b'{"uri":%b%b}' % (_encode(uri), meta)
    elif tool is not None and len(arguments):
        params = b'{"name":%b,"arguments":%b%b}' % (_encode(tool), arguments, meta)
    if params:
        item.kind = "message"
        item.data = b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (
            *(_encode(call), _encode(method)),
            params,
        )
    else:
        item.extra = {"id": call, "method": method} | ({"name": tool} if tool is not None else {})
    if model is not None:
        item.extra["model"] = model[:MAX_MODEL]
    return item


class CallEnd(NamedTuple):
    """The place in a log where a call ended; the methods return the item that ends the call."""

    connection: Connection
    call: str
    """The call's id."""
    line: int
    at: int | None
    direction: Dir = "s2c"
    """The direction of a reply."""

    def result(self, result: bytes = NOT_RECORDED, *, is_error: bool | None = None) -> Item:
        """Return a reply with `result` (JSON text); without a result, the item has no content.

        `is_error` is None if the log does not record whether the result is an error.
        """
        if len(result):
            data = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_encode(self.call), result)
            return self._item("message", self.direction, data=data)
        known = {} if is_error is None else {"is_error": is_error}
        return self._item("head", self.direction, extra={"id": self.call, **known})

    def error(self, message: str | None, code: int | None = None) -> Item:
        """Return a reply with an error; `code` and `message` are omitted if they are None."""
        members = {"code": code, "message": message}
        error = {name: value for name, value in members.items() if value is not None}
        data = _encode({"jsonrpc": "2.0", "id": self.call, "error": error})
        return self._item("message", self.direction, data=data)

    def cancelled(self, why: str) -> Item:
        """Return the notification by which the caller cancelled the call."""
        params = {"requestId": self.call, "reason": why}
        data = _encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        return self._item("message", "c2s" if self.direction == "s2c" else "s2c", data=data)

    def sdk_failure(self, text: str) -> Item | None:
        """Return the item that ends a failed call: a timeout or a JSON-RPC error, by its text.

        Returns None if no MCP SDK writes such an error text.
        """
        if TIMED_OUT.match(text):
            return self.cancelled("timeout")
        if code := ERROR_CODE.match(text):
            return self.error(code["message"], int(code["code"]))
        return None

    def _item(self, kind: ItemKind, direction: Dir, **content: Any) -> Item:
        return Item(
            kind, self.line, self.connection, self.at, dir=direction, derived=True, **content
        )


def result_of(value: Any, *, is_error: bool | None = None) -> bytes:
    """Return a tool result as JSON text; `value` is the result, its content or its text.

    `is_error`, unless it is None, is added as `isError` if the value has no `isError`.
    """
    if isinstance(value, str):
        value = _decoded(value)
    if _is_result(value):
        result = value
    elif isinstance(value, list) and all(isinstance(b, dict) and "type" in b for b in value):
        result = {"content": value}
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        result = {"content": [{"type": "text", "text": text}]}
    if is_error is not None and "isError" not in result:
        result = {**result, "isError": is_error}
    return json_bytes(result)


def _decoded(text: str) -> Any:
    """Decode JSON text if it is a tool result or its content; return other text unchanged."""
    if text.lstrip()[:1] in {"{", "["} and strict_json_error(text.encode(errors="replace")) is None:
        value = msgspec.json.decode(text)
        if _is_result(value):
            return value
        if isinstance(value, list) and value and all(_is_block(block) for block in value):
            return value
    return text


def _is_result(value: Any) -> bool:
    """Return whether a value is a whole `tools/call` result (content, input request or task)."""
    if not isinstance(value, dict):
        return False
    task = value.get("task")
    return (
        "content" in value
        or "structuredContent" in value
        or isinstance(value.get("resultType"), str)
        or (isinstance(task, dict) and "taskId" in task and "status" in task)
    )


_BLOCKS: Final = ("text", "image", "audio", "resource", "resource_link")


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in _BLOCKS


def json_bytes(value: Any) -> bytes:
    """Encode a value as JSON; replace lone surrogates."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
