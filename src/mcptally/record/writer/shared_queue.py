"""A queue of byte records in memory that a process shares with its forked child.

One process puts, the other takes. The counters only grow, and each is written by one process:
`head` (bytes put), `tail` (bytes taken) and `begun` (the value of `tail` after the current record).
A record is contiguous: if it does not fit before the end of the memory, it is put at the start.
"""

import contextlib
import mmap
from collections.abc import Sequence
from typing import Final, NamedTuple

QUEUE_BYTES: Final = 64 * 1024 * 1024
"""Maximum number of bytes of events that wait for the writer."""

BLOCK_BYTES: Final = 1024 * 1024
"""The memory of records that were taken is returned to the system in blocks of this size."""

_HEADER: Final = 4096
_HEAD, _TAIL, _BEGUN = 0, 8, 16  # words 64 bytes apart: each process writes its own cache line
_TO_START: Final = 2**64 - 1
"""Instead of a length: the next record is at the start of the memory."""


class QueueCounters(NamedTuple):
    """Bytes put, bytes taken, and bytes taken once the current record is done."""

    head: int
    tail: int
    begun: int


class SharedQueue:
    """A queue of at most `size` bytes.

    `size` is a multiple of the page size; above BLOCK_BYTES, also a multiple of BLOCK_BYTES.
    """

    def __init__(self, size: int = QUEUE_BYTES) -> None:
        self._size: Final = size
        self._memory = mmap.mmap(-1, _HEADER + size)
        self._words = memoryview(self._memory).cast("Q")
        self._block = min(BLOCK_BYTES, size)
        self._released = 0
        self.largest: Final = size // 2 - 8
        """Bytes of the largest record."""

    # --- the process that puts ------------------------------------------------------------------

    def put(self, parts: Sequence[bytes]) -> bool:
        """Add a record that consists of `parts`; return False if there is no room for it now."""
        words, size = self._words, self._size
        length = sum(map(len, parts))
        needed = 8 + (length + 7 & ~7)
        head, tail = words[_HEAD], words[_TAIL]
        if tail - self._released >= self._block:
            self._release(head, tail)
        at = head % size
        skipped = size - at if at + needed > size else 0
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
        return True

    @property
    def counters(self) -> QueueCounters:
        """The counters: they show whether records wait, and whether the taker makes progress."""
        return QueueCounters(self._words[_HEAD], self._words[_TAIL], self._words[_BEGUN])

    def _release(self, head: int, tail: int) -> None:
        """Return the memory of records that were taken to the system."""
        block = self._block
        for start in range(max(self._released, head - self._size), tail, block):
            first = -(-start // block) * block
            # A later record may already use the memory of the first blocks.
            if first + block <= tail and first + self._size >= head:
                self._free(_HEADER + first % self._size)
        self._released = tail // block * block

    def _free(self, start: int) -> None:
        if hasattr(mmap, "MADV_REMOVE"):  # Linux; elsewhere the memory stays in use
            with contextlib.suppress(OSError):
                self._memory.madvise(mmap.MADV_REMOVE, start, self._block)

    # --- the process that takes -----------------------------------------------------------------

    def begin(self) -> bytes | None:
        """The next record, or None; it stays in the queue until `done`."""
        words = self._words
        tail = words[_TAIL]
        while tail != words[_HEAD]:
            at = tail % self._size
            length = words[(_HEADER + at) // 8]
            if length != _TO_START:
                words[_BEGUN] = tail + 8 + (length + 7 & ~7)
                start = _HEADER + at + 8
                return self._memory[start : start + length]
            tail += self._size - at
            words[_TAIL] = tail
        return None

    def done(self) -> None:
        """Remove the record that `begin` returned."""
        self._words[_TAIL] = self._words[_BEGUN]

    @property
    def was_interrupted(self) -> bool:
        """Whether a record was begun and is not done: the process that took it has died."""
        return self._words[_BEGUN] > self._words[_TAIL]
