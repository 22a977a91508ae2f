"""Finds `id`, `method`, `name` and `is_error` in a frame whose middle was not recorded.

The head is scanned forwards and the tail backwards, for as long as the nesting level is known.
"""

import re
from typing import Any, Final

import msgspec

from mcptally.wire.framing import TruncatedFrame

_TOKEN: Final = re.compile(
    rb'\s*(?:(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<punct>[][{},:])|(?P<word>[-+.\w]+))'
)
_SCALAR: Final = rb'(?:"[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+)'
# Matches a member with a scalar value, or a closing bracket, at the end of the text.
_LAST: Final = re.compile(
    rb'(?P<close>[]}])\s*\Z|,\s*"(?P<key>[A-Za-z]{1,16})"\s*:\s*(?P<value>' + _SCALAR + rb")\s*\Z"
)
_LONGEST_STEP: Final = 1024
"""Maximum number of bytes searched in each backward step: ids and error flags are short."""

_PATHS: Final[dict[tuple[str, ...], str]] = {
    ("id",): "id",
    ("method",): "method",
    ("params", "name"): "name",
    ("params", "uri"): "name",
    ("result", "isError"): "is_error",
}
"""Maps the path of a member in a JSON-RPC message to the field that it gives."""


def fields_of_truncated(piece: TruncatedFrame) -> dict[str, Any]:
    """Return the fields `id`, `method`, `name` (tool, prompt or uri) and `is_error` if found."""
    return _backwards(piece.tail) | _forwards(piece.head)


def _value(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return None


def _forwards(head: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    path: list[str] = []
    closers: list[bytes] = []
    key = ""
    expects_value = False
    position = 0
    while match := _TOKEN.match(head, position):
        position = match.end()
        token = match.group().lstrip()
        if token in (b"{", b"["):
            if closers:
                path.append(key)
            closers.append(token)
            key, expects_value = "", token == b"["
        elif token in (b"}", b"]"):
            if not closers:
                break
            closers.pop()
            key = path.pop() if path else ""
        elif token == b",":
            expects_value = bool(closers) and closers[-1] == b"["
        elif token == b":":
            expects_value = True
        elif not expects_value:
            key = str(_value(token))
        elif position < len(head):
            name = _PATHS.get((*path, key)) if closers[-1:] == [b"{"] else None
            if name and (value := _value(token)) is not None:
                found[name] = value
    return found


def _backwards(tail: bytes) -> dict[str, Any]:
    """Return the message's `id` and the result's `isError`, if they are the last members."""
    found: dict[str, Any] = {}
    depth = 0
    end = len(tail)
    while match := _LAST.search(tail[max(0, end - _LONGEST_STEP) : end]):
        end = max(0, end - _LONGEST_STEP) + match.start()
        if match["close"]:
            depth += 1
            if depth > 2:
                break
        elif depth == 1 and match["key"] == b"id":
            found.setdefault("id", _value(match["value"]))
        elif depth == 2 and match["key"] == b"isError":
            found.setdefault("is_error", _value(match["value"]))
    return found
