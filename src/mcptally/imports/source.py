"""A file to be imported: its lines, what is told about it from outside, and its tally."""

import dataclasses
import datetime
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import zstandard

from mcptally.archive import Damage, lines, open_stream
from mcptally.imports.clock import moment
from mcptally.imports.items import Pipe, Tally

_LOG_NAME: Final = re.compile(
    r"\.(?:jsonl?|log|txt|har|ndjson|gz|zst|db|sqlite3?)\Z", re.IGNORECASE
)

BROKEN: Final = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""What reading a damaged or cut file raises."""


def pieces(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    """The decompressed bytes of a file, about `size` at a time.

    Raises:
        UnreadableError: the file cannot be opened.
        OSError, EOFError, zlib.error, zstandard.ZstdError: it is damaged from here on; `BROKEN`.
    """
    with open_stream(path) as stream:
        # A cut gzip file raises at its end, and `read` would take what it had with it.
        is_gzip = isinstance(cast("object", stream), gzip.GzipFile)
        read = cast("gzip.GzipFile", stream).read1 if is_gzip else stream.read
        while piece := read(size):
            yield piece


@dataclasses.dataclass(frozen=True, slots=True)
class Envelope:
    """Where the parts of a line are, for plain JSON-RPC lines: names, or dotted paths."""

    time: str | None = None
    direction: str | None = None
    message: str | None = None
    session: str | None = None
    c2s: tuple[str, ...] = ()
    """Further words of the direction field for client to server."""
    s2c: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True)
class Source:
    """One file, and how to read it."""

    path: Path
    name: str
    """How the file is called in the transcript: without the folders that lead to it."""
    server: str | None = None
    """Label given by the user; readers use it where they would guess one otherwise."""
    timezone: datetime.tzinfo | None = None
    """Zone of times that name none; None is this machine's."""
    envelope: Envelope = dataclasses.field(default_factory=Envelope)
    elsewhere: frozenset[str] = frozenset()
    """Servers that have a log of their own beside this one."""
    tally: Tally = dataclasses.field(default_factory=Tally)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Number (from 1) and bytes of every line, without its ending.

        Counts them as seen, and what cannot be read as unused.
        """
        for run in lines(self.path):
            if isinstance(run, Damage):
                self.tally.seen += 1
                self.tally.skip(run.line or 1, run.message)
                continue
            number = run.first
            for line in run.data.split(b"\n")[: run.count]:
                self.tally.seen += 1
                yield number, line[:-1] if line.endswith(b"\r") else line
                number += 1

    @property
    def stem(self) -> str:
        """The file's name without endings that say only that it is a log."""
        name = self.path.name
        while (shorter := _LOG_NAME.sub("", name)) not in {name, ""}:
            name = shorter
        return name

    @property
    def label(self) -> str:
        """Label of a server that the source does not name."""
        return self.server or self.stem

    def pipe(
        self, key: str = "", *, server: str | None = None, transport: str | None = None
    ) -> Pipe:
        """A connection; the label is the user's, or else the source's, or else the file's."""
        return Pipe(self.server or server or self.stem, key, transport)

    def at(self, value: object) -> int | None:
        """A time as the source writes it, in UTC nanoseconds."""
        return moment(value, self.timezone)
