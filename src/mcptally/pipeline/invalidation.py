"""What of a recording's rows depends on what the archive knows: whom a change of that touches.

A recording says what it needs to know of others (`knowledge.needs`); what was known then and what
is known now are put beside each other, as coarsely as rules ask for it.
"""

from collections.abc import Iterator

import polars as pl

from mcptally.messages.tool_definitions import LISTING, in_force
from mcptally.pipeline.archive_context import ArchiveContext, Noted
from mcptally.pipeline.partition_summary import NEEDS, PartitionSummary
from mcptally.seeds.stages import (
    PREDICTION_COLUMNS,
    PREDICTION_WINDOW_NS,
    rare_combinations,
)
from mcptally.verdict import evidence
from mcptally.verdict.hidden_errors import usually_json


def stale_recordings(
    noted: Noted, before: ArchiveContext, now: ArchiveContext
) -> Iterator[pl.DataFrame]:
    """Rows with the recordings whose own rows would be others: by each kind of knowledge."""
    needs, forms, combinations = map(noted.read, (NEEDS, "forms", "combinations"))
    if needs.height:
        none = pl.Series(dtype=pl.String)
        known = (before.excerpt(needs, none), now.excerpt(needs, none))
        yield from _touched(needs, forms, combinations, *known)


def _touched(
    needs: pl.DataFrame,
    forms: pl.DataFrame,
    combinations: pl.DataFrame,
    before: PartitionSummary,
    now: PartitionSummary,
) -> Iterator[pl.DataFrame]:
    old, new = (_surroundings(needs, known) for known in (before, now))
    yield needs.filter(old.get_column("outage").ne_missing(new.get_column("outage")))
    flipped = needs.filter(old.get_column("usual").ne_missing(new.get_column("usual")))
    unlike = forms.filter(pl.col("all") > pl.col("json"))
    keys = ["server", "tool"]
    yield unlike.join(flipped.select(keys).unique(), on=keys, how="semi", nulls_equal=True)
    keys = ["server", "tool", "combination"]
    scarce = (rare_combinations(before.combinations), rare_combinations(now.combinations))
    for mine, theirs in (scarce, scarce[::-1]):
        only = mine.join(theirs, on=keys, how="anti", nulls_equal=True)
        yield combinations.join(only, on=keys, how="semi", nulls_equal=True)
    unlisted = needs.filter(pl.col("open_ns").is_not_null())
    yield unlisted.filter(
        _definitions(unlisted, before.listed).ne_missing(_definitions(unlisted, now.listed))
    )
    yield _foretold(needs, before.validations, now.validations)


def _surroundings(needs: pl.DataFrame, known: PartitionSummary) -> pl.DataFrame:
    """What the numbers of other calls say about each need, as coarsely as rules ask for it."""
    calls = needs.select("server", "tool", ts_ns=pl.col("minute") * evidence.MINUTE)
    return evidence.add_evidence(calls, known.minutes, known.forms).select(
        outage=pl.col("concurrent_failure_share").mul(10).floor(),
        usual=usually_json(pl.col("results_seen"), pl.col("results_json")).fill_null(value=False),
    )


def _definitions(asked: pl.DataFrame, listed: pl.DataFrame) -> pl.Series:
    """The definition in force for each call of a tool that its own session does not list."""
    calls = asked.with_row_index("pos").select(
        "pos",
        *("server", "tool"),
        call_id=pl.col("pos").cast(pl.String),
        session=pl.lit(""),
        ts_ns="open_ns",
        dir=pl.lit("c2s"),
    )
    nothing = pl.DataFrame(schema=LISTING)
    return in_force(calls, nothing, listed).get_column("definition")


def _foretold(needs: pl.DataFrame, before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Needs that a validation may speak of which was not known, or is known no longer."""
    names = PREDICTION_COLUMNS
    both = (before.select(names), now.select(names))
    changed = pl.concat(
        [
            mine.join(theirs, on=names, how="anti", nulls_equal=True)
            for mine, theirs in (both, both[::-1])
        ]
    ).drop_nulls("answered_ns")
    said = changed.select("server", "tool", said=pl.col("answered_ns") // evidence.MINUTE).unique()
    near = PREDICTION_WINDOW_NS // evidence.MINUTE + 1
    return needs.join(said, on=["server", "tool"], nulls_equal=True).filter(
        (pl.col("minute") - pl.col("said")).is_between(0, near)
    )
