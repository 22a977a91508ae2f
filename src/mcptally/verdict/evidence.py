"""Computes evidence for the verdict from sources other than the reply.

Two facts are known within a partition: how the call's recording ended, and which exception is on
stderr. Three facts are counted per partition (`count_calls_per_minute`, `count_result_forms`) and
summed over the archive: how many other calls to the server failed at that time, whether the tool's
other results are JSON, and how often the tool and the server's other tools work. Rules use bands of
these numbers (`RECORD_SHARES`), so that a new file seldom changes verdicts on calls in other files.
"""

import signal
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.messages.event_tables import Closes
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.joins import left_join_columns, row_mask
from mcptally.tables.outcomes import FAILED, MARKED_ERRORS, UNANSWERED
from mcptally.tables.queries import run_query
from mcptally.tables.stages import (
    CallsByMinute,
    Definitions,
    Evidenced,
    GatheredCalls,
    Judged,
    ResultForms,
    Validated,
)
from mcptally.verdict import error_text, hidden_errors, tool_kinds

MINUTE_NS: Final = 60 * 10**9
"""One minute in nanoseconds. Calls in the same minute, or in adjacent ones, are concurrent."""

MIN_CONCURRENT: Final = 5
"""Number of concurrent calls to other tools below which `concurrent_failure_share` is null."""

_FAILED: Final = (*MARKED_ERRORS, *UNANSWERED)
"""Outcomes that count as failures here: this module runs before hidden errors are found."""

MIN_CALLS: Final = 5
"""Number of calls below which a tool's record is null."""

RECORD_SHARES: Final = (("seldom", 0.2), ("mostly", 0.95))
"""Bands for the share of calls that returned a result, with their upper limits; a higher share is
`always`."""

_MINUTE_KEYS: Final = ("recording", "server", "minute", "tool")


class _ToolCounts(StageTable):
    """The numbers of calls to a tool and to all tools of its server."""

    own_calls = Column(pl.Int64, "Calls to the tool at that time.")
    own_failed = Column(pl.Int64, "Of those, failed.")
    worked = Column(pl.Int64, "Calls to the tool that returned a result.")


def add_recording_end(calls: pl.DataFrame, closes: pl.DataFrame) -> pl.DataFrame:
    """Add `exit_code`, `signal` and `closed` to calls in flight when the recording ended.

    A call was in flight if it has no reply and no later call by the same side has a reply. For all
    other calls, the three columns are null, because the recording's end does not explain them.
    """
    signals = set(closes.get_column(Closes.signal.name).drop_nulls().to_list())
    numbers = {text: _signal_number(text) for text in sorted(signals)}
    signal_number = Closes.signal.col.last()
    ends = (
        closes.lazy()
        .sort("recording", "seq")
        .group_by("recording", maintain_order=True)
        .agg(
            Closes.exit_code.col.last(),
            signal_number.replace_strict(numbers, default=None, return_dtype=pl.Int64),
            closed=pl.lit(value=True),
        )
    )
    side = ["session", "dir"]
    rows = calls.lazy().select(*side, "recording", "pos", "reply")
    unanswered = rows.filter(GatheredCalls.reply.col.is_null()).drop("reply").pipe(run_query).lazy()
    answered = (
        rows.join(unanswered, on=side, how="semi")
        .filter(GatheredCalls.reply.col.is_not_null())
        .group_by(side)
        .agg(last=GatheredCalls.pos.col.max())
    )
    pending = (
        unanswered.join(answered, on=side, how="left")
        .filter(GatheredCalls.pos.col > pl.col("last").fill_null(-1))
        .join(ends, on="recording", how="left")
        .select("pos", "exit_code", "signal", "closed")
    )
    return left_join_columns(calls, pending.pipe(run_query), "pos")


def _signal_number(text: str) -> int | None:
    """Return the number of a signal, which a transcript gives as a number or a name."""
    value: Any = msgspec.json.decode(text)
    if isinstance(value, str):
        return signal.Signals[value] if value in signal.Signals.__members__ else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_calls_per_minute(calls: pl.DataFrame) -> pl.DataFrame:
    """Count the calls and the failed calls for each recording, server, minute and tool."""
    return (
        calls.lazy()
        .filter((GatheredCalls.dir.col == "c2s") & GatheredCalls.tool.col.is_not_null())
        .with_columns(minute=GatheredCalls.ts_ns.col // MINUTE_NS)
        .group_by(_MINUTE_KEYS, maintain_order=True)
        .agg(
            calls=pl.len().cast(pl.Int64),
            failed=GatheredCalls.outcome.col.is_in(_FAILED).sum().cast(pl.Int64),
        )
        .select(*_MINUTE_KEYS, "calls", "failed")
        .pipe(run_query)
    )


def keep_working_tools(at: pl.DataFrame, counted: pl.DataFrame | None = None) -> pl.DataFrame:
    """Keep the rows of `at` about tools with at least one call that did not fail.

    A tool that always fails, for example because it does not exist, is not evidence of an outage.

    Args:
        at: rows of `CallsByMinute`.
        counted: `calls` and `failed` per tool, if `at` may lack calls to a tool.
    """
    per_tool = at if counted is None else counted
    totals = per_tool.lazy().group_by("server", "tool").agg(pl.col("calls", "failed").sum())
    works = totals.filter(CallsByMinute.failed.col < CallsByMinute.calls.col)
    query = at.lazy().join(works, on=["server", "tool"], how="semi", nulls_equal=True)
    return query.pipe(run_query)


def count_result_forms(calls: pl.DataFrame, more: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """Count the results and failures of each tool in each recording, as `ResultForms`.

    Args:
        calls: `GatheredCalls`.
        more: maps further columns to conditions for the results that they count.
    """
    rows = calls.lazy().filter(
        (GatheredCalls.dir.col == "c2s") & GatheredCalls.tool.col.is_not_null()
    )
    keys = ["server", "tool", "recording"]
    results = hidden_errors.count_result_forms(
        rows.filter(GatheredCalls.outcome.col == "ok").with_columns(text="first_text"),
        "recording",
        **more,
    )
    failures = (
        rows.filter(GatheredCalls.outcome.col.is_in(_FAILED))
        .group_by(keys)
        .agg(failed=pl.len().cast(pl.Int64))
    )
    return (
        results.join(failures, on=keys, how="full", coalesce=True, nulls_equal=True)
        .with_columns(pl.col("seen", "json", "all", "failed").fill_null(0))
        .pipe(run_query)
    )


def add_evidence(calls: pl.DataFrame, at: pl.DataFrame, usual: pl.DataFrame) -> pl.DataFrame:
    """Add `concurrent_failure_share`, result counts, `tool_record` and `peer_record` to calls.

    `peer_record` is the record of the server's other tools; see `record`.

    Args:
        calls: the calls of a partition.
        at: `CallsByMinute` of the whole archive, filtered by `keep_working_tools`, possibly summed
            over recordings; rows far from any call may be missing.
        usual: `ResultForms` of the whole archive, possibly summed over recordings.
    """
    keys = ["server", "minute"]
    counts = [CallsByMinute.calls.col.sum(), CallsByMinute.failed.col.sum()]
    near = pl.concat(
        [at.lazy().with_columns(CallsByMinute.minute.col + step) for step in (-1, 0, 1)]
    )
    all_tools = near.group_by(keys).agg(counts)
    own_tool = near.group_by([*keys, "tool"]).agg(
        own_calls=CallsByMinute.calls.col.sum(), own_failed=CallsByMinute.failed.col.sum()
    )
    others = CallsByMinute.calls.col - _ToolCounts.own_calls.col.fill_null(0)
    share = (CallsByMinute.failed.col - _ToolCounts.own_failed.col.fill_null(0)) / others
    worked, failed = ResultForms.all.col.sum(), ResultForms.failed.col.sum()
    results = (
        usual.lazy()
        .group_by("server", "tool")
        .agg(
            results_seen=ResultForms.seen.col.sum(),
            results_json=ResultForms.json.col.sum(),
            worked=worked,
            failed=failed,
        )
        .select(
            *("server", "tool", "results_seen", "results_json"),
            tool_record=record(_ToolCounts.worked.col, ResultForms.failed.col),
            peer_record=record(
                _ToolCounts.worked.col.sum().over("server") - _ToolCounts.worked.col,
                ResultForms.failed.col.sum().over("server") - ResultForms.failed.col,
            ),
        )
    )
    added = (
        calls.lazy()
        .select("server", "tool", minute=GatheredCalls.ts_ns.col // MINUTE_NS)
        .join(all_tools, on=keys, how="left", maintain_order="left", nulls_equal=True)
        .join(own_tool, on=[*keys, "tool"], how="left", maintain_order="left", nulls_equal=True)
        .join(results, on=["server", "tool"], how="left", maintain_order="left", nulls_equal=True)
        .select(
            pl.when(others >= MIN_CONCURRENT).then(share).alias("concurrent_failure_share"),
            *("results_seen", "results_json", "tool_record", "peer_record"),
        )
        .pipe(run_query)
    )
    return calls.hstack(added)


def add_kinds(definitions: pl.DataFrame) -> pl.DataFrame:
    """Add the `kind` of each tool to its definition."""
    if not definitions.height:
        return definitions.with_columns(pl.lit(None, pl.String).alias(Definitions.kind.name))
    kind = tool_kinds.kind(
        Definitions.tool.col, Definitions.input_schema.col, Definitions.description.col
    )
    return definitions.with_columns(kind.alias(Definitions.kind.name))


def add_tool_kinds(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Add `tool_kind` to calls; if a tool's definition is unknown, infer it from the arguments.

    Args:
        calls: `Validated`.
        definitions: `Definitions` of their tools.
    """
    kinds = (
        definitions.lazy().select(definition="definition", tool_kind="kind").unique("definition")
    )
    calls = left_join_columns(calls, kinds, Validated.definition.name)
    keys = [Validated.tool.name, Validated.arguments.name]
    by_arguments = tool_kinds.kind(Validated.tool.col, Validated.arguments.col)
    unknown = calls.select(Validated.definition.col.is_null() & Validated.tool.col.is_not_null())
    rows = unknown.to_series().arg_true()
    if not len(rows):
        return calls
    found = calls.lazy().select(pl.col(keys).gather(rows))
    inferred = found.join(
        found.unique().with_columns(by_arguments.alias("kind")),
        on=keys,
        how="left",
        maintain_order="left",
        nulls_equal=True,
    ).pipe(run_query)
    kind = calls.get_column(Evidenced.tool_kind.name).scatter(rows, inferred.get_column("kind"))
    return calls.with_columns(kind)


_DENIED: Final = (
    r"(?i)permission denied|\be(?:acces|perm|rofs)\b|operation not permitted|access is denied"
    r"|read-?only (?:file ?system|database)|not write?able\b|errno 13\b|dubious ownership"
)
"""Matches messages of an operating system that denies access to a file."""
_FILE: Final = r'"([^"\\]*[./][^"\\]+)"'
"""Matches values in the JSON text of arguments that may be paths of files."""


_DAMAGED: Final = (
    r"(?i)not a (?:valid )?zip|bad ?zip ?file|corrupt|\bdamaged\b|unexpected end of (?:file|data)"
)
"""Matches texts that say that a file is damaged."""

_UNREADABLE: Final = (
    r"(?i)codec can't decode|invalid (?:start|continuation) byte|unterminated string"
    r"|expecting (?:value|property name|'[,:]' delimiter)|extra data: line"
    r"|unexpected (?:token|end of json|non-whitespace)|not valid (?:utf-?8|json)"
)
"""Matches messages of decoders and JSON parsers about data that they cannot read."""
_UPSTREAM: Final = (
    r"(?i)econn(?:refused|reset)|connection (?:refused|reset|aborted)|server disconnected"
    r"|getaddrinfo|name resolution|max retries exceeded"
)
"""Matches texts about a connection that failed."""


FILE_FACTS: Final = ("denied_before", "works_otherwise", "asks_upstream")
"""The columns that `add_file_facts` adds."""


class _Files(StageTable):
    """One row per pair of a call and a file in its arguments, if files were denied or damaged."""

    row = Column(pl.UInt32, "Number of the call.")
    recording = Judged.recording
    ts_ns = Judged.ts_ns
    outcome = Judged.outcome
    error_text = Judged.error_text
    file = Column(pl.String, "A value of the arguments that may be a path.")
    denied = Column(pl.Boolean, "Whether the server was denied access.")
    damaged = Column(pl.Boolean, "Whether the text calls a file damaged.")
    unreadable = Column(pl.Boolean, "Whether the text says that data cannot be read.")
    denied_ns = Column(pl.Int64, "Time of the first such call with this file.", "ns")


_SAID: Final = (Judged.error_text.name, Judged.stderr_error.name)


def is_denied(suspects: pl.Expr) -> pl.Expr:
    """Return whether the texts of `suspects` say that a system or program denied access."""
    return pl.concat_str(pl.when(suspects).then(pl.col(_SAID)), ignore_nulls=True).str.contains(
        _DENIED
    )


def add_file_facts(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `denied_before`, `works_otherwise` and `asks_upstream`, from calls in the same recording.

    The first two facts show that the caller named a file correctly. If the server was denied access
    to the file earlier, for example when creating it, this explains why the file does not exist. If
    other calls work with the file, the file is not damaged. If another call to the tool failed with
    an HTTP status or a broken connection, data that cannot be decoded is a service's reply. A call
    to another tool is not enough, because tools may read data of the server.

    Args:
        calls: calls with their final outcomes.
    """
    said, texts = pl.concat_str(_SAID, ignore_nulls=True), [*_SAID]
    rows = calls.lazy().with_row_index(_Files.row.name)
    failed = rows.filter(Judged.outcome.col.is_in(FAILED))
    # Most calls repeat a text.
    telling = (
        failed.select(texts)
        .unique()
        .with_columns(
            said.str.contains(_DENIED).alias(_Files.denied.name),
            said.str.contains(_DAMAGED).alias(_Files.damaged.name),
            said.str.contains(_UNREADABLE).alias(_Files.unreadable.name),
        )
        .filter(_Files.denied.col | _Files.damaged.col | _Files.unreadable.col)
        .pipe(run_query)
    )
    if not telling.height:
        return calls.with_columns(pl.lit(value=False).alias(name) for name in FILE_FACTS)
    by_tool = [_Files.recording.name, Judged.tool.name]
    marked = (
        failed.select(_Files.row.name, *by_tool, *texts)
        .join(telling.lazy(), on=texts, nulls_equal=True)
        .pipe(run_query)
        .lazy()
    )
    of_interest = marked.filter(_Files.denied.col | _Files.damaged.col)
    files = (
        rows.join(of_interest, on=_Files.recording.name, how="semi")
        .filter(Judged.outcome.col.is_in([*FAILED, "ok"]))
        .select(
            *(_Files.row.name, _Files.recording.name, _Files.ts_ns.name, _Files.outcome.name),
            _Files.error_text.name,
            Judged.arguments.col.str.extract_all(_FILE).alias(_Files.file.name),
        )
        .explode(_Files.file.name, empty_as_null=False)
        .with_columns(_Files.file.col.str.strip_chars('"'))
        .join(
            marked.select(_Files.row.name, _Files.denied.name, _Files.damaged.name), "row", "left"
        )
        .pipe(run_query)
        .lazy()
    )
    keys = [_Files.recording.name, _Files.file.name]
    first = _Files.ts_ns.col.min().alias(_Files.denied_ns.name)
    works = _Files.outcome.col == "ok"
    denied = files.join(files.filter(_Files.denied.col).group_by(keys).agg(first), on=keys).filter(
        ~works,
        _Files.ts_ns.col > _Files.denied_ns.col,
        _Files.error_text.col.str.contains(_Files.file.col, literal=True),
    )
    damaged = files.filter(_Files.damaged.col).join(files.filter(works), on=keys, how="semi")
    unreadable = marked.filter(_Files.unreadable.col)
    asks = said.str.contains(_UPSTREAM) | error_text.http_status(said).is_not_null()
    upstream = failed.join(unreadable, on=by_tool, how="semi").filter(asks)
    unread = unreadable.join(upstream, on=by_tool, how="semi")
    return calls.with_columns(
        row_mask(found, calls.height).alias(name)
        for name, found in zip(FILE_FACTS, (denied, damaged, unread), strict=True)
    )


_LACKS: Final = r"(?i)method not found|not supported|unsupported"
"""Matches answers of clients to requests that they do not support."""


class _Asked(StageTable):
    """One row per request of a server that its client does not support."""

    recording = Judged.recording
    asked_ns = Column(pl.Int64, "Time of the request.", "ns")
    answer = Column(pl.String, "Text of the client's answer.")


def add_client_lacks(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `client_lacks`: whether the text repeats that the client lacks what the server asked for.

    Servers pass on the client's answer to sampling, elicitation and lists of roots.

    Args:
        calls: calls with their final outcomes.
    """
    rows, text = calls.lazy().with_row_index("row"), Judged.error_text.col
    asked = (
        rows.filter(Judged.dir.col == "s2c", Judged.outcome.col.is_in(FAILED))
        .filter(text.str.contains(_LACKS))
        .select("recording", asked_ns="ts_ns", answer="error_text")
        .sort(_Asked.asked_ns.name)
        .pipe(run_query)
    )
    if not asked.height:
        return calls.with_columns(client_lacks=pl.lit(value=False))
    answered = Judged.ts_ns.col + (Judged.latency_ms.col * 1e6).cast(pl.Int64)
    found = (
        rows.filter(Judged.dir.col == "c2s", Judged.outcome.col.is_in(FAILED))
        .select("row", "recording", "ts_ns", "error_text", answered_ns=answered)
        .sort("answered_ns")
        .join_asof(
            asked.lazy(),
            left_on="answered_ns",
            right_on="asked_ns",
            by="recording",
            check_sortedness=False,
        )
        .filter(
            _Asked.asked_ns.col >= Judged.ts_ns.col,
            text.str.contains(_Asked.answer.col, literal=True),
        )
    )
    return calls.with_columns(row_mask(found, calls.height).alias("client_lacks"))


def record(worked: pl.Expr, failed: pl.Expr) -> pl.Expr:
    """Return an expression for the band of a record: `never`, `seldom`, `mostly` or `always`.

    A record is how often calls return a result; it is null for fewer than `MIN_CALLS` calls.

    Args:
        worked: number of calls that returned a result.
        failed: number of calls that failed.
    """
    calls = worked + failed
    bands = pl.when(calls < MIN_CALLS).then(None).when(worked == 0).then(pl.lit("never"))
    for name, limit in RECORD_SHARES:
        bands = bands.when(worked < limit * calls).then(pl.lit(name))
    return bands.otherwise(pl.lit("always"))
