"""Parses the URL of the upstream server, resolves its host name, and connects to it."""

import binascii
import errno
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from mcptally.errors import UsageError
from mcptally.record.http import sse_endpoint
from mcptally.record.http.capacity import enable_keepalive
from mcptally.record.http.error_text import INVALID_HOST
from mcptally.record.http.event_loop import READ_SIZE, EventLoop
from mcptally.record.http.socket import Socket, SocketHandler

if TYPE_CHECKING:
    import ssl

    from mcptally.record.http.tls import TlsStream

CONNECT_SECONDS: Final = 30.0
"""Maximum seconds to establish a connection, including TLS."""

_CREDENTIALS: Final = re.compile("//.*@", re.DOTALL)

_Address = tuple[int, int, int, str, Any]
_SocketAddress = tuple[Any, ...]
"""The result of `getsockname`: host, port and, for IPv6, flow info and scope id."""


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback name or a loopback address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return _ip(host).is_loopback
    except ValueError:
        return False


def address_text(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class UpstreamServer:
    """The server that is recorded.

    Raises:
        UsageError: from the constructor, when `url` or `ca_file` cannot be used.
    """

    def __init__(self, url: str, *, ca_file: Path | None = None) -> None:
        option_text = f"--url {_CREDENTIALS.sub('//', url)!r}"
        """The option as shown in error messages, without user and password."""
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")  # encode the name as the resolver does
        except ValueError as error:
            why = INVALID_HOST if isinstance(error, UnicodeError) else str(error)
            if "@" in url:  # the error message may contain a part of the password
                why = "spell / ? # and @ in a user name or password as %2F %3F %23 %40"
            raise UsageError(f"{option_text}: {why}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{option_text}: give http://HOST[:PORT]/PATH or https://HOST/PATH")
        if port == 0:
            raise UsageError(f"{option_text}: port 0 is not a valid port")
        self.path = parts.path or "/"
        self.label = parts.netloc.rpartition("@")[2]
        """Host and port as given in the URL."""
        self.url = parts._replace(netloc=self.label).geturl()
        """The URL without user and password; the query may contain secrets."""
        self.authorization = _basic_authorization(parts, option_text)
        """The URL's user and password as a value of `Authorization`, for requests without this
        header; or None."""
        self.is_tls = parts.scheme == "https"
        self.display_url = f"{parts.scheme}://{self.label}{parts.path}"
        """The URL without user, password and query, which may be secret."""
        self._host_name = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        loopback = is_loopback(self._host_name)
        self.host = None if loopback else self.label.encode()
        """New value of `Host`; None keeps the client's value.

        A loopback server checks Host and Origin of its clients, so the two headers are forwarded
        unchanged. Other servers are selected by Host, so Host must name the server.
        """
        self.origins = sse_endpoint.origins(
            parts.scheme, self._host_name, self._port, loopback=loopback
        )
        """All spellings of the server's origin, in lower case."""
        self._option_text = option_text
        self._listening: Sequence[_SocketAddress] = ()
        self._context: ssl.SSLContext | None = None
        if self.is_tls:
            from mcptally.record.http import tls  # noqa: PLC0415 - keeps start-up short

            self._context = tls.context(ca_file)
        # Loopback names are resolved here: they need no name server and do not block.
        try:
            self._loopback_addresses = self._resolve() if loopback else None
        except OSError as error:
            raise UsageError(f"{option_text}: {self._host_name}: {error.strerror}") from error

    def reject_own_addresses(self, sockets: Sequence[socket.socket]) -> None:
        """Refuse a URL that leads to the recorder's own listening sockets.

        Raises:
            UsageError: the URL refers to one of the sockets.
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
                    f"{self._option_text}: this is the recorder's own address "
                    f"(--listen {address_text(host, port)}); "
                    "give the server's address, or make the recorder listen on another port"
                ) from error
            # The name may become resolvable later, so each connection attempt checks again.

    def connect(
        self, loop: EventLoop, handler: SocketHandler, on_done: Callable[[Socket | OSError], None]
    ) -> "ConnectionAttempt":
        """Start connecting; `on_done` receives the socket or the error."""
        attempt = ConnectionAttempt(
            loop, handler, on_done, context=self._context, name=self._host_name
        )
        if self._loopback_addresses is not None:
            attempt.connect_to(self._loopback_addresses)
        else:
            threading.Thread(
                target=lambda: attempt.resolve(self._resolve), name="resolver", daemon=True
            ).start()
        return attempt

    def _resolve(self) -> list[_Address]:
        addresses: list[_Address] = list(
            socket.getaddrinfo(self._host_name, self._port, type=socket.SOCK_STREAM)
        )
        for family, _, _, _, address in addresses:
            if any(_reaches(family, address, listening) for listening in self._listening):
                raise OSError(errno.ELOOP, "this address is the recorder's own")
        return addresses


def _basic_authorization(parts: SplitResult, option_text: str) -> bytes | None:
    """Return the value of `Authorization` for the user and password in a URL (RFC 7617)."""
    if parts.username is None and parts.password is None:
        return None
    user, password = (unquote(text or "") for text in (parts.username, parts.password))
    if ":" in user:
        raise UsageError(f"{option_text}: a user name with a colon cannot be sent (RFC 7617)")
    return b"Basic " + binascii.b2a_base64(f"{user}:{password}".encode(), newline=False)


def _reaches(family: int, target: Any, listening: _SocketAddress) -> bool:
    """Return whether a connection to `target` reaches a listening socket on the same port."""
    own, reached = _ip(listening[0]), _ip(target[0])
    if reached.is_unspecified:  # connecting to 0.0.0.0 or :: reaches this machine
        reached = _ip("127.0.0.1" if reached.version == 4 else "::1")
    if own.version != reached.version:
        return False
    if not own.is_unspecified:
        return own == reached
    return reached.is_loopback or _is_own_address(family, target)


def _ip(host: str) -> IPv4Address | IPv6Address:
    """Return the address without its zone; map an IPv4-mapped IPv6 address to IPv4."""
    address = ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _is_own_address(family: int, target: Any) -> bool:
    """Return whether an address belongs to this machine.

    A socket connected to such an address has the same address itself.
    """
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(target)
            return bool(sock.getsockname()[0] == target[0])
    except OSError:
        return False


class ConnectionAttempt:
    """An attempt to connect, which tries all addresses in order."""

    def __init__(
        self,
        loop: EventLoop,
        handler: SocketHandler,
        on_done: Callable[[Socket | OSError], None],
        *,
        context: "ssl.SSLContext | None",
        name: str,
    ) -> None:
        self._loop = loop
        self._handler = handler
        self._on_done: Callable[[Socket | OSError], None] | None = on_done
        self._context = context
        self._host_name = name
        self._addresses: list[_Address] = []
        self._error: OSError = OSError(f"no address for {name}")
        self._sock: socket.socket | None = None
        self._tls: TlsStream | None = None
        self._timer = loop.call_later(
            CONNECT_SECONDS, lambda: self._finish(TimeoutError(errno.ETIMEDOUT, "timed out"))
        )

    def cancel(self) -> None:
        """Cancel the attempt; `on_done` is not called."""
        self._on_done = None
        self._release()

    def resolve(self, lookup: Callable[[], list[_Address]]) -> None:
        """Resolve the addresses; runs in its own thread."""
        try:
            addresses = lookup()
        except OSError as error:
            failure = error
            self._loop.call_from_thread(lambda: self._finish(failure))
            return
        self._loop.call_from_thread(lambda: self.connect_to(addresses))

    def connect_to(self, addresses: list[_Address]) -> None:
        """Try to connect to the addresses in order."""
        self._addresses = list(addresses)
        self._try_next()

    def _try_next(self) -> None:
        while self._on_done is not None:
            if not self._addresses:
                self._finish(self._error)
                return
            family, kind, proto, _, address = self._addresses.pop(0)
            try:
                sock = self._sock = socket.socket(family, kind, proto)
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                enable_keepalive(sock)
                error_code = sock.connect_ex(address)
            except OSError as error:
                self._attempt_failed(error)
                continue
            if error_code == 0:
                self._connected()
                return
            if error_code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
                self._loop.set_writer(sock.fileno(), self._writable)
                return
            self._attempt_failed(OSError(error_code, os.strerror(error_code)))

    def _writable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._loop.set_writer(sock.fileno(), None)
        error_code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error_code:
            self._attempt_failed(OSError(error_code, os.strerror(error_code)))
            self._try_next()
        else:
            self._connected()

    def _attempt_failed(self, error: OSError) -> None:
        self._error = error
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _connected(self) -> None:
        if self._context is None:
            self._deliver_socket()
            return
        from mcptally.record.http.tls import TlsStream  # noqa: PLC0415

        self._tls = TlsStream(self._context, self._host_name)
        self._continue_handshake(b"")

    def _continue_handshake(self, data: bytes) -> None:
        sock = self._sock
        if self._tls is None or sock is None:
            return
        try:
            is_done, send = self._tls.handshake(data)
            # A handshake's few kilobytes always fit into the empty socket buffer.
            sock.sendall(send)
        except OSError as error:
            self._finish(error)
            return
        if is_done:
            self._loop.set_reader(sock.fileno(), None)
            self._deliver_socket()
        else:
            self._loop.set_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._finish(error)
            return
        if data:
            self._continue_handshake(data)
        else:
            self._finish(ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake"))

    def _deliver_socket(self) -> None:
        if self._sock is not None:
            sock, self._sock = self._sock, None
            self._finish(Socket(sock, self._handler, loop=self._loop, tls=self._tls))

    def _finish(self, result: Socket | OSError) -> None:
        on_done, self._on_done = self._on_done, None
        self._release()
        if on_done is not None:
            on_done(result)

    def _release(self) -> None:
        self._timer.cancel()
        if self._sock is not None:
            self._loop.set_reader(self._sock.fileno(), None)
            self._loop.set_writer(self._sock.fileno(), None)
            self._sock.close()
            self._sock = None
