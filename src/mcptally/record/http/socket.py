"""A connected socket on the event loop: bytes both ways, TLS where wanted, nothing of HTTP.

The two directions of a socket fail apart from each other: after a failed write, reading goes on
to the end. A server that answers 413 and closes while the body is still being sent is heard.
"""

import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol

from mcptally.record.http.event_loop import EventLoop

if TYPE_CHECKING:
    from mcptally.record.http.tls import TlsStream

READ_SIZE: Final = 256 * 1024
"""Most bytes taken from a socket at a time."""

HIGH_WATER: Final = 256 * 1024
"""Bytes waiting to be sent at which the other side is no longer read."""

_RESET: Final = struct.pack("ii", 1, 0)


class SocketHandler(Protocol):
    """Who is told of what a wire brings."""

    def on_data(self, sock: "Socket", data: bytes) -> None:
        """Bytes came; none means that the peer will send no more."""

    def on_read_error(self, sock: "Socket", error: OSError) -> None:
        """Nothing more can be read."""

    def on_write_error(self, sock: "Socket", error: OSError) -> None:
        """What is written reaches nobody any more."""

    def on_drained(self, sock: "Socket") -> None:
        """What waited above `HIGH` has been sent."""


class Socket:
    """One connection; `end` is told of everything that happens on it."""

    def __init__(
        self,
        sock: socket.socket,
        handler: SocketHandler,
        *,
        loop: EventLoop,
        tls: "TlsStream | None" = None,
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._handler = handler
        self._loop = loop
        self._tls = tls
        self._send_buffer = bytearray()
        self._reading = False
        self._eof = False
        self._writing = False
        self._above_high_water = False
        self._after_send: str = ""
        self.closed = False
        """The socket is gone."""
        self.is_broken = False
        """Writing failed; bytes that are still written go nowhere."""

    def start(self) -> None:
        """Begin to read."""
        self.resume()
        if self._tls is not None and (early := self._tls.decrypt(b"")):
            self._loop.call_soon(lambda: self._handler.on_data(self, early))

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be sent that no more should come."""
        if len(self._send_buffer) > HIGH_WATER:
            self._above_high_water = True
        return self._above_high_water

    def pause(self) -> None:
        """Stop reading."""
        if self._reading:
            self._reading = False
            self._loop.set_reader(self._fd, None)

    def resume(self) -> None:
        """Read again."""
        if not (self._reading or self._eof or self.closed):
            self._reading = True
            self._loop.set_reader(self._fd, self._readable)

    def write(self, data: bytes) -> None:
        """Send `data`, now as far as possible."""
        if self.closed or self.is_broken or not data:
            return
        self._send(data if self._tls is None else self._tls.encrypt(data))

    def _send(self, data: bytes) -> None:
        if not self._send_buffer:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._on_write_error(error)
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._send_buffer += data
        if not self._writing:
            self._writing = True
            self._loop.set_writer(self._fd, self._writable)

    def finish_sending(self) -> None:
        """Say that nothing more will be sent, once everything is; reading goes on."""
        if self._tls is not None and not (self.closed or self.is_broken):
            self._send(self._tls.close_notify())
        self._after_sending("finish")

    def close(self) -> None:
        """Close once everything is sent."""
        self.pause()
        self._after_sending("close")

    def abort(self, *, reset: bool = False) -> None:
        """Close now; with `reset` the peer is told that something went wrong."""
        if self.closed:
            return
        self.pause()
        if self._writing:
            self._writing = False
            self._loop.set_writer(self._fd, None)
        self.closed = True
        if reset:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._sock.close()

    def _after_sending(self, action: str) -> None:
        if self.closed:
            return
        if self._send_buffer and not self.is_broken:
            self._after_send = action
            return
        if action == "close":
            self.abort()
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._eof = True
            self.pause()
            self._handler.on_read_error(self, error)
            return
        if not data:
            self._eof = True
            self.pause()
        elif self._tls is not None:
            try:
                data = self._tls.decrypt(data)
            except OSError as error:
                self._eof = True
                self.pause()
                self._handler.on_read_error(self, error)
                return
            if self._tls.ended:
                self._eof = True
                self.pause()
                if data:
                    self._handler.on_data(self, data)
                self._handler.on_data(self, b"")
                return
            if not data:
                return
        self._handler.on_data(self, data)

    def _writable(self) -> None:
        try:
            sent = self._sock.send(memoryview(self._send_buffer)[: 4 * HIGH_WATER])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._on_write_error(error)
            return
        del self._send_buffer[:sent]
        if self._above_high_water and len(self._send_buffer) <= HIGH_WATER // 2:
            self._above_high_water = False
            self._handler.on_drained(self)
        if not self._send_buffer and self._writing:
            self._writing = False
            self._loop.set_writer(self._fd, None)
            if self._after_send:
                self._after_sending(self._after_send)

    def _on_write_error(self, error: OSError) -> None:
        self.is_broken = True
        self._send_buffer.clear()
        if self._writing:
            self._writing = False
            self._loop.set_writer(self._fd, None)
        if self._above_high_water:
            self._above_high_water = False
            self._loop.call_soon(lambda: self._handler.on_drained(self))
        if self._after_send == "close":
            self.abort()
        else:
            # Not at once: the caller is in the middle of something.
            self._loop.call_soon(lambda: self._handler.on_write_error(self, error))
