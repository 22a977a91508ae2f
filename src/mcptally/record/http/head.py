"""Parses request and response heads, and caches them because peers repeat them.

Hop-by-hop headers (RFC 9110 section 7.6.1) are not forwarded, except `Connection: close` and
`Keep-Alive`. These two remain correct, because each client connection has its own server connection
with the same lifetime.
"""

import functools
from typing import Final

import h11

from mcptally.record.http.body import is_event_stream

_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"}
)
_ALWAYS_FORWARDED: Final = frozenset({b"content-length", b"host", b"close", b"keep-alive", b""})
"""Headers that are forwarded even if listed in `Connection`, because removing them would break the
framing."""

_FORWARDED_OPTIONS: Final = frozenset({b"keep-alive"})
_OTHER_HOP_BY_HOP: Final = _HOP_BY_HOP - {b"connection"}

_MAX_CACHED_BYTES: Final = 4096
"""Maximum size in bytes of a cached head."""

ANY_LENGTH: Final = b"817263549"
"""Placeholder for the number in the Content-Length of a known head. A head that already contains
these digits is kept unchanged."""

Header = tuple[bytes, bytes]


def parse_head(message: h11.Request | h11.Response | h11.InformationalResponse) -> "Head":
    """Return the parsed head of a message."""
    raw = tuple(message.headers.raw_items())
    size = sum([len(name) + len(value) for name, value in raw])
    return _cached_head(raw) if size < _MAX_CACHED_BYTES else Head(raw)


class Head:
    """The parsed headers of a message."""

    def __init__(self, raw: tuple[Header, ...]) -> None:
        self._raw = raw
        self._names = [name.lower() for name, _ in raw]
        self._values: dict[bytes, str] = {}
        for name, (_, value) in zip(self._names, raw, strict=True):
            self._values.setdefault(name, value.decode("latin-1"))
        self.names: Final = frozenset(self._names)
        """Header names in lower case."""
        self.text = tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, (_, value) in zip(self._names, raw, strict=True)
        )
        """All headers as text, with names in lower case."""
        self.options: set[bytes] = set()
        """The options in the `Connection` headers, in lower case."""
        for name, (_, value) in zip(self._names, raw, strict=True):
            if name == b"connection":
                self.options.update(option.strip() for option in value.lower().split(b","))
        self.is_end_to_end = (
            self.options <= _FORWARDED_OPTIONS
            and b"transfer-encoding" not in self._names
            and _OTHER_HOP_BY_HOP.isdisjoint(self._names)
        )
        """Whether no header is hop-by-hop, so that the head may be forwarded unchanged."""
        self.session: Final = self.get(b"mcp-session-id")
        """The MCP session id."""
        self.has_plain_body: Final = not (
            self.get(b"content-encoding") or is_event_stream(self.get(b"content-type"))
        )
        """Whether the body is recorded as one item, byte for byte."""
        self.is_cached: Final = sum([len(name) + len(v) for name, v in raw]) < _MAX_CACHED_BYTES
        """Whether the head is short enough for caches."""

    def __contains__(self, name: bytes) -> bool:
        return name in self.names

    def get(self, name: bytes) -> str | None:
        """Return the first value of the header with this lower-case name, or None."""
        return self._values.get(name)

    def forwarded(self, *, without: frozenset[bytes] = frozenset()) -> list[Header]:
        """Return the end-to-end headers, unchanged."""
        dropped = _HOP_BY_HOP | (self.options - _ALWAYS_FORWARDED) | without
        return [
            header
            for name, header in zip(self._names, self._raw, strict=True)
            if name not in dropped
        ]


_cached_head = functools.lru_cache(maxsize=512)(Head)

NO_HEAD: Final = Head(())
"""The head of a message that was not parsed."""
