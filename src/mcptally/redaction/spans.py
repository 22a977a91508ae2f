"""Replaces spans of bytes so that JSON stays valid: no edit splits an escape sequence.

The module also maps offsets between a frame and its unescaped view, and hashes values that must
stay comparable.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from mcptally.redaction.scanner import TextSearch

_HASH_BYTES: Final = 8
_BACKSLASH: Final = 0x5C


class Span(NamedTuple):
    """A range of bytes in a frame, and their replacement."""

    start: int
    end: int
    replacement: bytes


def hashed(kind: str, value: str) -> str:
    """Return `[hashed:KIND:HASH]` for a value; equal values stay equal after redaction.

    The hash is SHA-256 without a key, truncated to 64 bits, so that `mcptally redact` and all
    processes that record one session write the same text. The hash protects values that cannot be
    guessed, such as session ids, which the specification requires to be random; it does not protect
    values from a short list.
    """
    if is_redacted(value.encode(errors="surrogateescape")):
        return value
    import hashlib  # noqa: PLC0415 - loading OpenSSL at every start would be slow

    digest = hashlib.sha256(f"mcptally\0{value}".encode(errors="surrogateescape")).hexdigest()
    return f"[hashed:{kind}:{digest[: 2 * _HASH_BYTES]}]"


def is_redacted(value: bytes) -> bool:
    """Return whether the value is the replacement text of an earlier redaction."""
    return _REDACTED.fullmatch(value) is not None


def starts_redacted(value: bytes) -> bool:
    """Return whether the value starts with the replacement text of an earlier redaction."""
    return _REDACTED.match(value) is not None


_REDACTED: Final = re.compile(
    rb"(?:\[redacted:[a-z-]+\]|\[hashed:[a-z-]+:[0-9a-f]{16}\]|redacted-url-password)"
)

URL_PASSWORD: Final = b"redacted-url-password"
"""Replacement for a password in a URL: brackets would make URL parsers reject the host."""


def unescaped_value(value: bytes) -> str:
    """Return the value with its JSON escapes decoded, up to eight levels."""
    import json  # noqa: PLC0415 - few recordings need it

    text = value.decode(errors="surrogateescape")
    for _ in range(8):
        if "\\" not in text:
            break
        try:
            text = json.loads(f'"{text}"', strict=False)
        except ValueError:
            break
    return text


_ESCAPE: Final = re.compile(
    rb"\\(?P<run>\\*)(?:u00(?P<u>[2-7][0-9A-Fa-f])|/)"
    rb"|%(?:25){0,3}(?P<url>0[AaDd]|[2-7][0-9A-Fa-f])"
)
"""Matches escapes of ASCII characters in JSON and in URLs (also doubly escaped)."""

ESCAPES: Final = TextSearch(["\\u00", "\\/", "%"])
"""Matches possible escapes that `unescape` decodes."""

MapBack = Callable[[int, int], tuple[int, int]]
"""Maps a range of the unescaped view to the corresponding range of the frame."""


def unescape(data: bytes) -> tuple[bytes, MapBack] | None:
    r"""Decode a frame's escaped ASCII characters; also return a map back to the frame's offsets.

    A quote written as `\u0022` becomes `\"`, with further backslashes if it is nested. Returns None
    if nothing is escaped.
    """
    if b"\\" not in data and b"%" not in data:
        return None
    out: list[bytes] = []
    begins, origins, ends = [0], [0], [0]
    size = last = 0
    for hit in ESCAPES.find(data):
        start = hit.start
        while start > last and data[start - 1] == _BACKSLASH == data[start]:
            start -= 1
        if (match := _ESCAPE.match(data, start)) is None:
            continue
        code = match["u"] or match["url"]
        char = bytes.fromhex(code.decode()) if code else b"/"
        if char == b"\\" or not char.isascii():
            continue
        if char == b'"':
            char = b"\\" * (2 * len(match["run"] or b"") + 1) + char
        plain = data[last : match.start()]
        out += (plain, char)
        size += len(plain)
        begins += (size, size + len(char))
        origins += (match.start(), match.end())
        ends += (match.end(), match.end())
        size += len(char)
        last = match.end()
    if not out:
        return None
    out.append(data[last:])

    def back(start: int, end: int) -> tuple[int, int]:
        return place(start, up=False), place(end, up=True)

    def place(at: int, *, up: bool) -> int:
        index = bisect_right(begins, at) - 1
        into = at - begins[index]
        inside = index % 2 == 1
        if not inside:
            return origins[index] + into
        return ends[index] if into and up else origins[index]

    return b"".join(out), back


def within_strings(frame: bytes, spans: Iterable[Span]) -> list[Span]:
    """Return those spans that lie inside a single string of strict JSON."""
    ordered = sorted(spans, reverse=True)
    inside: list[Span] = []
    for string in _STRING.finditer(frame):
        while ordered and ordered[-1].start <= string.start():
            ordered.pop()
        while ordered and ordered[-1].start < string.end():
            span = ordered.pop()
            if span.end < string.end():
                inside.append(span)
    return inside


_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def replace_spans(data: bytes, spans: Iterable[Span]) -> tuple[bytes, int]:
    """Replace spans and count them.

    Overlapping spans count as one, with the replacement of the first span, or of the longest span
    with the same start.
    """
    out: list[bytes] = []
    last = count = 0
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        start, end = _whole_escapes(data, span.start, span.end)
        if start < last or end <= start:
            if end > last and start < last:
                last = end
            continue
        out += (data[last:start], span.replacement)
        last = end
        count += 1
    if not count:
        return data, 0
    out.append(data[last:])
    return b"".join(out), count


def _whole_escapes(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Shrink a span so that it cuts no escape sequence and the JSON string stays valid."""
    run = 0
    while start > run and data[start - run - 1] == _BACKSLASH:
        run += 1
    if run % 2:
        start += 5 if data[start : start + 1] == b"u" else 1
    if data[end - 1 : end] == b"\\":
        end = start + len(data[start:end].rstrip(b"\\"))
    return start, end
