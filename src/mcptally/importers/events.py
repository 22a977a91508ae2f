"""What a reader of a foreign log says: the vocabulary between formats and transcripts.

A reader turns lines (or entries, spans, rows) into `Item`s and accounts for every one of them in
the `Tally`: used, known to be no traffic (`context`), or not usable (`unused`, with its place).
"""

import dataclasses
from collections import Counter
from typing import Any, Final, Literal

from msgspec import Struct, field

from mcptally.transcript.format import Dir

ItemKind = Literal["begin", "message", "head", "stderr", "http", "gap", "end"]
"""`begin`: a connection starts, or more is known about the one that did. `message`: a frame as the
source has it. `head`: a message of which the source lacks the content; `extra` has what it knows
(`id`, `method`, `name`, `is_error`). `gap`: what the source says is missing. `end`: over."""

MAX_LISTED_RUNS: Final = 1000
"""Runs of lines listed for one reason in a report; the count goes on."""


MAX_PENDING_CALLS: Final = 100_000
"""Calls without an answer that a reader remembers at a time; then it forgets the oldest."""


class Connection(Struct, frozen=True):
    """One connection of a client to a server, as far as the source tells connections apart."""

    server: str | None
    key: str = ""
    """Session, connection or file: equal for what belongs together."""
    transport: str | None = None
    """`stdio`, `streamable_http` or `http_sse`, where the source says."""


class Item(Struct, kw_only=True, omit_defaults=True):
    """One thing that happened, in the order of the source."""

    kind: ItemKind
    line: int
    connection: Connection
    at: int | None = None
    """UTC nanoseconds since 1970; None where the source has no time for it."""
    dir: Dir = "c2s"
    data: bytes = b""
    """The frame, or the text."""
    size: int | None = None
    """Bytes on the wire, where the source knows them."""
    scope: str | None = None
    derived: bool = False
    """Made from a record of a call: the source holds no frame."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class LineRuns:
    """Lines that share a reason, as runs of consecutive numbers."""

    count: int = 0
    runs: list[list[int]] = dataclasses.field(default_factory=list)

    def add(self, line: int) -> None:
        """One more line."""
        self.count += 1
        if self.runs and self.runs[-1][1] in {line, line - 1}:
            self.runs[-1][1] = line
        elif len(self.runs) < MAX_LISTED_RUNS:
            self.runs.append([line, line])


@dataclasses.dataclass(slots=True)
class Tally:
    """Where every record of a source went: `seen` is `used`, `context` and `unused` together."""

    seen: int = 0
    """Lines; or entries, spans or rows, where those are the source's units."""
    used: int = 0
    context: Counter[str] = dataclasses.field(default_factory=Counter)
    """Understood, and no traffic; by kind."""
    unused: dict[str, LineRuns] = dataclasses.field(default_factory=dict)
    """Could not be used; by reason."""
    notes: Counter[str] = dataclasses.field(default_factory=Counter)
    """Used, but less is known of them than usual; by what."""

    def skip(self, line: int, why: str) -> None:
        """A record that could not be used."""
        self.unused.setdefault(why, LineRuns()).add(line)

    @property
    def lost(self) -> int:
        """Records that could not be used."""
        return sum(places.count for places in self.unused.values())
