"""The way to the server for one client: a connection made when the first bytes are to go there."""

from collections.abc import Callable
from typing import Final

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.socket import Socket, SocketHandler
from mcptally.record.http.upstream import ConnectionAttempt, UpstreamServer

MAX_WAITING_BYTES: Final = 256 * 1024
"""Bytes that wait for the connection before the client is no longer read."""


class UpstreamConnection:
    """What is written goes to the server, as soon as there is a connection to it."""

    def __init__(
        self,
        upstream: UpstreamServer,
        *,
        loop: EventLoop,
        handler: SocketHandler,
        on_connected: Callable[[OSError | None], None],
    ) -> None:
        self._upstream = upstream
        self._loop = loop
        self._handler = handler
        self._on_connected = on_connected
        self._connecting: ConnectionAttempt | None = None
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self.socket: Socket | None = None
        """The connection, once it is made."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be sent that no more should come."""
        return (
            self._waiting_size > MAX_WAITING_BYTES if self.socket is None else self.socket.is_full
        )

    @property
    def is_broken(self) -> bool:
        """Whether what is written reaches nobody any more."""
        return self.socket is not None and self.socket.is_broken

    def write(self, data: bytes) -> None:
        """Send `data`, now or when there is a connection; `made` is told of that, or why not."""
        if self.socket is not None:
            self.socket.write(data)
            return
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._connecting is None:
            self._connecting = self._upstream.connect(self._loop, self._handler, self._connected)

    def finish_sending(self) -> None:
        """Say that nothing more will be sent."""
        if self.socket is not None:
            self.socket.finish_sending()

    def abort(self, *, reset: bool = False) -> None:
        """Close now, or never connect."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self.socket is not None:
            self.socket.abort(reset=reset)

    def _connected(self, socket: Socket | OSError) -> None:
        self._connecting = None
        if isinstance(socket, OSError):
            self._on_connected(socket)
            return
        self.socket = socket
        socket.start()
        data, self._waiting, self._waiting_size = b"".join(self._waiting), [], 0
        socket.write(data)
        self._on_connected(None)
