"""One partition, whole recordings together: the line from files to the tables of a store.

    gather:  files → calls, messages, findings, recordings, listings      (needs these files only)
    finish:  gathered + what the whole archive knows → tables             (what is written)

Both are functions of their arguments alone: the same on one core, on all, and on a cluster.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from mcptally.jsonschemas import validate
from mcptally.jsonschemas.definition_diff import with_drift
from mcptally.messages.attempts import chain
from mcptally.messages.decode import Events, decode
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.sessions import Conversation, assign_sessions
from mcptally.messages.tool_definitions import in_force, listings, sightings, versions
from mcptally.pipeline.partition_summary import PartitionSummary
from mcptally.pipeline.scoring import Judging, score_calls
from mcptally.pipeline.usage import usage
from mcptally.process_memory import trim_heap
from mcptally.protocol import all_rules, definition_lint, leaked_secrets
from mcptally.rules.findings import require_rules, together
from mcptally.seeds import stages
from mcptally.seeds.inspector.scenario import combinations, with_combination
from mcptally.seeds.redmine import error_forms
from mcptally.seeds.validation_logic.normalised_error import regular
from mcptally.seeds.validation_protocol import calls as validation_calls
from mcptally.tables.calls import Calls
from mcptally.tables.declaration import TIME, Table
from mcptally.tables.findings import Findings
from mcptally.tables.joins import left_join_columns
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools
from mcptally.tables.usage import Usage
from mcptally.verdict import evidence
from mcptally.wire.nesting import with_stack_room


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """What one partition says by itself."""

    calls: pl.DataFrame
    messages: pl.DataFrame
    findings: pl.DataFrame
    recordings: pl.DataFrame
    learned: PartitionSummary


@with_stack_room
def gather(files: Sequence[Path], names: Sequence[str]) -> Gathered:
    """Decode and pair the events of `files`, which `names` call in tables and findings."""
    events = decode(files, names)
    trim_heap()
    events = deduplicate(events, list(names), files)
    talk = assign_sessions(events)
    trim_heap()
    paired = pair(events, talk)
    file_names = pl.DataFrame(
        {"file": pl.Series(range(len(names)), dtype=pl.UInt32), "file_name": list(names)}
    )
    calls = _named(paired.calls, file_names)
    messages = _named(paired.messages, file_names)
    del paired
    trim_heap()
    calls = with_combination(calls).with_columns(error_forms.shape())
    calls = evidence.with_end(calls, events.closes)
    learned = PartitionSummary(
        *listings(calls, messages),
        combinations(calls),
        validation_calls.gather(calls, events.asks),
        error_forms.counted(calls),
        evidence.minutes(calls),
        evidence.forms(calls),
    )
    found = together([events.findings, all_rules.find(events, messages, calls, names)])
    recordings = _recordings(events, talk, calls, file_names)
    del events, talk
    trim_heap()
    return Gathered(calls.drop(_OF_PAIRING), messages.drop(_OF_TALK), found, recordings, learned)


_OF_PAIRING: Final = (
    *("row", "reply_row", "error_reply", "scope", "bytes", "header_version"),
    *("id_key", "replay", "name", "uri", "meta_progress_token", "meta_protocol_version"),
    *("meta_client_info", "asked_version", "tools", "reply_version", "refused", "refusal_code"),
    *("handshake", "client_capabilities", "server_capabilities", "negotiated", "progress_ns"),
    *("error_message", "result_type"),
)
_OF_TALK: Final = (
    *("row", "sse_id", "redacted", "jsonrpc", "has_result", "has_error", "truncated"),
    *("http_status", "closed_by", "header_version", "resumes", "asker", "id_key"),
    *("session_source", "replay"),
)
"""Columns of calls and of messages that nothing asks for any more: each is 16 bytes a row."""


@with_stack_room
def finish(
    part: Gathered, archive: PartitionSummary, judging: Judging, *, payloads: bool = True
) -> dict[type[Table], pl.DataFrame]:
    """The tables of one partition, judged; `Tools` belongs to the archive: see `tools`."""
    calls = in_force(part.calls, part.learned.listed, archive.listed)
    calls = validate.validate(calls, archive.definitions)
    trim_heap()
    calls = evidence.add_evidence(calls, archive.minutes, archive.forms)
    calls = chain(score_calls(calls, archive.definitions, archive.combinations, judging))
    calls = validation_calls.foretold(calls.hstack(regular(calls)), archive.validations)
    trim_heap()
    broken, tests = stages.find(calls, part.messages, archive.definitions)
    findings = require_rules(
        together(
            [
                part.findings,
                validate.find(calls),
                definition_lint.find_behaviour(calls, archive.definitions),
                leaked_secrets.find(calls),
                broken,
            ]
        )
    )
    counts = findings.group_by("recording").agg(findings=pl.len())
    recordings = part.recordings.join(counts, on="recording", how="left").with_columns(
        pl.col("findings").fill_null(0)
    )
    contracts = stages.tables(tests, calls, part.learned.validations, payloads=payloads)
    if not payloads:
        calls = calls.drop("arguments", "response", "text")
        findings = findings.with_columns(evidence=pl.lit(None, pl.String))
    table = Calls.frame(calls.with_columns(_times(_CALL_TIMES)).rename({"id": "request_id"}))
    return {
        Calls: table,
        Usage: usage(table),
        Messages: Messages.frame(
            part.messages.with_columns(_times({"at": "ts_ns"})).rename({"id": "request_id"})
        ),
        Findings: Findings.frame(findings),
        Recordings: Recordings.frame(recordings),
        **contracts,
    }


@with_stack_room
def tools(
    archive: PartitionSummary, seen: pl.DataFrame | None = None
) -> dict[type[Table], pl.DataFrame]:
    """The `tools` table of the whole archive, and the findings about definitions.

    Args:
        archive: what all partitions know; of listings, those that are `definitions.telling`.
        seen: `definitions.sightings` of all of them, if those are not all.
    """
    seen = sightings(archive.listed) if seen is None else seen
    texts = dict(archive.definitions.select("definition", "text").iter_rows())
    found = [
        definition_lint.find(archive.listed, archive.definitions),
        stages.find_in_archive(archive.listed, archive.definitions, archive.shapes),
    ]
    return {
        Tools: with_drift(versions(seen, archive.definitions), texts),
        Findings: require_rules(together(found)),
    }


_CALL_TIMES: Final = {
    "requested_at": "ts_ns",
    "answered_at": "reply_ns",
    "cancelled_at": "cancelled_ns",
}


def _times(names: dict[str, str]) -> list[pl.Expr]:
    return [
        # 0 is the time of an imported event whose source has none.
        pl.from_epoch(pl.when(pl.col(source) > 0).then(source), time_unit="ns")
        .cast(TIME)
        .alias(name)
        for name, source in names.items()
    ]


def _named(frame: pl.DataFrame, file_names: pl.DataFrame) -> pl.DataFrame:
    return left_join_columns(frame, file_names, "file").drop("file").rename({"file_name": "file"})


def _recordings(
    events: Events, talk: Conversation, calls: pl.DataFrame, file_names: pl.DataFrame
) -> pl.DataFrame:
    """The `recordings` table, its findings still to be counted."""
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
    known = pl.col("ts_ns").filter(pl.col("ts_ns") > 0)
    every = pl.concat([frame.select(envelope) for frame in frames.values()])
    rows = talk.recordings.join(
        every.group_by("recording").agg(
            events=pl.len(),
            opened_at=pl.from_epoch(known.min(), time_unit="ns").cast(TIME),
            ended_at=pl.from_epoch(known.max(), time_unit="ns").cast(TIME),
        ),
        on="recording",
        how="left",
    )
    files = (
        every.group_by("recording", "file")
        .agg(pl.col("seq").min())
        .join(file_names, on="file")
        .sort("recording", "seq", "file_name")
        .group_by("recording", maintain_order=True)
        .agg(files=pl.col("file_name"))
    )
    counted = [
        frame.group_by("recording").agg(pl.len().alias(name)) for name, frame in frames.items()
    ]
    aside = [
        files,
        *counted,
        events.opens.group_by("recording").agg(segments=pl.col("segment").n_unique()),
        events.http.group_by("recording").agg(exchanges=pl.col("scope").n_unique()),
        events.gaps.group_by("recording").agg(pl.col("lost").sum()),
        events.closes.sort("seq")
        .group_by("recording")
        .agg(
            pl.col("reason").last().alias("close_reason"),
            pl.col("exit_code").last(),
            pl.col("signal").last(),
        ),
        calls.sort("pos")
        .group_by("recording")
        .agg(
            pl.len().alias("calls"),
            (pl.col("tool").is_not_null() & (pl.col("dir") == "c2s")).sum().alias("tool_calls"),
            pl.col("reply").is_null().sum().alias("unanswered"),
            pl.col("session").n_unique().alias("sessions"),
            pl.col("protocol_version")
            .drop_nulls()
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
    for extra in aside:
        rows = rows.join(extra, on="recording", how="left")
    counts = [*frames, "calls", "tool_calls", "unanswered", "sessions", "exchanges", "segments"]
    return rows.with_columns(
        pl.col(*counts, "lost").fill_null(0),
        end=pl.when(pl.col("closes") > 0).then(pl.lit("closed")).otherwise(pl.lit("open")),
    )
