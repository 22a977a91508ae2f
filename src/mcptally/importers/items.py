"""Declares the results of a format's reader: `Item`s for a transcript, and a `Tally` of records.

A record is a line, entry, span or row. The tally counts each record as used, as context
(understood, but not traffic) or as unused (with its line and the reason).
"""

import dataclasses
from collections import Counter
from typing import Any, Final, Literal

from msgspec import Struct, field

from mcptally.transcript.format import Dir

ItemKind = Literal["begin", "message", "head", "stderr", "http", "gap", "end"]
"""Kind of an item.

`begin`: a connection starts, or its properties become known. `message`: a frame. `head`: a message
whose content is missing in the source; `extra` has the known ones of `id`, `method`, `name` and
`is_error`. `gap`: the source reports that something is missing. `end`: a connection ended."""

MAX_LISTED_RUNS: Final = 1000
"""Maximum runs of lines that a report lists per reason; further lines are only counted."""


MAX_PENDING_CALLS: Final = 100_000
"""Maximum calls without a reply that a reader remembers; beyond this number it drops the oldest."""


class Connection(Struct, frozen=True):
    """A client's connection to a server, as distinguished by the source."""

    server: str | None
    key: str = ""
    """Session, connection or file; it is equal for items of the same connection."""
    transport: str | None = None
    """`stdio`, `streamable_http` or `http_sse`; None if unknown."""
    is_session: bool = False
    """Whether `key` is a session id, so that an `initialize` does not start another recording."""


class Item(Struct, omit_defaults=True):
    """One event from a source."""

    kind: ItemKind
    line: int
    connection: Connection
    at: int | None = None
    """UTC nanoseconds since 1970; None if the source has no time for it."""
    dir: Dir = "c2s"
    data: bytes = b""
    """The frame, or the text of a stderr line."""
    size: int | None = None
    """Bytes on the wire; None if unknown."""
    scope: str | None = None
    derived: bool = False
    """Whether the item was built from a record of a call because the source has no frame."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class LineRuns:
    """Line numbers with the same reason, as runs of consecutive numbers."""

    count: int = 0
    runs: list[list[int]] = dataclasses.field(default_factory=list)

    def add(self, line: int) -> None:
        """Add a line."""
        self.count += 1
        if self.runs and self.runs[-1][1] in {line, line - 1}:
            self.runs[-1][1] = line
        elif len(self.runs) < MAX_LISTED_RUNS:
            self.runs.append([line, line])


@dataclasses.dataclass(slots=True)
class Tally:
    """Counts a source's records: `seen` is the sum of `used`, `context` and `unused`."""

    seen: int = 0
    """Number of records read."""
    used: int = 0
    context: Counter[str] = dataclasses.field(default_factory=Counter)
    """Kind of record that is understood but is not traffic → number."""
    unused: dict[str, LineRuns] = dataclasses.field(default_factory=dict)
    """Reason why records could not be used → their lines."""
    notes: Counter[str] = dataclasses.field(default_factory=Counter)
    """Remark about records with less information than usual → number."""

    def skip(self, line: int, why: str) -> None:
        """Count a record that could not be used."""
        self.unused.setdefault(why, LineRuns()).add(line)

    @property
    def unused_count(self) -> int:
        """Number of records that could not be used."""
        return sum(places.count for places in self.unused.values())
