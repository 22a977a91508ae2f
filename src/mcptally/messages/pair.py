"""Pairs each request with its reply, cancellation and progress to form a call.

A reply answers an open request in the opposite direction with the same id: in the same HTTP
exchange if there is one, else in the same session, else in the same recording. As a last resort,
ids are compared by value only (`1` equals `"1"`), and `match` records this. If several open
requests have the same id, the oldest request is answered first, or, if one of them is never
answered, the newest (`match_ids`).
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.messages.call_tables import PairedCalls, PairedMessages
from mcptally.messages.decode import Events
from mcptally.messages.event_tables import HttpEvents, RawFrames, Replies, RequestParams
from mcptally.messages.sessions import HTTP_FALLBACK, Conversation
from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.calls import MS_PER_NS
from mcptally.tables.formatting import formatted
from mcptally.tables.ids import call_ids
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.transcript.format import NOT_CONNECTED, REFUSED

TIMEOUT_REASON: Final = r"(?i)time[sd]?[ _-]?out|deadline"
"""Matches reasons for a cancellation that mean a timeout, as worded by the TypeScript and Python
SDKs."""
URL_ELICITATION_REQUIRED: Final = -32042
"""Code of the error that requires a sign-in; the call continues after the user has signed in."""

CANCELLED_TEXT: Final = r"(?i)\b(?:cancell?ed|cancell?ation|aborted|abort(?:ed)?error)\b"
"""Matches the texts of errors that servers return for calls that the caller cancelled."""

CANCELLED_CODE: Final = -32800
"""Code of the error for a cancelled call (used by the Python SDK; from the Language Server
Protocol)."""

CONNECTION_CLOSED: Final = -32000
"""Code of the error that the Python SDK sends for subscriptions when the client disconnects."""

DRAFT_TASK: Final = '$._meta["modelcontextprotocol.io/task"]'
"""Path of the task in results from servers that implement a draft of revision 2025-11-25."""

TIME_LIMITS: Final = (*range(1, 11), 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600)
"""Common time limits of clients, in seconds."""

LIMIT_TOLERANCE_MS: Final = (15, 45)
"""Maximum time in milliseconds by which a client closes an exchange before, and after, its time
limit."""

ROUNDS: Final = (
    ("exact", ("recording", "scope")),
    ("exact", ("session",)),
    ("exact", ("recording",)),
    ("loose", ("recording", "scope")),
    ("loose", ("session",)),
)
"""Rounds of pairing, in order: how ids are compared, and which columns must be equal."""


class Paired(msgspec.Struct, frozen=True):
    """Calls, and messages with the ids of their calls."""

    calls: pl.DataFrame
    """The `PairedCalls` table."""
    messages: pl.DataFrame
    """The `PairedMessages` table."""


def pair(events: Events, conversation: Conversation) -> Paired:
    """Pair each request with its reply to form a call, and determine the call's outcome.

    Calls with hidden errors still have the outcome `ok`.
    """
    messages = _mark_replays(conversation.messages)
    pairs = _pairs(messages)
    rows = messages.lazy()
    calls = (
        rows.filter((PairedMessages.kind.col == "request") & ~PairedMessages.replay.col)
        .select("pos")
        .join(pairs.lazy(), left_on="pos", right_on="ask", how="left", maintain_order="left")
        .join(
            rows.select(
                PairedMessages.pos.col.alias("reply"),
                PairedMessages.row.col.alias("reply_row"),
                PairedMessages.ts_ns.col.alias("reply_ns"),
                PairedMessages.bytes.col.alias("response_bytes"),
                (PairedMessages.kind.col == "error").alias("error_reply"),
                PairedMessages.truncated.col.alias("reply_truncated"),
            ),
            on="reply",
            how="left",
            maintain_order="left",
        )
        .join(rows.select(_FROM_MESSAGE), on="pos", how="left", maintain_order="left")
        .pipe(run_query)
    )
    ids = call_ids(
        calls.get_column(PairedCalls.recording.name),
        calls.get_column(PairedCalls.dir.name) == "s2c",
        calls.get_column(PairedCalls.seq.name),
        calls.get_column(PairedCalls.index.name),
    )
    calls = calls.hstack([ids.alias("call_id")])
    calls = _add_params(calls, events)
    [calls] = events.mapped.move([_add_replies(calls, events)])
    calls = _add_refusals(calls, messages, events)
    calls = _add_identity(calls, conversation)
    calls = _add_notifications(calls, messages, events)
    calls = _add_outcome(calls)
    linked = PairedMessages.select(_link_to_calls(messages, calls))
    return Paired(*events.mapped.move([PairedCalls.select(calls), linked]))


_FROM_MESSAGE: Final = PairedCalls.shared_with(PairedMessages)
_FROM_PARAMS: Final = [n for n in PairedCalls.shared_with(RequestParams) if n != "row"]
_FROM_REPLY: Final = [n for n in PairedCalls.shared_with(Replies) if n != "row"]
"""Columns of calls that come from the reply; likewise, those from the request and its parameters.
"""


def match_ids(
    key: npt.NDArray[np.uint64], is_reply: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pair requests and replies by key; return the indexes of the requests and of their replies.

    First, requests and replies with the same key are matched like brackets, to find requests
    without a reply and replies without a request. Among the remaining messages, the n-th reply
    answers the n-th request.

    Args:
        key: each message's key, in order of arrival; equal keys may be paired.
        is_reply: whether each message is a reply.
    """
    order = np.argsort(key, kind="stable")
    keys, replies = key[order], is_reply[order]
    size = keys.size
    if not size:
        return order, order
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    group = np.cumsum(np.concatenate(([False], keys[1:] != keys[:-1])))
    step = np.where(replies, -1, 1)
    depth = np.cumsum(step)
    depth -= (depth[starts] - step[starts])[group]
    # To compute a running minimum per group, shift each group's values below those of all earlier
    # groups.
    shift = group * (2 * size + 2)
    lowest = np.minimum.accumulate(depth - shift) + shift
    floor = np.minimum(lowest, 0)
    level = depth - floor
    previous_floor = np.concatenate(([0], floor[:-1]))
    previous_floor[starts] = 0
    orphan = replies & (floor < previous_floor)
    level = np.where(replies, level + 1, level)
    kept = np.flatnonzero(~orphan)
    nest = kept[np.lexsort((kept, level[kept], group[kept]))]
    same = (group[nest][1:] == group[nest][:-1]) & (level[nest][1:] == level[nest][:-1])
    closes = same & replies[nest][1:] & ~replies[nest][:-1]
    asks = np.sort(nest[:-1][closes])
    answers = np.sort(nest[1:][closes])
    return order[asks], order[answers]


def _mark_replays(messages: pl.DataFrame) -> pl.DataFrame:
    """Add `replay`, which is true if a resumed SSE stream sent the message again.

    A replay has the same session, event id and content as an earlier message. Only exchanges with
    `Last-Event-ID` resume a stream. In other exchanges, equal event ids do not mean a repeated
    message: some servers number the events of each stream from 0, and messages of equal length may
    answer different requests by a client that always uses `id: 1`.
    """
    if messages.get_column(PairedMessages.sse_id.name).null_count() == messages.height:
        return messages.with_columns(replay=pl.lit(value=False))
    content = ["session", "sse_id", "id", "method", "bytes", "dir", "index"]
    resumes = PairedMessages.resumes.col.fill_null(value=True)
    return messages.with_columns(
        replay=pl.when(
            resumes & PairedMessages.sse_id.col.is_not_null() & (PairedMessages.sse_id.col != "")
        )
        .then(pl.int_range(pl.len()).over(content) > 0)
        .otherwise(statement=False)
    )


def _pairs(messages: pl.DataFrame) -> pl.DataFrame:
    """Return the positions of each request (`ask`) and its `reply`, and the kind of `match`."""
    open_ = (
        messages.lazy()
        .filter(
            PairedMessages.kind.col.is_in(["request", "result", "error"])
            & PairedMessages.id_key.col.is_not_null()
            & ~PairedMessages.replay.col
        )
        .select("pos", "recording", "session", "scope", "asker", "kind", "id_key")
        .pipe(run_query)
    )
    asks: list[npt.NDArray[np.uint32]] = []
    replies: list[npt.NDArray[np.uint32]] = []
    for match, place in ROUNDS:
        rows = open_.lazy()
        if match == "loose":
            value = PairedMessages.id_key.col.str.slice(1).cast(pl.Float64, strict=False)
            value = pl.when(value == 0).then(0.0).otherwise(value)  # -0 is 0
            rows = rows.with_columns(id_key=value).drop_nulls("id_key")
            by_id = pl.concat_str(pl.lit("v"), PairedMessages.id_key.col.cast(pl.String))
        else:
            by_id = PairedMessages.id_key.col
        if "scope" in place:
            rows = rows.filter(PairedMessages.scope.col.is_not_null())
        tried = rows.select(
            "pos",
            is_reply=PairedMessages.kind.col != "request",
            key=pl.struct(*place, "asker", by_id.alias("id_key")).hash(),
        ).pipe(run_query)
        positions = tried.get_column(PairedMessages.pos.name).to_numpy()
        opening, closing = match_ids(
            tried.get_column("key").to_numpy(), tried.get_column("is_reply").to_numpy()
        )
        asks.append(positions[opening])
        replies.append(positions[closing])
        if not len(opening):
            continue
        done = np.isin(
            open_.get_column(PairedMessages.pos.name).to_numpy(), (asks[-1], replies[-1])
        )
        open_ = open_[indices(np.flatnonzero(~done))]
        if not open_.height:
            break
    return pl.DataFrame(
        {
            "ask": series_from_numpy(np.concatenate(asks)),
            "reply": series_from_numpy(np.concatenate(replies)),
            "match": pl.concat(
                pl.Series([match], dtype=pl.String).new_from_index(0, len(each))
                for (match, _), each in zip(ROUNDS, asks, strict=False)
            ),
        },
        schema={"ask": pl.UInt32, "reply": pl.UInt32, "match": pl.String},
    )


def _add_params(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Add the parameters of each request to its call."""
    asks = events.asks.lazy().select(
        "row", *_FROM_PARAMS, asked_version="protocol_version", traceparent="meta_traceparent"
    )
    method, name = PairedCalls.method.col, PairedCalls.name.col
    return left_join_columns(calls, asks, "row").with_columns(
        tool=pl.when(method == "tools/call").then(name),
        prompt=pl.when(method == "prompts/get").then(name),
        resource_uri=pl.when(method.str.starts_with("resources/")).then(PairedCalls.uri.col),
    )


def _add_replies(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Add the content of each reply to its call, and the call's latency."""
    replies = events.replies.lazy().select(
        PairedCalls.row.col.alias("reply_row"),
        *_FROM_REPLY,
        reply_state="request_state",
        reply_version="protocol_version",
    )
    calls = left_join_columns(calls, replies, "reply_row")
    if calls.get_column(PairedCalls.reply_truncated.name).any():
        # Only the head of a truncated frame is known, so set all other columns to null.
        not_in_head = [name for name in _FROM_REPLY if name != "is_error"]
        whole = ~PairedCalls.reply_truncated.col.fill_null(value=False)
        calls = calls.with_columns(pl.when(whole).then(pl.col(not_in_head)))
    return _add_draft_tasks(calls).with_columns(
        # The time is 0 in imported events if their source had no times.
        latency_ms=pl.when(PairedCalls.ts_ns.col > 0).then(
            (PairedCalls.reply_ns.col - PairedCalls.ts_ns.col) * MS_PER_NS
        ),
        request_bytes=PairedCalls.bytes.col,
    )


def _add_draft_tasks(calls: pl.DataFrame) -> pl.DataFrame:
    """Add the tasks in the `_meta` of replies, as in the draft that FastMCP 2.14 implements."""
    empty = PairedCalls.has_meta.col & (PairedCalls.content_types.col.list.len() == 0)
    drafts = (
        calls.lazy()
        .filter(empty, PairedCalls.task.col.is_null(), PairedCalls.method.col == "tools/call")
        .select("pos", draft=PairedCalls.response.col.str.json_path_match(DRAFT_TASK))
        .drop_nulls("draft")
        .pipe(run_query)
    )
    if not drafts.height:
        return calls
    return left_join_columns(calls, drafts, "pos").with_columns(
        task=pl.coalesce(PairedCalls.task.col, "draft")
    )


def _add_refusals(calls: pl.DataFrame, messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Add what a server answered that rejected the HTTP exchange of a call.

    An error without an id, or a text that is not JSON-RPC, is not a reply: the call has no reply,
    although the client was answered.
    """
    place = ["recording", "scope"]
    errors = (
        messages.lazy()
        .filter(
            (PairedMessages.kind.col == "error")
            & PairedMessages.scope.col.is_not_null()
            & PairedMessages.id_key.col.is_null()
        )
        .select("row", *place)
        .join(
            events.replies.lazy().select("row", refused="error_message", refusal_code="error_code"),
            on="row",
        )
        .unique(place, keep="none")
        .drop("row")
    )
    bodies = (
        events.raws.lazy()
        .filter(RawFrames.dir.col == "s2c", RawFrames.scope.col.is_not_null())
        .filter(
            ~RawFrames.text.col.str.contains(r"^\s*<")
        )  # a web page says no more than its status
        .select(*place, refusal_body=RawFrames.text.col.str.head(_MAX_BODY))
    )
    # The text of the recorder's own answers is not recorded, but why it gave them.
    answer = (
        pl.when(HttpEvents.status.col == 502).then(pl.lit(NOT_CONNECTED)).otherwise(pl.lit(REFUSED))
    )
    own = (
        events.http.lazy()
        .filter(HttpEvents.phase.col == "response", HttpEvents.status.col >= 400)
        .drop_nulls("why")
        .select(
            *place,
            refusal_body=pl.concat_str(answer, pl.col("why").str.head(_MAX_BODY), separator=": "),
        )
    )
    bodies = pl.concat([own, bodies]).unique(place, keep="first", maintain_order=True)
    refusals = errors.join(bodies, on=place, how="full", coalesce=True).pipe(run_query)
    return left_join_columns(calls, refusals, *place)


_MAX_BODY: Final = 1_000
"""Maximum length of a response body that is kept as error text, in characters."""


def _http_refusal() -> pl.Expr:
    status = formatted("HTTP {}", PairedCalls.http_status.col)
    return pl.when(PairedCalls.http_status.col >= 400).then(
        pl.concat_str(status, PairedCalls.refusal_body.col, separator=": ", ignore_nulls=True)
    )


def _add_identity(calls: pl.DataFrame, conversation: Conversation) -> pl.DataFrame:
    """Add the server, the client and the protocol revision in force to each call."""
    handshakes = (
        calls.lazy()
        .filter(
            (PairedCalls.method.col == "initialize") & PairedCalls.reply_version.col.is_not_null()
        )
        .select("session", "reply", handshake="reply_version")
        .sort("reply")
    )
    if not calls.get_column(PairedCalls.pos.name).is_sorted():
        calls = calls.sort("pos")
    last_handshake = (
        calls.lazy()
        .select("pos", "session")
        .join_asof(
            handshakes, left_on="pos", right_on="reply", by="session", check_sortedness=False
        )
        .select("handshake")
        .pipe(run_query)
    )
    calls = calls.hstack(last_handshake)
    calls = left_join_columns(calls, conversation.sessions, "session")
    recordings = conversation.recordings.lazy().select(
        "recording", "transport", "server", command=pl.coalesce("command", "url")
    )
    calls = left_join_columns(calls, recordings, "recording")
    handshake = pl.coalesce(
        pl.when(PairedCalls.method.col == "initialize").then(
            pl.coalesce("reply_version", "asked_version")
        ),
        "handshake",
        "negotiated",
    )
    on_http = PairedCalls.scope.col.is_not_null()
    revisions = {
        "header": PairedCalls.header_version.col,
        "meta": PairedCalls.meta_protocol_version.col,
        "handshake": handshake,
        "fallback": pl.when(on_http).then(pl.lit(HTTP_FALLBACK)),
    }
    return calls.with_columns(
        protocol_version=pl.coalesce(*revisions.values()),
        protocol_source=pl.coalesce(
            *(pl.when(value.is_not_null()).then(pl.lit(name)) for name, value in revisions.items())
        ),
    )


def _add_notifications(calls: pl.DataFrame, messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Add the cancellation and the progress of each call."""
    notifications = (
        messages.lazy()
        .filter(
            PairedCalls.method.col.is_in(["notifications/cancelled", "notifications/progress"])
            & ~PairedCalls.replay.col
        )
        .select("pos", "row", "session", "dir", "method", "ts_ns")
        .join(
            events.asks.lazy().select("row", "request_id", "progress_token", "reason"),
            on="row",
            how="left",
            maintain_order="left",
        )
        .pipe(run_query)
    )
    cancelled = (
        _find_calls(notifications, "notifications/cancelled", "request_id", calls, "id")
        .group_by("call_id")
        .agg(
            cancelled_ns=PairedCalls.ts_ns.col.min(),
            cancel_reason=RequestParams.reason.col.drop_nulls().first(),
        )
    )
    progress = (
        _find_calls(
            notifications, "notifications/progress", "progress_token", calls, "meta_progress_token"
        )
        .group_by("call_id")
        .agg(progress_ns=PairedCalls.ts_ns.col.min(), progress_count=pl.len())
    )
    calls = left_join_columns(left_join_columns(calls, cancelled, "call_id"), progress, "call_id")
    return calls.with_columns(
        PairedCalls.progress_count.col.fill_null(0),
        first_progress_ms=(PairedCalls.progress_ns.col - PairedCalls.ts_ns.col) * MS_PER_NS,
    )


def _find_calls(
    notifications: pl.DataFrame, method: str, name: str, calls: pl.DataFrame, token: str
) -> pl.LazyFrame:
    """Return a method's notifications, each with the latest preceding call to which it refers.

    Args:
        notifications: notifications and their parameters.
        method: the method, which determines whether the sender or the receiver made the call.
        name: the parameter that identifies the call.
        calls: calls in both directions.
        token: the column of `calls` with which the parameter is compared.
    """
    asker = PairedCalls.dir.col
    if method == "notifications/progress":
        asker = pl.when(asker == "c2s").then(pl.lit("s2c")).otherwise(pl.lit("c2s"))
    return (
        notifications.lazy()
        .filter(
            PairedCalls.method.col == method, pl.col(name) != "null"
        )  # A null id refers to no call.
        .with_columns(asker=asker, named=pl.col(name))
        .sort("pos")
        .join_asof(
            calls.lazy()
            .select("pos", "session", "call_id", asker="dir", named=token)
            .drop_nulls("named")
            .sort("pos"),
            on="pos",
            by=["session", "asker", "named"],
            check_sortedness=False,
        )
        .drop_nulls("call_id")
    )


def _add_outcome(calls: pl.DataFrame) -> pl.DataFrame:
    """Add the outcome of each call; hidden errors are found later.

    The first condition that is true determines the outcome.
    """
    answered = PairedCalls.reply.col.is_not_null()
    names_timeout = PairedCalls.cancel_reason.col.str.contains(TIMEOUT_REASON)
    # A client may close an exchange as soon as it has read the status of a refusal.
    gone = (PairedCalls.closed_by.col == "client") & ~(
        PairedCalls.http_status.col >= 400
    ).fill_null(value=False)
    # A subscription stays open until either side ends it, so its end is neither a failure nor a
    # timeout.
    subscribes = PairedCalls.method.col == "subscriptions/listen"
    timed_out = PairedCalls.http_status.col.is_in([408, 504]) | (
        ~subscribes & (names_timeout | (gone & _closed_at_time_limit()))
    )
    cancelled = PairedCalls.cancelled_ns.col.is_not_null() | gone | subscribes
    asks_to_sign_in = PairedCalls.error_code.col.fill_null(0) == URL_ELICITATION_REQUIRED
    closed = PairedCalls.error_code.col.fill_null(0) == CONNECTION_CLOSED
    stopped = answered & (_says_cancelled() | (subscribes & closed))
    is_task = (PairedCalls.result_type.col == "task") | (
        PairedCalls.task.col.is_not_null() & (PairedCalls.content_types.col.list.len() == 0)
    )
    decided = calls.lazy().with_columns(
        outcome=pl.when(stopped & names_timeout)
        .then(pl.lit("timeout"))
        .when(stopped)
        .then(pl.lit("cancelled"))
        .when(answered & PairedCalls.error_reply.col & asks_to_sign_in)
        .then(pl.lit("input_required"))
        .when(answered & PairedCalls.error_reply.col)
        .then(pl.lit("protocol_error"))
        .when(answered & (PairedCalls.is_error.col == "true"))
        .then(pl.lit("tool_error"))
        .when(answered & (PairedCalls.result_type.col == "input_required"))
        .then(pl.lit("input_required"))
        .when(answered & is_task)
        .then(pl.lit("task"))
        .when(answered & PairedCalls.reply_truncated.col & PairedCalls.is_error.col.is_null())
        .then(pl.lit("unknown"))
        .when(answered)
        .then(pl.lit("ok"))
        .when(timed_out)
        .then(pl.lit("timeout"))
        .when(cancelled)
        .then(pl.lit("cancelled"))
        .otherwise(pl.lit("no_response")),
    )
    gave_up = PairedCalls.outcome.col.is_in(["timeout", "cancelled"])
    decided = decided.with_columns(
        # A server's reply after a cancellation shows nothing about the call.
        pl.when(~(answered & gave_up)).then(PairedCalls.latency_ms.name),
        error_text=pl.when(answered & gave_up)
        .then(None)
        .when(PairedCalls.error_reply.col)
        .then(PairedCalls.error_message.col)
        .when((PairedCalls.is_error.col == "true") & PairedCalls.text.col.is_not_null())
        .then(PairedCalls.text.col)
        # Don't use `coalesce`, which would copy every call's structured content.
        .when(PairedCalls.is_error.col == "true")
        .then(PairedCalls.structured_content.col)
        .when(~answered)
        .then(pl.coalesce(PairedCalls.refused.col, _http_refusal())),
        error_code=pl.when(answered & ~gave_up)
        .then(PairedCalls.error_code.name)
        .when(~answered)
        .then("refusal_code"),
    )
    return decided.pipe(run_query)


def _closed_at_time_limit() -> pl.Expr:
    """Return an expression that is true if the client closed the exchange at a common time limit.

    Over HTTP in 2026-07-28, a client can cancel only by closing the exchange, without a reason.
    """
    before, after = LIMIT_TOLERANCE_MS
    waited = (PairedCalls.closed_ns.col - PairedCalls.ts_ns.col) // 10**6 + before
    return (
        (PairedCalls.closed_by.col == "client")
        & PairedCalls.cancelled_ns.col.is_null()
        & (waited // 1000).is_in(TIME_LIMITS)
        & (waited % 1000 <= before + after)
    ).fill_null(value=False)


def _says_cancelled() -> pl.Expr:
    """Return an expression that is true if the reply is an error about a cancelled call."""
    text = (
        pl.when(PairedCalls.error_reply.col)
        .then(PairedCalls.error_message.col)
        .when(PairedCalls.is_error.col == "true")
        .then(PairedCalls.first_text.col)
    )
    cancelled_before = PairedCalls.cancelled_ns.col <= PairedCalls.reply_ns.col
    return (
        (PairedCalls.error_code.col == CANCELLED_CODE)
        | (cancelled_before & text.str.contains(CANCELLED_TEXT))
    ).fill_null(value=False)


def _link_to_calls(messages: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add to each message the id of its call and, if it is a reply, how the match was found."""
    rows = calls.lazy()
    asks = rows.select("pos", "call_id")
    replies = rows.select(
        PairedCalls.reply.col.alias("pos"),
        PairedMessages.call_id.col.alias("answers"),
        "match",
        "cancelled_ns",
    ).drop_nulls("pos")
    is_reply = PairedMessages.kind.col.is_in(["result", "error"])
    linked = left_join_columns(left_join_columns(messages, asks, "pos"), replies, "pos")
    # Replies without an open request: either their id was already answered, or no request has it.
    answered = (
        rows.select("pos", "session", "id_key", asker="dir", earlier="call_id")
        .drop_nulls("id_key")
        .sort("pos")
    )
    strays = (
        linked.lazy()
        .filter(is_reply & pl.col("answers").is_null() & PairedMessages.id_key.col.is_not_null())
        .select("pos", "session", "asker", "id_key")
        .sort("pos")
        .join_asof(answered, on="pos", by=["session", "asker", "id_key"], check_sortedness=False)
        .select("pos", "earlier")
    )
    return left_join_columns(linked, strays, "pos").with_columns(
        call_id=pl.coalesce("call_id", "answers", "earlier"),
        match=pl.when(is_reply).then(
            pl.when(PairedMessages.replay.col)
            .then(pl.lit("replay"))
            .when(
                pl.col("answers").is_not_null()
                & (PairedCalls.cancelled_ns.col < PairedMessages.ts_ns.col)
            )
            .then(pl.lit("late"))
            .when(pl.col("answers").is_not_null())
            .then(PairedMessages.match.col)
            .when(pl.col("earlier").is_not_null())
            .then(pl.lit("second"))
            .otherwise(pl.lit("orphan"))
        ),
    )
