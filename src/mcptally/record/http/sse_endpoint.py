"""Rewrites an absolute URL in the `endpoint` event of legacy HTTP+SSE to the recorder's origin.

This event contains the URL that clients post to. A path is resolved against the recorder's URL and
needs no change; an absolute URL would bypass the recorder. URLs of other origins are not rewritten,
because the recorder forwards only to its one server.
"""

import re
from typing import Final

from mcptally.wire.sse import SseParser

_BLOCK_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_ABSOLUTE: Final = re.compile(
    rb"(?P<origin>[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)(?P<rest>.*)", re.DOTALL
)

_MAX_BLOCK_BYTES: Final = 64 * 1024
"""Maximum size of an event that is searched; if it is larger, the stream passes unchanged."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]", "0.0.0.0")  # noqa: S104 - compared, not bound


def origins(scheme: str, host: str, port: int, *, loopback: bool) -> frozenset[bytes]:
    """Return all spellings of the server's origin.

    If `loopback` is set, these include all loopback names.
    """
    hosts = {f"[{host}]" if ":" in host else host, *(_LOOPBACK if loopback else ())}
    ports = {f":{port}", *([""] if _DEFAULT_PORTS.get(scheme) == port else [])}
    return frozenset(f"{scheme}://{h}{p}".lower().encode() for h in hosts for p in ports)


def rewrite_url(url: bytes, *, server: frozenset[bytes], own_origin: bytes) -> bytes | None:
    """Replace the server's origin in an absolute URL with the recorder's; None for other URLs."""
    match = _ABSOLUTE.fullmatch(url)
    if match is None or match["origin"].lower() == own_origin.lower():
        return None
    return own_origin + match["rest"] if match["origin"].lower() in server else None


class EndpointFilter:
    """Rewrites the `endpoint` event of an event stream; later bytes pass unchanged."""

    def __init__(self, *, server: frozenset[bytes], own_origin: bytes) -> None:
        self._server = server
        self._own_origin = own_origin
        self._pending = b""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to forward now."""
        if self.done:
            return data
        self._pending += data
        out: list[bytes] = []
        while not self.done and (match := _BLOCK_END.search(self._pending)):
            block, self._pending = self._pending[: match.end()], self._pending[match.end() :]
            out.append(self._process_block(block))
        if self.done or len(self._pending) > _MAX_BLOCK_BYTES:
            out.append(self.end())
        return b"".join(out)

    def end(self) -> bytes:
        """Stop filtering; return the bytes that were held back."""
        self.done = True
        pending, self._pending = self._pending, b""
        return pending

    def _process_block(self, block: bytes) -> bytes:
        for event in SseParser().feed(block):
            if event.name != b"endpoint" or not isinstance(event.data, bytes):
                continue
            self.done = True
            if new_url := rewrite_url(event.data, server=self._server, own_origin=self._own_origin):
                return block.replace(event.data, new_url, 1)
        return block
