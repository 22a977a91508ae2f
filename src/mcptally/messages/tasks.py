"""Sets the outcome of each call that started a task to the task's final state.

calls → calls: calls that started tasks have the tasks' outcomes; requests about tasks are polls

A task ends with a result (`tasks/result` in 2025-11-25, a member of `tasks/get` and
`notifications/tasks` in 2026-07-28) or just with a status. See docs/design/operations.md.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw

from mcptally.messages.call_tables import PairedCalls, PairedMessages
from mcptally.messages.content_blocks import RESULT_DECODER, result_columns
from mcptally.messages.decode import Events
from mcptally.messages.event_tables import RequestParams
from mcptally.messages.struct_columns import frame_of, scalar_columns
from mcptally.tables.arrow import indices
from mcptally.tables.calls import MS_PER_NS
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.queries import run_query
from mcptally.transcript.events import ABSENT, ERROR_DECODER, Error, LenientDecoder

ABOUT_TASK: Final = ("tasks/get", "tasks/result", "tasks/update", "tasks/cancel")
"""Methods of requests about a task."""

_NOTIFICATIONS: Final = ("notifications/tasks/status", "notifications/tasks")
_REFUSALS: Final = (-32600, -32601, -32602)
"""Codes of errors for requests about tasks that the server does not know or does not support."""

_UNANSWERED: Final = ("timeout", "cancelled", "no_response")
_TASK: Final = ("recording", "asker", "task_id")


class _State(msgspec.Struct, gc=False, rename="camel"):
    """A task in a result or notification of either revision."""

    task_id: str | None = None
    status: str | None = None
    status_message: str | None = None
    task: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class _Reports(StageTable):
    """One row per frame that reports a task's state."""

    i = Column(pl.UInt32, "Index of the request; null for a notification.")
    pos = PairedMessages.pos
    recording = PairedMessages.recording
    asker = PairedMessages.asker
    task_id = PairedCalls.task_id
    ns = Column(pl.Int64, "Time of the frame.", "ns")
    bytes = PairedMessages.bytes
    status = Column(pl.String, "Status of the task.")
    note = Column(pl.String, "Message about the status.")
    result = Column(pl.String, "JSON text of the result of the task.")
    error = Column(pl.String, "JSON text of the error of the task or of the request.")
    refusal = Column(pl.Boolean, "Whether the error is that of a server that knows no such task.")
    cancels = Column(pl.Boolean, "Whether the request cancelled the task.")
    unanswered = Column(pl.String, "Outcome of the last request, if it has no answer.")


class _Ends(_Reports):
    """One row per task, with the frame that best reports how the task ended."""

    started = Column(pl.UInt32, "Index of the call that started the task.")
    seen_to_end = Column(pl.Boolean, "Whether a frame says that the task was completed or failed.")
    failed = Column(pl.Boolean, "Whether a frame says that the task failed.")
    failure = Column(pl.String, "Message about that status.")
    rank = Column(pl.Int32, "How well the frame tells the end, from 0.")
    asked = Column(pl.Int64, "Time of the call that started the task.", "ns")
    told_by = Column(pl.UInt32, "Index of the request that tells the end.")


_STATE_DECODER: Final = LenientDecoder(_State)


def settle_tasks(calls: pl.DataFrame, messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Give each call that started a task the outcome, response and latency of the task.

    A call retains the outcome `task` if the recording does not show how its task ended. Answered
    requests about tasks get the outcome `poll`.

    Args:
        calls: `PairedCalls`; additional columns are retained.
        messages: `PairedMessages`.
        events: the decoded events.
    """
    methods = calls.get_column(PairedCalls.method.name)
    starts = (calls.get_column(PairedCalls.outcome.name) == "task").any()
    if not starts and not any((methods == name).any() for name in ABOUT_TASK):
        return calls
    method, outcome = PairedCalls.method.col, PairedCalls.outcome.col
    rows = calls.with_row_index("i").lazy()
    is_about = method.is_in(ABOUT_TASK)
    started = rows.filter((outcome == "task") & ~is_about).pipe(run_query)
    about = rows.filter(is_about).pipe(run_query)
    tasks = _started(started)
    frames = pl.concat([_reports_in_replies(about), _reports_in_notifications(messages, events)])
    ends = (
        frames.lazy()
        .join(tasks.lazy(), on=_TASK)
        .with_columns(
            seen_to_end=_Reports.status.col.is_in(["completed", "failed"]).any().over("started"),
            failed=(_Reports.status.col == "failed").any().over("started"),
            failure=_Reports.note.col.filter(_Reports.status.col == "failed")
            .last()
            .over("started"),
        )
        .with_columns(rank=_rank())
        .drop_nulls("rank")
        .sort("rank", "pos")
        .unique("started", keep="first", maintain_order=True)
        .pipe(run_query)
    )
    unknown = pl.lit(None, PairedCalls.latency_ms.dtype)
    calls = _replace(calls, tasks.select(i="started", task_id="task_id", latency_ms=unknown))
    if ends.height:
        calls = _replace(calls, _columns_of_ends(ends, calls))
    polls = (
        about.lazy()
        .with_columns(asker="dir")
        .join(tasks.lazy(), on=_TASK, how="left")
        .join(ends.lazy().select("started", told_by="i"), on="started", how="left")
        .filter(
            outcome.is_in(["ok", "task"])
            | (_Ends.started.col.is_not_null() & (outcome == "tool_error"))
            | (_Ends.told_by.col == _Reports.i.col)
        )
        .select("i", outcome=pl.lit("poll"), error_text=pl.lit(None, pl.String))
        .pipe(run_query)
    )
    return _replace(calls, polls)


def _started(calls: pl.DataFrame) -> pl.DataFrame:
    """Return one row per task: its key, and the index of the call that started it (`started`)."""
    flat, nested = (
        _states(calls.get_column(PairedCalls.response.name)),
        _states(calls.get_column(PairedCalls.task.name)),
    )
    ids = pl.select(
        pl.coalesce(
            nested.get_column(_Reports.task_id.name), flat.get_column(_Reports.task_id.name)
        )
    ).to_series()
    keys = calls.select("recording", "dir").hstack(
        [ids, calls.get_column(_Reports.i.name).alias("started")]
    )
    return (
        keys.rename({"dir": "asker"})
        .drop_nulls("task_id")
        .unique(_TASK, keep="first", maintain_order=True)
    )


def _reports_in_replies(about: pl.DataFrame) -> pl.DataFrame:
    """Return the task states in the replies to requests about tasks, with one row per request."""
    method, outcome = PairedCalls.method.col, PairedCalls.outcome.col
    states = _states(about.get_column(PairedCalls.response.name)).drop("task_id", "task")
    fetched = method == "tasks/result"
    answered = PairedCalls.reply.col.is_not_null()
    refused = fetched & (outcome == "protocol_error")
    last = PairedCalls.pos.col == PairedCalls.pos.col.max().over("recording", "dir", "task_id")
    return (
        about.hstack(states)
        .lazy()
        .select(
            "i",
            "pos",
            "recording",
            PairedCalls.dir.col.alias("asker"),
            "task_id",
            ns=pl.coalesce("reply_ns", "cancelled_ns"),
            bytes="response_bytes",
            status=pl.when(~fetched & answered).then("status"),
            note=pl.when(~fetched).then("status_message"),
            result=pl.when(fetched)
            .then(pl.when(answered & ~PairedCalls.error_reply.col).then("response"))
            .otherwise("result"),
            error=pl.when(refused).then("response").when(~fetched).then("error"),
            refusal=refused & PairedCalls.error_code.col.is_in(_REFUSALS).fill_null(value=False),
            cancels=(method == "tasks/cancel") & (outcome == "ok"),
            unanswered=pl.when(last & outcome.is_in(_UNANSWERED)).then(outcome),
        )
        .pipe(run_query)
    )


def _reports_in_notifications(messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Return the task states in notifications, with the same columns as `_reports_in_replies`."""
    told = (
        messages.lazy()
        .filter(PairedMessages.method.col.is_in(_NOTIFICATIONS) & ~PairedMessages.replay.col)
        .join(events.asks.lazy().select("row", RequestParams.params.name), on="row")
        .pipe(run_query)
    )
    to_client = PairedMessages.dir.col == "s2c"
    return (
        told.drop("task_id", strict=False)
        .hstack(_states(told.get_column(RequestParams.params.name)))
        .lazy()
        .select(
            pl.lit(None, pl.UInt32).alias("i"),
            "pos",
            "recording",
            pl.when(to_client).then(pl.lit("c2s")).otherwise(pl.lit("s2c")).alias("asker"),
            "task_id",
            ns="ts_ns",
            bytes="bytes",
            status="status",
            note="status_message",
            result="result",
            error="error",
            refusal=pl.lit(value=False),
            cancels=pl.lit(value=False),
            unanswered=pl.lit(None, pl.String),
        )
        .pipe(run_query)
    )


def _rank() -> pl.Expr:
    """Return an expression that ranks frames by how well they report a task's end.

    The best rank is 0; the rank is null for frames that report no end.
    """
    status = _Reports.status.col
    error_of_task = _Reports.error.col.is_not_null() & (
        _Ends.seen_to_end.col | ~_Reports.refusal.col
    )
    return (
        pl.when(status == "cancelled")
        .then(0)
        .when(_Reports.result.col.is_not_null() | error_of_task)
        .then(1)
        .when(status.is_in(["completed", "failed"]))
        .then(2)
        .when("cancels")
        .then(3)
        .when(_Reports.unanswered.col.is_not_null())
        .then(4)
    )


def _columns_of_ends(ends: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return new values for the columns of the calls that started tasks; `i` is a call's index."""
    rank = _Ends.rank.col
    told = ends.with_columns(
        cancelled=rank.is_in([0, 3]),
        unanswered=pl.when(rank == 4).then("unanswered"),
        result=pl.when(rank == 1).then("result"),
        error=pl.when((rank == 1) & _Reports.result.col.is_null()).then("error"),
    )
    results = RESULT_DECODER.many(_raws(told.get_column(_Reports.result.name)))[0]
    errors = ERROR_DECODER.many(_raws(told.get_column(_Reports.error.name)))[0]
    described = result_columns(results) | scalar_columns(errors, Error)
    polls = calls.select(pl.col(_OF_POLL).gather(told.get_column(_Reports.i.name)))
    asked = calls.get_column(PairedCalls.ts_ns.name)[told.get_column(_Ends.started.name)].alias(
        "asked"
    )
    told = told.drop("i").hstack(
        [
            asked,
            *frame_of(described).select(pl.all().name.prefix("of_")),
            *polls.select(pl.all().name.prefix("poll_")),
        ]
    )
    refused = _Reports.error.col.is_not_null()
    # The result of a failed task may not show the failure: the Python SDK 1.x sends an empty
    # result.
    failed = (pl.col("of_is_error") == "true") | (rank.is_in([1, 2]) & _Ends.failed.col)
    ended = rank.is_in([1, 2])
    return told.select(
        i="started",
        outcome=pl.when("cancelled")
        .then(pl.lit("cancelled"))
        .when(refused)
        .then(pl.lit("protocol_error"))
        .when(failed)
        .then(pl.lit("tool_error"))
        .otherwise(pl.coalesce("unanswered", pl.lit("ok"))),
        error_text=pl.when(refused)
        .then("of_message")
        .when(failed)
        .then(pl.coalesce("of_text", "of_structured_content", "failure")),
        error_code="of_code",
        error_message="of_message",
        error_data="of_data",
        error_reply=refused,
        result_type=pl.lit("complete"),
        response=pl.coalesce("result", "error"),
        response_bytes=pl.when(ended).then("bytes"),
        reply=pl.when(ended).then("pos"),
        reply_ns=pl.when(ended).then("ns"),
        latency_ms=pl.when(ended & (_Ends.asked.col > 0)).then(
            (_Reports.ns.col - _Ends.asked.col) * MS_PER_NS
        ),
        cancelled_ns=pl.when("cancelled").then("ns").otherwise("poll_cancelled_ns"),
        cancel_reason=pl.when("cancelled").then("note").otherwise("poll_cancel_reason"),
        closed_by="poll_closed_by",
        http_status="poll_http_status",
        **{
            name: pl.when(_Reports.result.col.is_not_null()).then(f"of_{name}")
            for name in _OF_RESULT
        },
    )


_OF_POLL: Final = ("cancelled_ns", "cancel_reason", "closed_by", "http_status")
_OF_RESULT: Final = (
    *("is_error", "structured_content", "content_kind", "content_types", "blocks_plain"),
    *("text_blocks", "image_blocks", "audio_blocks", "resource_blocks", "first_text", "text"),
    *("has_structured_content", "has_meta"),
)


def _states(texts: pl.Series) -> pl.DataFrame:
    """Decode JSON texts as `_State`, and return one column per field."""
    # Append an empty state, because columns made from an empty list would have no types.
    states = [*_STATE_DECODER.many(_raws(texts))[0], _State()]
    return pl.DataFrame(scalar_columns(states, _State)).head(texts.len())


def _raws(texts: pl.Series) -> Sequence[Raw]:
    return [Raw(text) for text in texts.fill_null("{}")]


def _replace(calls: pl.DataFrame, changed: pl.DataFrame) -> pl.DataFrame:
    """Overwrite the rows `i` of `calls` with values from `changed`, without copying texts."""
    rows = np.arange(calls.height)
    rows[changed.get_column(_Reports.i.name).to_numpy()] = calls.height + np.arange(changed.height)
    values = changed.drop(_Reports.i.name)
    known = calls[values.columns]
    return calls.with_columns(pl.concat([known, values.cast(known.schema)])[indices(rows)])
