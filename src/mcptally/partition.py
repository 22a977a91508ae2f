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

from mcptally import context, defects, leaks, validate
from mcptally.chains import chain
from mcptally.contracts import error_shapes, line, validation
from mcptally.contracts.regular import regular
from mcptally.damage import mend
from mcptally.decode import Events, decode
from mcptally.definitions import in_force, listings, versions
from mcptally.drift import with_drift
from mcptally.judge import require_rules, together
from mcptally.pair import pair
from mcptally.protocol import rulebook
from mcptally.schema import TIME, Calls, Findings, Messages, Recordings, Table, Tools, Usage
from mcptally.scoring import Judging, score_calls
from mcptally.seed.scenario import combinations, with_combination
from mcptally.sessions import Conversation, converse
from mcptally.usage import usage


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """What one partition says by itself."""

    calls: pl.DataFrame
    messages: pl.DataFrame
    findings: pl.DataFrame
    recordings: pl.DataFrame
    needs: pl.DataFrame
    """What its calls are judged by beyond their recordings: see `needs`."""
    learned: "Knowledge"


@dataclasses.dataclass(frozen=True, slots=True)
class Knowledge:
    """What a partition, and in the end the whole archive, knows about its servers and tools.

    A call is judged by the knowledge of the archive: nothing depends on who is in its partition.
    That of a partition is by recording, so that a recording can be taken out again.
    """

    listed: pl.DataFrame
    """`definitions.LISTING` rows."""
    definitions: pl.DataFrame
    """`definitions.DEFINITION` rows."""
    combinations: pl.DataFrame
    """Which arguments are given together how often: `seed.scenario.combinations`."""
    validations: pl.DataFrame
    """What servers' own validations said: `contracts.validation.SCHEMA`."""
    shapes: pl.DataFrame
    """In what forms servers' errors come: `contracts.error_shapes.SCHEMA`."""
    minutes: pl.DataFrame
    """How many calls failed when: `context.minutes`."""
    forms: pl.DataFrame
    """How many results of a tool are JSON: `context.forms`."""

    @classmethod
    def of(cls, parts: Sequence["Knowledge"]) -> "Knowledge":
        """The knowledge of all partitions together."""
        return cls(
            pl.concat([part.listed for part in parts]).sort("listed_ns", "recording", "pos"),
            pl.concat([part.definitions for part in parts]).unique("definition").sort("definition"),
            validations=pl.concat([part.validations for part in parts]),
            **{
                name: _summed([getattr(part, name) for part in parts], counts)
                for name, counts in _COUNTS.items()
            },
        )


_COUNTS: Final = {
    "combinations": ("calls",),
    "shapes": ("calls",),
    "minutes": ("calls", "failed"),
    "forms": ("seen", "json", "all"),
}
"""What is known in numbers, which add up."""


def _summed(frames: Sequence[pl.DataFrame], counts: Sequence[str]) -> pl.DataFrame:
    keys = [name for name in frames[0].columns if name not in ("recording", *counts)]
    every = pl.concat([frame.select(*keys, *counts) for frame in frames])
    return every.group_by(keys).agg(pl.col(counts).sum())


def gather(files: Sequence[Path], names: Sequence[str]) -> Gathered:
    """Decode and pair the events of `files`, which `names` call in tables and findings."""
    events = mend(decode(files, names), list(names), files)
    talk = converse(events)
    paired = pair(events, talk)
    file_names = pl.DataFrame(
        {"file": pl.Series(range(len(names)), dtype=pl.UInt32), "file_name": list(names)}
    )
    calls = _named(paired.calls, file_names)
    messages = _named(paired.messages, file_names)
    calls = with_combination(calls).with_columns(error_shapes.shape())
    calls = context.with_end(calls, events.closes)
    learned = Knowledge(
        *listings(calls, messages),
        combinations(calls),
        validation.gather(calls, events.asks),
        error_shapes.counted(calls),
        context.minutes(calls),
        context.forms(calls),
    )
    found = together([events.findings, rulebook.find(events, messages, calls, names)])
    recordings = _recordings(events, talk, calls, file_names)
    asked = needs(calls, learned.listed)
    return Gathered(calls, messages, found, recordings, asked, learned)


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
            minute=pl.col("ts_ns") // context.MINUTE,
            is_tool=is_tool,
        )
        .join(own, on=["session", "tool"], how="left")
        .select(
            *("recording", "server", "tool", "minute"),
            open_ns=pl.when("is_tool", pl.col("own").is_null()).then("ts_ns"),
        )
        .unique()
    )


def known(part: Gathered) -> dict[str, pl.DataFrame]:
    """What a store keeps of a partition for its next run: knowledge, and needs."""
    names = [field.name for field in dataclasses.fields(Knowledge)]
    frames = {name: getattr(part.learned, name) for name in names}
    # Equal arguments are told by `same`: what was said is kept in the tables alone, or not at all.
    hidden = part.learned.validations.with_columns(arguments=pl.lit(None, pl.String))
    return frames | {"validations": hidden, "needs": part.needs}


def finish(
    part: Gathered, archive: Knowledge, judging: Judging, *, payloads: bool = True
) -> dict[type[Table], pl.DataFrame]:
    """The tables of one partition, judged; `Tools` belongs to the archive: see `tools`."""
    calls = in_force(part.calls, part.learned.listed, archive.listed)
    calls = validate.validate(calls, archive.definitions)
    calls = context.surround(calls, archive.minutes, archive.forms)
    calls = chain(score_calls(calls, archive.definitions, archive.combinations, judging))
    calls = validation.foretold(calls.hstack(regular(calls)), archive.validations)
    broken, tests = line.find(calls, part.messages, archive.definitions)
    findings = require_rules(
        together(
            [
                part.findings,
                validate.find(calls),
                defects.find_behaviour(calls, archive.definitions),
                leaks.find(calls),
                broken,
            ]
        )
    )
    counts = findings.group_by("recording").agg(findings=pl.len())
    recordings = part.recordings.join(counts, on="recording", how="left").with_columns(
        pl.col("findings").fill_null(0)
    )
    contracts = line.tables(tests, calls, archive.validations, payloads=payloads)
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


def tools(archive: Knowledge) -> dict[type[Table], pl.DataFrame]:
    """The `tools` table of the whole archive, and the findings about definitions."""
    texts = dict(archive.definitions.select("definition", "text").iter_rows())
    found = [
        defects.find(archive.listed, archive.definitions),
        line.find_in_archive(archive.listed, archive.definitions, archive.shapes),
    ]
    return {
        Tools: with_drift(versions(archive.listed, archive.definitions), texts),
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
    return (
        frame.join(file_names, on="file", how="left", maintain_order="left")
        .drop("file")
        .rename({"file_name": "file"})
    )


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
