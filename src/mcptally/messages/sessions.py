"""Assigns messages to HTTP exchanges and sessions; identifies each session's client and server.

Events → Conversation (messages with their sessions, session identities, recordings)

A pipe is one session. Over HTTP, revisions up to 2025-11-25 have session ids. All other sessions
are inferred, and `session_source` records how (docs/explanation/conversations.md).
"""

from typing import Final

import msgspec
import polars as pl

from mcptally.messages.call_tables import OpenedRecordings, SessionIdentities, SessionMessages
from mcptally.messages.decode import Events
from mcptally.messages.event_tables import (
    DecodedMessages,
    HttpEvents,
    Opens,
    RawFrames,
    Replies,
    RequestParams,
)
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.formatting import formatted
from mcptally.tables.ids import digests
from mcptally.tables.joins import in_order, left_join_columns
from mcptally.tables.queries import run_query
from mcptally.transcript.events import FRAME_OF_EVENT

SESSION_PAUSE: Final = 30 * 60 * 10**9
"""Length in nanoseconds of a pause after which a client without a session id starts a new session.
"""

HTTP_FALLBACK: Final = "2025-03-26"
"""Revision of HTTP requests that do not state one (2025-06-18 basic/transports, protocol version).
"""

_SESSION_IN_PATH: Final = r"[?&]session_?[iI]d=([^&\s]+)"


class Conversation(msgspec.Struct, frozen=True):
    """Messages with their sessions, and the client and server of each session."""

    messages: pl.DataFrame
    """The `SessionMessages` table, sorted by recording, seq and index."""
    sessions: pl.DataFrame
    """The `SessionIdentities` table."""
    recordings: pl.DataFrame
    """The `OpenedRecordings` table."""


def assign_sessions(events: Events) -> Conversation:
    """Assign each message to a session and an HTTP exchange; identify clients and servers.

    Messages also get their kind, and their id as a comparable key.
    """
    recordings = _recordings(events)
    exchanges = _exchanges(events)
    ordered = in_order(events.messages, "recording", "seq", "index", "file", "line")
    messages = (
        left_join_columns(ordered.with_row_index("pos"), exchanges, "recording", "scope")
        .lazy()
        .with_columns(_kind().alias("kind"))
        .with_columns(
            pl.when(SessionMessages.kind.col.is_in(["result", "error"]))
            .then(
                pl.when(SessionMessages.dir.col == "c2s")
                .then(pl.lit("s2c"))
                .otherwise(pl.lit("c2s"))
            )
            .otherwise(SessionMessages.dir.col)
            .alias("asker"),
            id_key(events.messages, "id"),
        )
        .pipe(run_query)
    )
    messages = _mark_imported(_add_sessions(messages, events), recordings)
    [messages] = events.mapped.move([SessionMessages.select(messages)])
    return Conversation(
        messages,
        SessionIdentities.select(_identities(messages, events)),
        OpenedRecordings.select(recordings),
    )


def id_key(frame: pl.DataFrame, name: str) -> pl.Expr:
    r"""Return an expression for the key of a JSON id; ids match if their keys are equal.

    Strings are decoded: the key of `1` is `n1`; the key of `"1"` and `"\u0031"` is `s1`. Null,
    absent ids, arrays and objects have the key null.
    """
    text = pl.col(name)
    escaped = (
        frame[[name]]
        .lazy()
        .filter(text.str.starts_with('"') & text.str.contains("\\", literal=True))
        .unique()
        .pipe(run_query)
        .get_column(name)
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
    has_method, has_id = (
        SessionMessages.method.col.is_not_null(),
        SessionMessages.id.col.is_not_null(),
    )
    return (
        pl.when(has_method & has_id)
        .then(pl.lit("request"))
        .when(has_method)
        .then(pl.lit("notification"))
        .when(SessionMessages.has_error.col)
        .then(pl.lit("error"))
        .when(SessionMessages.has_result.col)
        .then(pl.lit("result"))
        .otherwise(pl.lit("invalid"))
    )


def _recordings(events: Events) -> pl.DataFrame:
    """Return `OpenedRecordings`: for each column, the first non-null value in the `open` events."""
    fields = ["transport", "server", "command", "url", "recorder", "redaction", "source"]
    as_json = pl.col("command", "redaction", "source")
    opens = (
        events.opens.lazy()
        .sort("recording", "seq")
        .with_columns(as_json.replace("null", None))
        .group_by("recording", maintain_order=True)
        .agg([pl.col(name).drop_nulls().first() for name in fields])
        .pipe(run_query)
    )
    frames: list[pl.DataFrame] = [getattr(events, name) for name in FRAME_OF_EVENT.values()]
    seen = pl.concat([frame.get_column("recording") for frame in frames]).unique().sort()
    return left_join_columns(seen.to_frame(), opens, "recording")


def _exchanges(events: Events) -> pl.DataFrame:
    """Return one row per HTTP exchange, identified by recording and scope."""
    request, response = HttpEvents.phase.col == "request", HttpEvents.phase.col == "response"

    def first(name: str, when: pl.Expr) -> pl.Expr:
        return pl.col(name).filter(when).drop_nulls().first()

    in_path = HttpEvents.path.col.str.extract(_SESSION_IN_PATH)
    endpoints = (
        events.raws.lazy()
        .filter(HttpEvents.dir.col == "s2c", HttpEvents.scope.col.is_not_null())
        .select("recording", "scope", stream_id=RawFrames.text.col.str.extract(_SESSION_IN_PATH))
        .drop_nulls("stream_id")
        .unique(["recording", "scope"], keep="first", maintain_order=True)
    )
    return (
        events.http.lazy()
        .sort("recording", "seq")
        .group_by("recording", "scope", maintain_order=True)
        .agg(
            first("status", response).alias("http_status"),
            HttpEvents.closed_by.col.drop_nulls().first(),
            HttpEvents.ts_ns.col.filter(HttpEvents.closed_by.col.is_not_null())
            .first()
            .alias("closed_ns"),
            first("mcp_protocol_version", request).alias("header_version"),
            # If the request head was not recorded, assume that the exchange may resume a stream.
            (first("last_event_id", request).is_not_null() | ~request.any()).alias("resumes"),
            pl.coalesce(
                first("mcp_session_id", request),
                # An error response may name a new session but does not start one.
                first("mcp_session_id", response & (HttpEvents.status.col < 400)),
            ).alias("http_session"),
            in_path.drop_nulls().first().alias("path_session"),
        )
        .join(endpoints, on=["recording", "scope"], how="left", maintain_order="left")
        .with_columns(sse_session=pl.coalesce("path_session", "stream_id"))
        .drop("path_session", "stream_id")
        .pipe(run_query)
    )


class _Exchanges(StageTable):
    """One row per HTTP exchange, with facts that may identify its session."""

    http_session = Column(pl.String, "Session in a header.")
    sse_session = Column(pl.String, "Session in the path of an SSE stream.")
    exchange_client = Column(pl.String, "JSON text of the client's name and version in `_meta`.")
    exchange_at = Column(pl.Int64, "Time of the first message.", "ns")
    pauses = Column(pl.Int64, "Long pauses of the client before the exchange.")


def _add_sessions(messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Add `session` and `session_source` to each message."""
    if messages.get_column(DecodedMessages.scope.name).null_count() == messages.height:
        return messages.with_columns(session="recording", session_source=pl.lit("pipe"))
    clients = events.asks[["row", "meta_client_info"]]
    messages = left_join_columns(messages, clients, "row")
    per_exchange = (
        messages.lazy()
        .filter(SessionMessages.scope.col.is_not_null())
        .group_by("recording", "scope", maintain_order=True)
        .agg(
            RequestParams.meta_client_info.col.filter(SessionMessages.dir.col == "c2s")
            .drop_nulls()
            .first()
            .alias("exchange_client"),
            SessionMessages.ts_ns.col.first().alias("exchange_at"),
        )
        .sort("recording", "exchange_client", "exchange_at")
        .with_columns(
            _Exchanges.exchange_at.col.diff().over("recording", "exchange_client").fill_null(0)
            > SESSION_PAUSE
        )
        .with_columns(
            pauses=_Exchanges.exchange_at.col.cum_sum().over("recording", "exchange_client")
        )
        .select("recording", "scope", "exchange_client", "pauses")
        .pipe(run_query)
    )
    session_id = pl.coalesce("http_session", "sse_session", "exchange_client")
    messages = left_join_columns(messages, per_exchange, "recording", "scope")
    hashed = digests(messages.select(session_id).to_series())
    return (
        messages.hstack([hashed.alias("session_hash")])
        .lazy()
        .with_columns(
            session_source=pl.when(SessionMessages.scope.col.is_null())
            .then(pl.lit("pipe"))
            .when(_Exchanges.http_session.col.is_not_null())
            .then(pl.lit("http_session_id"))
            .when(_Exchanges.sse_session.col.is_not_null())
            .then(pl.lit("sse_endpoint"))
            .when(_Exchanges.exchange_client.col.is_not_null())
            .then(pl.lit("client"))
            .otherwise(pl.lit("recording")),
        )
        .with_columns(
            session=pl.when(SessionMessages.session_source.col.is_in(["pipe", "recording"]))
            .then(SessionMessages.recording.col)
            .when((SessionMessages.session_source.col == "client") & (_Exchanges.pauses.col > 0))
            .then(formatted("{}/{}.{}", "recording", "session_hash", "pauses"))
            .otherwise(formatted("{}/{}", "recording", "session_hash"))
        )
        .pipe(run_query)
    )


def _mark_imported(messages: pl.DataFrame, recordings: pl.DataFrame) -> pl.DataFrame:
    """Set `session_source` to `source` for messages imported from logs that contain only calls.

    Such logs contain no handshakes, so rules must not report a missing handshake.
    """
    imported = recordings.filter(
        Opens.source.col.cast(pl.String).str.json_path_match("$.faithful") == "calls"
    ).get_column(DecodedMessages.recording.name)
    if imported.is_empty():
        return messages
    return messages.with_columns(
        session_source=pl.when(SessionMessages.recording.col.is_in(imported.implode()))
        .then(pl.lit("source"))
        .otherwise("session_source")
    )


def _identities(messages: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Return `SessionIdentities`: the first non-null values that each side reports in a session."""
    place = messages.lazy().select("row", "pos", "session")
    client = (
        events.asks.lazy()
        .select(
            "row",
            client_info=pl.coalesce("client_info", "meta_client_info"),
            client_capabilities=pl.coalesce("capabilities", "meta_capabilities"),
        )
        .filter(pl.any_horizontal(pl.all().exclude("row").is_not_null()))
    )
    server = (
        events.replies.lazy()
        .select(
            "row",
            server_info=pl.coalesce("server_info", "meta_server_info"),
            server_capabilities="capabilities",
            negotiated="protocol_version",
        )
        .filter(pl.any_horizontal(pl.all().exclude("row").is_not_null()))
    )
    stated = (
        pl.concat([client, server], how="diagonal")
        .join(place, on="row")
        .sort("pos")
        .group_by("session", maintain_order=True)
        .agg(pl.all().exclude("row", "pos").drop_nulls().first())
        .pipe(run_query)
    )
    return stated.hstack(
        [
            *_name_and_version(
                stated.get_column(RequestParams.client_info.name), "client", "client_version"
            ),
            *_name_and_version(
                stated.get_column(Replies.server_info.name), "server_name", "server_version"
            ),
        ]
    )


class _Implementation(msgspec.Struct):
    """The object `clientInfo` or `serverInfo`."""

    name: object = None
    version: object = None


def _name_and_version(infos: pl.Series, name: str, version: str) -> tuple[pl.Series, pl.Series]:
    """Return the names and versions in the JSON of `Implementation` objects.

    Each distinct text is parsed once.

    Args:
        infos: the JSON texts.
        name: name of the series with the names.
        version: name of the series with the versions.
    """
    parsed: dict[str | None, tuple[str | None, str | None]] = {}
    texts: list[str | None] = infos.to_list()
    for text in {text: None for text in texts if text is not None}:
        try:
            info = msgspec.json.decode(text, type=_Implementation)
        except (msgspec.DecodeError, RecursionError):
            continue
        both = (info.name, info.version)
        parsed[text] = tuple(v if isinstance(v, str) else None for v in both)  # type: ignore[assignment]
    nothing = (None, None)
    return (
        pl.Series(name, [parsed.get(t, nothing)[0] for t in texts], dtype=pl.String),
        pl.Series(version, [parsed.get(t, nothing)[1] for t in texts], dtype=pl.String),
    )
