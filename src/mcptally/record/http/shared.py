"""Declares the state shared by all connections of one recorder run."""

from collections.abc import Callable
from typing import NamedTuple

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.recordings import Sessions
from mcptally.record.http.upstream import UpstreamServer
from mcptally.record.http.write_queue import WriteQueue
from mcptally.wire.byte_pool import BytePool


class Shared(NamedTuple):
    """The state shared by all connections of one recorder run."""

    upstream: UpstreamServer
    sessions: Sessions
    write_queue: WriteQueue
    loop: EventLoop
    cap: int
    """Maximum number of bytes of a frame to record."""
    pool: BytePool
    """Limits the total bytes of incomplete bodies in all connections."""
    require_loopback_host: bool
    """Whether requests whose `Host` is not this machine are refused."""
    log: Callable[[str], None]
