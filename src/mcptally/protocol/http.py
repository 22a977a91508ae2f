"""Checks how messages are transported: lines and bodies that are not JSON, and HTTP headers."""

import base64
from collections.abc import Iterator
from typing import Final

import polars as pl

from mcptally.messages.event_tables import HttpEvents
from mcptally.protocol.revisions import STATELESS
from mcptally.protocol.traffic import Traffic, TrafficCalls, TrafficRaws
from mcptally.rules.findings import Check, make_findings, run_checks
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query

_NAMED = ["tools/call", "prompts/get", "resources/read"]
"""Methods whose requests must have the header `Mcp-Name` in 2026-07-28."""

_NO_BODY: Final = ("comment", "no_data", "empty", "torn")
"""Values of `why` for the parts of an SSE stream that clients ignore."""


def check_http(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Yield findings about frames that are not JSON, and about HTTP headers."""
    yield from _check_raw_frames(traffic)
    yield from _check_headers(traffic)


def _check_raw_frames(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Find frames that are not strict JSON or that were too large to record."""
    large = TrafficRaws.why.col.eq_missing(pl.lit("too_large"))
    raws, http = traffic.raws, traffic.events.http
    # Readers ignore blank lines, so a blank line is not a violation.
    text = ~large & (
        TrafficRaws.text.col.is_null() | (TrafficRaws.text.col.str.strip_chars() != "")
    )
    to_client, piped = TrafficRaws.dir.col == "s2c", TrafficRaws.scope.col.is_null()
    yield from run_checks(
        raws,
        Check(
            "transcript.too_large",
            large,
            formatted("a message of {} bytes; only its head was kept", TrafficRaws.bytes.col),
        ),
        Check(
            "protocol.stdout_not_json",
            text & to_client & piped,
            "a line on stdout that is not a message",
            evidence="text",
        ),
        Check(
            "protocol.stdin_not_json",
            text & ~to_client,
            "the client sent something that is not strict JSON",
            evidence="text",
        ),
    )
    if not raws.height or not http.height:
        return
    posts = http.lazy().filter(HttpEvents.phase.col == "request", HttpEvents.method.col == "POST")
    succeeded = http.lazy().filter(HttpEvents.phase.col == "response", HttpEvents.status.col == 200)
    exchange = ["recording", "scope"]
    no_body = TrafficRaws.why.col.fill_null("").is_in(_NO_BODY)
    bodies = raws.lazy().filter(text, to_client, ~piped, ~no_body)
    for exchanges in (posts, succeeded):
        bodies = bodies.join(
            exchanges.select(exchange).unique(), on=exchange, how="semi", maintain_order="left"
        )
    yield make_findings(
        "protocol.body_not_json",
        bodies.filter(TrafficRaws.sse_event.col.ne_missing(pl.lit("endpoint"))),
        "a response with status 200 that is not a message",
        evidence="text",
    )


def _check_headers(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Compare headers with the messages in the bodies, in recordings that include MCP headers."""
    if not traffic.events.http.height:
        return
    exchange = ["recording", "scope"]
    requests = traffic.events.http.lazy().filter(HttpEvents.phase.col == "request")
    with_headers = requests.filter(
        pl.any_horizontal(
            pl.col("mcp_protocol_version", "mcp_session_id", "mcp_method").is_not_null()
        )
    )
    recordings = with_headers.select("recording").unique()
    headers = (
        requests.filter(HttpEvents.method.col == "POST")
        .join(recordings, on="recording", how="semi", maintain_order="left")
        .unique(exchange, keep="first", maintain_order=True)
        .select(*exchange, "mcp_protocol_version", "mcp_method", "mcp_name")
        .pipe(run_query)
    )
    if not headers.height:
        return
    names = headers.get_column(HttpEvents.mcp_name.name)
    encoded = [n for n in names.drop_nulls().unique() if n.startswith("=?base64?")]
    headers = headers.with_columns(
        mcp_name=names.replace(encoded, [_decoded(n) for n in encoded]) if encoded else names
    )
    calls = (
        traffic.calls.lazy()
        .filter(TrafficCalls.scope.col.is_not_null(), TrafficCalls.dir.col == "c2s")
        .join(headers.lazy(), on=exchange, how="inner", maintain_order="left")
        .pipe(run_query)
    )
    method, modern = TrafficCalls.method.col, TrafficCalls.revision.col.is_in(STATELESS)
    version = HttpEvents.mcp_protocol_version.col
    named = pl.coalesce("tool", "prompt", "resource_uri")
    # Before 2026-07-28, the revision is not yet agreed when initialize is sent.
    yield from run_checks(
        calls,
        Check(
            "protocol.version_header_missing",
            version.is_null() & (method != "initialize"),
            formatted("no MCP-Protocol-Version, which {} requires", "revision"),
        ),
        Check(
            "protocol.version_header_differs",
            ~modern & (method != "initialize") & (version != TrafficCalls.handshake.col),
            formatted("the header says {}, the handshake {}", "mcp_protocol_version", "handshake"),
            evidence="mcp_protocol_version",
        ),
        *(
            Check(
                "protocol.header_mismatch",
                value != body,
                formatted("{} is {}, the body says {}", pl.lit(header), value, body),
                evidence=value,
            )
            for header, value, body in (
                ("MCP-Protocol-Version", version, TrafficCalls.meta_protocol_version.col),
                ("Mcp-Method", HttpEvents.mcp_method.col, method),
                ("Mcp-Name", HttpEvents.mcp_name.col, pl.when(method.is_in(_NAMED)).then(named)),
            )
        ),
        Check(
            "protocol.header_missing", HttpEvents.mcp_method.col.is_null(), "Mcp-Method is missing"
        ),
        Check(
            "protocol.header_missing",
            HttpEvents.mcp_name.col.is_null() & method.is_in(_NAMED),
            "Mcp-Name is missing",
        ),
    )


def _decoded(value: str) -> str:
    """Decode a header value that is written as `=?base64?…?=`; return other values unchanged."""
    try:
        return base64.b64decode(
            value.removeprefix("=?base64?").removesuffix("?="), validate=True
        ).decode()
    except ValueError:  # the value is not base64, or its bytes are not UTF-8
        return value
