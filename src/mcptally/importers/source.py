"""A file to be imported: its lines, what is told about it from outside, and its tally."""

import dataclasses
import datetime
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mcptally.importers.events import Connection, Tally
from mcptally.importers.timestamps import parse_timestamp
from mcptally.transcript.files import Damage, Room, lines, read_pieces

_LOG_NAME: Final = re.compile(
    r"\.(?:jsonl?|log|txt|har|ndjson|gz|zst|db|sqlite3?)\Z", re.IGNORECASE
)

_T = TypeVar("_T")

_RECORD: Final = 16
"""Bytes that a line, or an object of a document, counts at least where room is short: millions of
empty ones unpack from nothing, and cost time each."""


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
    servers_with_own_log: frozenset[str] = frozenset()
    """Servers that have a log of their own beside this one."""
    tally: Tally = dataclasses.field(default_factory=Tally)
    room: Room = dataclasses.field(default_factory=Room)
    """What compressed files may unpack to; one for all files of an import."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Number (from 1) and bytes of every line, without its ending.

        Counts them as seen, and what cannot be read as unused.
        """
        for run in lines(self.path, room=self.room):
            if isinstance(run, Damage):
                self.tally.seen += 1
                self.tally.skip(run.line or 1, run.message)
                continue
            self._charge(run.count, len(run.data))
            number = run.first
            for line in run.data.split(b"\n")[: run.count]:
                self.tally.seen += 1
                yield number, line[:-1] if line.endswith(b"\r") else line
                number += 1

    def records(self, decoder: msgspec.json.Decoder[_T], why: str) -> Iterator[tuple[int, _T]]:
        """Number (from 1) and value of every line that a decoder takes.

        Blank ones count as context, all others as unused for the reason `why`.
        """
        for line, data in self.lines():
            if not data.strip():
                self.tally.context["blank"] += 1
                continue
            try:
                value = decoder.decode(data)
            except (msgspec.DecodeError, RecursionError, ValueError):
                self.tally.skip(line, why)
                continue
            yield line, value

    def read_pieces(self) -> Iterator[bytes]:
        """The decompressed bytes, about a MiB at a time, for documents that are no lines.

        What cannot be read is counted as one record, unused, at the line where reading stopped.
        """
        line = 1
        for piece in read_pieces(self.path, room=self.room):
            if isinstance(piece, Damage):
                self.tally.seen += 1
                self.tally.skip(line, piece.message)
                continue
            self._charge(piece.count(b"{") + piece.count(b"["), len(piece))
            yield piece
            line += piece.count(b"\n")

    def _charge(self, records: int, size: int) -> None:
        """Take from the room what short records cost beyond their bytes."""
        self.room.left -= max(0, _RECORD * records - size)

    def preview(self) -> "Source":
        """The same file, to be looked through before it is read: what is found there counts not."""
        return dataclasses.replace(self, tally=Tally(), room=dataclasses.replace(self.room))

    @property
    def stem(self) -> str:
        """The file's name without endings that say only that it is a log."""
        name = os.fsencode(self.path.name).decode(errors="replace")
        while (shorter := _LOG_NAME.sub("", name)) not in {name, ""}:
            name = shorter
        return name

    def connection(
        self, key: str = "", *, server: str | None = None, transport: str | None = None
    ) -> Connection:
        """A connection; the label is the user's, or else the source's, or else the file's."""
        return Connection(self.server or server or self.stem, key, transport)

    def at(self, value: object) -> int | None:
        """A time as the source writes it, in UTC nanoseconds."""
        return parse_timestamp(value, self.timezone)
