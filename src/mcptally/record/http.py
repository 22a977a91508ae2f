"""An HTTP server behind the recorder: listening, connecting, and the end of a run."""

import asyncio
import contextlib
import functools
import ipaddress
import os
import signal
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mcptally.errors import UsageError
from mcptally.record import http_endpoint, redact
from mcptally.record.http_relay import Relay
from mcptally.record.http_scribe import Scribe
from mcptally.record.http_sessions import Sessions
from mcptally.record.http_wire import Tls, Wire
from mcptally.record.writer import Archive, Limits, Policy, say_on_stderr

CONNECT_SECONDS: Final = 30.0
"""How long the server may take to accept a connection."""

IDLE_SECONDS: Final = 3600.0
"""A session's recording is closed when nothing was said for so long."""

GRACE_SECONDS: Final = 2.0
"""How long exchanges under way may take to finish after SIGTERM or SIGINT."""

_LOOK_SECONDS: Final = 60.0
_BACKLOG: Final = 1024


def run(
    *,
    url: str,
    listen: str,
    out: Path,
    name: str | None = None,
    policy: Policy | None = None,
    limits: Limits | None = None,
    ca_file: Path | None = None,
) -> int:
    """Record the server at `url` for clients that connect to `listen`, until told to stop.

    SIGTERM and SIGINT end it in good order; a second one at once. Returns the exit code, 0.

    Raises:
        UsageError: `url` or `listen` cannot be used.
    """
    upstream = Server(url, ca_file=ca_file)
    archive = Archive(out, policy=policy, limits=limits)
    run_once = _Run(upstream, archive=archive, name=name)
    sockets = _bind(*_address(listen))
    loop_factory = asyncio.SelectorEventLoop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(run_once.serve(sockets))


class Server:
    """The server behind the recorder: where it is and how to reach it."""

    def __init__(self, url: str, *, ca_file: Path | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--url {url!r}: give http://HOST[:PORT]/PATH or https://…")
        try:
            port = parts.port
        except ValueError as error:
            raise UsageError(f"--url {url!r}: {error}") from error
        self.url = url
        self._name = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        self.path = parts.path or "/"
        self.loopback = _is_loopback(self._name)
        netloc = parts.netloc.rpartition("@")[2]
        self.label = netloc
        # A loopback server checks Host and Origin against what its clients really send, so these
        # reach it unchanged; any other server is chosen by Host, so it must be its own.
        self.host = None if self.loopback else netloc.encode()
        self.origins = http_endpoint.origins(
            parts.scheme, self._name, self._port, loopback=self.loopback
        )
        self._context = _tls(ca_file) if parts.scheme == "https" else None

    async def connect(self, end: Relay) -> Wire:
        """A new connection; addresses are tried in turn.

        Raises:
            OSError: none of them could be reached, or TLS failed.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            sock = await self._socket(loop)
            try:
                tls = None
                if self._context is not None:
                    tls = Tls(self._context, self._name)
                    await tls.handshake(loop, sock)
            except BaseException:
                sock.close()
                raise
        return Wire(sock, end, loop=loop, tls=tls)

    async def _socket(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        found = await loop.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
        last: OSError = OSError(f"no address for {self._name}")
        for family, kind, proto, _, address in found:
            sock = socket.socket(family, kind, proto)
            try:
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                last = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise last


class _Run:
    """One run of the recorder."""

    def __init__(self, upstream: Server, *, archive: Archive, name: str | None) -> None:
        self._upstream = upstream
        self._archive = archive
        self._name = name or upstream.label
        self._relays: set[Relay] = set()
        self._signals = 0

    async def serve(self, sockets: list[socket.socket]) -> int:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        hurry = asyncio.Event()
        scribe = Scribe(say=self._archive.say)
        sessions = Sessions(
            self._archive,
            server=self._name,
            url=self._upstream.url,
            hide=_Hidden(self._archive.policy),
            write_later=scribe.later,
            clock=loop.time,
        )

        def signalled() -> None:
            (hurry if stop.is_set() else stop).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, signalled)
        for sock in sockets:
            loop.add_reader(sock.fileno(), self._accept, sock, loop, sessions, scribe)
        self._say(sockets)
        sweep = loop.create_task(_sweep(sessions))
        await stop.wait()
        for sock in sockets:
            loop.remove_reader(sock.fileno())
            sock.close()
        await self._end_relays(hurry)
        sweep.cancel()
        sessions.close_all("stopped")
        scribe.stop()
        return 0

    def _accept(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        sessions: Sessions,
        scribe: Scribe,
    ) -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # Out of descriptors, mostly: those who wait get their turn when one is free.
                self._archive.say(f"cannot accept a connection: {error.strerror}")
                loop.remove_reader(listening.fileno())
                loop.call_later(1.0, self._listen_again, listening, loop, sessions, scribe)
                return
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            relay = Relay(
                upstream=self._upstream,
                sessions=sessions,
                scribe=scribe,
                loop=loop,
                cap=self._archive.limits.frame_bytes,
                gone=self._relays.discard,
            )
            self._relays.add(relay)
            relay.start(Wire(sock, relay, loop=loop))

    def _listen_again(self, listening: socket.socket, *then: Any) -> None:
        if listening.fileno() >= 0:
            loop = asyncio.get_running_loop()
            loop.add_reader(listening.fileno(), self._accept, listening, *then)

    async def _end_relays(self, hurry: asyncio.Event) -> None:
        for relay in [relay for relay in self._relays if relay.idle]:
            relay.stop("stopped")
        loop = asyncio.get_running_loop()
        until = loop.time() + GRACE_SECONDS
        while self._relays and not hurry.is_set() and loop.time() < until:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hurry.wait(), 0.02)
            for relay in [relay for relay in self._relays if relay.idle]:
                relay.stop("stopped")
        for relay in list(self._relays):
            relay.stop("stopped")

    def _say(self, sockets: list[socket.socket]) -> None:
        for sock in sockets:
            host, port = sock.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            say_on_stderr(
                f"recording {self._upstream.url} to {self._archive.folder}; "
                f"clients connect to http://{shown}:{port}{self._upstream.path}"
            )
            if not _is_loopback(host):
                say_on_stderr(
                    f"warning: {shown} can be reached from other machines. Whoever reaches port "
                    f"{port} can use the server behind it without encryption, and what they send "
                    "is recorded. Listen on 127.0.0.1 unless that is what you want."
                )


async def _sweep(sessions: Sessions) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        sessions.close_idle(IDLE_SECONDS)


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {listen!r}: give HOST:PORT, for example 127.0.0.1:9000")
    return host or "127.0.0.1", int(port)


def _bind(host: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for family, kind, proto, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            sock = socket.socket(family, kind, proto)
            sockets.append(sock)
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
            sock.settimeout(0)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise UsageError(f"--listen {host}:{port}: {error.strerror or error}") from error
    return sockets


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise UsageError(f"{ca_file}: no certificates there: {error.strerror or error}") from error


class _Hidden:
    """What is recorded of heads: by the policy's allowlist, with its answers kept."""

    def __init__(self, policy: Policy) -> None:
        # Session ids are hashed and headers picked whatever the policy, `none` included.
        by = policy if isinstance(policy, redact.Policy) else redact.policy("none")
        # Clients repeat themselves: nearly every header and path has been seen before.
        self._header = functools.lru_cache(1024)(lambda name, text: by.headers([(name, text)])[0])
        self._path = functools.lru_cache(1024)(lambda path: by.url(path)[0])

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The allowed headers, session ids hashed."""
        kept: dict[str, str] = {}
        for name, text in headers:
            for key, value in self._header(name, text).items():
                kept[key] = f"{kept[key]}, {value}" if key in kept else value
        return kept

    def path(self, path: str) -> str:
        """A path and query with session ids hashed."""
        return self._path(path)
