"""Implements a queue of byte records in memory shared with a forked child process.

One process puts records into the queue, the other takes them out. The counters only grow, and each
is written by only one process: `head` (bytes put), `tail` (bytes taken) and `begun` (the value that
`tail` will have once the records now being processed are removed). A record is contiguous: a record
that does not fit before the end of the memory is put at the start. If the queue is empty, a record
is also put at the start, to reuse memory that is in the processor's cache. `head` is stored after
the record's bytes, so a killed process leaves only whole records.

The code does not rely on the order of stores to shared memory, because ARM does not preserve it:
`begin` gets its limit from a message through a pipe, and the kernel's pipe locks make everything
visible that was stored before the message was sent. In the other direction, `tail` is stored after
the records were parsed and written, and no processor makes a store visible before the loads on
which it depends.
"""

import contextlib
import mmap
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mcptally.errors import UnreadableError

BLOCK_BYTES: Final = 1024 * 1024
"""The memory of finished records is returned to the system in blocks of this size."""

LIMIT_BYTES: Final = 8
"""Size of a message with a value of `head`, little-endian."""

HEADER_BYTES: Final = 64 * 1024
"""Bytes reserved for the counters before the records: a multiple of every system's page size."""

_HEAD, _SLOTS = 0, 1  # written by the process that puts records
_TAIL, _BEGUN, _EVENTS, _DIED_AT, _DEATHS = (
    8,
    9,
    10,
    11,
    12,
)  # in a separate cache line, because the process that takes records writes them
_TO_START: Final = 2**64 - 1
"""Written in place of a length if the next record is at the start of the memory."""


class QueueCounters(NamedTuple):
    """The counters of a queue.

    `head` is the number of bytes put, `tail` the number of bytes taken, `begun` the value of `tail`
    after the records that are being executed, and `events` the number of events in the records
    taken.
    """

    head: int
    tail: int
    begun: int
    events: int


class SharedQueue:
    """A queue of at most `size` bytes in `memory`, starting at byte `start`.

    `size` and `start` are multiples of the page size; above BLOCK_BYTES, `size` is a multiple of
    BLOCK_BYTES. `allocate` is called with the first and last byte of a range before the range is
    used, and returns False if there is no space.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        start: int,
        size: int,
        *,
        allocate: Callable[[int, int], bool] = lambda _begin, _end: True,
    ) -> None:
        self.size: Final = size
        """Number of bytes for records."""
        self._memory = memory
        self._start = start + HEADER_BYTES
        self._words = memoryview(memory)[start : start + HEADER_BYTES + size].cast("Q")
        self._block = min(BLOCK_BYTES, size // 4)
        self._allocate = allocate
        self._allocated = 0
        """Number of bytes for records that have been allocated."""
        self.largest: Final = size // 2 - 8
        """Maximum size of a record in bytes."""

    # --- the process that puts ------------------------------------------------------------------

    def put(self, parts: Sequence[bytes]) -> bool:
        """Add a record made of `parts`; return False if there is no space now."""
        words, size = self._words, self.size
        length = sum(map(len, parts))
        needed = 8 + (length + 7 & ~7)
        head, tail = words[_HEAD], words[_TAIL]
        at = head % size
        skipped = size - at if at + needed > size else 0
        if head == tail:
            if at < self._block:
                # Not earlier, because `_TO_START` is in the memory that is returned, and must stay
                # there until it has been read.
                self._release()
            elif needed <= at:
                skipped = size - at
        if head + skipped + needed - tail > size:
            return False
        end = needed + (0 if skipped else at)
        if end > self._allocated and not self._grow(end):
            return False
        if skipped:
            words[(HEADER_BYTES + at) // 8] = _TO_START
            head += skipped
            at = 0
        position = self._start + at + 8
        for part in parts:
            self._memory[position : position + len(part)] = part
            position += len(part)
        words[(HEADER_BYTES + at) // 8] = length
        words[_HEAD] = head + needed
        return True

    @property
    def counters(self) -> QueueCounters:
        """The counters, which show whether records wait and whether the writer makes progress."""
        words = self._words
        return QueueCounters(words[_HEAD], words[_TAIL], words[_BEGUN], words[_EVENTS])

    def allocate_first_block(self) -> bool:
        """Allocate the memory that all small records use; return False if there is no space."""
        return self._grow(self._block)

    @property
    def slots(self) -> int:
        """The highest number of recordings that were open at the same time.

        Only the process that puts records into the queue may set it.
        """
        return self._words[_SLOTS]

    @slots.setter
    def slots(self, slots: int) -> None:
        self._words[_SLOTS] = slots

    def close(self) -> None:
        """Release the memory."""
        self._words.release()

    def _grow(self, end: int) -> bool:
        end = min(self.size, -(-end // self._block) * self._block)
        if not self._allocate(self._start + self._allocated, self._start + end):
            return False
        self._allocated = end
        return True

    def _release(self) -> None:
        """Return the memory after the first block to the system, since the queue is empty."""
        if self._allocated > self._block and hasattr(mmap, "MADV_REMOVE"):  # Linux
            with contextlib.suppress(OSError):
                self._memory.madvise(
                    mmap.MADV_REMOVE, self._start + self._block, self._allocated - self._block
                )
                self._allocated = self._block

    # --- the process that takes -----------------------------------------------------------------

    def begin(self, limit: int) -> bytes | None:
        """Return the next record before `limit`, or None.

        The record stays in the queue until `done`. `limit` is a value of `head` that this process
        received through the kernel.

        Raises:
            UnreadableError: the memory has no such record: another program wrote to it.
        """
        words = self._words
        begun = words[_BEGUN]
        while begun < limit:
            at = begun % self.size
            length = words[(HEADER_BYTES + at) // 8]
            if length != _TO_START:
                if length > self.size - at - 8:
                    raise UnreadableError(f"no record at byte {at} of the queue")
                words[_BEGUN] = begun + 8 + (length + 7 & ~7)
                start = self._start + at + 8
                return self._memory[start : start + length]
            begun += self.size - at
        return None

    def done(self, events: int) -> None:
        """Remove the records that `begin` returned, which contain `events` events."""
        words = self._words
        words[_EVENTS] += events
        words[_TAIL] = words[_BEGUN]

    @property
    def begun_bytes(self) -> int:
        """Total bytes of the records that `begin` returned and `done` has not removed yet."""
        return self._words[_BEGUN] - self._words[_TAIL]

    @property
    def waiting_bytes(self) -> int:
        """Total bytes of the records that `done` has not removed yet.

        Raises:
            UnreadableError: the counters contradict each other: another program wrote to them.
        """
        head, tail, begun, _ = self.counters
        if not (tail <= begun <= head <= tail + self.size) or (head | tail | begun) & 7:
            raise UnreadableError("the counters of the queue contradict each other")
        return head - tail

    def begin_again(self) -> tuple[int, int]:
        """Let `begin` return unfinished records again, after the process that took them died.

        Returns the end of the last unfinished record, and the number of processes that died while
        the first unfinished record was waiting.
        """
        words = self._words
        last, tail = words[_BEGUN], words[_TAIL]
        if last != tail:
            words[_DEATHS] = words[_DEATHS] + 1 if words[_DIED_AT] == tail else 1
            words[_DIED_AT] = tail
        words[_BEGUN] = tail
        return last, words[_DEATHS]
