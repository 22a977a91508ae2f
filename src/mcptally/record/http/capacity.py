"""Derives limits on clients and open recordings from the limit on file descriptors.

A client needs two descriptors: one for its connection and one for the connection to the server. A
recording needs one.
"""

import contextlib
import resource
import socket
from typing import Final, NamedTuple

MAX_CLIENTS: Final = 4096
"""Maximum simultaneous client connections, if the descriptor limit allows them."""

_WANTED_DESCRIPTORS: Final = 16_384
"""Descriptor limit to request, which allows the maximum number of clients and recordings."""

_RESERVED_DESCRIPTORS: Final = 24
"""Descriptors for standard streams, listening sockets, the event loop and temporary files."""

_MAX_RECORDINGS: Final = 512

_KEEPALIVE_IDLE_SECONDS: Final = 60
_KEEPALIVE_INTERVAL_SECONDS: Final = 15
_KEEPALIVE_PROBES: Final = 4


class Capacity(NamedTuple):
    """How many client connections and recordings this process may have open at the same time."""

    clients: int
    recordings: int

    @classmethod
    def for_this_process(cls) -> "Capacity":
        """Return the capacity that the current limit on descriptors allows."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY:
            limit = _WANTED_DESCRIPTORS
        recordings = max(4, min(_MAX_RECORDINGS, limit // 4))
        clients = max(4, min(MAX_CLIENTS, (limit - recordings - _RESERVED_DESCRIPTORS) // 2))
        return cls(clients, recordings)


def raise_descriptor_limit() -> None:
    """Raise the soft limit on descriptors (usually 256 to 1024) as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def enable_keepalive(sock: socket.socket) -> None:
    """Enable TCP keepalive, which detects peers that vanished without closing the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if (option := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
