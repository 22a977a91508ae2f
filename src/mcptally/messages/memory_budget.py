"""Estimates how much memory a partition needs, and stops reading when there is not enough.

Partitions are planned with `PROCESS_BASE_BYTES` and `BYTES_PER_TRANSCRIPT_BYTE` before anything is
read; during reading, `MemoryBudget` estimates the memory needed. A partition that needs more than
planned is divided by recording. A recording is never divided: its tables move to files and, if they
still need more than the free memory, only its beginning is read, and a finding reports this
(docs/design/pipeline.md).
"""

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from mcptally.process_memory import available_memory
from mcptally.transcript.files import LineRun

UNCHECKED_BYTES: Final = 256 << 20
"""Total size of several files up to which free memory is not checked. Files are read together only
if they share a recording."""

PARTITION_BASE_BYTES: Final = 250 << 20
BYTES_PER_EVENT: Final = 2000
BYTES_PER_BYTE: Final = 3
BYTES_PER_LONGEST_BYTE: Final = 9
"""Bytes of memory for each byte of the longest line, in addition to `BYTES_PER_BYTE`. The other
constants are the bytes of memory for scoring any partition, for each line, and for each byte."""

BYTES_PER_MOVED_EVENT: Final = 600
BYTES_PER_MOVED_BYTE: Final = 0.1
"""Bytes of memory for scoring each line, and each byte, of a recording whose tables are in files.
"""

PROCESS_BASE_BYTES: Final = PARTITION_BASE_BYTES + (170 << 20)
"""Bytes of memory that a process needs for the smallest partition: `PARTITION_BASE_BYTES`, plus the
libraries and rules that it loads."""

BYTES_PER_TRANSCRIPT_BYTE: Final = BYTES_PER_BYTE + BYTES_PER_EVENT // 1000
"""Bytes of memory per transcript byte, in addition to `PROCESS_BASE_BYTES`. This is an upper bound
for real traffic, where lines have at least 1,000 bytes on average."""

BYTES_PER_LARGE_RECORDING_BYTE: Final = BYTES_PER_MOVED_BYTE + BYTES_PER_MOVED_EVENT / 1000
"""The same for a recording that is larger than a partition."""

TOO_LARGE: Final = (
    "the rest was not read: this file has a recording that needs more than the {} MB of free "
    "memory; score with --full on a machine with more memory"
)


class MemoryBudget:
    """Compares the memory needed for scoring the lines read so far with the available memory."""

    def __init__(self, memory: int | None, *, alone: bool, chunk: int | None = None) -> None:
        """Create the budget before any line is read.

        Args:
            memory: available memory in bytes; None means the system's free memory.
            alone: whether there is only one file; memory is then checked from the first line on.
            chunk: maximum memory in bytes for scoring a chunk of lines, reduced if less is free;
                None means that all lines are scored together.
        """
        self.memory = available_memory() if memory is None else memory
        self.unchecked = UNCHECKED_BYTES if memory is None and not alone else 0
        """Number of transcript bytes that are read before memory is checked."""
        if chunk is not None and self.memory is not None and not self.unchecked:
            chunk = min(chunk, max(chunk // 8, (self.memory - PARTITION_BASE_BYTES) // 2))
        self.limit = self.chunk = chunk
        self.read = 0
        """Number of transcript bytes read so far."""
        self.total = self.lines = self.longest = 0
        """Number of bytes and lines in the current chunk, and length of the longest line so far."""
        self.spooled = 0.0
        """Bytes of memory needed to score the previous chunks, or their largest share."""
        self.shares = 1
        """Number of shares into which each chunk is divided."""
        self.moved = False
        """Whether chunks are not divided, but their tables are moved to files."""

    def exceeded_by(self, run: LineRun) -> str | None:
        """Count a run of lines; return an error message if the lines now need too much memory."""
        self.read += len(run.data)
        self.total += len(run.data)
        self.lines += run.count
        # Only the first line of a run can be longer than a chunk.
        self.longest = max(self.longest, run.data.find(b"\n") + 1 or len(run.data))
        if self.memory is None or self.read <= self.unchecked:
            return None
        chunk = memory_of_lines(self.lines, self.total)
        later = self._memory_of_moved() if self.moved else chunk / self.shares
        need = (
            PARTITION_BASE_BYTES
            + max(chunk, self.spooled + later)
            + self.longest * BYTES_PER_LONGEST_BYTE
        )
        return TOO_LARGE.format(self.memory >> 20) if need > self.memory else None

    def is_chunk_full(self) -> bool:
        """Return whether the current chunk's lines need more memory than a chunk may use."""
        return self.chunk is not None and memory_of_lines(self.lines, self.total) > self.chunk

    def move_chunk(self) -> None:
        """Start a new chunk after the tables of the previous chunk have been moved to files."""
        self.begin_chunk(self.spooled + self._memory_of_moved(), 1)
        self.moved = True

    def _memory_of_moved(self) -> float:
        return self.lines * BYTES_PER_MOVED_EVENT + self.total * BYTES_PER_MOVED_BYTE

    def begin_chunk(self, spooled: float, shares: int) -> None:
        """Start a new chunk after the lines of the previous chunk have been written to files.

        Args:
            spooled: bytes of memory needed to score the largest share.
            shares: number of shares into which the lines are divided.
        """
        self.spooled, self.shares, self.moved = spooled, shares, False
        self.skip_chunk()

    def skip_chunk(self) -> None:
        """Start a new chunk after one without events."""
        self.total = self.lines = 0


Amount = TypeVar("Amount", float, npt.NDArray[np.float64])


def memory_of_lines(lines: Amount, size: Amount) -> Amount:
    """Return the memory in bytes needed to score lines.

    Args:
        lines: number of lines.
        size: their total size in bytes.
    """
    return lines * BYTES_PER_EVENT + size * BYTES_PER_BYTE
