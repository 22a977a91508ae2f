"""An HTTP server behind the recorder: listening, and the beginning and end of a run."""

import functools
import gc
import os
import signal
import socket
from pathlib import Path
from typing import Final

from mcptally.errors import UsageError
from mcptally.record.http.capacity import Room, notice_silent_end, raise_descriptor_limit
from mcptally.record.http.event_loop import EventLoop, Timer
from mcptally.record.http.proxy import Relay
from mcptally.record.http.recordings import MAX_OPEN, Headers, Sessions
from mcptally.record.http.socket import Socket
from mcptally.record.http.upstream import Server, is_loopback
from mcptally.record.http.write_queue import WriteQueue
from mcptally.record.limits import Limits
from mcptally.record.log import log_to_stderr
from mcptally.record.writer.recording import Archive
from mcptally.redaction import policy as redaction_policy
from mcptally.wire.byte_pool import Pool

IDLE_SECONDS: Final = 3600.0
"""A session's recording is closed when nothing was said for so long."""

GRACE_SECONDS: Final = 2.0
"""How long exchanges under way may take to finish after SIGTERM or SIGINT."""

_LOOK_SECONDS: Final = 60.0
_ROOM_SECONDS: Final = 0.25
"""How long to wait before it is looked again whether there is room for who waits."""

_BACKLOG: Final = 1024

_REMEMBERED: Final = 4096
"""Characters of the longest head or path that is kept in memory for the next time."""


def run(
    *,
    url: str,
    listen: str,
    out: Path,
    name: str | None = None,
    policy: redaction_policy.Policy | None = None,
    limits: Limits | None = None,
    ca_file: Path | None = None,
) -> int:
    """Record the server at `url` for clients that connect to `listen`, until told to stop.

    SIGTERM and SIGINT end it in good order; a second one at once. Returns the exit code, 0.

    Raises:
        UsageError: `url`, `listen` or `ca_file` cannot be used.
    """
    raise_descriptor_limit()
    archive = Archive(out, policy=policy, limits=limits)
    server = Server(url, ca_file=ca_file)
    sockets = bind(listen)
    server.never_connect_to(sockets)
    service = Service(server, sockets, archive=archive, name=name)
    # What is there now stays; of what each call leaves behind, cycles are rare.
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)
    with service.loop.signals((signal.SIGTERM, signal.SIGINT), lambda _: service.stop()):
        service.say_where()
        service.serve()
    if service.loop.held:
        # A thread that the disk never let go of must not keep the process.
        os._exit(0)
    return 0


class Service:
    """One run: the sockets it listens on and the connections it has accepted."""

    def __init__(
        self, server: Server, sockets: list[socket.socket], *, archive: Archive, name: str | None
    ) -> None:
        self.loop = EventLoop(stall_seconds=archive.limits.stall_seconds)
        self._server = server
        self._sockets = sockets
        self._archive = archive
        self._room = Room.of_this_process()
        self._relays: set[Relay] = set()
        self._pool = Pool()
        # Where only this machine can connect, and the server cannot check `Host` for itself, or
        # a request gets credentials here that its sender may not have.
        self._own_names_only = (server.host is not None or server.authorization is not None) and (
            all(is_loopback(sock.getsockname()[0]) for sock in sockets)
        )
        self._listening = False
        self._said_full = -_LOOK_SECONDS
        self._stopping: Timer | None = None
        self._scribe = WriteQueue(self.loop, say=archive.log)
        self._sessions = Sessions(
            archive,
            server=name or server.label,
            url=server.url,
            hide=_Hidden(archive.policy),
            write_later=self._scribe.later,
            clock=self.loop.time,
            max_open=min(MAX_OPEN, self._room.recordings),
        )

    def serve(self) -> None:
        """Serve until `stop`."""
        self._listen()
        self._sweep()
        self.loop.run()

    def stop(self) -> None:
        """Let exchanges under way finish and end; the second call ends at once."""
        if self._stopping:
            self._end()
            return
        self._stopping = self.loop.call_later(GRACE_SECONDS, self._end)
        for sock in self._sockets:
            self.loop.reader(sock.fileno(), None)
            sock.close()
        for relay in list(self._relays):
            relay.finish("stopped")
        if not self._relays:
            self._end()

    def say_where(self) -> None:
        """Tell where clients connect, and what it means when others can too."""
        for sock in self._sockets:
            host, port = sock.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            log_to_stderr(
                f"recording {self._server.shown} to {self._archive.folder}; "
                f"clients connect to http://{shown}:{port}{self._server.path}"
            )
            if not is_loopback(host):
                log_to_stderr(
                    f"warning: {shown} can be reached from other machines. Whoever reaches port "
                    f"{port} can use the server behind it, unencrypted, and what they send is "
                    "recorded. Listen on 127.0.0.1 unless that is what you want."
                )

    def _listen(self) -> None:
        if self._stopping or self._listening:
            return
        self._listening = True
        for sock in self._sockets:
            self.loop.reader(sock.fileno(), functools.partial(self._accept, sock))

    def _accept(self, listening: socket.socket) -> None:
        if len(self._relays) >= self._room.clients and not self._make_room():
            self._wait_for_room(f"{len(self._relays)} clients have asked at once; others wait")
            return
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of descriptors, mostly: those who wait get their turn when one is free.
            self._make_room()
            self._wait_for_room(f"cannot accept connections: {error.strerror}")
            return
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_silent_end(sock)
        except OSError:  # macOS says so of a client that has gone by now
            sock.close()
            return
        relay = Relay(
            upstream=self._server,
            sessions=self._sessions,
            scribe=self._scribe,
            loop=self.loop,
            cap=self._archive.limits.frame_bytes,
            pool=self._pool,
            own_names_only=self._own_names_only,
            gone=self._gone,
            say=self._archive.log,
        )
        self._relays.add(relay)
        relay.start(Socket(sock, relay, loop=self.loop))

    def _make_room(self) -> bool:
        """Close the connection that has asked for nothing for longest, if there is one."""
        idle = [relay for relay in self._relays if relay.idle]
        if idle:
            min(idle, key=lambda relay: relay.waiting_since).stop("made room")
        return bool(idle)

    def _wait_for_room(self, why: str) -> None:
        now = self.loop.time()
        if now - self._said_full > _LOOK_SECONDS:
            self._said_full = now
            self._archive.log(why)
        self._listening = False
        for sock in self._sockets:
            self.loop.reader(sock.fileno(), None)
        self.loop.call_later(_ROOM_SECONDS, self._listen)

    def _gone(self, relay: Relay) -> None:
        self._relays.discard(relay)
        if not self._listening:
            self._listen()
        if self._stopping and not self._relays:
            self.loop.call_soon(self._end)

    def _sweep(self) -> None:
        self._sessions.close_idle(IDLE_SECONDS)
        self.loop.call_later(_LOOK_SECONDS, self._sweep)

    def _end(self) -> None:
        if self._stopping:
            self._stopping.cancel()
        for relay in list(self._relays):
            relay.stop("stopped")
        self._sessions.close_all("stopped")
        self._scribe.flush()
        self.loop.stop()


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {listen!r}: give HOST:PORT, for example 127.0.0.1:9000")
    return host or "127.0.0.1", int(port)


def bind(listen: str) -> list[socket.socket]:
    """Listening sockets for HOST:PORT; a name may mean several.

    Raises:
        UsageError: it cannot be listened on.
    """
    host, port = _address(listen)
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, proto, _, address in found:
            sock = socket.socket(family, kind, proto)
            sockets.append(sock)
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
            sock.settimeout(0)
    except (OSError, UnicodeError) as error:  # a name like `a..b` is no name for any system
        for sock in sockets:
            sock.close()
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--listen {host}:{port}: {why}") from error
    return sockets


class _Hidden:
    """What is recorded of heads: by the policy's allowlist, with its answers kept."""

    def __init__(self, policy: redaction_policy.Policy) -> None:
        # Peers repeat themselves: nearly every head and path has been seen before.
        self._policy = policy
        self._headers = functools.lru_cache(512)(lambda headers: policy.headers(headers)[0])
        self._path = functools.lru_cache(512)(lambda path: policy.url(path)[0])

    def headers(self, headers: Headers) -> dict[str, str]:
        """The allowed headers, session ids hashed."""
        if sum([len(name) + len(value) for name, value in headers]) > _REMEMBERED:
            return self._policy.headers(headers)[0]
        return self._headers(headers)

    def path(self, path: str) -> str:
        """A path and query with session ids hashed."""
        return self._path(path) if len(path) <= _REMEMBERED else self._policy.url(path)[0]
