"""When things happened: ids that sort by time, and times of a recording that never go back."""

import os
import time
from collections.abc import Callable
from typing import Final

# CLOCK_BOOTTIME goes on while a laptop sleeps; elsewhere the monotonic clock has to do.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def _steady_ns() -> int:
    return time.monotonic_ns() if _BOOTTIME is None else time.clock_gettime_ns(_BOOTTIME)


class Clock:
    """The wall clock as it was at the beginning, moved on by a clock that nobody sets.

    Whoever steps the wall clock back or forth while a recording grows changes nothing in it: its
    `began_ns` may be wrong then, but its durations and its order are not.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = _steady_ns,
    ) -> None:
        self._steady = steady
        self.began_ns: Final = wall()
        """UTC nanoseconds since 1970 at the beginning, as the wall clock had it."""
        self._offset = self.began_ns - steady()

    def now(self) -> int:
        """UTC nanoseconds since 1970; never less than before."""
        return self._offset + self._steady()


def new_id() -> str:
    """A UUIDv7: sorts by the time it was made (RFC 9562, section 5.7)."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
