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
    from mcptally.record.http.tls import Tls

READ: Final = 256 * 1024
"""Most bytes taken from a socket at a time."""

HIGH: Final = 256 * 1024
"""Bytes waiting to be sent at which the other side is no longer read."""

_RESET: Final = struct.pack("ii", 1, 0)


class End(Protocol):
    """Who is told of what a wire brings."""

    def received(self, wire: "Socket", data: bytes) -> None:
        """Bytes came; none means that the peer will send no more."""

    def lost(self, wire: "Socket", error: OSError) -> None:
        """Nothing more can be read."""

    def unwritable(self, wire: "Socket", error: OSError) -> None:
        """What is written reaches nobody any more."""

    def drained(self, wire: "Socket") -> None:
        """What waited above `HIGH` has been sent."""


class Socket:
    """One connection; `end` is told of everything that happens on it."""

    def __init__(
        self,
        sock: socket.socket,
        end: End,
        *,
        loop: EventLoop,
        tls: "Tls | None" = None,
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._end = end
        self._loop = loop
        self._tls = tls
        self._out = bytearray()
        self._reading = False
        self._eof = False
        self._writing = False
        self._was_high = False
        self._then: str = ""
        self.closed = False
        """The socket is gone."""
        self.broken = False
        """Writing failed; bytes that are still written go nowhere."""

    def start(self) -> None:
        """Begin to read."""
        self.resume()
        if self._tls is not None and (early := self._tls.received(b"")):
            self._loop.call_soon(lambda: self._end.received(self, early))

    @property
    def full(self) -> bool:
        """Whether so much waits to be sent that no more should come."""
        if len(self._out) > HIGH:
            self._was_high = True
        return self._was_high

    def pause(self) -> None:
        """Stop reading."""
        if self._reading:
            self._reading = False
            self._loop.reader(self._fd, None)

    def resume(self) -> None:
        """Read again."""
        if not (self._reading or self._eof or self.closed):
            self._reading = True
            self._loop.reader(self._fd, self._readable)

    def write(self, data: bytes) -> None:
        """Send `data`, now as far as possible."""
        if self.closed or self.broken or not data:
            return
        self._send(data if self._tls is None else self._tls.sent(data))

    def _send(self, data: bytes) -> None:
        if not self._out:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._cannot_write(error)
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._out += data
        if not self._writing:
            self._writing = True
            self._loop.writer(self._fd, self._writable)

    def finish(self) -> None:
        """Say that nothing more will be sent, once everything is; reading goes on."""
        if self._tls is not None and not (self.closed or self.broken):
            self._send(self._tls.finish())
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
            self._loop.writer(self._fd, None)
        self.closed = True
        if reset:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._sock.close()

    def _after_sending(self, then: str) -> None:
        if self.closed:
            return
        if self._out and not self.broken:
            self._then = then
            return
        if then == "close":
            self.abort()
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._eof = True
            self.pause()
            self._end.lost(self, error)
            return
        if not data:
            self._eof = True
            self.pause()
        elif self._tls is not None:
            try:
                data = self._tls.received(data)
            except OSError as error:
                self._eof = True
                self.pause()
                self._end.lost(self, error)
                return
            if self._tls.ended:
                self._eof = True
                self.pause()
                if data:
                    self._end.received(self, data)
                self._end.received(self, b"")
                return
            if not data:
                return
        self._end.received(self, data)

    def _writable(self) -> None:
        try:
            sent = self._sock.send(memoryview(self._out)[: 4 * HIGH])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._cannot_write(error)
            return
        del self._out[:sent]
        if self._was_high and len(self._out) <= HIGH // 2:
            self._was_high = False
            self._end.drained(self)
        if not self._out and self._writing:
            self._writing = False
            self._loop.writer(self._fd, None)
            if self._then:
                self._after_sending(self._then)

    def _cannot_write(self, error: OSError) -> None:
        self.broken = True
        self._out.clear()
        if self._writing:
            self._writing = False
            self._loop.writer(self._fd, None)
        if self._was_high:
            self._was_high = False
            self._loop.call_soon(lambda: self._end.drained(self))
        if self._then == "close":
            self.abort()
        else:
            # Not at once: the caller is in the middle of something.
            self._loop.call_soon(lambda: self._end.unwritable(self, error))
