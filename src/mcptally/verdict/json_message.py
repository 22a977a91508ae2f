"""Extracts the messages from error texts that are JSON objects; skips data, hints and input."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

MAX_TEXT: Final = 20_000
"""Maximum length in characters of a text that is parsed; longer texts are data that contain an
error."""
MAX_DEPTH: Final = 4
"""Maximum depth at which a value is searched for messages."""
MAX_ITEMS: Final = 20
"""Maximum number of items of a list that are searched for messages."""

_MESSAGE: Final = re.compile(
    r"(?i)(?:\w+_)?(?:errors?|err|message|msg|reason|details?|description|exception|cause|failure"
    r"|stderr|title|summary|text)(?:_?(?:message|msg|text|details?|description)|_(?!id|no)[a-z]{2})?\Z"
)
"""Matches the names of members that contain messages."""
_CONTAINER: Final = re.compile(r"(?i)(?:data|results?|response|content|body|structuredContent)\Z")
"""Matches the names of members whose object or list is searched for messages."""
_CODE: Final = re.compile(r"(?i)(?:error_?)?(?:code|type|name|kind|class|category|status)\Z")
"""Matches the names of members that contain the name of an error."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z]\w*(?:[.-]\w+)*\Z")
_UNINFORMATIVE: Final = frozenset({"error", "fail", "failed", "failure", "exception", "unknown"})
_MEMBER: Final = re.compile(r'"([A-Za-z_]\w{0,40})"\s*:\s*"((?:[^"\\]|\\.)*)(?:"|\Z)')
_DECODER: Final = msgspec.json.Decoder()


def messages(texts: pl.Series) -> pl.Series:
    """Return the messages in each text that is a JSON object, one per line; null for other texts.

    Error names follow the messages. In truncated JSON, all strings are searched.
    """
    found = [_messages(text) if text and text.lstrip()[:1] == "{" else None for text in texts]
    return pl.Series(found, dtype=pl.String)


def _messages(text: str) -> str | None:
    """Return the messages in one JSON text, one per line, or None if it has none."""
    if len(text) > MAX_TEXT:
        return None
    try:
        value = _DECODER.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        members = [(key, _unescaped(string)) for key, string in _MEMBER.findall(text)]
        value = [{key: string} for key, string in members]
    found = [line for line in _strings(value, 0) if line.lower() not in _UNINFORMATIVE]
    found.sort(key=_is_name)
    return "\n".join(dict.fromkeys(found)) or None


def _is_name(line: str) -> bool:
    return _IDENTIFIER.match(line) is not None


def _unescaped(string: str) -> str:
    """Resolve the escapes in a JSON string.

    A string that is truncated within an escape is returned unchanged.
    """
    try:
        text: str = _DECODER.decode(f'"{string}"'.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError):
        return string
    return text


def _strings(value: Any, depth: int) -> Iterator[str]:
    """Yield the messages and the error names in a value."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for each in value[:MAX_ITEMS]:
            if isinstance(each, str) and each.strip():
                yield each
            yield from _strings(each, depth + 1)
    elif isinstance(value, dict):
        for key, member in value.items():
            is_message = _MESSAGE.match(key)
            if isinstance(member, str):
                if (is_message and member.strip()) or (_CODE.match(key) and _is_name(member)):
                    yield member
            elif is_message or _CONTAINER.match(key):
                yield from _strings(member, depth + 1)
