"""Limits how many lines a request head may have, and how long it may take to arrive.

Nearly all heads arrive in one read and need no timer.
"""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Final

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.headers import MAX_FIELDS, RefusedError

HEAD_SECONDS: Final = 60.0
"""Maximum seconds from the first to the last byte of a request head."""


class RequestLimits:
    """Enforces the limits on each request head of one connection."""

    def __init__(self, loop: EventLoop, on_timeout: Callable[[], None]) -> None:
        self._loop = loop
        self._on_timeout = on_timeout
        self._timer: TimerHandle | None = None
        self._lines = 0
        self._bytes = 0
        self._tail = b""

    @property
    def is_timing(self) -> bool:
        """Whether a head's timer is running."""
        return self._timer is not None

    def count_lines(self, data: bytes) -> None:
        """Count the lines of a head in `data`, which may also contain the start of the body.

        Raises:
            RefusedError: there are too many lines. The lines are not parsed.
        """
        self._bytes += len(data)
        if self._bytes <= MAX_FIELDS:
            # Nearly all heads are too short to contain that many lines.
            self._tail = data[-2:]
            return
        received = self._tail + data
        positions = [at for at in (received.find(b"\n\r\n"), received.find(b"\n\n")) if at >= 0]
        stop = min(positions) + 1 if positions else len(received)
        self._lines += received.count(b"\n", 0, stop) - self._tail.count(b"\n")
        self._tail = b"" if positions else received[-2:]
        if self._lines > MAX_FIELDS + 1:
            raise RefusedError(431, f"more than {MAX_FIELDS} header fields")

    def start_timer(self) -> None:
        """Start the timer for an incomplete head."""
        self._timer = self._loop.call_later(HEAD_SECONDS, self._on_timeout)

    def reset(self) -> None:
        """Reset the limits after a complete head."""
        self.stop()
        self._lines = 0
        self._bytes = 0
        self._tail = b""

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
