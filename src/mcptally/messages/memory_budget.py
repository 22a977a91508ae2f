"""Estimate the memory that a partition needs, and stop reading it when there is not enough.

Partitions are planned with `PROCESS_BASE_BYTES` and `BYTES_PER_TRANSCRIPT_BYTE` before anything is
read; while lines are read, `MemoryBudget` estimates what they need so far. A recording or file is
never split over partitions, so one may need more than is free: then the part that fits is read, and
a finding reports the rest (docs/decisions/0042, 0077).
"""

from typing import Final

from mcptally.process_memory import available_memory
from mcptally.transcript.files import LineRun

UNCHECKED_BYTES: Final = 256 << 20
"""Bytes of transcript that several files may have before free memory is checked. Only files that
share a recording are read together and can be larger."""

PARTITION_BASE_BYTES: Final = 250 << 20
BYTES_PER_EVENT: Final = 2000
BYTES_PER_BYTE: Final = 3
BYTES_PER_LONGEST_BYTE: Final = 9
"""Bytes of memory that scoring a partition takes: a constant, per line, per byte, and in addition
per byte of the longest line."""

PROCESS_BASE_BYTES: Final = PARTITION_BASE_BYTES + (170 << 20)
"""Bytes of memory that a process takes for the smallest partition: `PARTITION_BASE_BYTES`, and its
libraries and rules, including what they load on first use."""

BYTES_PER_TRANSCRIPT_BYTE: Final = BYTES_PER_BYTE + BYTES_PER_EVENT // 1000
"""Bytes of memory per byte of transcript, in addition to `PROCESS_BASE_BYTES`: an upper bound for
real traffic, whose lines have 1,000 bytes or more on average."""

TOO_LARGE: Final = (
    "the rest was not read: this file, with those that share a recording with it, needs more than "
    "the {} MB of free memory; score with --full on a machine with more memory, or split the file "
    "by recording"
)


class MemoryBudget:
    """Compares the memory needed by the lines read so far with the available memory."""

    def __init__(self, memory: int | None, *, alone: bool) -> None:
        self.memory = available_memory() if memory is None else memory
        self.unchecked = UNCHECKED_BYTES if memory is None and not alone else 0
        """Bytes of transcript below which the memory is not compared."""
        self.total = self.lines = self.longest = 0

    def exceeded_by(self, run: LineRun) -> str | None:
        """Count these lines; return a message if all lines so far need too much memory."""
        self.total += len(run.data)
        self.lines += run.count
        # Only the first line of a run can be longer than a chunk.
        self.longest = max(self.longest, run.data.find(b"\n") + 1 or len(run.data))
        if self.memory is None or self.total <= self.unchecked:
            return None
        need = (
            PARTITION_BASE_BYTES
            + self.lines * BYTES_PER_EVENT
            + self.total * BYTES_PER_BYTE
            + self.longest * BYTES_PER_LONGEST_BYTE
        )
        return TOO_LARGE.format(self.memory >> 20) if need > self.memory else None
