"""What a client may cost that has not asked for anything yet: lines and time of a request's head.

A head that comes in one read, as nearly all do, costs a look at its line ends and no timer.
"""

from collections.abc import Callable
from typing import Final

from mcptally.record.http.event_loop import EventLoop, Timer
from mcptally.record.http.headers import MAX_FIELDS, RefusedError

HEAD_SECONDS: Final = 60.0
"""How long a request's head may take from its first byte to its last."""


class RequestLimits:
    """Watches the heads of one connection's requests, one after the other."""

    def __init__(self, loop: EventLoop, on_timeout: Callable[[], None]) -> None:
        self._loop = loop
        self._on_timeout = on_timeout
        self._timer: Timer | None = None
        self._deadline: float | None = None
        self._lines = 0
        self._bytes = 0
        self._tail = b""

    @property
    def is_timing(self) -> bool:
        """Whether the time of a head runs."""
        return self._deadline is not None

    def count_lines(self, data: bytes) -> None:
        """Bytes came that belong to a head, and perhaps to what follows it.

        Raises:
            RefusedError: these are too many lines; said before they are looked at one by one.
        """
        self._bytes += len(data)
        if self._bytes <= MAX_FIELDS:
            # Nearly all heads: too short for so many lines.
            self._tail = data[-2:]
            return
        seen = self._tail + data
        positions = [at for at in (seen.find(b"\n\r\n"), seen.find(b"\n\n")) if at >= 0]
        stop = min(positions) + 1 if positions else len(seen)
        self._lines += seen.count(b"\n", 0, stop) - self._tail.count(b"\n")
        self._tail = b"" if positions else seen[-2:]
        if self._lines > MAX_FIELDS + 1:
            raise RefusedError(431, f"more than {MAX_FIELDS} header fields")

    def start_timer(self) -> None:
        """A head has begun and not ended: its time runs."""
        self._deadline = self._loop.time() + HEAD_SECONDS
        if self._timer is None:
            self._timer = self._loop.call_later(HEAD_SECONDS, self._on_timer)

    def reset(self) -> None:
        """The head is over; the next one has all the time again."""
        self._deadline = None
        self._lines = 0
        self._bytes = 0
        self._tail = b""

    def stop(self) -> None:
        """The connection is over."""
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        # One timer, moved on when it rings: a timer a request would pile up.
        self._timer = None
        if self._deadline is None:
            return
        left = self._deadline - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._on_timer)
        else:
            self._on_timeout()
