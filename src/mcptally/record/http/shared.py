"""What all connections of one run of the recorder share."""

from collections.abc import Callable
from typing import NamedTuple

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.recordings import Sessions
from mcptally.record.http.upstream import UpstreamServer
from mcptally.record.http.write_queue import WriteQueue
from mcptally.wire.byte_pool import BytePool


class Shared(NamedTuple):
    """What all connections of one run of the recorder share."""

    upstream: UpstreamServer
    sessions: Sessions
    write_queue: WriteQueue
    loop: EventLoop
    cap: int
    """Most bytes of a frame that are kept."""
    pool: BytePool
    """Limits the bytes of incomplete bodies of all connections."""
    require_loopback_host: bool
    """Whether requests with another `Host` than this machine are refused."""
    log: Callable[[str], None]
