"""Messages to calls: every request meets its reply, its cancellation and its progress.

A reply belongs to a request of the opposite direction with the same id: in the same HTTP exchange
if one is open there, else in the same session, else in the same recording; by value only (`1` for
`"1"`) as a last, flagged resort. Of several open requests with one id the oldest is answered
first, unless one of them is never answered; then the newest ones are (`match_ids`).
"""

import dataclasses
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.messages.decode import Events
from mcptally.messages.sessions import HTTP_FALLBACK, Conversation
from mcptally.tables.ids import call_ids
from mcptally.tables.joins import left_join_columns

TIMEOUT_REASON: Final = r"(?i)time[sd]?[ _-]?out|deadline"
"""A cancellation whose reason matches is a timeout (TypeScript and Python SDKs word it so)."""

ROUNDS: Final = (
    ("exact", ("recording", "scope")),
    ("exact", ("session",)),
    ("exact", ("recording",)),
    ("loose", ("recording", "scope")),
    ("loose", ("session",)),
)
"""Rounds of pairing: how the id must match, and within what."""


@dataclasses.dataclass(frozen=True, slots=True)
class Paired:
    """Calls, and the messages with the call each belongs to."""

    calls: pl.DataFrame
    messages: pl.DataFrame


def pair(events: Events, talk: Conversation) -> Paired:
    """Every request as a call with what came of it, up to `outcome` `ok` (not yet judged)."""
    messages = _mark_replays(talk.messages)
    pairs = _pairs(messages)
    asked = (pl.col("kind") == "request") & ~pl.col("replay")
    asks = messages.filter(asked).select("pos", "row")
    calls = (
        asks.join(pairs, left_on="pos", right_on="ask", how="left", maintain_order="left")
        .join(
            messages.select(
                pl.col("pos").alias("reply"),
                pl.col("row").alias("reply_row"),
                pl.col("ts_ns").alias("reply_ns"),
                pl.col("bytes").alias("response_bytes"),
                (pl.col("kind") == "error").alias("error_reply"),
                pl.col("truncated").alias("reply_truncated"),
            ),
            on="reply",
            how="left",
            maintain_order="left",
        )
        .join(messages.drop(_OF_MESSAGES), on="pos", how="left", maintain_order="left")
    )
    calls = calls.with_columns(
        call_ids(
            calls.get_column("recording"),
            calls.get_column("dir") == "s2c",
            calls.get_column("seq"),
            calls.get_column("index"),
        ).alias("call_id")
    )
    calls = _with_asks(calls, events)
    calls = _with_replies(calls, events)
    calls = _with_refusals(calls, messages, events)
    calls = _with_identity(calls, talk)
    calls = _with_notifications(calls, messages, events)
    calls = _with_outcome(calls)
    return Paired(calls, _linked(messages, calls))


_OF_MESSAGES: Final = (
    *("row", "sse_id", "redacted", "batch", "jsonrpc", "has_result", "has_error", "resumes"),
    *("kind", "asker"),
)
"""Columns of messages that nothing asks of calls."""


def match_ids(
    key: npt.NDArray[np.uint64], is_reply: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which request (index) each reply (index) answers; both given in order of arrival.

    Requests and replies of one key are read as brackets: a request that no reply closes is never
    answered, a reply with nothing open is an orphan. What remains is balanced, and there the
    n-th reply answers the n-th request.
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
    # Running minimum within each group: shift every group below all groups before it.
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
    """A message that an SSE resumption sent again: same session, event id and content.

    Only an exchange with `Last-Event-ID` resumes one: elsewhere the same event id is the next
    stream's, for servers that count the events of each stream from 0, and with the same id and
    length it is the next reply of a client that says `id: 1` every time.
    """
    if messages.get_column("sse_id").null_count() == messages.height:
        return messages.with_columns(replay=pl.lit(value=False))
    again = ["session", "sse_id", "id", "method", "bytes", "dir", "index"]
    resumes = pl.col("resumes").fill_null(value=True)
    return messages.with_columns(
        replay=pl.when(resumes & pl.col("sse_id").is_not_null() & (pl.col("sse_id") != ""))
        .then(pl.int_range(pl.len()).over(again) > 0)
        .otherwise(statement=False)
    )


def _pairs(messages: pl.DataFrame) -> pl.DataFrame:
    """`ask` and `reply` positions, and the `match` that brought them together."""
    open_ = messages.filter(
        pl.col("kind").is_in(["request", "result", "error"])
        & pl.col("id_key").is_not_null()
        & ~pl.col("replay")
    ).select("pos", "recording", "session", "scope", "asker", "kind", "id_key")
    found = []
    for match, place in ROUNDS:
        rows = open_
        if match == "loose":
            value = pl.col("id_key").str.slice(1).cast(pl.Float64, strict=False)
            value = pl.when(value == 0).then(0.0).otherwise(value)  # -0 is 0
            rows = rows.with_columns(id_key=value).drop_nulls("id_key")
            by_id = pl.concat_str(pl.lit("v"), pl.col("id_key").cast(pl.String))
        else:
            by_id = pl.col("id_key")
        if "scope" in place:
            rows = rows.filter(pl.col("scope").is_not_null())
        if not rows.height:
            continue
        key = rows.select(pl.struct(*place, "asker", by_id.alias("id_key")).hash()).to_series()
        is_reply = (rows.get_column("kind") != "request").to_numpy()
        asks, replies = match_ids(key.to_numpy(), is_reply)
        positions = rows.get_column("pos").to_numpy()
        found.append(
            pl.DataFrame(
                {"ask": positions[asks], "reply": positions[replies]},
                schema={"ask": pl.UInt32, "reply": pl.UInt32},
            ).with_columns(match=pl.lit(match))
        )
        done = np.concatenate((positions[asks], positions[replies]))
        open_ = open_.filter(~pl.col("pos").is_in(pl.Series(done).implode()))
        if not open_.height:
            break
    schema = {"ask": pl.UInt32, "reply": pl.UInt32, "match": pl.String}
    return pl.concat([pl.DataFrame(schema=schema), *found])


def _with_asks(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """What each call asks for."""
    asks = events.asks.select(
        "row",
        "name",
        "uri",
        "arguments",
        "request_state",
        "input_responses",
        "task_id",
        "meta_progress_token",
        "meta_protocol_version",
        "meta_client_info",
        asked_version="protocol_version",
    )
    method, name = pl.col("method"), pl.col("name")
    return left_join_columns(calls, asks, "row").with_columns(
        tool=pl.when(method == "tools/call").then(name),
        prompt=pl.when(method == "prompts/get").then(name),
        resource_uri=pl.when(method.str.starts_with("resources/")).then(pl.col("uri")),
    )


_FROM_REPLY: Final = (
    *("response", "is_error", "structured_content", "result_type", "task", "tools"),
    *("content_kind", "content_types", "blocks_plain", "text_blocks", "image_blocks"),
    *("audio_blocks", "resource_blocks", "first_text", "text", "has_structured_content"),
    *("has_meta", "error_code", "error_message", "error_data"),
)


def _with_replies(calls: pl.DataFrame, events: Events) -> pl.DataFrame:
    """What each call was answered, and when."""
    replies = events.replies.select(
        pl.col("row").alias("reply_row"),
        *_FROM_REPLY,
        reply_state="request_state",
        reply_version="protocol_version",
    )
    calls = left_join_columns(calls, replies, "reply_row")
    if calls.get_column("reply_truncated").any():
        # Of a frame over the recorder's cap only the head is known: null, not guessed.
        unseen = [name for name in _FROM_REPLY if name != "is_error"]
        seen = ~pl.col("reply_truncated").fill_null(value=False)
        calls = calls.with_columns(pl.when(seen).then(pl.col(unseen)))
    return calls.with_columns(
        # 0 is the time of an imported event whose source has none.
        latency_ms=pl.when(pl.col("ts_ns") > 0).then((pl.col("reply_ns") - pl.col("ts_ns")) / 1e6),
        request_bytes=pl.col("bytes"),
    )


def _with_refusals(calls: pl.DataFrame, messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """The error without an id that an HTTP exchange was refused with.

    It answers no request by the rules of ids, and the call stays without a reply; but what it
    says is what the client of that exchange was told.
    """
    refusals = (
        messages.filter(
            (pl.col("kind") == "error") & pl.col("scope").is_not_null() & pl.col("id_key").is_null()
        )
        .select("row", "recording", "scope")
        .join(
            events.replies.select("row", refused="error_message", refusal_code="error_code"),
            on="row",
        )
        .unique(["recording", "scope"], keep="none")
        .drop("row")
    )
    return left_join_columns(calls, refusals, "recording", "scope")


def _with_identity(calls: pl.DataFrame, talk: Conversation) -> pl.DataFrame:
    """Server, client, and the protocol revision in force for each call."""
    handshakes = (
        calls.filter((pl.col("method") == "initialize") & pl.col("reply_version").is_not_null())
        .select("session", "reply", handshake="reply_version")
        .sort("reply")
    )
    if not calls.get_column("pos").is_sorted():
        calls = calls.sort("pos")
    greeted = calls.select("pos", "session").join_asof(
        handshakes, left_on="pos", right_on="reply", by="session", check_sortedness=False
    )
    calls = calls.with_columns(greeted.get_column("handshake"))
    calls = left_join_columns(calls, talk.sessions, "session")
    recordings = talk.recordings.select(
        "recording", "transport", "server", command=pl.coalesce("command", "url")
    )
    calls = left_join_columns(calls, recordings, "recording")
    handshake = pl.coalesce(
        pl.when(pl.col("method") == "initialize").then(
            pl.coalesce("reply_version", "asked_version")
        ),
        "handshake",
        "negotiated",
    )
    on_http = pl.col("scope").is_not_null()
    known = {
        "header": pl.col("header_version"),
        "meta": pl.col("meta_protocol_version"),
        "handshake": handshake,
        "fallback": pl.when(on_http).then(pl.lit(HTTP_FALLBACK)),
    }
    return calls.with_columns(
        protocol_version=pl.coalesce(*known.values()),
        protocol_source=pl.coalesce(
            *(pl.when(value.is_not_null()).then(pl.lit(name)) for name, value in known.items())
        ),
    )


def _with_notifications(
    calls: pl.DataFrame, messages: pl.DataFrame, events: Events
) -> pl.DataFrame:
    """Cancellation and progress of each call."""
    said = messages.filter(
        pl.col("method").is_in(["notifications/cancelled", "notifications/progress"])
        & ~pl.col("replay")
    )
    about = events.asks.select("row", "request_id", "progress_token", "reason")
    said = said.select("pos", "row", "session", "dir", "method", "ts_ns").join(
        about, on="row", how="left", maintain_order="left"
    )
    cancelled = (
        _about(
            said.filter(pl.col("method") == "notifications/cancelled"),
            "request_id",
            calls.select("pos", "session", "call_id", asker="dir", named="id"),
            asker=pl.col("dir"),
        )
        .group_by("call_id")
        .agg(
            cancelled_ns=pl.col("ts_ns").min(),
            cancel_reason=pl.col("reason").drop_nulls().first(),
        )
    )
    other = pl.when(pl.col("dir") == "c2s").then(pl.lit("s2c")).otherwise(pl.lit("c2s"))
    progress = (
        _about(
            said.filter(pl.col("method") == "notifications/progress"),
            "progress_token",
            calls.select("pos", "session", "call_id", asker="dir", named="meta_progress_token"),
            asker=other,
        )
        .group_by("call_id")
        .agg(progress_ns=pl.col("ts_ns").min(), progress_count=pl.len())
    )
    calls = left_join_columns(left_join_columns(calls, cancelled, "call_id"), progress, "call_id")
    return calls.with_columns(
        pl.col("progress_count").fill_null(0),
        first_progress_ms=(pl.col("progress_ns") - pl.col("ts_ns")) / 1e6,
    )


def _about(said: pl.DataFrame, name: str, calls: pl.DataFrame, *, asker: pl.Expr) -> pl.DataFrame:
    """Notifications with the latest earlier call of the side and token that they name."""
    return (
        said.with_columns(asker=asker, named=pl.col(name))
        .filter(pl.col("named") != "null")  # which names nothing, in JSON as in a column
        .sort("pos")
        .join_asof(
            calls.drop_nulls("named").sort("pos"),
            on="pos",
            by=["session", "asker", "named"],
            check_sortedness=False,
        )
        .drop_nulls("call_id")
    )


def _with_outcome(calls: pl.DataFrame) -> pl.DataFrame:
    """The first outcome that holds, `hidden_error` aside: that one is for the judge."""
    answered = pl.col("reply").is_not_null()
    timed_out = pl.col("cancel_reason").str.contains(TIMEOUT_REASON) | pl.col("http_status").is_in(
        [408, 504]
    )
    gone = pl.col("cancelled_ns").is_not_null() | (pl.col("closed_by") == "client")
    is_task = (pl.col("result_type") == "task") | (
        pl.col("task").is_not_null() & (pl.col("content_kind") == "absent")
    )
    return calls.with_columns(
        outcome=pl.when(answered & pl.col("error_reply"))
        .then(pl.lit("protocol_error"))
        .when(answered & (pl.col("is_error") == "true"))
        .then(pl.lit("tool_error"))
        .when(answered & (pl.col("result_type") == "input_required"))
        .then(pl.lit("input_required"))
        .when(answered & is_task)
        .then(pl.lit("task"))
        .when(answered)
        .then(pl.lit("ok"))
        .when(timed_out)
        .then(pl.lit("timeout"))
        .when(gone)
        .then(pl.lit("cancelled"))
        .otherwise(pl.lit("no_response")),
        error_text=pl.when(pl.col("error_reply"))
        .then(pl.col("error_message"))
        .when(pl.col("is_error") == "true")
        .then(pl.coalesce("text", "structured_content"))
        .when(~answered)
        .then(pl.col("refused")),
        error_code=pl.when(answered).then("error_code").otherwise("refusal_code"),
    )


def _linked(messages: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Messages with the call that each asks or answers, and how a reply found it."""
    asks = calls.select("pos", "call_id")
    replies = calls.select(
        pl.col("reply").alias("pos"), pl.col("call_id").alias("answers"), "match", "cancelled_ns"
    ).drop_nulls("pos")
    is_reply = pl.col("kind").is_in(["result", "error"])
    linked = left_join_columns(left_join_columns(messages, asks, "pos"), replies, "pos")
    # A reply nobody waits for: to an id that was answered before, or that nobody asked with.
    answered = (
        calls.select("pos", "session", "id_key", asker="dir", earlier="call_id")
        .drop_nulls("id_key")
        .sort("pos")
    )
    strays = (
        linked.filter(is_reply & pl.col("answers").is_null() & pl.col("id_key").is_not_null())
        .select("pos", "session", "asker", "id_key")
        .sort("pos")
        .join_asof(answered, on="pos", by=["session", "asker", "id_key"], check_sortedness=False)
        .select("pos", "earlier")
    )
    return (
        left_join_columns(linked, strays, "pos")
        .with_columns(
            call_id=pl.coalesce("call_id", "answers", "earlier"),
            match=pl.when(is_reply).then(
                pl.when(pl.col("replay"))
                .then(pl.lit("replay"))
                .when(pl.col("answers").is_not_null() & (pl.col("cancelled_ns") < pl.col("ts_ns")))
                .then(pl.lit("late"))
                .when(pl.col("answers").is_not_null())
                .then(pl.col("match"))
                .when(pl.col("earlier").is_not_null())
                .then(pl.lit("second"))
                .otherwise(pl.lit("orphan"))
            ),
        )
        .drop("answers", "earlier", "cancelled_ns")
    )
