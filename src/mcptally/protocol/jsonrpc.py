"""One message, and what replies to it: JSON-RPC 2.0 as MCP narrows it."""

from collections.abc import Iterator

import msgspec
import polars as pl

from mcptally.protocol.revisions import MODERN, methods, names
from mcptally.protocol.view import KNOWN_SESSION, Traffic
from mcptally.rules.findings import Check, findings_of, found_where
from mcptally.tables.formatting import formatted

_ID = r'"id"\s*:\s*("[^"\\]*"|-?\d+)'
"""The id of what is not read as JSON."""

_INTEGER_OR_STRING = r'^(?:-?\d+$|")'


def find(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Findings about messages by themselves, and about how replies meet requests."""
    messages = traffic.messages
    kind, id_ = pl.col("kind"), pl.col("id")
    null_id = id_ == "null"
    nameless = id_.is_null() | null_id
    may_lack = pl.col("revision").is_in(["2025-11-25", MODERN]).fill_null(value=False)
    yield from found_where(
        messages,
        Check(
            "protocol.not_a_message",
            kind == "invalid",
            "neither a request, a notification nor a reply",
        ),
        Check(
            "protocol.null_id",
            (kind == "request") & null_id,
            "the id is null: no reply can be told from another's",
            path="/id",
        ),
        Check(
            "protocol.id_type",
            id_.is_not_null() & ~null_id & ~id_.str.contains(_INTEGER_OR_STRING),
            "the id is neither a string nor an integer",
            evidence="id",
            path="/id",
        ),
        Check(
            "protocol.result_and_error",
            pl.col("has_result") & pl.col("has_error"),
            "both a result and an error",
        ),
        Check(
            "protocol.result_without_id",
            (kind == "result") & nameless & ~pl.col("truncated"),
            "a result without an id",
            path="/id",
        ),
        Check(
            "protocol.error_without_id",
            (kind == "error") & (null_id | (id_.is_null() & ~may_lack)),
            "an error without an id: which request failed is not said",
            path="/id",
        ),
        Check(
            "protocol.batch",
            pl.col("batch") & (pl.col("index") == 0),
            formatted("a JSON-RPC batch, which {} does not have", "revision"),
        ),
        Check(
            "protocol.batched_initialize",
            pl.col("batch") & (pl.col("method") == "initialize"),
            "initialize in a batch",
        ),
    )
    yield findings_of(
        "protocol.jsonrpc_version",
        _wrong_version(messages),
        pl.when(pl.col("jsonrpc").is_null())
        .then(pl.lit("the member jsonrpc is missing"))
        .otherwise(pl.lit('jsonrpc is not "2.0"')),
        evidence="jsonrpc",
        path="/jsonrpc",
    )
    yield from _methods(messages)
    yield from _pairing(traffic)
    yield from _ids(traffic.calls)
    yield from _errors(traffic.calls)


def _wrong_version(messages: pl.DataFrame) -> pl.DataFrame:
    """Messages whose `jsonrpc` is not the string 2.0, however it is written."""
    odd = messages.filter(
        pl.col("jsonrpc").ne_missing(pl.lit('"2.0"')),
        pl.col("kind") != "invalid",
        ~pl.col("truncated"),
    )
    right = [t for t in odd.get_column("jsonrpc").drop_nulls().unique() if _is_two(t)]
    return odd.filter(~pl.col("jsonrpc").is_in(right, nulls_equal=True))


def _is_two(text: str) -> bool:
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return value == "2.0"


def _methods(messages: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Methods that nobody knows, that another revision knows, or that the other side sends."""
    asked = messages.filter(pl.col("kind").is_in(["request", "notification"]))
    keys = ["kind", "dir", "method", "revision"]
    unknown = asked.join(methods(), on=keys, how="anti", maintain_order="left")
    method = pl.col("method")
    notifications, requests = names("notification"), names("request")
    as_request = (pl.col("kind") == "request") & method.str.starts_with("notifications/")
    as_notification = (pl.col("kind") == "notification") & method.is_in(list(requests))
    yield findings_of(
        "protocol.notification_with_id",
        unknown.filter(as_request),
        formatted("{} with an id", "method"),
        evidence="id",
    )
    yield findings_of(
        "protocol.request_without_id",
        unknown.filter(as_notification),
        formatted("{} without an id", "method"),
    )
    unknown = unknown.filter(~as_request, ~as_notification)
    ever = list(notifications | requests)
    # An extension's method has a prefix with a dot: com.example/search (SEP-2133).
    extension = method.str.contains(r"^[^/]*\.[^/]*/")
    yield findings_of(
        "protocol.unknown_method",
        unknown.filter(~method.is_in(ever), ~extension),
        formatted("{} is a method of no revision", "method"),
        path="/method",
    )
    known = unknown.filter(method.is_in(ever))
    here = methods().drop("dir").unique()
    other_side = known.join(here, on=["kind", "method", "revision"], how="semi")
    yield findings_of(
        "protocol.wrong_side",
        other_side.sort("pos"),
        formatted(
            "{} is not for the {} to send",
            "method",
            pl.when(pl.col("dir") == "c2s").then(pl.lit("client")).otherwise(pl.lit("server")),
        ),
        path="/method",
    )
    # A client that knows both eras asks server/discover first, whatever the server speaks.
    yield findings_of(
        "protocol.method_of_other_revision",
        known.join(here, on=["kind", "method", "revision"], how="anti").filter(
            method != "server/discover"
        ),
        formatted("{} is not a method of {}", "method", "revision"),
        path="/method",
    )


def _pairing(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """How replies found their requests."""
    messages = traffic.messages
    rows = {
        "pairing.second_reply": ("second", "another reply to a request that was answered"),
        "pairing.id_changed": ("loose", "the reply's id equals the request's by value only"),
        "pairing.late_reply": ("late", "a reply to a call that had been cancelled"),
        "pairing.replay": ("replay", "a message that an SSE resumption sent again"),
    }
    odd = messages.filter(pl.col("match") != "exact")
    for rule, (match, words) in rows.items():
        yield findings_of(rule, odd.filter(pl.col("match") == match), words, evidence="id")
    # A server may read what is no strict JSON: then its reply has somebody who asked.
    asked = traffic.raws.select("recording", id=pl.col("text").str.extract(_ID)).drop_nulls()
    orphans = odd.filter(pl.col("match") == "orphan", pl.col("id") != "null")
    yield findings_of(
        "pairing.orphan_reply",
        orphans.join(asked, on=["recording", "id"], how="anti", maintain_order="left"),
        "a reply to an id that nobody asked with",
        evidence="id",
    )


def _ids(calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Ids that were used before by the same side."""
    rows = (
        calls.filter(pl.col("id_key").is_not_null(), ~pl.col("replay"))
        .sort("pos")
        .select(
            *("call_id", "recording", "session", "server", "tool", "seq", "index", "file", "line"),
            *("dir", "id", "id_key", "pos", "reply", "revision", "session_source"),
            *("cancelled_ns", "ts_ns", "closed_by"),
        )
    )
    same = ["session", "dir", "id_key"]
    again = rows.filter(pl.struct(same).is_duplicated())
    if not again.height:
        return
    again = again.with_columns(
        before=pl.col("pos").shift().over(same),
        answered=pl.col("reply").shift().over(same),
        cancelled=(pl.col("cancelled_ns").shift().over(same) < pl.col("ts_ns")).fill_null(
            value=False
        )
        | (pl.col("closed_by").shift().over(same) == "client").fill_null(value=False),
    ).filter(pl.col("before").is_not_null())
    waiting = (pl.col("answered") > pl.col("pos")) | pl.col("answered").is_null()
    yield findings_of(
        "protocol.id_in_flight",
        again.filter(pl.col("answered") > pl.col("pos"), ~pl.col("cancelled")),
        "the id of a request that is still waiting",
        evidence="id",
        path="/id",
    )
    known = pl.col("session_source").is_in(KNOWN_SESSION)
    yield findings_of(
        "protocol.id_reused",
        again.filter(known, ~waiting | pl.col("cancelled") | pl.col("answered").is_null()),
        "the id was used before in this session",
        evidence="id",
        path="/id",
    )


def _errors(calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Error codes out of ranges that are not for everybody, and what marks an error."""
    code, modern = pl.col("error_code"), pl.col("revision") == MODERN
    json_rpc = code.is_between(-32768, -32100) & ~code.is_in(
        [-32700, -32600, -32601, -32602, -32603]
    )
    mcp = modern & code.is_between(-32099, -32020) & ~code.is_in([-32020, -32021, -32022, -32042])
    yield from found_where(
        calls,
        Check(
            "protocol.error_code_reserved",
            json_rpc | mcp,
            formatted("the error code {} is reserved", "error_code"),
            path="/error/code",
        ),
        Check(
            "protocol.error_code_withdrawn",
            code.is_in([-32002, -32042]),
            formatted("the error code {} must not be sent any more", "error_code"),
            path="/error/code",
        ),
        Check(
            "protocol.is_error_not_boolean",
            pl.col("is_error").is_not_null() & ~pl.col("is_error").is_in(["true", "false"]),
            "isError is not a boolean",
            evidence="is_error",
            path="/result/isError",
        ),
    )
