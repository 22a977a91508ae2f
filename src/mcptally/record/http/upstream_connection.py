"""The way to the server for one client: a connection made when the first bytes are to go there."""

from collections.abc import Callable
from typing import Final

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.socket import End, Socket
from mcptally.record.http.upstream import Connecting, Server

WAITING: Final = 256 * 1024
"""Bytes that wait for the connection before the client is no longer read."""


class Uplink:
    """What is written goes to the server, as soon as there is a connection to it."""

    def __init__(
        self,
        upstream: Server,
        *,
        loop: EventLoop,
        end: End,
        made: Callable[[OSError | None], None],
    ) -> None:
        self._upstream = upstream
        self._loop = loop
        self._end = end
        self._made = made
        self._connecting: Connecting | None = None
        self._waiting: list[bytes] = []
        self._size = 0
        self.wire: Socket | None = None
        """The connection, once it is made."""

    @property
    def full(self) -> bool:
        """Whether so much waits to be sent that no more should come."""
        return self._size > WAITING if self.wire is None else self.wire.full

    @property
    def broken(self) -> bool:
        """Whether what is written reaches nobody any more."""
        return self.wire is not None and self.wire.broken

    def write(self, data: bytes) -> None:
        """Send `data`, now or when there is a connection; `made` is told of that, or why not."""
        if self.wire is not None:
            self.wire.write(data)
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._connecting is None:
            self._connecting = self._upstream.connect(self._loop, self._end, self._connected)

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        if self.wire is not None:
            self.wire.finish()

    def abort(self, *, reset: bool = False) -> None:
        """Close now, or never connect."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self.wire is not None:
            self.wire.abort(reset=reset)

    def _connected(self, wire: Socket | OSError) -> None:
        self._connecting = None
        if isinstance(wire, OSError):
            self._made(wire)
            return
        self.wire = wire
        wire.start()
        data, self._waiting, self._size = b"".join(self._waiting), [], 0
        wire.write(data)
        self._made(None)
