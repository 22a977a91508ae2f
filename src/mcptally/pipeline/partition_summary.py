"""Summarizes a partition: facts about its servers and tools, and the needs of its calls.

A call is judged with facts from the whole archive, so that the tables do not depend on the grouping
of files. Facts are kept by recording, so that a recording can be removed later. `archive_context`
combines the summaries of all partitions.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
import polars as pl

from mcptally.seeds.redmine.expected_xml import FORM_COUNTS
from mcptally.tables.declaration import StageTable
from mcptally.tables.queries import run_query
from mcptally.tables.stages import (
    ArgumentCombinations,
    CallsByMinute,
    Definitions,
    DryRuns,
    ErrorForms,
    GatheredCalls,
    Listings,
    Needs,
    ResultForms,
)
from mcptally.verdict import evidence


class PartitionSummary(msgspec.Struct, frozen=True):
    """Facts about servers and tools: from a partition, or an excerpt from the whole archive."""

    listed: pl.DataFrame
    """`Listings`; in an excerpt, `Timeline`."""
    definitions: pl.DataFrame
    """The `Definitions` of the tools."""
    combinations: pl.DataFrame
    """`ArgumentCombinations`; in an excerpt, summed over recordings."""
    validations: pl.DataFrame
    """`DryRuns`; in an excerpt, only its `PREDICTION_COLUMNS`."""
    shapes: pl.DataFrame
    """`ErrorForms`; in an excerpt, summed over recordings."""
    minutes: pl.DataFrame
    """`CallsByMinute`; in an excerpt, summed over recordings, for tools that worked at least once.
    """
    forms: pl.DataFrame
    """`ResultForms`; in an excerpt, summed over recordings."""


COUNTS: Final = {
    "combinations": ("calls",),
    "shapes": ("calls",),
    "minutes": ("calls", "failed"),
    "forms": ("seen", "json", "all", "failed", *FORM_COUNTS),
}
"""Maps kinds of facts that are counts to the columns that can be summed over recordings."""

NEEDS: Final = "needs"
"""The kind of the `Needs` rows, which are not facts but say on which facts calls depend."""

SUMMARY_TABLES: Final[Mapping[str, type[StageTable]]] = MappingProxyType(
    {
        "listed": Listings,
        "definitions": Definitions,
        "combinations": ArgumentCombinations,
        "validations": DryRuns,
        "shapes": ErrorForms,
        "minutes": CallsByMinute,
        "forms": ResultForms,
        NEEDS: Needs,
    }
)
"""Maps each kind of rows in a stored summary to its table. Each kind has its own folder of files.
"""

KINDS: Final = tuple(SUMMARY_TABLES)


def summed(frames: Sequence[pl.DataFrame], counts: Sequence[str]) -> pl.DataFrame:
    """Sum the columns `counts` over recordings."""
    keys = [name for name in frames[0].columns if name not in ("recording", *counts)]
    every = pl.concat([frame[[*keys, *counts]] for frame in frames])
    return every.group_by(keys).agg(pl.col(counts).sum())


def needs(calls: pl.DataFrame, listed: pl.DataFrame) -> pl.DataFrame:
    """Return the `Needs` of calls.

    Args:
        calls: a partition's calls.
        listed: the `Listings` of the partition.
    """
    is_tool = (GatheredCalls.dir.col == "c2s") & GatheredCalls.tool.col.is_not_null()
    own = listed.lazy().select("session", "tool", own=pl.lit(value=True)).unique()
    rows = (
        calls.lazy()
        .select(
            *("recording", "server", "session", "tool", "ts_ns"),
            minute=GatheredCalls.ts_ns.col // evidence.MINUTE_NS,
            is_tool=is_tool,
        )
        .join(own, on=["session", "tool"], how="left")
        .select(
            *("recording", "server", "tool", "minute"),
            open_ns=pl.when("is_tool", pl.col("own").is_null()).then("ts_ns"),
        )
    )
    return Needs.select(rows.unique().pipe(run_query))


def summary_frames(summary: PartitionSummary, calls: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Map each kind of rows to the rows that are stored as the partition's summary."""
    frames = {kind: getattr(summary, kind) for kind in KINDS if kind != NEEDS}
    # Arguments may contain secrets, so only their digest is stored.
    hidden = summary.validations
    if hidden.height:
        hidden = hidden.with_columns(arguments=pl.lit(None, pl.String))
    return frames | {"validations": hidden, NEEDS: needs(calls, summary.listed)}
