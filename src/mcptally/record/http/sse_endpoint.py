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

_GIVE_UP: Final = 64 * 1024
"""Bytes of a block without an end after which a stream is no legacy one."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]", "0.0.0.0")  # noqa: S104 - compared, not bound


def origins(scheme: str, host: str, port: int, *, loopback: bool) -> frozenset[bytes]:
    """Every way to write the server's origin; a loopback server may call itself by any name."""
    hosts = {f"[{host}]" if ":" in host else host, *(_LOOPBACK if loopback else ())}
    ports = {f":{port}", *([""] if _DEFAULT_PORTS.get(scheme) == port else [])}
    return frozenset(f"{scheme}://{h}{p}".lower().encode() for h in hosts for p in ports)


def rewritten(url: bytes, *, server: frozenset[bytes], ours: bytes) -> bytes | None:
    """`url` at our origin when it is an absolute one of the server's, else None."""
    match = _ABSOLUTE.fullmatch(url)
    if match is None or match["origin"].lower() == ours.lower():
        return None
    return ours + match["rest"] if match["origin"].lower() in server else None


class EndpointFilter:
    """Passes an event stream on, block by block until its `endpoint` event has gone by."""

    def __init__(self, *, server: frozenset[bytes], ours: bytes) -> None:
        self._server = server
        self._ours = ours
        self._held = b""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """What is to be passed on now."""
        if self.done:
            return data
        self._held += data
        out: list[bytes] = []
        while not self.done and (match := _BLOCK_END.search(self._held)):
            block, self._held = self._held[: match.end()], self._held[match.end() :]
            out.append(self._passed(block))
        if self.done or len(self._held) > _GIVE_UP:
            out.append(self.end())
        return b"".join(out)

    def end(self) -> bytes:
        """What was held back; nothing is from here on."""
        self.done = True
        held, self._held = self._held, b""
        return held

    def _passed(self, block: bytes) -> bytes:
        for event in SseParser().feed(block):
            if event.name != b"endpoint" or not isinstance(event.data, bytes):
                continue
            self.done = True
            if new := rewritten(event.data, server=self._server, ours=self._ours):
                return block.replace(event.data, new, 1)
        return block
