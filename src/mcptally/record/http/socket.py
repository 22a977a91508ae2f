"""Implements a socket on the event loop, with optional TLS.

The two directions of a socket fail independently: after a failed write, reading continues to the
end of the stream. Thus, if a server responds 413 and closes the connection during the request, its
response is not lost.
"""

import contextlib
import socket
import struct
from typing import Final, Protocol

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.tls import TlsStream

HIGH_WATER: Final = 256 * 1024
"""Bytes in the send buffer above which reading from the other side pauses."""

_RESET: Final = struct.pack("ii", 1, 0)


class SocketHandler(Protocol):
    """Callbacks for the events of a socket."""

    def on_data(self, sock: "Socket", data: bytes) -> None:
        """Handle received bytes; empty `data` means end of stream."""

    def on_read_error(self, sock: "Socket", error: OSError) -> None:
        """Handle a failed read, after which nothing more can be read."""

    def on_write_error(self, sock: "Socket", error: OSError) -> None:
        """Handle a failed write, after which nothing more can be sent."""

    def on_drained(self, sock: "Socket") -> None:
        """Handle the event that the send buffer has fallen below the high-water mark."""


class Socket:
    """One connection, which calls `handler` for each event; until `start`, data is buffered."""

    _sock: socket.socket
    _fd: int

    def __init__(self, handler: SocketHandler, *, loop: EventLoop) -> None:
        self._handler = handler
        self._loop = loop
        self._tls: TlsStream | None = None
        self._is_connected = False
        self._send_buffer = bytearray()
        self._reading = False
        self._writing = False
        self._above_high_water = False
        self._after_send: str = ""
        self.ended = False
        """Whether the peer has closed its sending side or a read failed."""
        self.closed = False
        """Whether the socket is closed."""
        self.is_broken = False
        """Whether a write failed; further writes are discarded."""

    def start(self, sock: socket.socket, tls: TlsStream | None = None) -> None:
        """Start reading from a connected socket, and send what was buffered before."""
        self._sock, self._fd, self._tls = sock, sock.fileno(), tls
        self._is_connected = True
        self.resume()
        if tls is not None and (early := tls.decrypt(b"")):
            self._loop.call_soon(lambda: self._handler.on_data(self, early))
        waiting, self._send_buffer = bytes(self._send_buffer), bytearray()
        self._above_high_water = False
        self.write(waiting)

    @property
    def is_full(self) -> bool:
        """Whether the send buffer has exceeded the high-water mark and has not drained since."""
        if len(self._send_buffer) > HIGH_WATER:
            self._above_high_water = True
        return self._above_high_water

    def pause(self) -> None:
        """Stop reading."""
        if self._reading:
            self._reading = False
            self._loop.set_reader(self._fd, None)

    def resume(self) -> None:
        """Resume reading."""
        if self._is_connected and not (self._reading or self.ended or self.closed):
            self._reading = True
            self._loop.set_reader(self._fd, self._readable)

    def write(self, data: bytes) -> None:
        """Send as much of `data` as possible now, and buffer the rest."""
        if self.closed or self.is_broken or not data:
            return
        if not self._is_connected:
            self._send_buffer += data
            return
        self._send(data if self._tls is None else self._tls.encrypt(data))

    def _send(self, data: bytes) -> None:
        if not self._send_buffer:
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
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
        """Close the sending side after the send buffer is empty; reading continues."""
        if not self._is_connected:
            return
        if self._tls is not None and not (self.closed or self.is_broken):
            self._send(self._tls.close_notify())
        self._after_sending("finish")

    def close(self) -> None:
        """Close after the send buffer is empty."""
        self.pause()
        self._after_sending("close")

    def abort(self, *, reset: bool = False) -> None:
        """Close now; `reset` sends a TCP reset to the peer."""
        if self.closed:
            return
        self.pause()
        self._stop_writing()
        self.closed = True
        if not self._is_connected:
            return
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
        buffer = self._loop.read_buffer
        try:
            data = bytes(buffer[: self._sock.recv_into(buffer)])
            has_ended = not data
            if data and self._tls is not None:
                data, has_ended = self._tls.decrypt(data), self._tls.ended
        except BlockingIOError:
            return
        except OSError as error:
            self.ended = True
            self.pause()
            self._handler.on_read_error(self, error)
            return
        if has_ended:
            self.ended = True
            self.pause()
        if data:
            self._handler.on_data(self, data)
        if has_ended:
            self._handler.on_data(self, b"")

    def _writable(self) -> None:
        try:
            sent = self._sock.send(memoryview(self._send_buffer)[: 4 * HIGH_WATER])
        except BlockingIOError:
            return
        except OSError as error:
            self._on_write_error(error)
            return
        del self._send_buffer[:sent]
        if self._above_high_water and len(self._send_buffer) <= HIGH_WATER // 2:
            self._above_high_water = False
            self._handler.on_drained(self)
        if not self._send_buffer and self._writing:
            self._stop_writing()
            if self._after_send:
                self._after_sending(self._after_send)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.set_writer(self._fd, None)

    def _on_write_error(self, error: OSError) -> None:
        self.is_broken = True
        self._send_buffer.clear()
        self._stop_writing()
        if self._above_high_water:
            self._above_high_water = False
            self._loop.call_soon(lambda: self._handler.on_drained(self))
        if self._after_send == "close":
            self.abort()
        else:
            # Report the error later, because the caller has not finished.
            self._loop.call_soon(lambda: self._handler.on_write_error(self, error))
