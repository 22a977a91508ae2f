"""Implements one client's connection to the server, which the first write opens."""

import asyncio
from collections.abc import Callable
from typing import Final

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.socket import Socket, SocketHandler
from mcptally.record.http.upstream import UpstreamServer

MAX_WAITING_BYTES: Final = 256 * 1024
"""Number of buffered bytes above which reading from the client pauses."""


class UpstreamConnection:
    """Connects on the first write, and buffers data until the connection is open."""

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
        self._connecting: asyncio.Task[Socket] | None = None
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self.socket: Socket | None = None
        """The connected socket, or None."""

    @property
    def is_full(self) -> bool:
        """Whether too much data is waiting to be sent."""
        return (
            self._waiting_size > MAX_WAITING_BYTES if self.socket is None else self.socket.is_full
        )

    @property
    def is_broken(self) -> bool:
        """Whether a write has failed."""
        return self.socket is not None and self.socket.is_broken

    @property
    def has_ended(self) -> bool:
        """Whether the server has closed its sending side."""
        return self.socket is not None and self.socket.ended

    def write(self, data: bytes) -> None:
        """Send `data` when connected; `on_connected` receives None or the connection error."""
        if self.socket is not None:
            self.socket.write(data)
            return
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._connecting is None:
            attempt = self._upstream.connect(self._loop, self._handler)
            self._connecting = self._loop.create_task(attempt)
            self._connecting.add_done_callback(self._connected)

    def finish_sending(self) -> None:
        """Close the sending side, if connected."""
        if self.socket is not None:
            self.socket.finish_sending()

    def abort(self, *, reset: bool = False) -> None:
        """Close the connection or cancel the attempt to connect."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self.socket is not None:
            self.socket.abort(reset=reset)

    def _connected(self, attempt: asyncio.Task[Socket]) -> None:
        if attempt.cancelled():
            return
        try:
            self.socket = attempt.result()
        except OSError as error:
            self._on_connected(error)
            return
        self.socket.start()
        data, self._waiting, self._waiting_size = b"".join(self._waiting), [], 0
        self.socket.write(data)
        self._on_connected(None)
