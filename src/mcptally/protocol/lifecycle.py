"""The life of a session: handshake, capabilities, cancellation, shutdown, modern envelopes."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.protocol.revisions import MODERN
from mcptally.protocol.view import KNOWN_SESSION, Traffic
from mcptally.rules.findings import REVISIONS, Check, findings_of, found_where
from mcptally.tables.formatting import formatted

_OF_SESSIONS: Final = [
    *("call_id", "recording", "session", "server", "tool", "seq", "index", "file", "line"),
    *("pos", "row", "reply", "reply_row", "dir", "method", "revision", "outcome"),
]

_BEFORE_THE_FIRST: Final = "2024-10-07"
"""A draft's version that SDKs still agree on."""

FREE: Final = ("ping", "server/discover", "initialize")
"""Requests that may come before the handshake."""

CAPABILITIES: Final = {
    ("c2s", "tools/"): "tools",
    ("c2s", "prompts/"): "prompts",
    ("c2s", "resources/"): "resources",
    ("c2s", "logging/"): "logging",
    ("s2c", "roots/"): "roots",
    ("s2c", "sampling/"): "sampling",
    ("s2c", "elicitation/"): "elicitation",
}
"""Who asks, and the beginning of the method → the capability that the other side has to declare.

`completion/complete` is left out: its capability came later than the method (2025-03-26).
"""


def find(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Findings about sessions."""
    yield from _handshake(traffic)
    yield from _cancellation(traffic)
    yield from _shutdown(traffic)
    yield from _envelope(traffic)


def _handshake(traffic: Traffic) -> Iterator[pl.DataFrame]:
    calls, messages = traffic.calls, traffic.messages
    opened = (
        calls.filter(
            pl.col("method") == "initialize",
            pl.col("dir") == "c2s",
            pl.col("outcome") != "protocol_error",
        )
        .sort("pos")
        .group_by("session", maintain_order=True)
        .agg(asked=pl.col("pos").min(), agreed=pl.col("reply").min())
    )
    said = messages.filter(pl.col("method") == "notifications/initialized").group_by("session")
    rows = (
        calls.filter(pl.col("session_source").is_in(KNOWN_SESSION))
        .select(_OF_SESSIONS)
        .join(opened, on="session", how="left", maintain_order="left")
        .join(
            said.agg(initialized=pl.col("pos").min()),
            on="session",
            how="left",
            maintain_order="left",
        )
    )
    pos, legacy = pl.col("pos"), pl.col("revision").ne_missing(MODERN)
    from_client = (pl.col("dir") == "c2s") & ~pl.col("method").is_in(FREE) & legacy
    later = pl.col("initialized").is_null() | (pl.col("initialized") > pos)
    went_on = from_client & (pos > pl.col("agreed")) & later
    again = (pl.col("method") == "initialize") & (pl.col("dir") == "c2s")
    asks = (pl.col("dir") == "s2c") & (pl.col("method") != "ping")
    yield from found_where(
        rows,
        Check(
            "protocol.before_initialize",
            from_client & (pl.col("asked").is_null() | (pos < pl.col("asked"))),
            formatted("{} without a handshake before it", "method"),
        ),
        Check(
            "protocol.before_initialize_result",
            from_client & (pos > pl.col("asked")) & (pos < pl.col("agreed")),
            formatted("{} before initialize was answered", "method"),
        ),
        Check(
            "protocol.before_initialized",
            asks & (pl.col("asked") < pos) & later,
            formatted("{} before notifications/initialized", "method"),
        ),
        Check(
            "protocol.initialize_again",
            again & (pos > pl.col("agreed")),
            "the session is initialised already",
        ),
    )
    yield findings_of(
        "protocol.initialized_missing",
        rows.filter(went_on).unique("session", keep="first", maintain_order=True),
        formatted("{} and no notifications/initialized before it", "method"),
    )
    version = pl.coalesce("reply_version", pl.lit(""))
    yield findings_of(
        "protocol.revision_unknown",
        calls.filter(
            again,
            pl.col("reply_version").is_not_null(),
            ~version.is_in([*REVISIONS, _BEFORE_THE_FIRST]),
        ),
        "the server's protocolVersion is no released revision",
        evidence="reply_version",
        path="/result/protocolVersion",
    )
    yield from _capabilities(rows, traffic)


def _capabilities(rows: pl.DataFrame, traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Methods whose capability the side that is asked did not declare in the handshake."""
    handshakes = rows.filter(
        pl.col("method") == "initialize",
        pl.col("dir") == "c2s",
        pl.col("reply") == pl.col("agreed"),
    ).select("session", "row", "reply_row")
    declared = handshakes.join(
        traffic.events.asks.select("row", c2s="capabilities"), on="row", how="left"
    ).join(
        traffic.events.replies.select(reply_row="row", s2c="capabilities"),
        on="reply_row",
        how="left",
    )
    named = declared.select(
        "session",
        # The client declares what the server may ask, and the other way round.
        *(
            _names(declared.get_column(side)).alias(other)
            for side, other in (("c2s", "asked_s2c"), ("s2c", "asked_c2s"))
        ),
    )
    begins = "|".join(sorted({begin for _, begin in CAPABILITIES}))
    later = rows.filter(
        pl.col("pos") > pl.col("agreed"), pl.col("method").str.contains(f"^(?:{begins})")
    ).join(named, on="session", how="inner")
    for (side, begin), capability in CAPABILITIES.items():
        lacks = later.filter(
            pl.col("dir") == side,
            pl.col("method").str.starts_with(begin),
            ~pl.col(f"asked_{side}").list.contains(capability),
        )
        if side == "c2s":  # a client looks what is there; a request that fails says it all
            lacks = lacks.filter(pl.col("outcome") != "protocol_error")
        yield findings_of(
            "protocol.capability_missing",
            lacks.sort("pos"),
            formatted("{} and the capability {} was not declared", "method", pl.lit(capability)),
        )


def _names(texts: pl.Series) -> pl.Series:
    """The members of JSON objects; null where the text is none."""
    known: dict[str, list[str] | None] = {}
    for text in texts.drop_nulls().unique():
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            value = None
        known[text] = (
            [k for k, v in value.items() if v is not None] if isinstance(value, dict) else None
        )
    return pl.Series([known.get(t) for t in texts.to_list()], dtype=pl.List(pl.String))


def _cancellation(traffic: Traffic) -> Iterator[pl.DataFrame]:
    calls = traffic.calls
    yield findings_of(
        "protocol.cancel_initialize",
        calls.filter(pl.col("method") == "initialize", pl.col("cancelled_ns").is_not_null()),
        "initialize must not be cancelled",
    )
    cancelled = (
        traffic.messages.filter(pl.col("method") == "notifications/cancelled", ~pl.col("replay"))
        .join(traffic.events.asks.select("row", "request_id"), on="row", maintain_order="left")
        .drop_nulls("request_id")
        .sort("pos")
    )
    asked = calls.select("pos", "session", "dir", "reply", request_id="id").drop_nulls("request_id")
    met = cancelled.join_asof(
        asked.sort("pos").with_columns(known=True),
        on="pos",
        by=["session", "dir", "request_id"],
        check_sortedness=False,
    )
    # Two HTTP requests may overtake each other: a call that comes after its cancellation counts.
    never = met.filter(pl.col("known").is_null()).join(
        asked, on=["session", "dir", "request_id"], how="anti", maintain_order="left"
    )
    yield findings_of(
        "protocol.cancel_unknown",
        never,
        "nobody asked with this id",
        evidence="request_id",
        path="/params/requestId",
    )
    yield findings_of(
        "protocol.cancel_unknown",
        met.filter(pl.col("reply") < pl.col("pos")),
        "the request is answered already",
        evidence="request_id",
        path="/params/requestId",
    )


def _shutdown(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Messages after a recording's pipe closed, or after DELETE ended an HTTP session."""
    closed = traffic.events.closes.group_by("recording").agg(closed=pl.col("seq").max())
    yield findings_of(
        "protocol.after_shutdown",
        traffic.messages.filter(pl.col("scope").is_null())
        .join(closed, on="recording", how="inner", maintain_order="left")
        .filter(pl.col("seq") > pl.col("closed")),
        "the pipe was closed",
    )
    http = traffic.events.http
    ended = (
        http.filter(pl.col("phase") == "request", pl.col("method") == "DELETE")
        .select("recording", "scope", "mcp_session_id")
        .drop_nulls()
        .join(
            http.filter(
                pl.col("phase") == "response", pl.col("status").is_between(200, 299)
            ).select("recording", "scope", "seq"),
            on=["recording", "scope"],
        )
        .group_by("recording", "mcp_session_id")
        .agg(over=pl.col("seq").min())
    )
    if not ended.height:
        return
    exchanges = (
        http.filter(pl.col("phase") == "request", pl.col("method") == "POST")
        .select("recording", "scope", "mcp_session_id", "seq")
        .join(ended, on=["recording", "mcp_session_id"])
        .filter(pl.col("seq") > pl.col("over"))
        .select("recording", "scope")
        .unique()
    )
    yield findings_of(
        "protocol.after_shutdown",
        traffic.messages.filter(pl.col("dir") == "c2s").join(
            exchanges, on=["recording", "scope"], how="semi", maintain_order="left"
        ),
        "the client had ended this HTTP session",
    )


def _envelope(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """What 2026-07-28 wants in every request and every result."""
    said = traffic.events.asks.select("row", "meta_capabilities")
    calls = traffic.calls.filter(pl.col("revision") == MODERN).join(
        said, on="row", how="left", maintain_order="left"
    )
    lacks = pl.concat_list(
        pl.when(pl.col(column).is_null()).then(pl.lit(f"io.modelcontextprotocol/{name}"))
        for column, name in (
            ("meta_protocol_version", "protocolVersion"),
            ("meta_capabilities", "clientCapabilities"),
        )
    ).list.drop_nulls()
    yield findings_of(
        "protocol.meta_missing",
        calls.filter(pl.col("dir") == "c2s", ~pl.col("truncated"))
        .with_columns(lacks=lacks)
        .filter(pl.col("lacks").list.len() > 0),
        formatted("_meta lacks {}", pl.col("lacks").list.join(" and ")),
        path="/params/_meta",
    )
    answered = calls.filter("has_response", ~pl.col("error_reply"), pl.col("dir") == "c2s")
    yield findings_of(
        "protocol.result_type_missing",
        answered.filter(pl.col("result_type").is_null()),
        "the result has no resultType",
        path="/result",
    )
    kind, method = pl.col("result_type"), pl.col("method")
    fine = (
        (kind == "complete")
        | (
            (kind == "input_required")
            & method.is_in(["tools/call", "prompts/get", "resources/read"])
        )
        | ((kind == "task") & (method == "tools/call"))
    )
    yield findings_of(
        "protocol.result_type_unknown",
        answered.filter(kind.is_not_null(), ~fine),
        formatted("resultType {} is not defined for {}", "result_type", "method"),
        evidence="result_type",
        path="/result/resultType",
    )
