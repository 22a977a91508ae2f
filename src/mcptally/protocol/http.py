"""What travels around messages: stray bytes on a pipe, and the headers of HTTP exchanges."""

import base64
from collections.abc import Iterator

import polars as pl

from mcptally.protocol.revisions import MODERN
from mcptally.protocol.view import Traffic
from mcptally.rules.findings import findings_of
from mcptally.tables.formatting import formatted

_NAMED = ["tools/call", "prompts/get", "resources/read"]
"""Methods that 2026-07-28 wants `Mcp-Name` with."""


def find(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Findings about frames that are no JSON, and about headers."""
    yield from _stray(traffic)
    yield from _headers(traffic)


def _stray(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Frames that are not strict JSON."""
    large = pl.col("why").eq_missing(pl.lit("too_large"))
    raws = traffic.raws
    yield findings_of(
        "transcript.too_large",
        raws.filter(large),
        formatted("a message of {} bytes; its head is all that was kept", pl.col("bytes")),
    )
    # A blank line is what readers skip without a word.
    raws = raws.filter(~large, pl.col("text").is_null() | (pl.col("text").str.strip_chars() != ""))
    to_client, piped = pl.col("dir") == "s2c", pl.col("scope").is_null()
    yield findings_of(
        "protocol.stdout_not_json",
        raws.filter(to_client, piped),
        "a line on stdout that is no message",
        evidence="text",
    )
    yield findings_of(
        "protocol.stdin_not_json",
        raws.filter(~to_client),
        "what the client sent is not strict JSON",
        evidence="text",
    )
    http = traffic.events.http
    asked = http.filter(pl.col("phase") == "request", pl.col("method") == "POST")
    fine = http.filter(pl.col("phase") == "response", pl.col("status") == 200)
    place = ["recording", "scope"]
    bodies = raws.filter(to_client, ~piped)
    for exchanges in (asked, fine):
        bodies = bodies.join(
            exchanges.select(place).unique(), on=place, how="semi", maintain_order="left"
        )
    yield findings_of(
        "protocol.body_not_json",
        bodies.filter(pl.col("sse_event").ne_missing(pl.lit("endpoint"))),
        "an answer with status 200 that is no message",
        evidence="text",
    )


def _headers(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Headers against bodies. An archive that keeps no headers is not blamed for it."""
    place = ["recording", "scope"]
    requests = traffic.events.http.filter(pl.col("phase") == "request")
    kept = requests.filter(
        pl.any_horizontal(
            pl.col("mcp_protocol_version", "mcp_session_id", "mcp_method").is_not_null()
        )
    )
    heads = (
        requests.filter(pl.col("method") == "POST")
        .join(kept.select("recording").unique(), on="recording", how="semi", maintain_order="left")
        .unique(place, keep="first", maintain_order=True)
        .select(*place, "mcp_protocol_version", "mcp_method", "mcp_name")
    )
    if not heads.height:
        return
    names = heads.get_column("mcp_name")
    encoded = [n for n in names.drop_nulls().unique() if n.startswith("=?base64?")]
    heads = heads.with_columns(
        mcp_name=names.replace(encoded, [_decoded(n) for n in encoded]) if encoded else names
    )
    calls = traffic.calls.filter(pl.col("scope").is_not_null(), pl.col("dir") == "c2s").join(
        heads, on=place, how="inner", maintain_order="left"
    )
    method, modern = pl.col("method"), pl.col("revision") == MODERN
    version = pl.col("mcp_protocol_version")
    named = pl.coalesce("tool", "prompt", "resource_uri")
    # Before 2026-07-28 the first request cannot know the revision yet.
    yield findings_of(
        "protocol.version_header_missing",
        calls.filter(version.is_null(), method != "initialize"),
        formatted("no MCP-Protocol-Version, and {} is in force", "revision"),
    )
    yield findings_of(
        "protocol.version_header_differs",
        calls.filter(~modern, method != "initialize", version != pl.col("handshake")),
        formatted("the header says {}, the handshake {}", "mcp_protocol_version", "handshake"),
        evidence="mcp_protocol_version",
    )
    pairs = (
        ("MCP-Protocol-Version", version, pl.col("meta_protocol_version")),
        ("Mcp-Method", pl.col("mcp_method"), method),
        ("Mcp-Name", pl.col("mcp_name"), pl.when(method.is_in(_NAMED)).then(named)),
    )
    for header, head, body in pairs:
        yield findings_of(
            "protocol.header_mismatch",
            calls.filter(head != body),
            formatted("{} is {}, the body says {}", pl.lit(header), head, body),
            evidence=head,
        )
    yield findings_of(
        "protocol.header_missing",
        calls.filter(pl.col("mcp_method").is_null()),
        "Mcp-Method is missing",
    )
    yield findings_of(
        "protocol.header_missing",
        calls.filter(pl.col("mcp_name").is_null(), method.is_in(_NAMED)),
        "Mcp-Name is missing",
    )


def _decoded(value: str) -> str:
    """The text of a header value written `=?base64?…?=`."""
    try:
        return base64.b64decode(
            value.removeprefix("=?base64?").removesuffix("?="), validate=True
        ).decode()
    except ValueError:  # not base64, not ASCII, or no UTF-8 in it
        return value
