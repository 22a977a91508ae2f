"""Creates recording ids that sort by time, and event times that never go backwards."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final

# CLOCK_BOOTTIME (Linux) includes the time during which a computer is suspended.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


_steady_ns: Final[Callable[[], int]] = (
    time.monotonic_ns if _BOOTTIME is None else partial(time.clock_gettime_ns, _BOOTTIME)
)


class Clock:
    """A clock that starts at the wall clock's time and advances with a monotonic clock.

    Changes to the wall clock during a recording do not affect it. If the wall clock was wrong at
    the start, `began_ns` is wrong, but durations and order are correct.
    """

    def __init__(
        self, *, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = _steady_ns
    ) -> None:
        self._steady = steady
        self.began_ns: Final = wall()
        """Time of the wall clock at creation, in UTC nanoseconds since 1970."""
        self._offset = self.began_ns - steady()

    def now(self) -> int:
        """Return the time in UTC nanoseconds since 1970; it never decreases between calls."""
        return self._offset + self._steady()


def new_id() -> str:
    """Return a new UUIDv7, which sorts by creation time (RFC 9562, section 5.7)."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
