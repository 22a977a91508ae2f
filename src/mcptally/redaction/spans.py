"""Editing bytes without breaking them: spans that go, escapes that stay whole, hashes.

Whatever is asked for, a JSON document stays one: an edit never cuts an escape in half.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from mcptally.redaction.scanner import Texts

_HASH_BYTES: Final = 8
_BACKSLASH: Final = 0x5C


class Span(NamedTuple):
    """A stretch of the frame that goes, and what stands there afterwards."""

    start: int
    end: int
    instead: bytes


def hashed(kind: str, value: str) -> str:
    """`[hashed:KIND:…]` for a value that must still pair with itself.

    Plain SHA-256, cut to 64 bits, without a key: two recordings of one session by different
    processes pair, and `mcptally redact` gives what the recorder would have given. It hides what
    nobody can guess (session ids are random by specification), not a value out of a short list.
    """
    if done(value.encode(errors="surrogateescape")):
        return value
    import hashlib  # noqa: PLC0415 - OpenSSL costs every start, and few recordings need it

    digest = hashlib.sha256(f"mcptally\0{value}".encode(errors="surrogateescape")).hexdigest()
    return f"[hashed:{kind}:{digest[: 2 * _HASH_BYTES]}]"


def done(value: bytes) -> bool:
    """Was this put here by an earlier redaction?"""
    return _DONE.fullmatch(value) is not None


def begins_done(value: bytes) -> bool:
    """Was the beginning of this put here by an earlier redaction?"""
    return _DONE.match(value) is not None


_DONE: Final = re.compile(
    rb"(?:\[redacted:[a-z-]+\]|\[hashed:[a-z-]+:[0-9a-f]{16}\]|redacted-url-password)"
)

URL_PASSWORD: Final = b"redacted-url-password"
"""Brackets would make the URL unreadable to every parser that checks its host."""


def decoded(value: bytes) -> str:
    """The value with its escapes undone, as often as it was escaped."""
    import json  # noqa: PLC0415 - as above

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
    rb"|%(?P<url>0[AaDd]|2[0BbDdEeFf]|3[AaDd]|40|5[Ff])"
)
"""ASCII characters escaped in JSON, and in URLs those that secrets are known by."""

_ESCAPED: Final = Texts(["\\u00", "\\/", "%"])

Back = Callable[[int, int], tuple[int, int]]
"""From a stretch of the plain view to the stretch of the frame that it stands for."""


def unescape(data: bytes) -> tuple[bytes, Back] | None:
    r"""The frame with escaped ASCII characters written plainly, and the way back to its offsets.

    A quote that was `\u0022` gets the backslashes it would have had as `\"`. None when nothing is
    escaped.
    """
    if b"\\" not in data and b"%" not in data:
        return None
    out: list[bytes] = []
    begins, origins, ends = [0], [0], [0]
    size = last = 0
    for hit in _ESCAPED.find(data):
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
            char = b"\\" * (2 * len(match["run"]) + 1) + char
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
    """Of strict JSON: the spans that lie inside one string each."""
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


def replace(data: bytes, spans: Iterable[Span]) -> tuple[bytes, int]:
    """`data` with the spans replaced; of spans that overlap the first and longest stays."""
    out: list[bytes] = []
    last = count = 0
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        start, end = _whole_escapes(data, span.start, span.end)
        if start < last or end <= start:
            if end > last and start < last:
                last = end
            continue
        out += (data[last:start], span.instead)
        last = end
        count += 1
    if not count:
        return data, 0
    out.append(data[last:])
    return b"".join(out), count


def _whole_escapes(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The span without the halves of escapes at its edges, so that a string stays a string."""
    run = 0
    while start > run and data[start - run - 1] == _BACKSLASH:
        run += 1
    if run % 2:
        start += 5 if data[start : start + 1] == b"u" else 1
    if data[end - 1 : end] == b"\\":
        end = start + len(data[start:end].rstrip(b"\\"))
    return start, end
