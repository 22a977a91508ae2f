"""Checks sessions: handshake, capabilities, cancellation, shutdown, and (2026-07-28) `_meta`."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from mcptally.messages.event_tables import Closes, HttpEvents
from mcptally.protocol.revisions import STATELESS
from mcptally.protocol.traffic import KNOWN_SESSION, Traffic, TrafficCalls, TrafficMessages
from mcptally.rules.findings import (
    REVISIONS,
    Check,
    make_findings,
    run_checks,
    select_for_findings,
)
from mcptally.tables.declaration import Column
from mcptally.tables.formatting import formatted
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.wire.json_text import ANY, decode_or_none

_DRAFT: Final = "2024-10-07"
"""A draft revision that SDKs still accept."""

BEFORE_HANDSHAKE: Final = ("ping", "server/discover", "initialize")
"""Requests that are allowed before the handshake."""

CAPABILITIES: Final = {
    ("c2s", "tools/"): "tools",
    ("c2s", "prompts/"): "prompts",
    ("c2s", "resources/"): "resources",
    ("c2s", "logging/"): "logging",
    ("s2c", "roots/"): "roots",
    ("s2c", "sampling/"): "sampling",
    ("s2c", "elicitation/"): "elicitation",
}
"""Maps a request's direction and method prefix to the capability that the receiver must declare.

`completion/complete` is left out: its capability was added later (2025-03-26) than the method."""


_INITIALIZE: Final = (TrafficCalls.method.col == "initialize") & (TrafficCalls.dir.col == "c2s")


class _SessionCalls(TrafficCalls):
    """One row per request, with facts about the handshake of its session."""

    asked = Column(pl.UInt32, "`pos` of the session's first `initialize`.")
    agreed = Column(pl.UInt32, "`pos` of the first reply to one.")
    initialized = Column(pl.UInt32, "`pos` of `notifications/initialized`.")


def check_sessions(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Yield findings about sessions: handshake, capabilities, cancellation, shutdown, `_meta`."""
    yield from _check_handshake(traffic)
    yield from _check_cancellation(traffic)
    yield from _check_shutdown(traffic)
    yield from _check_modern_members(traffic)


def _check_handshake(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Find requests sent before the handshake is complete, and repeated or unknown handshakes."""
    calls, messages = traffic.calls, traffic.messages
    handshakes = (
        calls.lazy()
        .filter(_INITIALIZE, TrafficCalls.outcome.col != "protocol_error")
        .sort("pos")
        .group_by("session", maintain_order=True)
        .agg(asked=TrafficCalls.pos.col.min(), agreed=TrafficCalls.reply.col.min())
    )
    initialized = (
        messages.lazy()
        .filter(TrafficMessages.method.col == "notifications/initialized")
        .group_by("session")
        .agg(initialized=TrafficMessages.pos.col.min())
    )
    rows = select_for_findings(
        calls.lazy().filter(TrafficCalls.session_source.col.is_in(KNOWN_SESSION)),
        *("dir", "method", "outcome", "pos", "row", "reply", "reply_row", "revision"),
    ).pipe(run_query)
    rows = left_join_columns(rows, handshakes, "session")
    rows = left_join_columns(rows, initialized, "session")
    pos = TrafficCalls.pos.col
    legacy = ~TrafficCalls.revision.col.is_in(STATELESS).fill_null(value=False)
    from_client = (
        (TrafficCalls.dir.col == "c2s") & ~TrafficCalls.method.col.is_in(BEFORE_HANDSHAKE) & legacy
    )
    not_initialized = _SessionCalls.initialized.col.is_null() | (
        _SessionCalls.initialized.col > pos
    )
    from_server = (TrafficCalls.dir.col == "s2c") & (TrafficCalls.method.col != "ping")
    yield from run_checks(
        rows,
        Check(
            "protocol.before_initialize",
            from_client & (_SessionCalls.asked.col.is_null() | (pos < _SessionCalls.asked.col)),
            formatted("{} without a handshake before it", "method"),
        ),
        Check(
            "protocol.before_initialize_result",
            from_client & (pos > _SessionCalls.asked.col) & (pos < _SessionCalls.agreed.col),
            formatted("{} before initialize was answered", "method"),
        ),
        Check(
            "protocol.before_initialized",
            from_server & (_SessionCalls.asked.col < pos) & not_initialized,
            formatted("{} before notifications/initialized", "method"),
        ),
        Check(
            "protocol.initialize_again",
            _INITIALIZE & (pos > _SessionCalls.agreed.col),
            "the session is already initialised",
        ),
    )
    yield make_findings(
        "protocol.initialized_missing",
        rows.lazy()
        .filter(from_client & (pos > _SessionCalls.agreed.col) & not_initialized)
        .unique("session", keep="first", maintain_order=True),
        formatted("{} without notifications/initialized before it", "method"),
    )
    version = TrafficCalls.reply_version.col
    yield from run_checks(
        calls,
        Check(
            "protocol.revision_unknown",
            _INITIALIZE & version.is_not_null() & ~version.is_in([*REVISIONS, _DRAFT]),
            "the server's protocolVersion is not a released revision",
            evidence="reply_version",
            path="/result/protocolVersion",
        ),
    )
    yield from _check_capabilities(rows, traffic)


def _check_capabilities(rows: pl.DataFrame, traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Find requests that need a capability that the receiver did not declare in the handshake."""
    asks, replies = traffic.events.asks.lazy(), traffic.events.replies.lazy()
    declared = (
        rows.lazy()
        .filter(_INITIALIZE, TrafficCalls.reply.col == _SessionCalls.agreed.col)
        .select("session", "row", "reply_row")
        .join(asks.select("row", client="capabilities"), on="row", how="left")
        .join(replies.select(reply_row="row", server="capabilities"), on="reply_row", how="left")
        .pipe(run_query)
    )
    # A client's request requires a capability of the server, and vice versa.
    missing = pl.concat(
        _missing_capabilities(declared.select("session", declared=receiver), side)
        for side, receiver in (("c2s", "server"), ("s2c", "client"))
    )
    # Clients probe for features; a rejected probe is not a violation.
    serious = (TrafficCalls.dir.col == "s2c") | (TrafficCalls.outcome.col != "protocol_error")
    yield make_findings(
        "protocol.capability_missing",
        rows.lazy()
        .filter(TrafficCalls.pos.col > _SessionCalls.agreed.col, serious)
        .with_columns(prefix=TrafficCalls.method.col.str.extract("^([^/]*/)"))
        .join(missing, on=["session", "dir", "prefix"], maintain_order="left"),
        formatted("{}, but the capability {} was not declared", "method", "capability"),
    )


def _missing_capabilities(declared: pl.DataFrame, side: str) -> pl.LazyFrame:
    """Return the method prefixes for which a side's requests lack a capability of the receiver.

    Args:
        declared: sessions, and the JSON text of the capabilities that the receiver declares.
        side: the side that sends the requests, `c2s` or `s2c`.
    """
    missing = []
    for text in set(declared.get_column("declared")) - {None}:
        known = decode_or_none(ANY, text)
        if isinstance(known, dict):
            missing += [
                (text, side, prefix, capability)
                for (dir_, prefix), capability in CAPABILITIES.items()
                if dir_ == side and known.get(capability) is None
            ]
    columns = ["declared", "dir", "prefix", "capability"]
    rows = pl.LazyFrame(missing, schema=dict.fromkeys(columns, pl.String), orient="row")
    return declared.lazy().join(rows, on="declared").drop("declared")


def _check_cancellation(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Find cancellations of `initialize`, of unknown requests, and of answered requests."""
    calls = traffic.calls
    yield make_findings(
        "protocol.cancel_initialize",
        calls.lazy().filter(
            TrafficCalls.method.col == "initialize", TrafficCalls.cancelled_ns.col.is_not_null()
        ),
        "initialize must not be cancelled",
    )
    cancelled = (
        traffic.messages.lazy()
        .filter(
            TrafficMessages.method.col == "notifications/cancelled", ~TrafficMessages.replay.col
        )
        .join(
            traffic.events.asks.lazy().select("row", "request_id"), on="row", maintain_order="left"
        )
        .drop_nulls("request_id")
        .sort("pos")
        .pipe(run_query)
    )
    if not cancelled.height:
        return
    requests = (
        calls.lazy()
        .select("pos", "session", "dir", "reply", request_id="id")
        .drop_nulls("request_id")
    )
    matched = cancelled.lazy().join_asof(
        requests.sort("pos").with_columns(known=True),
        on="pos",
        by=["session", "dir", "request_id"],
        check_sortedness=False,
    )
    # Over HTTP, a request may arrive after its cancellation.
    unknown = matched.filter(pl.col("known").is_null()).join(
        requests, on=["session", "dir", "request_id"], how="anti", maintain_order="left"
    )
    answered = matched.filter(TrafficCalls.reply.col < TrafficMessages.pos.col)
    for rows, message in (
        (unknown, "no request has this id"),
        (answered, "the request was already answered"),
    ):
        yield make_findings(
            "protocol.cancel_unknown",
            rows,
            message,
            evidence="request_id",
            path="/params/requestId",
        )


def _check_shutdown(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Find messages sent after the pipe was closed, or after DELETE ended an HTTP session."""
    closed = traffic.events.closes.lazy().group_by("recording").agg(closed=Closes.seq.col.max())
    late = (
        traffic.messages.lazy()
        .select("recording", "scope", "seq", row=pl.int_range(pl.len(), dtype=pl.UInt32))
        .filter(TrafficMessages.scope.col.is_null())
        .join(closed, on="recording", how="inner", maintain_order="left")
        .filter(TrafficMessages.seq.col > pl.col("closed"))
        .pipe(run_query)
    )
    yield make_findings(
        "protocol.after_shutdown",
        traffic.messages[late.get_column(TrafficMessages.row.name)],
        "the pipe was closed",
    )
    if not traffic.events.http.height:
        return
    http = traffic.events.http.lazy()
    ended = (
        http.filter(HttpEvents.phase.col == "request", HttpEvents.method.col == "DELETE")
        .select("recording", "scope", "mcp_session_id")
        .drop_nulls()
        .join(
            http.filter(
                HttpEvents.phase.col == "response", HttpEvents.status.col.is_between(200, 299)
            ).select("recording", "scope", "seq"),
            on=["recording", "scope"],
        )
        .group_by("recording", "mcp_session_id")
        .agg(ended=HttpEvents.seq.col.min())
        .pipe(run_query)
    )
    if not ended.height:
        return
    exchanges = (
        http.filter(HttpEvents.phase.col == "request", HttpEvents.method.col == "POST")
        .select("recording", "scope", "mcp_session_id", "seq")
        .join(ended.lazy(), on=["recording", "mcp_session_id"])
        .filter(HttpEvents.seq.col > pl.col("ended"))
        .select("recording", "scope")
        .unique()
    )
    yield make_findings(
        "protocol.after_shutdown",
        traffic.messages.lazy()
        .filter(TrafficMessages.dir.col == "c2s")
        .join(exchanges, on=["recording", "scope"], how="semi", maintain_order="left"),
        "the client had ended this HTTP session",
    )


def _check_modern_members(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Check the members that 2026-07-28 requires in every request and result.

    Requests imported from a log of calls (session source `source`) are not checked, because they
    never had `_meta`.
    """
    capabilities = traffic.events.asks.lazy().select("row", "meta_capabilities")
    calls = (
        traffic.calls.lazy()
        .filter(TrafficCalls.revision.col.is_in(STATELESS))
        .join(capabilities, on="row", how="left", maintain_order="left")
        .pipe(run_query)
    )
    if not calls.height:
        return
    missing = pl.concat_list(
        pl.when(pl.col(column).is_null()).then(pl.lit(f"io.modelcontextprotocol/{name}"))
        for column, name in (
            ("meta_protocol_version", "protocolVersion"),
            ("meta_capabilities", "clientCapabilities"),
        )
    ).list.drop_nulls()
    yield make_findings(
        "protocol.meta_missing",
        calls.lazy()
        .filter(
            TrafficCalls.dir.col == "c2s",
            ~TrafficCalls.truncated.col,
            TrafficCalls.session_source.col.ne_missing("source"),
        )
        .with_columns(missing=missing)
        .filter(pl.col("missing").list.len() > 0),
        formatted("_meta lacks {}", pl.col("missing").list.join(" and ")),
        path="/params/_meta",
    )
    answered = (
        TrafficCalls.has_response.col
        & ~TrafficCalls.error_reply.col
        & (TrafficCalls.dir.col == "c2s")
    )
    kind, method = TrafficCalls.result_type.col, TrafficCalls.method.col
    defined = (
        (kind == "complete")
        | (
            (kind == "input_required")
            & method.is_in(["tools/call", "prompts/get", "resources/read"])
        )
        | ((kind == "task") & (method == "tools/call"))
    )
    yield from run_checks(
        calls,
        Check(
            "protocol.result_type_missing",
            answered & kind.is_null(),
            "the result has no resultType",
            path="/result",
        ),
        Check(
            "protocol.result_type_unknown",
            answered & kind.is_not_null() & ~defined,
            formatted("resultType {} is not defined for {}", "result_type", "method"),
            evidence="result_type",
            path="/result/resultType",
        ),
    )
