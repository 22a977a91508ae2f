"""Who talks: HTTP exchanges, sessions, and what client and server say of themselves.

    Events → Conversation (messages with their session; exchanges; one row a session)

MCP has a session on a pipe and, up to 2025-11-25, on HTTP by id. Where the protocol has none it is
derived, and `session_source` says how (docs/explanation/conversations.md).
"""

import dataclasses
from typing import Final

import msgspec
import polars as pl

from mcptally.messages.decode import Events
from mcptally.tables.formatting import formatted
from mcptally.tables.ids import digests
from mcptally.tables.joins import in_order, left_join_columns
from mcptally.transcript.events import EVENTS

PAUSE: Final = 30 * 60 * 10**9
"""Nanoseconds of silence after which a client without a session id begins a new session."""

HTTP_FALLBACK: Final = "2025-03-26"
"""Revision of an HTTP request that says none (2025-06-18 basic/transports, protocol version)."""

_SESSION_IN_PATH: Final = r"[?&]session_?[iI]d=([^&\s]+)"


@dataclasses.dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in order of arrival, each with its session, and the sessions' identities."""

    messages: pl.DataFrame
    """All of `Events.messages`, sorted by recording, seq, index; plus `pos` (the order), `kind`,
    `asker` (who asked what it belongs to), `id_key`, `session`, `session_source`, and of its
    exchange `http_status`, `closed_by`, `header_version` and `resumes` (whether it may bring again
    what an earlier one brought)."""
    sessions: pl.DataFrame
    """`session`, `server_name`, `server_version`, `server_capabilities`, `client`,
    `client_version`, `client_capabilities`, `negotiated`."""
    recordings: pl.DataFrame
    """First `open` of each recording: `recording`, `transport`, `server`, `command`, …"""


def assign_sessions(events: Events) -> Conversation:
    """Give every message its place: exchange, session, kind, and the key of its id."""
    recordings = _recordings(events)
    exchanges = _exchanges(events)
    ordered = in_order(events.messages, "recording", "seq", "index", "file", "line")
    messages = (
        left_join_columns(ordered.with_row_index("pos"), exchanges, "recording", "scope")
        .with_columns(_kind().alias("kind"))
        .with_columns(
            pl.when(pl.col("kind").is_in(["result", "error"]))
            .then(pl.when(pl.col("dir") == "c2s").then(pl.lit("s2c")).otherwise(pl.lit("c2s")))
            .otherwise(pl.col("dir"))
            .alias("asker"),
            id_key(events.messages, "id"),
        )
    )
    messages = _of_records(_with_sessions(messages, events, recordings), recordings)
    return Conversation(messages, _sessions(messages, events), recordings)


def id_key(frame: pl.DataFrame, name: str) -> pl.Expr:
    r"""The value of a JSON id as text that is equal exactly when ids match: strings decoded.

    `1` gives `n1`, `"1"` and `"\u0031"` give `s1`; null, absent and containers give null.
    """
    text = pl.col(name)
    escaped = frame.get_column(name).drop_nulls().unique()
    escaped = escaped.filter(
        escaped.str.starts_with('"') & escaped.str.contains("\\", literal=True)
    )
    decoded = pl.Series([msgspec.json.decode(t) for t in escaped], dtype=pl.String)
    plain = pl.lit("s") + text.str.slice(1, text.str.len_chars() - 2)
    if escaped.len():
        plain = (
            pl.when(text.is_in(escaped.implode()))
            .then(pl.lit("s") + text.replace_strict(escaped, decoded, default=None))
            .otherwise(plain)
        )
    return (
        pl.when(text.str.starts_with('"'))
        .then(plain)
        .when(text.str.contains(r"^[-0-9]"))
        .then(pl.lit("n") + text)
        .alias(f"{name}_key")
    )


def _kind() -> pl.Expr:
    asks, answers = pl.col("method").is_not_null(), pl.col("id").is_not_null()
    return (
        pl.when(asks & answers)
        .then(pl.lit("request"))
        .when(asks)
        .then(pl.lit("notification"))
        .when(pl.col("has_error"))
        .then(pl.lit("error"))
        .when(pl.col("has_result"))
        .then(pl.lit("result"))
        .otherwise(pl.lit("invalid"))
    )


def _recordings(events: Events) -> pl.DataFrame:
    """One row a recording that has an event at all; `open` fields null where it has no open."""
    keep = ["transport", "server", "command", "url", "recorder", "redaction", "source"]
    as_json = pl.col("command", "redaction", "source")
    opens = (
        events.opens.sort("recording", "seq")
        .with_columns(as_json.replace("null", None))
        .group_by("recording", maintain_order=True)
        .agg([pl.col(name).drop_nulls().first() for name in keep])
    )
    frames: list[pl.DataFrame] = [getattr(events, name) for name in EVENTS.values()]
    seen = pl.concat([frame.select("recording") for frame in frames]).unique()
    return seen.join(opens, on="recording", how="left").sort("recording")


def _exchanges(events: Events) -> pl.DataFrame:
    """One row an HTTP exchange (recording, scope)."""
    asked, answered = pl.col("phase") == "request", pl.col("phase") == "response"

    def first(name: str, when: pl.Expr) -> pl.Expr:
        return pl.col(name).filter(when).drop_nulls().first()

    in_path = pl.col("path").str.extract(_SESSION_IN_PATH)
    endpoints = (
        events.raws.filter(pl.col("dir") == "s2c", pl.col("scope").is_not_null())
        .select("recording", "scope", stream_id=pl.col("text").str.extract(_SESSION_IN_PATH))
        .drop_nulls("stream_id")
        .unique(["recording", "scope"], keep="first", maintain_order=True)
    )
    return (
        events.http.sort("recording", "seq")
        .group_by("recording", "scope", maintain_order=True)
        .agg(
            first("status", answered).alias("http_status"),
            pl.col("closed_by").drop_nulls().first(),
            first("mcp_protocol_version", asked).alias("header_version"),
            # Not known whether it asked for a resumption: it may have.
            (first("last_event_id", asked).is_not_null() | ~asked.any()).alias("resumes"),
            pl.coalesce(
                first("mcp_session_id", asked),
                # An error reply may name a new session; it does not begin one.
                first("mcp_session_id", answered & (pl.col("status") < 400)),
            ).alias("http_session"),
            in_path.drop_nulls().first().alias("path_session"),
        )
        .join(endpoints, on=["recording", "scope"], how="left", maintain_order="left")
        .with_columns(sse_session=pl.coalesce("path_session", "stream_id"))
        .drop("path_session", "stream_id")
    )


def _with_sessions(
    messages: pl.DataFrame, events: Events, recordings: pl.DataFrame
) -> pl.DataFrame:
    """`session` and `session_source` of every message."""
    ids = ("http_session", "sse_session")
    if messages.get_column("scope").null_count() == messages.height:
        on_pipes = messages.with_columns(session="recording", session_source=pl.lit("pipe"))
        return on_pipes.drop(ids)
    clients = events.asks.select("row", "meta_client_info")
    messages = left_join_columns(messages, clients, "row")
    per_exchange = (
        messages.filter(pl.col("scope").is_not_null())
        .group_by("recording", "scope", maintain_order=True)
        .agg(
            pl.col("meta_client_info")
            .filter(pl.col("dir") == "c2s")
            .drop_nulls()
            .first()
            .alias("exchange_client"),
            pl.col("ts_ns").first().alias("exchange_at"),
        )
        .sort("recording", "exchange_client", "exchange_at")
        .with_columns(
            pl.col("exchange_at").diff().over("recording", "exchange_client").fill_null(0) > PAUSE
        )
        .with_columns(pauses=pl.col("exchange_at").cum_sum().over("recording", "exchange_client"))
        .select("recording", "scope", "exchange_client", "pauses")
    )
    id_of = pl.coalesce("http_session", "sse_session", "exchange_client")
    hashed = digests(
        messages.select("recording", "scope", "http_session", "sse_session")
        .join(per_exchange, on=["recording", "scope"], how="left", maintain_order="left")
        .select(id_of)
        .to_series()
    )
    transports = recordings.select("recording", "transport")
    messages = left_join_columns(messages, per_exchange, "recording", "scope")
    return (
        left_join_columns(messages, transports, "recording")
        .with_columns(session_hash=hashed)
        .with_columns(
            session_source=pl.when(pl.col("scope").is_null())
            .then(pl.lit("pipe"))
            .when(pl.col("http_session").is_not_null())
            .then(pl.lit("http_session_id"))
            .when(pl.col("sse_session").is_not_null())
            .then(pl.lit("sse_endpoint"))
            .when(pl.col("exchange_client").is_not_null())
            .then(pl.lit("client"))
            .otherwise(pl.lit("recording")),
        )
        .with_columns(
            session=pl.when(pl.col("session_source").is_in(["pipe", "recording"]))
            .then(pl.col("recording"))
            .when((pl.col("session_source") == "client") & (pl.col("pauses") > 0))
            .then(formatted("{}/{}.{}", "recording", "session_hash", "pauses"))
            .otherwise(formatted("{}/{}", "recording", "session_hash"))
        )
        .drop(*ids, "meta_client_info", "exchange_client", "pauses", "session_hash", "transport")
    )


def _of_records(messages: pl.DataFrame, recordings: pl.DataFrame) -> pl.DataFrame:
    """Messages made from records of calls: of such a session no handshake is missing."""
    made = recordings.filter(
        pl.col("source").cast(pl.String).str.json_path_match("$.faithful") == "calls"
    ).get_column("recording")
    if made.is_empty():
        return messages
    return messages.with_columns(
        session_source=pl.when(pl.col("recording").is_in(made.implode()))
        .then(pl.lit("source"))
        .otherwise("session_source")
    )


def _sessions(messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """What the two sides of each session say of themselves, first word first."""
    place = messages.select("row", "pos", "session")
    client = events.asks.select(
        "row",
        client_info=pl.coalesce("client_info", "meta_client_info"),
        client_capabilities=pl.coalesce("capabilities", "meta_capabilities"),
    ).filter(pl.any_horizontal(pl.all().exclude("row").is_not_null()))
    server = events.replies.select(
        "row",
        server_info=pl.coalesce("server_info", "meta_server_info"),
        server_capabilities="capabilities",
        negotiated="protocol_version",
    ).filter(pl.any_horizontal(pl.all().exclude("row").is_not_null()))
    said = (
        pl.concat([client, server], how="diagonal")
        .join(place, on="row")
        .sort("pos")
        .group_by("session", maintain_order=True)
        .agg(pl.all().exclude("row", "pos").drop_nulls().first())
    )
    return said.with_columns(
        *_identity(said.get_column("client_info"), "client", "client_version"),
        *_identity(said.get_column("server_info"), "server_name", "server_version"),
    ).drop("client_info", "server_info")


class _Implementation(msgspec.Struct):
    name: object = None
    version: object = None


def _identity(infos: pl.Series, name: str, version: str) -> tuple[pl.Series, pl.Series]:
    """Name and version out of `Implementation` objects; each distinct text is parsed once."""
    parsed: dict[str, tuple[str | None, str | None]] = {}
    for text in infos.drop_nulls().unique():
        try:
            info = msgspec.json.decode(text, type=_Implementation)
        except (msgspec.DecodeError, RecursionError):
            continue
        both = (info.name, info.version)
        parsed[text] = tuple(v if isinstance(v, str) else None for v in both)  # type: ignore[assignment]
    texts = infos.to_list()
    nothing = (None, None)
    return (
        pl.Series(name, [parsed.get(t, nothing)[0] for t in texts], dtype=pl.String),
        pl.Series(version, [parsed.get(t, nothing)[1] for t in texts], dtype=pl.String),
    )
