"""How many clients and recordings there is room for, by the descriptors this process may have.

A client needs two descriptors, its own connection and that to the server, and a recording one.
"""

import contextlib
import socket
import sys
from typing import Final, NamedTuple

if sys.platform != "win32":
    import resource

MAX_CLIENTS: Final = 4096
"""Connections of clients at once, where descriptors allow it."""

_WANTED_DESCRIPTORS: Final = 16_384
"""What is asked for: enough for the most clients and recordings."""

_RESERVED_DESCRIPTORS: Final = 24
"""Descriptors for streams, listening, the event loop, and files of short life."""

_MAX_RECORDINGS: Final = 512

_KEEPALIVE_IDLE_SECONDS: Final = 60
_KEEPALIVE_INTERVAL_SECONDS: Final = 15
_KEEPALIVE_PROBES: Final = 4


class Capacity(NamedTuple):
    """What this process may hold open at once."""

    clients: int
    recordings: int

    @classmethod
    def for_this_process(cls) -> "Capacity":
        """As the limit on descriptors is now."""
        if sys.platform == "win32":
            return cls(MAX_CLIENTS, _MAX_RECORDINGS)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY:
            limit = _WANTED_DESCRIPTORS
        recordings = max(4, min(_MAX_RECORDINGS, limit // 4))
        clients = max(4, min(MAX_CLIENTS, (limit - recordings - _RESERVED_DESCRIPTORS) // 2))
        return cls(clients, recordings)


def raise_descriptor_limit() -> None:
    """Ask for as many descriptors as are wanted and allowed: the usual limit is 256 to 1024."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = (
            _WANTED_DESCRIPTORS
            if hard == resource.RLIM_INFINITY
            else min(_WANTED_DESCRIPTORS, hard)
        )
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def enable_keepalive(sock: socket.socket) -> None:
    """Have the kernel ask a silent peer whether it is there: one that vanished never says so."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if (option := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
