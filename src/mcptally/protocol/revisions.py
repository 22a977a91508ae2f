"""Reads `revisions.toml`: the methods and members of each MCP revision, and who may send them."""

import functools
from typing import Final, NamedTuple

import polars as pl

from mcptally.rules.findings import REVISIONS
from mcptally.toml_files import read_toml

_ROWS: Final = read_toml("protocol/revisions.toml")["revisions"]

STATELESS: Final = tuple(row["name"] for row in _ROWS if row.get("stateless"))
"""The revisions without a handshake."""

ERA: Final = {row["name"]: row["schemas"] for row in _ROWS}
"""Maps each revision to its era: the revision whose schemas apply to it."""

SENDERS: Final = {
    ("request", "c2s"): "client_requests",
    ("request", "s2c"): "server_requests",
    ("notification", "c2s"): "client_notifications",
    ("notification", "s2c"): "server_notifications",
}
"""Maps a message's kind and direction to the name of its list of methods in `revisions.toml`."""


class Span(NamedTuple):
    """A method, block type or member, with the first and the last revision that has it."""

    name: str
    since: str = REVISIONS[0]
    until: str = REVISIONS[-1]

    def holds(self, revision: str) -> bool:
        """Return whether a revision (one of `REVISIONS`) has the method, block type or member."""
        return (
            REVISIONS.index(self.since) <= REVISIONS.index(revision) <= REVISIONS.index(self.until)
        )


@functools.cache
def table() -> dict[str, tuple[Span, ...]]:
    """Read the lists in `revisions.toml`, keyed by name."""
    lists = read_toml("protocol/revisions.toml")
    return {
        name: tuple(Span(**row) for row in rows)
        for name, rows in lists.items()
        if name != "revisions"
    }


@functools.cache
def methods() -> pl.DataFrame:
    """Return one row per method and revision, with `kind`, `dir`, `method` and `revision`."""
    rows = [
        (kind, side, span.name, revision)
        for (kind, side), name in SENDERS.items()
        for span in table()[name]
        for revision in REVISIONS
        if span.holds(revision)
    ]
    return pl.DataFrame(
        rows, schema=dict.fromkeys(("kind", "dir", "method", "revision"), pl.String), orient="row"
    )


def names(kind: str) -> frozenset[str]:
    """Return all methods of a kind (`request`, `notification`), in any revision and direction."""
    lists = [name for (its_kind, _), name in SENDERS.items() if its_kind == kind]
    return frozenset(span.name for name in lists for span in table()[name])
