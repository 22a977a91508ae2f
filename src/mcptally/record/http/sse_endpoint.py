"""The one thing that is rewritten: an absolute URL in the `endpoint` event of legacy HTTP+SSE.

Such a server tells its clients where to post. A path is relative to the recorder and works as it
is; the server's own absolute URL would lead clients past the recorder. A URL of any other origin
is left alone: it never led to this server, and we forward nowhere else.
"""

import re
from typing import Final

from mcptally.wire.sse import SseParser

_BLOCK_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_ABSOLUTE: Final = re.compile(
    rb"(?P<origin>[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)(?P<rest>.*)", re.DOTALL
)

_MAX_BLOCK_BYTES: Final = 64 * 1024
"""Bytes of a block without an end after which a stream is no legacy one."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]", "0.0.0.0")  # noqa: S104 - compared, not bound


def origins(scheme: str, host: str, port: int, *, loopback: bool) -> frozenset[bytes]:
    """Every way to write the server's origin; a loopback server may call itself by any name."""
    hosts = {f"[{host}]" if ":" in host else host, *(_LOOPBACK if loopback else ())}
    ports = {f":{port}", *([""] if _DEFAULT_PORTS.get(scheme) == port else [])}
    return frozenset(f"{scheme}://{h}{p}".lower().encode() for h in hosts for p in ports)


def rewrite_url(url: bytes, *, server: frozenset[bytes], own_origin: bytes) -> bytes | None:
    """`url` at our origin when it is an absolute one of the server's, else None."""
    match = _ABSOLUTE.fullmatch(url)
    if match is None or match["origin"].lower() == own_origin.lower():
        return None
    return own_origin + match["rest"] if match["origin"].lower() in server else None


class EndpointFilter:
    """Passes an event stream on, block by block until its `endpoint` event has gone by."""

    def __init__(self, *, server: frozenset[bytes], own_origin: bytes) -> None:
        self._server = server
        self._own_origin = own_origin
        self._pending = b""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """What is to be passed on now."""
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
        """What was held back; nothing is from here on."""
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
