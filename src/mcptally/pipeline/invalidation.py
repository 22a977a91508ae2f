"""Finds the recordings that must be scored again because facts about the archive changed.

The `Needs` of a recording are the facts on which its rows depend. For each need, the archive's
earlier and current facts are compared with the precision with which the rules use them.
"""

from collections.abc import Iterator

import polars as pl

from mcptally.messages.tool_definitions import add_definitions
from mcptally.pipeline.archive_context import ArchiveContext, StoredSummaries
from mcptally.pipeline.partition_summary import NEEDS, PartitionSummary
from mcptally.seeds.inspector.scenario import rare_combinations
from mcptally.seeds.redmine.expected_xml import xml_servers
from mcptally.seeds.validation_protocol.calls import PREDICTION_COLUMNS, PREDICTION_WINDOW_NS
from mcptally.tables.queries import run_query
from mcptally.tables.stages import DryRuns, Evidenced, Listings, Needs, ResultForms, Validated
from mcptally.verdict import evidence
from mcptally.verdict.hidden_errors import usually_json


def stale_recordings(
    summaries: StoredSummaries, before: ArchiveContext, now: ArchiveContext
) -> Iterator[pl.DataFrame]:
    """Yield a frame for each kind of fact: the recordings whose rows would change (`recording`)."""
    needs, forms, combinations = map(summaries.read, (NEEDS, "forms", "combinations"))
    if needs.height:
        none = pl.Series(dtype=pl.String)
        excerpts = (before.excerpt(needs, none), now.excerpt(needs, none))
        yield from _stale(needs, forms, combinations, *excerpts)


def _stale(
    needs: pl.DataFrame,
    forms: pl.DataFrame,
    combinations: pl.DataFrame,
    before: PartitionSummary,
    now: PartitionSummary,
) -> Iterator[pl.DataFrame]:
    old, new = (_coarse_evidence(needs, summary) for summary in (before, now))
    for name in ("outage", "tool_record", "peer_record"):
        yield needs.filter(old.get_column(name).ne_missing(new.get_column(name)))
    flipped = needs.filter(old.get_column("usual").ne_missing(new.get_column("usual")))
    not_json = forms.filter(ResultForms.all.col > ResultForms.json.col)
    keys = ["server", "tool"]
    yield not_json.join(flipped.select(keys).unique(), on=keys, how="semi", nulls_equal=True)
    undeclared = forms.filter(ResultForms.undeclared_xml.col > 0)
    xml = (xml_servers(before.forms), xml_servers(now.forms))
    for mine, theirs in (xml, xml[::-1]):
        only = mine.join(theirs, on="server", how="anti", nulls_equal=True)
        yield undeclared.join(only, on="server", how="semi", nulls_equal=True)
    keys = ["server", "tool", "combination"]
    scarce = [rare_combinations(each.combinations).pipe(run_query) for each in (before, now)]
    for mine, theirs in (scarce, scarce[::-1]):
        only = mine.join(theirs, on=keys, how="anti", nulls_equal=True)
        yield combinations.join(only, on=keys, how="semi", nulls_equal=True)
    if not before.listed.equals(now.listed):
        unlisted = needs.filter(Needs.open_ns.col.is_not_null())
        yield unlisted.filter(
            _definitions(unlisted, before.listed).ne_missing(_definitions(unlisted, now.listed))
        )
    yield _changed_validations(needs, before.validations, now.validations)


def _coarse_evidence(needs: pl.DataFrame, summary: PartitionSummary) -> pl.DataFrame:
    """Return each need's evidence from other calls, with the precision that rules use."""
    calls = needs.select("server", "tool", ts_ns=Needs.minute.col * evidence.MINUTE_NS)
    return evidence.add_evidence(calls, summary.minutes, summary.forms).select(
        "tool_record",
        "peer_record",
        outage=Evidenced.concurrent_failure_share.col.mul(10).floor(),
        usual=usually_json(Evidenced.results_seen.col, Evidenced.results_json.col).fill_null(
            value=False
        ),
    )


def _definitions(unlisted: pl.DataFrame, listed: pl.DataFrame) -> pl.Series:
    """Return the definition in force for each call to a tool that its session does not list."""
    calls = unlisted.with_row_index("pos").select(
        "pos",
        *("server", "tool"),
        call_id=Evidenced.pos.col.cast(pl.String),
        session=pl.lit(""),
        ts_ns="open_ns",
        dir=pl.lit("c2s"),
    )
    return add_definitions(calls, Listings.empty(), listed).get_column(Validated.definition.name)


def _changed_validations(
    needs: pl.DataFrame, before: pl.DataFrame, now: pl.DataFrame
) -> pl.DataFrame:
    """Return the needs of calls for which two archive summaries contain different validations."""
    names = PREDICTION_COLUMNS
    both = (before.select(names), now.select(names))
    changed = pl.concat(
        [
            mine.join(theirs, on=names, how="anti", nulls_equal=True)
            for mine, theirs in (both, both[::-1])
        ]
    ).drop_nulls("answered_ns")
    answered = changed.select(
        "server", "tool", answered=DryRuns.answered_ns.col // evidence.MINUTE_NS
    ).unique()
    near = PREDICTION_WINDOW_NS // evidence.MINUTE_NS + 1
    return needs.join(answered, on=["server", "tool"], nulls_equal=True).filter(
        (Needs.minute.col - pl.col("answered")).is_between(0, near)
    )
