"""The input of the protocol's checks: messages and calls with the revision in force."""

from collections.abc import Sequence
from typing import Final

import msgspec
import polars as pl

from mcptally.messages.decode import Events
from mcptally.tables.joins import in_order, left_join_columns
from mcptally.tables.queries import run_query

KNOWN_SESSION: Final = ("pipe", "http_session_id", "sse_endpoint")
"""Values of `session_source` for sessions that the protocol itself identifies."""

_PLACE: Final = [
    *("call_id", "recording", "session", "session_source", "server", "tool", "seq", "index"),
    *("file", "line", "pos", "row", "scope", "dir"),
]
_REQUEST: Final = [
    *("method", "id", "id_key", "ts_ns", "replay", "truncated", "prompt", "resource_uri"),
    *("meta_progress_token", "meta_protocol_version", "meta_client_info", "protocol_version"),
    *("handshake", "cancelled_ns", "closed_by"),
]
_REPLY: Final = [
    *("reply", "reply_row", "reply_truncated", "reply_version", "outcome"),
    *("error_reply", "error_code", "error_message", "is_error", "result_type", "has_meta"),
    *("content_kind", "has_structured_content"),
]
_ABOUT_LONG_TEXTS: Final = {
    "has_response": pl.col("response").is_not_null(),
    "structured_object": pl.col("structured_content").str.starts_with("{"),
}
"""Facts about long texts. The texts stay in `Events.replies`, so that filters do not copy them."""


class Traffic(msgspec.Struct, frozen=True):
    """The messages and calls of a partition in order of arrival (`pos`), and its raw frames."""

    events: Events
    messages: pl.DataFrame
    """`pos`, `row`, `dir`, `scope`, `kind`, `method`, `id`, …, `revision`."""
    calls: pl.DataFrame
    """Requests with their place, their members and those of the reply, and `revision`."""
    raws: pl.DataFrame
    """`Events.raws` with the file's name in `file`, `server` and `session`."""

    @classmethod
    def of(
        cls, events: Events, messages: pl.DataFrame, calls: pl.DataFrame, names: Sequence[str]
    ) -> "Traffic":
        """Return the traffic of one partition.

        Args:
            events: the decoded events.
            messages: the messages, with the file's name in `file`.
            calls: the calls, likewise.
            names: the names of the files; `events` refers to them by index.
        """
        rows = calls.lazy()
        servers = (
            events.opens.lazy().sort("seq").group_by("recording").agg(pl.col("server").first())
        )
        revisions = (
            rows.select("pos", "session", revision="protocol_version").drop_nulls().sort("pos")
        )
        narrow = in_order(
            messages[
                *("pos", "row", "recording", "session", "session_source", "seq", "index", "file"),
                *("line", "dir", "scope", "kind", "method", "id", "jsonrpc", "batch", "has_result"),
                *("has_error", "match", "call_id", "ts_ns", "http_status", "replay", "truncated"),
                "header_version",
            ],
            "pos",
        )
        by_call = rows.select("call_id", asked_at="pos", asked="protocol_version")
        first = revisions.unique("session", keep="first", maintain_order=True).select(
            "session", begin="revision"
        )
        narrow = narrow.hstack(
            narrow.lazy()
            .select("pos", "recording", "session", "call_id", "header_version")
            .join(servers, on="recording", how="left", maintain_order="left")
            .join(by_call, on="call_id", how="left", maintain_order="left")
            .join_asof(revisions, on="pos", by="session", check_sortedness=False)
            .join(first, on="session", how="left", maintain_order="left")
            # A request and its reply have the revision of the request; a notification has the last
            # one that the session used.
            .select(
                "server",
                "asked_at",
                revision=pl.coalesce("header_version", "asked", "revision", "begin"),
            )
            .pipe(run_query)
        )
        of_requests = narrow.lazy().filter(pl.col("kind") == "request").select("pos", "revision")
        file_names = pl.Series(names, dtype=pl.String)
        raws = (
            events.raws.lazy()
            .join(servers, on="recording", how="left", maintain_order="left")
            .with_columns(
                file=pl.lit(file_names).gather(pl.col("file")),
                session=pl.when(pl.col("scope").is_null()).then(pl.col("recording")),
            )
            .pipe(run_query)
        )
        return cls(
            events,
            narrow,
            left_join_columns(
                calls.select(*_PLACE, *_REQUEST, *_REPLY, **_ABOUT_LONG_TEXTS), of_requests, "pos"
            ),
            raws,
        )
