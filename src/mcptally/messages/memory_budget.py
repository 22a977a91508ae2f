"""How much memory files that belong together come to need, and whether there is so much.

What a partition will take is planned by, before anything of it is read (`PROCESS`, `GROWTH`); what
its lines so far take is known while they are read. A recording, and a file, is never torn apart, so
one may be larger than what is free: then what fits is read, and a finding says so
(docs/decisions/0042, 0077).
"""

from typing import Final

from mcptally.process_memory import free
from mcptally.transcript.files import Lines

LARGE: Final = 256 << 20
"""Bytes of transcript that several files only have together where one recording is in all."""

STEADY: Final = 250 << 20
AN_EVENT: Final = 2000
A_BYTE: Final = 3
OF_ONE: Final = 9
"""Bytes of memory that a partition takes on its way to the tables: whatever it holds, for each
line, for each byte of it, and besides for each byte of the longest."""

PROCESS: Final = STEADY + (170 << 20)
"""Bytes of memory that a process takes however little it works on at a time: `STEADY`, and before
that its libraries and rules, with what they load when they are first asked."""

GROWTH: Final = A_BYTE + AN_EVENT // 1000
"""How many times its bytes of transcript a partition takes besides, at most, on real traffic: its
lines are of 1,000 bytes or more on average."""

TOO_MUCH: Final = (
    "the rest was not read: what belongs together here needs more than the {} MB of memory that "
    "are free; score it with --full where there is more, or split the file by recording"
)


class Appetite:
    """What the lines that were read so far need, against what there is."""

    def __init__(self, memory: int | None, *, alone: bool) -> None:
        self.memory = free() if memory is None else memory
        self.unasked = LARGE if memory is None and not alone else 0
        """Bytes for which nobody asks whether there is memory."""
        self.total = self.lines = self.longest = 0

    def too_much(self, run: Lines) -> str | None:
        """Whether these lines and all before need more than there is: what to say of it."""
        self.total += len(run.data)
        self.lines += run.count
        # Only the first line of a run may be longer than a chunk: all others begin and end in one.
        self.longest = max(self.longest, run.data.find(b"\n") + 1 or len(run.data))
        if self.memory is None or self.total <= self.unasked:
            return None
        need = STEADY + self.lines * AN_EVENT + self.total * A_BYTE + self.longest * OF_ONE
        return TOO_MUCH.format(self.memory >> 20) if need > self.memory else None
