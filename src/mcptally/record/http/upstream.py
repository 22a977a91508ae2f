"""The way to the server: its addresses, a connection to one of them, and TLS."""

import binascii
import errno
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from mcptally.errors import UsageError
from mcptally.record.http import sse_endpoint
from mcptally.record.http.capacity import notice_silent_end
from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.socket import READ, End, Socket

if TYPE_CHECKING:
    import ssl

    from mcptally.record.http.tls import Tls

CONNECT_SECONDS: Final = 30.0
"""How long it may take until a connection stands, TLS included."""

_IPV6_LOOPBACK: Final = bytes(15) + b"\1"

_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"

_CREDENTIALS: Final = re.compile("//.*@", re.DOTALL)

_Address = tuple[int, int, int, str, Any]
_SocketAddress = tuple[Any, ...]
"""What `getsockname` gives: host, port and, for IPv6, more."""


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
        given = f"--url {_CREDENTIALS.sub('//', url)!r}"
        """The URL as messages show it: without user and password."""
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")  # as whoever resolves it will
        except ValueError as error:
            # The words of an error may quote a part of the password.
            why = "spell / ? # and @ in a user name or password as %2F %3F %23 %40"
            raise UsageError(f"{given}: {why if '@' in url else error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{given}: give http://HOST[:PORT]/PATH or https://HOST/PATH")
        if port == 0:
            raise UsageError(f"{given}: nobody can connect to port 0")
        self.path = parts.path or "/"
        self.label = parts.netloc.rpartition("@")[2]
        """Host and port as they were given."""
        self.url = parts._replace(netloc=self.label).geturl()
        """As it was given, less user and password; its query may hold what is secret."""
        self.authorization = _basic(parts, given)
        """`Authorization` for requests that have none: user and password of the URL; or None."""
        self.is_tls = parts.scheme == "https"
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
        self.origins = sse_endpoint.origins(parts.scheme, self._name, self._port, loopback=loopback)
        """Every way to write the server's own origin, in lower case."""
        self._given = given
        self._listening: Sequence[_SocketAddress] = ()
        self._context: ssl.SSLContext | None = None
        if self.is_tls:
            from mcptally.record.http import tls  # noqa: PLC0415 - start-up is felt in every client

            self._context = tls.context(ca_file)
        # Names of this machine need no resolver that could keep us waiting.
        try:
            self._known = self._resolve() if loopback else None
        except OSError as error:
            raise UsageError(f"{given}: {self._name}: {error.strerror}") from error

    def never_connect_to(self, sockets: Sequence[socket.socket]) -> None:
        """Refuse connections to these listening sockets: each would make another one.

        Raises:
            UsageError: the URL leads to one of them.
        """
        self._listening = [
            address for sock in sockets if (address := sock.getsockname())[1] == self._port
        ]
        if not self._listening:
            return
        try:
            self._resolve()
        except OSError as error:
            if error.errno == errno.ELOOP:
                host, port = self._listening[0][:2]
                raise UsageError(
                    f"{self._given}: this is the recorder's own address (--listen {host}:{port}); "
                    "give the server's, or let the recorder listen on another port"
                ) from error
            # A name that cannot be resolved now may be later: looked at with each connection.

    def connect(
        self, loop: EventLoop, end: End, done: Callable[[Socket | OSError], None]
    ) -> "Connecting":
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
        found: list[_Address] = list(
            socket.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
        )
        for family, _, _, _, address in found:
            if any(_leads_to(family, address, listening) for listening in self._listening):
                raise OSError(errno.ELOOP, "this address is the recorder's own")
        return found


def _basic(parts: SplitResult, given: str) -> bytes | None:
    """User and password of a URL as the value of `Authorization` (RFC 7617)."""
    if parts.username is None and parts.password is None:
        return None
    user, password = (unquote(text or "") for text in (parts.username, parts.password))
    if ":" in user:
        raise UsageError(f"{given}: a user name with a colon cannot be sent (RFC 7617)")
    return b"Basic " + binascii.b2a_base64(f"{user}:{password}".encode(), newline=False)


def _leads_to(family: int, target: Any, listening: _SocketAddress) -> bool:
    """Whether a connection to `target` arrives at a socket that listens, both on the same port."""
    ours, theirs = _packed(listening[0]), _packed(target[0])
    if not any(theirs):  # 0.0.0.0 and :: lead to this machine
        theirs = _IPV6_LOOPBACK if len(theirs) > 4 else bytes((127, 0, 0, 1))
    if len(ours) != len(theirs):
        return False
    if any(ours):
        return ours == theirs
    return theirs == _IPV6_LOOPBACK or theirs[:1] == b"\x7f" or _is_own(family, target)


def _packed(host: str) -> bytes:
    """An address as bytes; an IPv4 address within IPv6 as the IPv4 address."""
    host = host.partition("%")[0]
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host)
    return packed[12:] if packed.startswith(_IPV4_MAPPED) else packed


def _is_own(family: int, target: Any) -> bool:
    """Whether this machine has the address: then it is also the way out to it. Sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(target)
            return bool(sock.getsockname()[0] == target[0])
    except OSError:
        return False


class Connecting:
    """A connection on its way; addresses are tried in turn."""

    def __init__(
        self,
        loop: EventLoop,
        end: End,
        done: Callable[[Socket | OSError], None],
        *,
        context: "ssl.SSLContext | None",
        name: str,
    ) -> None:
        self._loop = loop
        self._end = end
        self._done: Callable[[Socket | OSError], None] | None = done
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
        from mcptally.record.http.tls import Tls  # noqa: PLC0415

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
            self._finish(Socket(sock, self._end, loop=self._loop, tls=self._tls))

    def _finish(self, result: Socket | OSError) -> None:
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
