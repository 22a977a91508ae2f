"""What a partition knows of its servers and tools, and what its calls ask of what others know.

A call is judged by what the whole archive knows, so that nothing depends on who is in its
partition. What is known is noted by recording, so that a recording can be taken out again; how the
notes of all partitions are put together is in `ledger`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

import polars as pl

from mcptally.verdict import evidence


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionSummary:
    """What is known of servers and tools: by a partition, or by all as far as one asks for it."""

    listed: pl.DataFrame
    """`definitions.LISTING` rows; of what all know, the columns of `definitions.TIMELINE`."""
    definitions: pl.DataFrame
    """`definitions.DEFINITION` rows."""
    combinations: pl.DataFrame
    """Which arguments are given together how often: `seed.scenario.combinations`."""
    validations: pl.DataFrame
    """What servers' own validations said: `contracts.validation.SCHEMA`."""
    shapes: pl.DataFrame
    """In what forms servers' errors come: `contracts.error_shapes.SCHEMA`."""
    minutes: pl.DataFrame
    """How many calls failed when: `context.minutes`; of what all know, of tools that ever work."""
    forms: pl.DataFrame
    """How many results of a tool are JSON: `context.forms`."""


COUNTS: Final = {
    "combinations": ("calls",),
    "shapes": ("calls",),
    "minutes": ("calls", "failed"),
    "forms": ("seen", "json", "all"),
}
"""What is known in numbers, which add up."""

NEEDS: Final = "needs"
"""The kind of notes that `needs` makes: of calls, and no knowledge."""

KINDS: Final = (*(field.name for field in dataclasses.fields(PartitionSummary)), NEEDS)
"""What is noted of each partition, a file each."""


def summed(frames: Sequence[pl.DataFrame], counts: Sequence[str]) -> pl.DataFrame:
    """Counts of all recordings together."""
    keys = [name for name in frames[0].columns if name not in ("recording", *counts)]
    every = pl.concat([frame.select(*keys, *counts) for frame in frames])
    return every.group_by(keys).agg(pl.col(counts).sum())


def needs(calls: pl.DataFrame, listed: pl.DataFrame) -> pl.DataFrame:
    """What of the archive's knowledge decides about calls, each thing once a recording.

    Servers, tools (null of other calls) and minutes; `open_ns` is the time of a call of a tool that
    its own session never lists: whose definition is that of another session.
    """
    is_tool = (pl.col("dir") == "c2s") & pl.col("tool").is_not_null()
    own = listed.select("session", "tool", own=pl.lit(value=True)).unique()
    return (
        calls.select(
            *("recording", "server", "session", "tool", "ts_ns"),
            minute=pl.col("ts_ns") // evidence.MINUTE,
            is_tool=is_tool,
        )
        .join(own, on=["session", "tool"], how="left")
        .select(
            *("recording", "server", "tool", "minute"),
            open_ns=pl.when("is_tool", pl.col("own").is_null()).then("ts_ns"),
        )
        .unique()
    )


def notes(learned: PartitionSummary, calls: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What is noted of a partition, for the rest of this run and for the next: by kind."""
    frames = {kind: getattr(learned, kind) for kind in KINDS if kind != NEEDS}
    # Equal arguments are told by `same`: what was said is kept in the tables alone, or not at all.
    hidden = learned.validations.with_columns(arguments=pl.lit(None, pl.String))
    return frames | {"validations": hidden, NEEDS: needs(calls, learned.listed)}
