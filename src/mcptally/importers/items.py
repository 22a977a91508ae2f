"""Declares the output of a format's reader: `Item`s for a transcript, and a `Tally` of records.

A record is a line, an entry, a span or a row. The tally counts each record as used, as context
(understood, but not traffic) or as unused (with line and reason).
"""

import dataclasses
from collections import Counter
from typing import Any, Final, Literal

from msgspec import Struct, field

from mcptally.transcript.format import Dir

ItemKind = Literal["begin", "message", "head", "stderr", "http", "gap", "end"]
"""Kind of an item.

`begin`: a connection starts, or its properties become known. `message`: a frame. `head`: a message
whose content the source lacks; `extra` contains `id`, `method`, `name` and `is_error` if known.
`gap`: the source reports that something is missing. `end`: a connection ended."""

MAX_LISTED_RUNS: Final = 1000
"""Maximum number of runs that a report lists per reason; further lines are only counted."""


MAX_PENDING_CALLS: Final = 100_000
"""Maximum number of calls without a reply that a reader remembers. The oldest calls are dropped
first."""


class Connection(Struct, frozen=True):
    """A client's connection to a server, or several that the source does not tell apart."""

    server: str | None
    key: str = ""
    """Identifies the session, connection or file. All items of a connection have the same key."""
    transport: str | None = None
    """`stdio`, `streamable_http` or `http_sse`; None if unknown."""
    is_session: bool = False
    """Whether `key` is a session id. If it is, an `initialize` does not start another recording."""


class Item(Struct, omit_defaults=True):
    """An event that a reader found in a source."""

    kind: ItemKind
    line: int
    connection: Connection
    at: int | None = None
    """UTC nanoseconds since 1970; None if the source does not record the time."""
    dir: Dir = "c2s"
    data: bytes = b""
    """The frame, or the text of a stderr line."""
    size: int | None = None
    """Size on the wire in bytes; None if unknown."""
    scope: str | None = None
    derived: bool = False
    """Whether the item was built from a record of a call, because the source contains no frames."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class LineRuns:
    """The numbers of lines with the same reason, stored as runs of consecutive numbers."""

    count: int = 0
    runs: list[list[int]] = dataclasses.field(default_factory=list)

    def add(self, line: int) -> None:
        """Add a line number."""
        self.count += 1
        if self.runs and self.runs[-1][1] in {line, line - 1}:
            self.runs[-1][1] = line
        elif len(self.runs) < MAX_LISTED_RUNS:
            self.runs.append([line, line])


@dataclasses.dataclass(slots=True)
class Tally:
    """Counts a source's records; `seen` is the sum of `used`, `context` and `unused`."""

    seen: int = 0
    """Number of records read."""
    used: int = 0
    context: Counter[str] = dataclasses.field(default_factory=Counter)
    """Number of records that are understood but are not traffic, by kind."""
    unused: dict[str, LineRuns] = dataclasses.field(default_factory=dict)
    """Lines of the records that could not be used, by reason."""
    notes: Counter[str] = dataclasses.field(default_factory=Counter)
    """Number of records with less information than usual, by remark."""

    def skip(self, line: int, why: str) -> None:
        """Count a record that could not be used."""
        self.unused.setdefault(why, LineRuns()).add(line)

    @property
    def unused_count(self) -> int:
        """Number of records that could not be used."""
        return sum(places.count for places in self.unused.values())
