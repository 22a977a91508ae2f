"""Checks each message, and the pairing of replies with requests, against JSON-RPC 2.0 and MCP."""

from collections.abc import Iterator

import polars as pl

from mcptally.protocol.revisions import STATELESS, methods, names
from mcptally.protocol.traffic import (
    KNOWN_SESSION,
    RepeatedCalls,
    Traffic,
    TrafficCalls,
    TrafficMessages,
    TrafficRaws,
)
from mcptally.rules.findings import REVISIONS, Check, make_findings, run_checks
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.wire.json_text import ANY, decode_or_none

_ID_IN_TEXT = r'"id"\s*:\s*("[^"\\]*"|-?\d+)'
"""Matches the member `id` in text that is not strict JSON."""

_ID_OPTIONAL = REVISIONS[REVISIONS.index("2025-11-25") :]
"""Revisions in which a reply to an unreadable message may omit the id."""

_INTEGER_OR_STRING = r'^(?:-?\d+$|")'


def check_messages(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Yield findings about individual messages, and about the pairing of replies with requests."""
    messages = traffic.messages
    kind, id_ = TrafficMessages.kind.col, TrafficMessages.id.col
    null_id = id_ == "null"
    no_id = id_.is_null() | null_id
    id_optional = TrafficMessages.revision.col.is_in(_ID_OPTIONAL).fill_null(value=False)
    yield from run_checks(
        messages,
        Check(
            "protocol.not_a_message", kind == "invalid", "not a request, a notification or a reply"
        ),
        Check(
            "protocol.null_id",
            (kind == "request") & null_id,
            "the id is null, so that no reply can be matched",
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
            TrafficMessages.has_result.col & TrafficMessages.has_error.col,
            "both a result and an error",
        ),
        Check(
            "protocol.result_without_id",
            (kind == "result") & no_id & ~TrafficMessages.truncated.col,
            "a result without an id",
            path="/id",
        ),
        Check(
            "protocol.error_without_id",
            (kind == "error") & (null_id | (id_.is_null() & ~id_optional)),
            "an error without an id: the failed request is unknown",
            path="/id",
        ),
        Check(
            "protocol.batch",
            TrafficMessages.batch.col & (TrafficMessages.index.col == 0),
            formatted("a JSON-RPC batch, which {} does not have", "revision"),
        ),
        Check(
            "protocol.batched_initialize",
            TrafficMessages.batch.col & (TrafficMessages.method.col == "initialize"),
            "initialize in a batch",
        ),
    )
    yield make_findings(
        "protocol.jsonrpc_version",
        _wrong_version(messages),
        pl.when(TrafficMessages.jsonrpc.col.is_null())
        .then(pl.lit("the member jsonrpc is missing"))
        .otherwise(pl.lit('jsonrpc is not "2.0"')),
        evidence="jsonrpc",
        path="/jsonrpc",
    )
    yield from _check_methods(messages)
    yield from _check_pairing(traffic)
    yield from _check_ids(traffic.calls)
    yield from _check_errors(traffic.calls)


def _wrong_version(messages: pl.DataFrame) -> pl.DataFrame:
    """Return messages whose `jsonrpc`, after resolving escapes, is not the string 2.0."""
    suspects = messages.filter(
        TrafficMessages.jsonrpc.col.ne_missing(pl.lit('"2.0"')),
        TrafficMessages.kind.col != "invalid",
        ~TrafficMessages.truncated.col,
    )
    if not suspects.height:
        return suspects
    texts = set(suspects.get_column(TrafficMessages.jsonrpc.name).drop_nulls().to_list())
    correct = sorted(text for text in texts if decode_or_none(ANY, text) == "2.0")
    return suspects.filter(~TrafficMessages.jsonrpc.col.is_in(correct, nulls_equal=True))


def _check_methods(messages: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Find methods that are unknown, belong to another revision, or come from the wrong side."""
    keys = ["kind", "dir", "method", "revision"]
    rows = (
        messages.lazy()
        .select(keys)
        .with_row_index("row")
        .filter(TrafficMessages.kind.col.is_in(["request", "notification"]))
        .join(methods().lazy(), on=keys, how="anti", maintain_order="left")
        .pipe(run_query)
    )
    if not rows.height:
        return
    unknown = messages[rows.get_column("row")]
    method = TrafficMessages.method.col
    notifications, requests = names("notification"), names("request")
    as_request = (TrafficMessages.kind.col == "request") & method.str.starts_with("notifications/")
    as_notification = (TrafficMessages.kind.col == "notification") & method.is_in(list(requests))
    all_methods = list(notifications | requests)
    on_its_side = ~as_request & ~as_notification
    # The methods of an extension have a prefix with a dot: com.example/search (SEP-2133).
    extension = method.str.contains(r"^[^/]*\.[^/]*/")
    yield from run_checks(
        unknown,
        Check(
            "protocol.notification_with_id",
            as_request,
            formatted("{} with an id", "method"),
            evidence="id",
        ),
        Check(
            "protocol.request_without_id", as_notification, formatted("{} without an id", "method")
        ),
        Check(
            "protocol.unknown_method",
            on_its_side & ~method.is_in(all_methods) & ~extension,
            formatted("no revision has the method {}", "method"),
            path="/method",
        ),
    )
    known = unknown.filter(on_its_side, method.is_in(all_methods))
    if not known.height:
        return
    of_either_side = methods().drop("dir").unique()
    other_side = known.join(of_either_side, on=["kind", "method", "revision"], how="semi")
    yield make_findings(
        "protocol.wrong_side",
        other_side.sort("pos"),
        formatted(
            "{} must not be sent by the {}",
            "method",
            pl.when(TrafficMessages.dir.col == "c2s")
            .then(pl.lit("client"))
            .otherwise(pl.lit("server")),
        ),
        path="/method",
    )
    # A client that supports 2026-07-28 and older revisions sends server/discover first.
    yield make_findings(
        "protocol.method_of_other_revision",
        known.join(of_either_side, on=["kind", "method", "revision"], how="anti").filter(
            method != "server/discover"
        ),
        formatted("{} is not a method of {}", "method", "revision"),
        path="/method",
    )


def _check_pairing(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Find replies that do not match exactly one unanswered request."""
    rules = {
        "pairing.second_reply": ("second", "another reply to a request that was answered"),
        "pairing.id_changed": (
            "loose",
            "the reply's id has the value of the request's, not its form",
        ),
        "pairing.late_reply": ("late", "a reply to a call that had been cancelled"),
        "pairing.replay": ("replay", "a message that an SSE resumption sent again"),
    }
    inexact = traffic.messages.filter(TrafficMessages.match.col != "exact")
    if not inexact.height:
        return
    yield from run_checks(
        inexact,
        *(
            Check(rule, TrafficMessages.match.col == match, message, evidence="id")
            for rule, (match, message) in rules.items()
        ),
    )
    orphans = inexact.filter(
        TrafficMessages.match.col == "orphan", TrafficMessages.id.col != "null"
    )
    if not orphans.height:
        return
    # A server may accept a request that is not strict JSON; the reply to it is not an orphan.
    asked = traffic.raws.select(
        "recording", id=TrafficRaws.text.col.str.extract(_ID_IN_TEXT)
    ).drop_nulls()
    yield make_findings(
        "pairing.orphan_reply",
        orphans.join(asked, on=["recording", "id"], how="anti", maintain_order="left"),
        "no request has the id of this reply",
        evidence="id",
    )


def _check_ids(calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Find requests whose id the same side has already used."""
    reused = RepeatedCalls.of(calls, RepeatedCalls.id_key, ~RepeatedCalls.replay.col)
    if not reused.height:
        return
    cancelled = RepeatedCalls.cancelled.col | RepeatedCalls.closed.col
    unanswered = RepeatedCalls.answered.col.is_null()
    waiting = RepeatedCalls.answered.col > RepeatedCalls.pos.col
    yield make_findings(
        "protocol.id_in_flight",
        reused.filter(waiting, ~cancelled),
        "the id of a request that is still waiting for its reply",
        evidence="id",
        path="/id",
    )
    known = RepeatedCalls.session_source.col.is_in(KNOWN_SESSION)
    yield make_findings(
        "protocol.id_reused",
        reused.filter(known, ~waiting | cancelled | unanswered),
        "the id was used before in this session",
        evidence="id",
        path="/id",
    )


def _check_errors(calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Find reserved and withdrawn error codes, and `isError` members that are not a boolean."""
    code, modern = TrafficCalls.error_code.col, TrafficCalls.revision.col.is_in(STATELESS)
    json_rpc = code.is_between(-32768, -32100) & ~code.is_in(
        [-32700, -32600, -32601, -32602, -32603]
    )
    mcp = modern & code.is_between(-32099, -32020) & ~code.is_in([-32020, -32021, -32022, -32042])
    yield from run_checks(
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
            formatted("the error code {} is withdrawn and must not be sent", "error_code"),
            path="/error/code",
        ),
        Check(
            "protocol.is_error_not_boolean",
            TrafficCalls.is_error.col.is_not_null()
            & ~TrafficCalls.is_error.col.is_in(["true", "false"]),
            "isError is not a boolean",
            evidence="is_error",
            path="/result/isError",
        ),
    )
