"""Parses the URL of the upstream server, resolves its host name, and connects to it."""

import asyncio
import binascii
import errno
import re
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from mcptally.errors import UsageError
from mcptally.record.http import sse_endpoint
from mcptally.record.http.capacity import enable_keepalive
from mcptally.record.http.error_text import INVALID_HOST
from mcptally.record.http.event_loop import READ_SIZE, EventLoop
from mcptally.record.http.tls import TlsStream, trusting

CONNECT_SECONDS: Final = 30.0
"""Maximum seconds to establish a connection, including TLS."""

_CREDENTIALS: Final = re.compile("//.*@", re.DOTALL)

Connected = tuple[socket.socket, TlsStream | None]
"""A connected socket, and its TLS state."""

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
        self._context = trusting(ca_file) if self.is_tls else None
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

    async def connect(self, loop: EventLoop) -> Connected:
        """Try all addresses in order, each for its share of the time; return the first socket.

        Raises:
            OSError: the name has no address, or connecting failed; this is the last error.
        """
        error = OSError(f"no address for {self._host_name}")
        async with asyncio.timeout(CONNECT_SECONDS):
            addresses = await self._addresses()
            for address in addresses:
                try:
                    async with asyncio.timeout(CONNECT_SECONDS / len(addresses)):
                        return await self._connect_to(address, loop)
                except OSError as failure:
                    error = failure
        raise error

    async def _connect_to(self, address: _Address, loop: EventLoop) -> Connected:
        family, kind, proto, _, place = address
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(sock)
            await loop.sock_connect(sock, place)
            return sock, await self._handshake(loop, sock)
        except BaseException:
            sock.close()
            raise

    async def _handshake(self, loop: EventLoop, sock: socket.socket) -> TlsStream | None:
        """Return the TLS state of a new connection; None for http."""
        if self._context is None:
            return None
        tls = TlsStream(self._context, self._host_name)
        is_done, send = tls.handshake(b"")
        while not is_done:
            await loop.sock_sendall(sock, send)
            if not (data := await loop.sock_recv(sock, READ_SIZE)):
                raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
            is_done, send = tls.handshake(data)
        await loop.sock_sendall(sock, send)
        return tls

    async def _addresses(self) -> list[_Address]:
        """Return the server's addresses, resolved in a thread that cannot delay the exit."""
        if self._loopback_addresses is not None:
            return self._loopback_addresses
        found: Future[list[_Address]] = Future()
        found.set_running_or_notify_cancel()

        def resolve() -> None:
            try:
                found.set_result(self._resolve())
            except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                found.set_exception(error)

        threading.Thread(target=resolve, name="resolver", daemon=True).start()
        return await asyncio.wrap_future(found)

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
