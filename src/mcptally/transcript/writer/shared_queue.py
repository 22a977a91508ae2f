"""A queue of byte records in memory that a process shares with its forked child.

One process puts, the other takes. The counters only grow, and each is written by one process:
`head` (bytes put), `tail` (bytes taken) and `begun` (the value of `tail` after the records that are
being executed). A record is contiguous: if it does not fit before the end of the memory, it is put
at the start. So is a record that is put into an empty queue: memory that is in the processor's
cache, and in use anyway, is used again.

No order of stores to shared memory is assumed, because ARM does not keep it: `begin` gets its limit
from a message through a pipe, and the locks of the pipe in the kernel make everything visible that
was stored before the message was sent. In the other direction, `tail` is stored after the bytes of
the records were parsed and written; no processor makes a store visible before the loads that decide
about it.
"""

import contextlib
import mmap
from collections.abc import Sequence
from typing import Final, NamedTuple

QUEUE_BYTES: Final = 64 * 1024 * 1024
"""Maximum number of bytes of events that wait for the writer."""

BLOCK_BYTES: Final = 1024 * 1024
"""The memory of records that were taken is returned to the system in blocks of this size."""

LIMIT_BYTES: Final = 8
"""Size of a message that has a value of `head`, little-endian."""

_HEADER: Final = 4096
_HEAD, _TAIL, _BEGUN, _EVENTS = 0, 8, 9, 10  # the first is in another cache line: one writer each
_TO_START: Final = 2**64 - 1
"""Instead of a length: the next record is at the start of the memory."""


class QueueCounters(NamedTuple):
    """Bytes put, bytes taken, bytes taken once the current records are done; events taken."""

    head: int
    tail: int
    begun: int
    events: int


class SharedQueue:
    """A queue of at most `size` bytes.

    `size` is a multiple of the page size; above BLOCK_BYTES, also a multiple of BLOCK_BYTES.
    """

    def __init__(self, size: int = QUEUE_BYTES) -> None:
        self._size: Final = size
        self._memory = mmap.mmap(-1, _HEADER + size)
        self._words = memoryview(self._memory).cast("Q")
        self._block = min(BLOCK_BYTES, size // 4)
        self._end = 0
        """End of the memory in use."""
        self.largest: Final = size // 2 - 8
        """Bytes of the largest record."""

    # --- the process that puts ------------------------------------------------------------------

    def put(self, parts: Sequence[bytes]) -> bool:
        """Add a record that consists of `parts`; return False if there is no room for it now."""
        words, size = self._words, self._size
        length = sum(map(len, parts))
        needed = 8 + (length + 7 & ~7)
        head, tail = words[_HEAD], words[_TAIL]
        at = head % size
        skipped = size - at if at + needed > size else 0
        if head == tail and needed <= at >= self._block:
            skipped = size - at
            self._release()
        if head + skipped + needed - tail > size:
            return False
        if skipped:
            words[(_HEADER + at) // 8] = _TO_START
            head += skipped
            at = 0
        position = _HEADER + at + 8
        for part in parts:
            self._memory[position : position + len(part)] = part
            position += len(part)
        words[(_HEADER + at) // 8] = length
        words[_HEAD] = head + needed
        self._end = max(self._end, position)
        return True

    @property
    def counters(self) -> QueueCounters:
        """The counters: they show whether records wait, and whether the taker makes progress."""
        words = self._words
        return QueueCounters(words[_HEAD], words[_TAIL], words[_BEGUN], words[_EVENTS])

    def _release(self) -> None:
        """Return the memory after the first block to the system; the queue is empty."""
        if self._end > _HEADER + self._block and hasattr(mmap, "MADV_REMOVE"):  # Linux
            first, last = _HEADER + self._block, -(-self._end // mmap.PAGESIZE) * mmap.PAGESIZE
            with contextlib.suppress(OSError):
                self._memory.madvise(mmap.MADV_REMOVE, first, last - first)
        self._end = 0

    # --- the process that takes -----------------------------------------------------------------

    def begin(self, limit: int) -> bytes | None:
        """The next record before `limit`, or None; it stays in the queue until `done`.

        `limit` is a value of `head` that this process received through the kernel.
        """
        words = self._words
        begun = words[_BEGUN]
        while begun < limit:
            at = begun % self._size
            length = words[(_HEADER + at) // 8]
            if length != _TO_START:
                words[_BEGUN] = begun + 8 + (length + 7 & ~7)
                start = _HEADER + at + 8
                return self._memory[start : start + length]
            begun += self._size - at
        return None

    def done(self, events: int) -> None:
        """Remove the records that `begin` returned, which have `events` events."""
        words = self._words
        words[_EVENTS] += events
        words[_TAIL] = words[_BEGUN]

    @property
    def begun_bytes(self) -> int:
        """The size of the records that `begin` returned and that are not done."""
        return self._words[_BEGUN] - self._words[_TAIL]

    def begin_again(self) -> int:
        """Make `begin` return again what is not done; return the end of the last such record."""
        words = self._words
        last = words[_BEGUN]
        words[_BEGUN] = words[_TAIL]
        return last
