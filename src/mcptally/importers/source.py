"""Describes a file to import: how to read it, the user's options, and a tally of its records."""

import dataclasses
import datetime
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mcptally.importers.items import Connection, Tally
from mcptally.importers.json_array import elements
from mcptally.importers.timestamps import parse_timestamp
from mcptally.transcript.files import Damage, DecompressionBudget, read_lines, read_pieces
from mcptally.wire.json_text import decode_or_none

_LOG_NAME: Final = re.compile(
    r"\.(?:jsonl?|log|txt|har|ndjson|gz|zst|db|sqlite3?)\Z", re.IGNORECASE
)

_T = TypeVar("_T")

OTHER_TOOL: Final = "not a call to an MCP tool"
"""Reason given for records that are not calls to MCP tools."""

_RECORD: Final = 16
"""Minimum bytes that each line or object is charged to the `DecompressionBudget`: a few compressed
bytes can contain millions of empty lines or objects, each of which takes time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Envelope:
    """The names or dotted paths of the fields that surround a JSON-RPC message."""

    time: str | None = None
    direction: str | None = None
    message: str | None = None
    session: str | None = None
    c2s: tuple[str, ...] = ()
    """Additional values of the direction field that mean client to server."""
    s2c: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True)
class Source:
    """A file to import."""

    path: Path
    name: str
    """The file's name in the transcript, relative to the imported folder."""
    more: tuple["Source", ...] = ()
    """Other files that are read as continuations of this one (`Format.related`)."""
    server: str | None = None
    """Label given by the user, which replaces labels in the source."""
    timezone: datetime.tzinfo | None = None
    """Time zone assumed for times without one; None means this machine's time zone."""
    envelope: Envelope = dataclasses.field(default_factory=Envelope)
    servers_with_own_log: frozenset[str] = frozenset()
    """Servers with their own log in the same folder."""
    tally: Tally = dataclasses.field(default_factory=Tally)
    room: DecompressionBudget = dataclasses.field(default_factory=DecompressionBudget)
    """Budget for decompression, which all files of an import share."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line's number (from 1) and bytes, without the line ending.

        Each line is counted as seen; an unreadable part is counted as one unused line.
        """
        for run in read_lines(self.path, room=self.room):
            if isinstance(run, Damage):
                self.tally.seen += 1
                self.tally.skip(run.line or 1, run.message)
                continue
            self.charge(run.count, len(run.data))
            number = run.first
            for line in run.data.split(b"\n")[: run.count]:
                self.tally.seen += 1
                yield number, line[:-1] if line.endswith(b"\r") else line
                number += 1

    def records(self, decoder: msgspec.json.Decoder[_T], why: str) -> Iterator[tuple[int, _T]]:
        """Yield the number (from 1) and decoded value of each line that `decoder` accepts.

        Blank lines are counted as context, rejected lines as unused with the reason `why`.
        """
        for line, data in self.lines():
            if not data.strip():
                self.tally.context["blank"] += 1
                continue
            if (value := decode_or_none(decoder, data)) is None:
                self.tally.skip(line, why)
            else:
                yield line, value

    def elements(
        self,
        path: tuple[str, ...],
        decoder: msgspec.json.Decoder[_T],
        why: str,
        *,
        cut_off: str | None = None,
    ) -> Iterator[tuple[int, _T]]:
        """Yield the line number and decoded value of each object in a document's array at `path`.

        Each object is counted as seen. Rejected objects are counted as unused with the reason
        `why`, truncated or too large objects with the reason `cut_off` (default: `why`).
        """
        for element in elements(self.read_pieces(), path):
            self.tally.seen += 1
            if element.data is None:
                self.tally.skip(element.line, cut_off or why)
            elif (value := decode_or_none(decoder, element.data)) is None:
                self.tally.skip(element.line, why)
            else:
                yield element.line, value

    def messages(self, decoder: msgspec.json.Decoder[_T]) -> Iterator[tuple[int, _T]]:
        """Yield the line number and decoded value of each message in a session.

        The session is JSON Lines, or a document whose member `messages` is an array.
        """
        first = self.head().split(b"\n", 1)[0]
        if b'"messages"' in first or first.strip() == b"{":
            return self.elements(("messages",), decoder, "not a message, or cut off")
        return self.records(decoder, "not a JSON object")

    def read_pieces(self) -> Iterator[bytes]:
        """Yield the decompressed bytes in pieces of about 1 MiB, for formats not based on lines.

        If reading stops early, one unused record is counted, with the line at which reading
        stopped.
        """
        line = 1
        for piece in self._pieces():
            if isinstance(piece, Damage):
                self.tally.seen += 1
                self.tally.skip(line, piece.message)
                continue
            self.charge(piece.count(b"{") + piece.count(b"["), len(piece))
            yield piece
            line += piece.count(b"\n")

    def _pieces(self) -> Iterator[bytes | Damage]:
        yield from read_pieces(self.path, room=self.room)
        for source in self.more:
            yield b"\n"
            yield from read_pieces(source.path, room=self.room)

    def charge(self, records: int, size: int) -> None:
        """Charge short records to the budget as if each had at least `_RECORD` bytes."""
        self.room.left -= max(0, _RECORD * records - size)

    def preview(self) -> "Source":
        """Return a copy for a preliminary pass, which changes neither the tally nor the budget."""
        return dataclasses.replace(self, tally=Tally(), room=msgspec.structs.replace(self.room))

    def head(self) -> bytes:
        """Return the first decompressed bytes, without a byte order mark."""
        first = next(iter(self.preview().read_pieces()), b"")
        return first.removeprefix(b"\xef\xbb\xbf")

    @property
    def stem(self) -> str:
        """The file's name without suffixes such as `.log` or `.jsonl.gz`."""
        name = os.fsencode(self.path.name).decode(errors="replace")
        while (shorter := _LOG_NAME.sub("", name)) not in {name, ""}:
            name = shorter
        return name

    def connection(
        self,
        key: str = "",
        *,
        server: str | None = None,
        transport: str | None = None,
        is_session: bool = False,
    ) -> Connection:
        """Return the connection that `key` identifies.

        The server's label is the user's label, or else `server`, or else the file's stem.
        """
        return Connection(self.server or server or self.stem, key, transport, is_session)

    def at(self, value: object) -> int | None:
        """Convert a time in the source to UTC nanoseconds; return None if it is not a time."""
        return parse_timestamp(value, self.timezone)
