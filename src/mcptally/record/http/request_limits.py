"""What a client may cost that has not asked for anything yet: lines and time of a request's head.

A head that comes in one read, as nearly all do, costs a look at its line ends and no timer.
"""

from collections.abc import Callable
from typing import Final

from mcptally.record.http.event_loop import EventLoop, Timer
from mcptally.record.http.headers import MAX_FIELDS, RefusedError

HEAD_SECONDS: Final = 60.0
"""How long a request's head may take from its first byte to its last."""


class HeadGuard:
    """Watches the heads of one connection's requests, one after the other."""

    def __init__(self, loop: EventLoop, late: Callable[[], None]) -> None:
        self._loop = loop
        self._late = late
        self._timer: Timer | None = None
        self._until: float | None = None
        self._lines = 0
        self._bytes = 0
        self._end = b""

    @property
    def running(self) -> bool:
        """Whether the time of a head runs."""
        return self._until is not None

    def look(self, data: bytes) -> None:
        """Bytes came that belong to a head, and perhaps to what follows it.

        Raises:
            RefusedError: these are too many lines; said before they are looked at one by one.
        """
        self._bytes += len(data)
        if self._bytes <= MAX_FIELDS:
            # Nearly all heads: too short for so many lines.
            self._end = data[-2:]
            return
        seen = self._end + data
        ends = [at for at in (seen.find(b"\n\r\n"), seen.find(b"\n\n")) if at >= 0]
        stop = min(ends) + 1 if ends else len(seen)
        self._lines += seen.count(b"\n", 0, stop) - self._end.count(b"\n")
        self._end = b"" if ends else seen[-2:]
        if self._lines > MAX_FIELDS + 1:
            raise RefusedError(431, f"more than {MAX_FIELDS} header fields")

    def incomplete(self) -> None:
        """A head has begun and not ended: its time runs."""
        self._until = self._loop.time() + HEAD_SECONDS
        if self._timer is None:
            self._timer = self._loop.call_later(HEAD_SECONDS, self._wake)

    def complete(self) -> None:
        """The head is over; the next one has all the time again."""
        self._until = None
        self._lines = 0
        self._bytes = 0
        self._end = b""

    def stop(self) -> None:
        """The connection is over."""
        self._until = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        # One timer, moved on when it rings: a timer a request would pile up.
        self._timer = None
        if self._until is None:
            return
        left = self._until - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._wake)
        else:
            self._late()
