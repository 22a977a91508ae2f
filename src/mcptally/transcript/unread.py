"""Measures which share of each file, and of a whole archive, could not be read."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from mcptally.plural import count
from mcptally.transcript.files import Damage, LineRun

_NAMED = 3
"""Maximum number of files named in an archive's summary."""


class ReadTally:
    """Counts the bytes of a file that were read, and the bytes that could not be read."""

    def __init__(self) -> None:
        self.read = self.lost = 0
        """Decompressed bytes that were read, and bytes of lines that are not events."""
        self.rest = 0.0
        """Share of the file that follows the position where reading ended."""
        self.fault = ""
        """The first fault, with its line."""

    def add(self, item: LineRun | Damage) -> None:
        """Count the bytes of a run of lines or of a damaged part of the file."""
        self.rest = item.rest
        if isinstance(item, Damage):
            self.note(item.line, item.message)
            self.read += item.skipped
            self.lost += item.skipped
        else:
            self.read += len(item.data)

    def add_fault(self, line: int, message: str, size: int) -> None:
        """Count a line of `size` bytes that is not an event."""
        self.note(line, message)
        self.lost += size

    def note(self, line: int | None, message: str) -> None:
        """Keep the fault if it is the file's first."""
        self.fault = self.fault or (message if line is None else f"line {line}: {message}")

    @property
    def share(self) -> float:
        """The share of the file that could not be read."""
        return 1 - (1 - self.rest) * (1 - self.lost / max(1, self.read))


class UnreadFile(msgspec.Struct, frozen=True):
    """A file that could not be read to its end, or with lines that are not events."""

    file: str
    size: int
    """Size on disk in bytes."""
    share: float
    """The minimum share of the file that could not be read. The share is higher if the file is
    truncated."""
    fault: str
    """The first fault, with its line."""


class Unread(msgspec.Struct, frozen=True):
    """The parts of an archive that could not be read."""

    share: float
    """The minimum share of the archive's bytes that could not be read."""
    files: int
    """Number of files with unread parts."""
    of: int
    """Number of files in the archive."""
    worst: list[UnreadFile]
    """The files with the most unread bytes, at most three."""


def summarize(files: Iterable[UnreadFile]) -> Unread | None:
    """Summarize which parts of an archive could not be read; None if everything was read."""
    every = list(files)
    damaged = [each for each in every if each.fault]
    if not damaged:
        return None
    worst = sorted(damaged, key=lambda each: (-each.share * each.size, each.file))
    size = sum(each.size for each in every)
    share = sum(each.share * each.size for each in damaged) / max(1, size)
    return Unread(share, len(damaged), len(every), worst[:_NAMED])


def in_words(unread: Unread | None, *, names: bool = False) -> list[str]:
    """Return lines of text about what could not be read, or [] if everything was read.

    Args:
        unread: the parts of the archive that could not be read.
        names: whether to name files without their folders.
    """
    if unread is None:
        return []
    share = f"at least {unread.share:.1%}" if unread.share >= 0.001 else "part"
    lines = [
        f"not read: {share} of the archive, in {unread.files:,} of {count(unread.of, 'file')}:",
        *(
            f"  {Path(each.file).name if names else each.file}: {each.fault}"
            for each in unread.worst
        ),
    ]
    if more := unread.files - len(unread.worst):
        lines.append(f"  and {count(more, 'more file')}; all of them: mcptally check")
    return lines
