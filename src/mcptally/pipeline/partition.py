"""Implements the two steps that score a partition, which is a set of files with whole recordings.

gather: files → calls, messages, findings, recordings, summary (needs only these files) finish:
gathered partition + excerpt of the archive → tables (content of the store)

Both steps depend only on their arguments, so one process, several processes and a cluster give the
same tables.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import polars as pl

from mcptally.jsonschemas import validate
from mcptally.jsonschemas.definition_diff import add_drift
from mcptally.messages.attempts import link_attempts
from mcptally.messages.decode import Events, decode_slices
from mcptally.messages.event_spool import Slicing
from mcptally.messages.event_tables import Closes, Event, Gaps, HttpEvents, Opens, Replies
from mcptally.messages.input_requests import RequestedInputs, add_waiting, list_input_requests
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.server_lives import failed_requests, server_lives
from mcptally.messages.sessions import assign_sessions
from mcptally.messages.tasks import settle_tasks
from mcptally.messages.tool_definitions import (
    add_definitions,
    count_listings,
    read_listings,
    tools_table,
)
from mcptally.pipeline.failure_kinds import failure_kind
from mcptally.pipeline.partition_summary import PartitionSummary
from mcptally.pipeline.scoring import ScoringRules, judge_calls
from mcptally.pipeline.selection import EVERYTHING, Selection
from mcptally.pipeline.tokens import count_tokens
from mcptally.pipeline.usage import usage
from mcptally.process_memory import release_memory
from mcptally.protocol import all_rules, definition_lint, definition_smells, leaked_secrets
from mcptally.rules.findings import concat_findings, require_known_rules
from mcptally.seeds import stages
from mcptally.seeds.inspector.columns import add_seed_scores
from mcptally.seeds.inspector.scenario import argument_combinations, with_combination
from mcptally.seeds.redmine.error_forms import count_error_forms, error_form
from mcptally.seeds.redmine.expected_xml import FORM_COUNTS
from mcptally.seeds.validation_logic.normalised_error import normalise_errors
from mcptally.seeds.validation_protocol.calls import gather_validations, with_validations
from mcptally.tables.arrow import series_from_numpy
from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Column, Table
from mcptally.tables.findings import Findings
from mcptally.tables.input_requests import InputRequests
from mcptally.tables.joins import left_join_columns
from mcptally.tables.mapped_tables import MappedTables
from mcptally.tables.messages import Messages
from mcptally.tables.queries import run_query
from mcptally.tables.recordings import Recordings
from mcptally.tables.seed_scores import SeedScores
from mcptally.tables.stages import (
    TIME,
    ArgumentCombinations,
    CallsByMinute,
    Definitions,
    DryRuns,
    ErrorForms,
    Evidenced,
    GatheredCalls,
    GatheredMessages,
    GatheredRecordings,
    Listings,
    ResultForms,
    Scored,
    Validated,
)
from mcptally.tables.tools import Tools
from mcptally.tables.usage import Usage
from mcptally.transcript.files import Digests, Span
from mcptally.transcript.unread import ReadTally
from mcptally.verdict import evidence, stderr_exceptions
from mcptally.wire.nesting import with_raised_recursion_limit


class GatheredPartition(msgspec.Struct, frozen=True):
    """A gathered partition: the result of `gather`, from which `finish` computes the tables."""

    calls: pl.DataFrame
    """The `GatheredCalls` table."""
    messages: pl.DataFrame
    """The `GatheredMessages` table."""
    findings: pl.DataFrame
    """The `Findings` that depend only on the partition."""
    recordings: pl.DataFrame
    """The `GatheredRecordings` table."""
    summary: PartitionSummary
    left_out: int = 0
    """Number of unselected calls in the partition's recordings."""
    mapped: MappedTables = msgspec.field(default_factory=lambda: MappedTables(Path()))
    """Takes the further tables of a large recording."""


class GatheredSlices(NamedTuple):
    """The gathered slices of a partition, with the digests and read errors of its files."""

    several: bool
    parts: Iterator[GatheredPartition]
    digests: Digests
    """Digests of the files that were read completely."""
    tallies: list[ReadTally]
    """For each file, how much of it was read, and how much could not be read."""


def gather(
    files: Sequence[Path], names: Sequence[str], selection: Selection = EVERYTHING
) -> GatheredPartition:
    """Decode and pair the events of `files`; tables and findings refer to the files by `names`.

    Unselected calls are left out of the result, but are context for the selected calls.
    """
    return next(gather_slices(files, names, selection).parts)


def gather_slices(
    files: Sequence[Path],
    names: Sequence[str],
    selection: Selection,
    slicing: Slicing | None = None,
    span: Span | None = None,
) -> GatheredSlices:
    """Gather files like `gather`, but in slices of whole recordings if there are many events.

    Args:
        files: files that share recordings, or a single file.
        names: names for the files in tables and findings.
        selection: the calls to keep.
        slicing: when to slice and where to store the slices; None means a single slice.
        span: the part of a single file to read; None means all of it.
    """
    slices = decode_slices(files, names, slicing, span)
    gathered = functools.partial(_gather_next, slices.events, files, names, selection)
    return GatheredSlices(slices.several, iter(gathered, None), slices.digests, slices.tallies)


@with_raised_recursion_limit
def _gather_next(
    slices: Iterator[Events], files: Sequence[Path], names: Sequence[str], selection: Selection
) -> GatheredPartition | None:
    """Gather the next slice; return None if there is none left."""
    # Don't pass the events as an argument, because the caller would keep them in memory until the
    # end.
    events = next(slices, None)
    if events is None:
        return None
    events = selection.events(events)
    release_memory()
    events = deduplicate(events, list(names), files)
    conversation = assign_sessions(events)
    opened = conversation.recordings
    release_memory()
    paired = pair(events, conversation)
    # Keep of the messages only what their counts need.
    events = msgspec.structs.replace(events, messages=events.messages.select(*Event.columns()))
    file_names = pl.Series(names, dtype=pl.String)
    calls = _with_file_names(paired.calls, file_names)
    messages = _with_file_names(paired.messages, file_names)
    del conversation, paired
    release_memory()
    findings = concat_findings(
        [events.findings, all_rules.check_protocol(events, messages, calls, names)]
    )
    calls = add_waiting(settle_tasks(calls, messages, events), events.asks)
    release_memory()
    # Free what no later step reads.
    messages = GatheredMessages.select(messages)
    events = msgspec.structs.replace(events, replies=Replies.empty())
    calls = with_combination(calls).with_columns(error_form())
    calls = evidence.add_recording_end(calls, events.closes)
    release_memory()
    calls = stderr_exceptions.add_stderr_error(calls, events.stderr.rechunk())
    summary = _summary(events, calls, messages)
    every = calls.height
    if selection:
        calls = calls.filter(selection.calls())
        messages, findings = _of_calls(messages, calls), _of_calls(findings, calls)
    release_memory()
    recordings = _recordings(events, opened, calls, file_names)
    if selection:
        recordings = recordings.filter(pl.col("calls") > 0)
    mapped = events.mapped
    del events
    [calls] = mapped.move([GatheredCalls.select(calls)])
    release_memory()
    return GatheredPartition(
        calls,
        messages,
        Findings.frame(findings),
        GatheredRecordings.select(recordings),
        summary,
        every - calls.height,
        mapped,
    )


def _of_calls(rows: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the findings about these calls, about their recordings, or about whole files."""
    call_ids = calls.get_column(GatheredCalls.call_id.name)
    recordings = calls.get_column(GatheredCalls.recording.name).unique()
    about_call, recording = Findings.call_id.col.is_not_null(), Findings.recording.col
    return rows.filter(
        (about_call & Findings.call_id.col.is_in(call_ids.implode()))
        | (~about_call & (recording.is_in(recordings.implode()) | recording.is_null()))
    )


def _summary(events: Events, calls: pl.DataFrame, messages: pl.DataFrame) -> PartitionSummary:
    listed, definitions = read_listings(calls, messages)
    return PartitionSummary(
        Listings.select(listed),
        Definitions.select(evidence.add_kinds(definitions)),
        ArgumentCombinations.select(argument_combinations(calls)),
        DryRuns.select(gather_validations(calls, events.asks)),
        ErrorForms.select(count_error_forms(calls)),
        CallsByMinute.select(evidence.count_calls_per_minute(calls)),
        ResultForms.select(evidence.count_result_forms(calls, FORM_COUNTS)),
    )


@with_raised_recursion_limit
def finish(
    part: GatheredPartition,
    archive: PartitionSummary,
    judging: ScoringRules,
    *,
    payloads: bool = True,
) -> dict[type[Table], pl.DataFrame]:
    """Compute the tables of one partition, except `Tools`, which covers the archive (`tools`).

    Args:
        part: the gathered partition.
        archive: the archive's facts on which the partition's calls depend.
        judging: rules and scenarios.
        payloads: whether arguments, responses and their text are kept.
    """
    calls = validate.validate_calls(
        add_definitions(part.calls, part.summary.listed, archive.listed), archive.definitions
    )
    [calls] = part.mapped.move([Validated.select(calls)])
    release_memory()
    calls = evidence.add_tool_kinds(calls, archive.definitions)
    calls = Evidenced.select(evidence.add_evidence(calls, archive.minutes, archive.forms))
    calls = judge_calls(calls, archive.definitions, archive.combinations, judging)
    [calls] = part.mapped.move([calls])
    release_memory()
    [calls] = part.mapped.move([_score(calls, archive)])
    release_memory()
    seed_findings, ui_tables = stages.contract_findings(
        calls, part.messages, archive.definitions, archive.forms
    )
    release_memory()
    findings = require_known_rules(
        concat_findings(
            [
                part.findings,
                validate.schema_findings(calls),
                definition_lint.check_read_only_hints(calls, archive.definitions),
                definition_smells.check_required_in_practice(calls, archive.definitions),
                leaked_secrets.find_leaked_secrets(calls),
                seed_findings,
            ]
        )
    )
    seed_tables = stages.contract_tables(
        ui_tables, calls, part.summary.validations, payloads=payloads
    )
    release_memory()
    inputs = list_input_requests(calls)
    if not payloads:
        calls = calls.drop("arguments", "response", "text")
        findings = findings.with_columns(evidence=pl.lit(None, pl.String))
    calls = _renamed(calls.with_columns(_times(_CALL_TIMES)), "id", "request_id")
    calls = calls.hstack([failure_kind(calls)])
    # polars' streaming engine counts many small groups in a quarter of the time.
    counts = (
        findings.lazy().group_by("recording").agg(findings=pl.len()).collect(engine="streaming")
    )
    recordings = left_join_columns(part.recordings, counts, "recording")
    recordings = left_join_columns(
        recordings, failed_requests(calls).pipe(run_query), "recording"
    ).with_columns(
        Recordings.findings.col.fill_null(0), Recordings.probe_failed.col.fill_null(value=False)
    )
    return {
        Calls: Calls.frame(calls),
        SeedScores: SeedScores.frame(calls),
        Usage: usage(calls),
        Messages: Messages.frame(
            _renamed(
                part.messages.with_columns(_times({Messages.at: GatheredMessages.ts_ns})),
                "id",
                "request_id",
            )
        ),
        Findings: Findings.frame(findings),
        Recordings: Recordings.frame(recordings),
        InputRequests: InputRequests.empty()
        if inputs is None
        else InputRequests.frame(inputs.with_columns(_times(_INPUT_TIMES))),
        **seed_tables,
    }


def _score(calls: pl.DataFrame, archive: PartitionSummary) -> pl.DataFrame:
    """Add seed scores, attempts, normalised errors and validations: `Judged` becomes `Scored`."""
    calls = link_attempts(add_seed_scores(calls, archive.definitions))
    release_memory()
    calls = calls.hstack(normalise_errors(calls))
    return Scored.select(with_validations(calls, archive.validations))


class KnownLint(NamedTuple):
    """Findings of an earlier run about definitions (`lint_definitions`)."""

    findings: pl.DataFrame
    """The findings about definitions that unchanged servers list."""
    servers: pl.DataFrame
    """The servers whose listings changed (column `server`)."""


@with_raised_recursion_limit
def tools(
    archive: PartitionSummary,
    seen: pl.DataFrame | None = None,
    known: KnownLint | None = None,
) -> dict[type[Table], pl.DataFrame]:
    """Build the `tools` table of the whole archive, and return it with findings about definitions.

    Args:
        archive: facts from all partitions, including at least the `relevant_listings`.
        seen: `ListingCounts` of all listings, if `archive` does not have all of them.
        known: findings of an earlier run about unchanged servers, whose definitions are not checked
            again.
    """
    seen = count_listings(archive.listed) if seen is None else seen
    texts = dict(
        archive.definitions[[Definitions.definition.name, Definitions.text.name]].iter_rows()
    )
    tokens = count_tokens(archive.definitions.get_column(Definitions.text.name)).alias(
        Tools.tokens.name
    )
    checked, definitions = archive.listed, archive.definitions
    if known is not None:
        checked = checked.join(known.servers, on="server", how="semi", nulls_equal=True)
        definitions = definitions.join(checked, on=Definitions.definition.name, how="semi")
    findings = [
        definition_lint.lint_definitions(checked, definitions),
        *([] if known is None else [known.findings]),
        stages.archive_findings(archive.listed, archive.definitions, archive.shapes),
    ]
    return {
        Tools: add_drift(tools_table(seen, archive.definitions.hstack([tokens])), texts),
        Findings: require_known_rules(concat_findings(findings)),
    }


_CALL_TIMES: Final = {
    Calls.requested_at: GatheredCalls.ts_ns,
    Calls.answered_at: GatheredCalls.reply_ns,
    Calls.cancelled_at: GatheredCalls.cancelled_ns,
}
"""Maps time columns of `calls` to the gathered columns with nanoseconds."""

_INPUT_TIMES: Final = {
    InputRequests.asked_at: RequestedInputs.asked_ns,
    InputRequests.answered_at: RequestedInputs.answered_ns,
}


def _times(columns: Mapping[Column, Column]) -> list[pl.Expr]:
    """Return expressions that convert columns of nanoseconds to columns of timestamps.

    Args:
        columns: maps each column of timestamps to its column of nanoseconds.
    """
    return [
        # The time is 0 in imported events if their source had no times.
        pl.from_epoch(pl.when(source.col > 0).then(source.col), time_unit="ns")
        .cast(TIME)
        .alias(column.name)
        for column, source in columns.items()
    ]


def _renamed(rows: pl.DataFrame, name: str, other: str) -> pl.DataFrame:
    """Return the rows with one column renamed; `DataFrame.rename` would plan a query."""
    return rows.hstack([rows.get_column(name).alias(other)])


def _with_file_names(frame: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Replace the file indexes in a frame with file names."""
    return frame.with_columns(file=names[frame.get_column(Event.file.name)])


def _recordings(
    events: Events, opened: pl.DataFrame, calls: pl.DataFrame, file_names: pl.Series
) -> pl.DataFrame:
    """Return one row per recording, with the columns of `GatheredRecordings` and some others."""
    frames = {
        "messages": events.messages,
        "raws": events.raws,
        "stderr_lines": events.stderr,
        "opens": events.opens,
        "closes": events.closes,
        "gaps": events.gaps,
        "http_events": events.http,
    }
    envelope = ["recording", "file", "seq", "ts_ns"]
    kind = np.repeat(np.arange(len(frames), dtype=np.uint8), [f.height for f in frames.values()])
    by_file = (
        pl.concat([frame[envelope] for frame in frames.values()])
        .hstack([series_from_numpy(kind == n, name) for n, name in enumerate(frames)])
        .lazy()
        # The time is 0 in imported events if their source had no times.
        .with_columns(pl.when(Event.ts_ns.col > 0).then("ts_ns"))
        .group_by("recording", "file")
        .agg(
            Event.seq.col.min(),
            pl.col(*frames).sum(),
            events=pl.len(),
            opened_at=Event.ts_ns.col.min(),
            ended_at=Event.ts_ns.col.max(),
        )
    )
    times = pl.col("opened_at").min(), pl.col("ended_at").max()
    additions = [
        by_file.with_columns(file=pl.lit(file_names).gather(Event.file.col))
        .sort("recording", "seq", "file")
        .group_by("recording", maintain_order=True)
        .agg(pl.col(*frames, "events").sum(), *times, files=Event.file.col)
        .with_columns(pl.from_epoch(pl.col("opened_at", "ended_at"), time_unit="ns").cast(TIME)),
        server_lives(events, calls).lazy(),
        events.opens.lazy().group_by("recording").agg(segments=Opens.segment.col.n_unique()),
        events.http.lazy().group_by("recording").agg(exchanges=HttpEvents.scope.col.n_unique()),
        events.gaps.lazy().group_by("recording").agg(Gaps.lost.col.sum()),
        events.closes.lazy()
        .sort("seq")
        .group_by("recording")
        .agg(
            Closes.reason.col.last().alias("close_reason"),
            Closes.exit_code.col.last(),
            Closes.signal.col.last(),
        ),
        calls.lazy()
        .sort("pos")
        .group_by("recording", maintain_order=True)
        .agg(
            pl.len().alias("calls"),
            (GatheredCalls.tool.col.is_not_null() & (GatheredCalls.dir.col == "c2s"))
            .sum()
            .alias("tool_calls"),
            GatheredCalls.reply.col.is_null().sum().alias("unanswered"),
            GatheredCalls.session.col.n_unique().alias("sessions"),
            GatheredCalls.protocol_version.col.drop_nulls()
            .unique(maintain_order=True)
            .alias("protocol_versions"),
            pl.col(
                *("server_name", "server_version", "server_capabilities"),
                *("client", "client_version", "client_capabilities"),
            )
            .drop_nulls()
            .first(),
        ),
    ]
    rows = opened
    for addition in additions:
        rows = left_join_columns(rows, addition.pipe(run_query), "recording")
    counts = [*frames, "calls", "tool_calls", "unanswered", "sessions", "exchanges", "segments"]
    return rows.with_columns(
        pl.col(*counts, "lost").fill_null(0),
        end=pl.when(pl.col("closes") > 0).then(pl.lit("closed")).otherwise(pl.lit("open")),
    )
