"""Runs the HTTP recorder: listens, accepts clients, and shuts down."""

import asyncio
import functools
import signal
import socket
from pathlib import Path
from typing import Any, Final

from mcptally.errors import UsageError
from mcptally.record.http.capacity import Capacity, enable_keepalive, raise_descriptor_limit
from mcptally.record.http.error_text import INVALID_HOST
from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.head_redaction import HeadRedaction
from mcptally.record.http.proxy import ProxyConnection
from mcptally.record.http.recordings import MAX_OPEN, Sessions
from mcptally.record.http.shared import Shared
from mcptally.record.http.upstream import UpstreamServer, address_text, is_loopback
from mcptally.record.http.write_queue import WriteQueue
from mcptally.redaction import policy as redaction_policy
from mcptally.transcript.writer.interface import ArchiveWriter
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.log import log_to_stderr
from mcptally.transcript.writer.opening import open_archive
from mcptally.wire.byte_pool import BytePool

IDLE_SECONDS: Final = 3600.0
"""Seconds without an exchange after which a session's recording is closed."""

GRACE_SECONDS: Final = 2.0
"""Seconds for active exchanges to finish after SIGTERM or SIGINT."""

_SWEEP_SECONDS: Final = 60.0
_ACCEPT_RETRY_SECONDS: Final = 0.25
"""Seconds until the next attempt to accept clients after the capacity was reached."""

_BACKLOG: Final = 1024


def run(
    *,
    url: str,
    listen: str,
    out: Path,
    name: str | None = None,
    policy: str = "default",
    limits: Limits | None = None,
    ca_file: Path | None = None,
) -> int:
    """Record the server at `url` for clients that connect to `listen`, until a signal arrives.

    SIGTERM, SIGINT and SIGHUP let active exchanges finish; a second signal stops at once. Returns
    the exit code, 0.

    Raises:
        UsageError: `url`, `listen` or `ca_file` cannot be used.
    """
    raise_descriptor_limit()
    heads_policy = redaction_policy.policy(policy)
    limits = limits or Limits()
    server = UpstreamServer(url, ca_file=ca_file)
    sockets = bind(listen)
    server.reject_own_addresses(sockets)
    archive = open_archive(str(out), policy=policy, limits=limits)
    service = Service(server, sockets, archive=archive, policy=heads_policy, name=name)
    archive.watch(service.loop.set_reader)
    for number in _stop_signals():
        service.loop.add_signal_handler(number, service.stop)
    service.log_addresses()
    service.serve()
    archive.watch(lambda _fd, _callback: None)  # the event loop has ended
    archive.close()
    service.loop.close()  # restores the signals' default actions
    return 0


def _stop_signals() -> tuple[int, ...]:
    """Return the signals that stop the recorder; SIGHUP is among them unless nohup ignores it."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return (signal.SIGTERM, signal.SIGINT)
    return (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Service:
    """A run of the recorder: its listening sockets and accepted connections."""

    def __init__(
        self,
        server: UpstreamServer,
        sockets: list[socket.socket],
        *,
        archive: ArchiveWriter,
        policy: redaction_policy.Policy,
        name: str | None,
    ) -> None:
        self.loop = EventLoop()
        self.loop.set_exception_handler(self._log_internal_error)
        self._server = server
        self._sockets = sockets
        self._archive = archive
        self._capacity = Capacity.for_this_process()
        self._connections: set[ProxyConnection] = set()
        self._listening = False
        self._full_logged_at = -_SWEEP_SECONDS
        self._stopping: asyncio.TimerHandle | None = None
        self._stopped: asyncio.Future[None] = self.loop.create_future()
        self._write_queue = WriteQueue(self.loop, archive)
        self._sessions = Sessions(
            archive,
            server=name or server.label,
            url=server.url,
            redaction=HeadRedaction(policy),
            write_later=self._write_queue.enqueue,
            clock=self.loop.time,
            max_open=min(MAX_OPEN, self._capacity.recordings),
        )
        # Check `Host` if only this machine can connect and the recorder either replaces `Host` (so
        # the server cannot check it) or adds credentials (which the client may not have).
        checks_host = server.host is not None or server.authorization is not None
        self._shared = Shared(
            server,
            self._sessions,
            self._write_queue,
            self.loop,
            cap=archive.limits.frame_bytes,
            pool=BytePool(),
            require_loopback_host=checks_host
            and all(is_loopback(sock.getsockname()[0]) for sock in sockets),
            log=archive.log,
        )

    def serve(self) -> None:
        """Serve until `stop` is called."""
        self.loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._listen()
        self._sweep()
        await self._stopped
        if attempts := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(attempts)  # cancelled attempts to connect

    def stop(self) -> None:
        """Shut down once active exchanges have finished; a second call shuts down at once."""
        if self._stopping:
            self._shut_down()
            return
        self._stopping = self.loop.call_later(GRACE_SECONDS, self._shut_down)
        for sock in self._sockets:
            self.loop.set_reader(sock.fileno(), None)
            sock.close()
        for connection in list(self._connections):
            connection.close_when_idle("stopped")
        if not self._connections:
            self._shut_down()

    def log_addresses(self) -> None:
        """Log the addresses to connect to, and warn if other machines can reach them."""
        for sock in self._sockets:
            host, port = sock.getsockname()[:2]
            log_to_stderr(
                f"recording {self._server.display_url} to {self._archive.folder}; "
                f"clients connect to http://{address_text(host, port)}{self._server.path}"
            )
            if not is_loopback(host):
                log_to_stderr(
                    f"warning: {host} can be reached from other machines. Any client that can "
                    f"connect to port {port} can use the server, unencrypted, and its traffic is "
                    "recorded. Listen on 127.0.0.1 unless other machines should connect."
                )

    def _listen(self) -> None:
        if self._stopping or self._listening:
            return
        self._listening = True
        for sock in self._sockets:
            self.loop.set_reader(sock.fileno(), functools.partial(self._accept, sock))

    def _accept(self, listening: socket.socket) -> None:
        if len(self._connections) >= self._capacity.clients and not self._close_idle_connection():
            self._pause_accepting(
                f"{len(self._connections)} clients are active at once; others wait"
            )
            return
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # The usual cause is that no descriptor is free; waiting clients are accepted later.
            self._close_idle_connection()
            self._pause_accepting(f"cannot accept connections: {error.strerror}")
            return
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(sock)
        except OSError:  # macOS reports this if the client has already disconnected
            sock.close()
            return
        connection = ProxyConnection(self._shared, self._on_closed)
        self._connections.add(connection)
        connection.start(sock)

    def _close_idle_connection(self) -> bool:
        """Close the connection that has been idle the longest; return False if none is idle."""
        idle = [connection for connection in self._connections if connection.is_idle]
        if idle:
            min(idle, key=lambda connection: connection.idle_since).close("made room")
        return bool(idle)

    def _pause_accepting(self, why: str) -> None:
        now = self.loop.time()
        if now - self._full_logged_at > _SWEEP_SECONDS:
            self._full_logged_at = now
            self._archive.log(why)
        self._listening = False
        for sock in self._sockets:
            self.loop.set_reader(sock.fileno(), None)
        self.loop.call_later(_ACCEPT_RETRY_SECONDS, self._listen)

    def _on_closed(self, connection: ProxyConnection) -> None:
        self._connections.discard(connection)
        if not self._listening:
            self._listen()
        if self._stopping and not self._connections:
            self.loop.call_soon(self._shut_down)

    def _sweep(self) -> None:
        self._sessions.close_idle(IDLE_SECONDS)
        self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _log_internal_error(self, _loop: object, context: dict[str, Any]) -> None:
        """Log an exception of a callback; asyncio would print a traceback."""
        error = context.get("exception") or context["message"]
        self._archive.log(f"internal error: {error!r}; please report this")

    def _shut_down(self) -> None:
        if self._stopped.done():
            return
        self._stopped.set_result(None)
        if self._stopping:
            self._stopping.cancel()
        for connection in list(self._connections):
            connection.close("stopped")
        self._sessions.close_all("stopped")
        self._write_queue.write([])


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {listen!r}: give HOST:PORT, for example 127.0.0.1:9000")
    return host or "127.0.0.1", int(port)


def bind(listen: str) -> list[socket.socket]:
    """Return listening sockets for HOST:PORT; a name may resolve to several addresses.

    Raises:
        UsageError: the address is invalid or cannot be bound.
    """
    host, port = _address(listen)
    sockets: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, proto, _, address in addresses:
            sock = socket.socket(family, kind, proto)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
            sock.settimeout(0)
    except (OSError, UnicodeError) as error:  # a name such as `a..b` is invalid on every system
        for sock in sockets:
            sock.close()
        why = INVALID_HOST if isinstance(error, UnicodeError) else error.strerror or error
        raise UsageError(f"--listen {address_text(host, port)}: {why}") from error
    return sockets
