"""The way to the server: its addresses, a connection to one of them, and TLS."""

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mcptally.errors import UsageError
from mcptally.record import http_endpoint
from mcptally.record.http_loop import Loop
from mcptally.record.http_room import notice_silent_end
from mcptally.record.http_wire import READ, End, Wire

if TYPE_CHECKING:
    import ssl

    from mcptally.record.http_tls import Tls

CONNECT_SECONDS: Final = 30.0
"""How long it may take until a connection stands, TLS included."""

_IPV6_LOOPBACK: Final = bytes(15) + b"\1"

_Address = tuple[int, int, int, str, Any]


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
        return packed[0] == 127 if family == socket.AF_INET else packed == _IPV6_LOOPBACK
    return False


class Server:
    """The server behind the recorder.

    Raises:
        UsageError: from the constructor, when `url` or `ca_file` cannot be used.
    """

    def __init__(self, url: str, *, ca_file: Path | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")  # as whoever resolves it will
        except ValueError as error:
            raise UsageError(f"--url {url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--url {url!r}: give http://HOST[:PORT]/PATH or https://HOST/PATH")
        self.url = url
        """As it was given; it may hold what is secret."""
        self.path = parts.path or "/"
        self.label = parts.netloc.rpartition("@")[2]
        """Host and port as they were given."""
        self.shown = f"{parts.scheme}://{self.label}{parts.path}"
        """The URL without what may be secret in it: user, password, query."""
        self._name = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        loopback = is_loopback(self._name)
        self.host = None if loopback else self.label.encode()
        """What replaces `Host`; None: nothing.

        A loopback server checks Host and Origin against what its clients really send, so these
        reach it unchanged; any other server is chosen by Host, so it must be its own.
        """
        self.origins = http_endpoint.origins(
            parts.scheme, self._name, self._port, loopback=loopback
        )
        """Every way to write the server's own origin, in lower case."""
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            from mcptally.record import http_tls  # noqa: PLC0415 - start-up is felt in every client

            self._context = http_tls.context(ca_file)
        # Names of this machine need no resolver that could keep us waiting.
        try:
            self._known = self._resolve() if loopback else None
        except OSError as error:
            raise UsageError(f"--url {url!r}: {self._name}: {error.strerror}") from error

    def connect(self, loop: Loop, end: End, done: Callable[[Wire | OSError], None]) -> "Connecting":
        """Begin to connect; `done` gets the wire, or why there is none."""
        connecting = Connecting(loop, end, done, context=self._context, name=self._name)
        if self._known is not None:
            connecting.resolved(self._known)
        else:
            threading.Thread(
                target=lambda: connecting.resolve(self._resolve), name="resolver", daemon=True
            ).start()
        return connecting

    def _resolve(self) -> list[_Address]:
        return list(socket.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM))


class Connecting:
    """A connection on its way; addresses are tried in turn."""

    def __init__(
        self,
        loop: Loop,
        end: End,
        done: Callable[[Wire | OSError], None],
        *,
        context: "ssl.SSLContext | None",
        name: str,
    ) -> None:
        self._loop = loop
        self._end = end
        self._done: Callable[[Wire | OSError], None] | None = done
        self._context = context
        self._name = name
        self._addresses: list[_Address] = []
        self._error: OSError = OSError(f"no address for {name}")
        self._sock: socket.socket | None = None
        self._tls: Tls | None = None
        self._timer = loop.call_later(
            CONNECT_SECONDS, lambda: self._finish(TimeoutError(errno.ETIMEDOUT, "timed out"))
        )

    def cancel(self) -> None:
        """Give up; `done` is not called."""
        self._done = None
        self._let_go()

    def resolve(self, find: Callable[[], list[_Address]]) -> None:
        """Find the addresses (in a thread of its own)."""
        try:
            found = find()
        except OSError as error:
            failure = error
            self._loop.call_from_thread(lambda: self._finish(failure))
            return
        self._loop.call_from_thread(lambda: self.resolved(found))

    def resolved(self, addresses: list[_Address]) -> None:
        """Go on with these addresses."""
        self._addresses = list(addresses)
        self._next()

    def _next(self) -> None:
        while self._done is not None:
            if not self._addresses:
                self._finish(self._error)
                return
            family, kind, proto, _, address = self._addresses.pop(0)
            try:
                sock = self._sock = socket.socket(family, kind, proto)
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                notice_silent_end(sock)
                code = sock.connect_ex(address)
            except OSError as error:
                self._failed(error)
                continue
            if code == 0:
                self._connected()
                return
            if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
                self._loop.writer(sock.fileno(), self._writable)
                return
            self._failed(OSError(code, os.strerror(code)))

    def _writable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._loop.writer(sock.fileno(), None)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failed(OSError(code, os.strerror(code)))
            self._next()
        else:
            self._connected()

    def _failed(self, error: OSError) -> None:
        self._error = error
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _connected(self) -> None:
        if self._context is None:
            self._succeed()
            return
        from mcptally.record.http_tls import Tls  # noqa: PLC0415

        self._tls = Tls(self._context, self._name)
        self._shake(b"")

    def _shake(self, data: bytes) -> None:
        sock = self._sock
        if self._tls is None or sock is None:
            return
        try:
            agreed, send = self._tls.handshake(data)
            # A handshake's few kilobytes always fit the socket's empty buffer.
            sock.sendall(send)
        except OSError as error:
            self._finish(error)
            return
        if agreed:
            self._loop.reader(sock.fileno(), None)
            self._succeed()
        else:
            self._loop.reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._finish(error)
            return
        if data:
            self._shake(data)
        else:
            self._finish(ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake"))

    def _succeed(self) -> None:
        if self._sock is not None:
            sock, self._sock = self._sock, None
            self._finish(Wire(sock, self._end, loop=self._loop, tls=self._tls))

    def _finish(self, result: Wire | OSError) -> None:
        done, self._done = self._done, None
        self._let_go()
        if done is not None:
            done(result)

    def _let_go(self) -> None:
        self._timer.cancel()
        if self._sock is not None:
            self._loop.reader(self._sock.fileno(), None)
            self._loop.writer(self._sock.fileno(), None)
            self._sock.close()
            self._sock = None
