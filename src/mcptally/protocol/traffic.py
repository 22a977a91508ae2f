"""Prepares the input of the protocol checks: messages and calls, with the revision in force."""

from collections.abc import Sequence
from typing import Final

import msgspec
import polars as pl

from mcptally.messages.call_tables import OpenedRecordings, PairedCalls, PairedMessages
from mcptally.messages.decode import Events
from mcptally.messages.event_tables import Opens, RawFrames
from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Column
from mcptally.tables.joins import in_order, left_join_columns
from mcptally.tables.messages import Messages
from mcptally.tables.queries import run_query

KNOWN_SESSION: Final = ("pipe", "http_session_id", "sse_endpoint")
"""Values of `session_source` for sessions that the protocol itself identifies."""


class TrafficMessages(PairedMessages):
    """One row per message, with the revision in force."""

    file = Messages.file
    server = OpenedRecordings.server
    revision = Column(pl.String, "Protocol revision in force.")


class TrafficCalls(PairedCalls):
    """One row per request, with facts about its reply and the revision in force."""

    file = Calls.file
    has_response = Column(pl.Boolean, "Whether the call has a reply that is known in full.")
    structured_object = Column(pl.Boolean, "Whether `structuredContent` is an object.")
    revision = TrafficMessages.revision


class RepeatedCalls(TrafficCalls):
    """One row per request that repeats a value of an earlier request, with facts about both."""

    before = Column(pl.UInt32, "`pos` of the last earlier request with the same value.")
    answered = Column(pl.UInt32, "`pos` of its reply; null without one.")
    cancelled = Column(pl.Boolean, "Whether it had been cancelled.")
    closed = Column(pl.Boolean, "Whether the client had closed its HTTP exchange.")

    @classmethod
    def of(cls, calls: pl.DataFrame, value: Column, among: pl.Expr) -> pl.DataFrame:
        """Return the calls `among` which the same side used the same `value` in the session."""
        same = [cls.session.name, cls.dir.name, value.name]
        cancelled = cls.cancelled_ns.col.shift().over(same) < cls.ts_ns.col
        repeated = (
            calls.lazy()
            .with_row_index("at")
            .filter(among, value.col.is_not_null())
            .filter(pl.struct(same).is_duplicated())
            .select("at")
            .pipe(run_query)
        )
        return (
            calls[repeated.to_series()]
            .lazy()
            .sort(cls.pos.name)
            .with_columns(
                before=cls.pos.col.shift().over(same),
                answered=cls.reply.col.shift().over(same),
                cancelled=cancelled.fill_null(value=False),
                closed=cls.closed_by.col.shift().over(same).eq_missing(pl.lit("client")),
            )
            .filter(cls.before.col.is_not_null())
            .pipe(run_query)
        )


class TrafficRaws(RawFrames):
    """One row per frame that is not a message."""

    file = Messages.file
    server = OpenedRecordings.server
    session = Column(pl.String, "Session; null on HTTP.")


class Traffic(msgspec.Struct, frozen=True):
    """A partition's messages and calls, in order of arrival (`pos`), and its raw frames."""

    events: Events
    messages: pl.DataFrame
    """The `TrafficMessages` table."""
    calls: pl.DataFrame
    """The `TrafficCalls` table."""
    raws: pl.DataFrame
    """The `TrafficRaws` table."""

    @classmethod
    def of(
        cls, events: Events, messages: pl.DataFrame, calls: pl.DataFrame, names: Sequence[str]
    ) -> "Traffic":
        """Build the traffic of one partition.

        Args:
            events: the decoded events.
            messages: the messages, with the file's name in `file`.
            calls: the calls, with the file's name in `file`.
            names: the names of the files, to which `events` refers by index.
        """
        servers = (
            events.opens.lazy()
            .sort(Opens.seq.name)
            .group_by(Opens.recording.name)
            .agg(Opens.server.col.first())
        )
        messages = in_order(messages, TrafficMessages.pos.name)
        messages = messages.hstack(_revisions(messages, calls, servers))
        of_requests = (
            messages.lazy()
            .filter(TrafficMessages.kind.col == "request")
            .select(TrafficMessages.pos.name, TrafficMessages.revision.name)
        )
        file_names = pl.Series(names, dtype=pl.String)
        raws = (
            events.raws.lazy()
            .join(servers, on="recording", how="left", maintain_order="left")
            .with_columns(
                file=pl.lit(file_names).gather(RawFrames.file.col),
                session=pl.when(RawFrames.scope.col.is_null()).then(RawFrames.recording.col),
            )
            .pipe(run_query)
        )
        calls = calls.with_columns(
            has_response=PairedCalls.response.col.is_not_null(),
            structured_object=PairedCalls.structured_content.col.str.starts_with("{"),
        )
        return cls(
            events,
            TrafficMessages.select(messages),
            TrafficCalls.select(left_join_columns(calls, of_requests, "pos")),
            TrafficRaws.select(raws),
        )


def _revisions(messages: pl.DataFrame, calls: pl.DataFrame, servers: pl.LazyFrame) -> pl.DataFrame:
    """Return the columns `server` and `revision`, with one row per message."""
    rows = calls.lazy()
    revisions = rows.select("pos", "session", revision="protocol_version").drop_nulls().sort("pos")
    by_call = rows.select("call_id", asked="protocol_version")
    first = revisions.unique("session", keep="first", maintain_order=True).select(
        "session", begin="revision"
    )
    return (
        messages.lazy()
        .select("pos", "recording", "session", "call_id", "header_version")
        .join(servers, on="recording", how="left", maintain_order="left")
        .join(by_call, on="call_id", how="left", maintain_order="left")
        .join_asof(revisions, on="pos", by="session", check_sortedness=False)
        .join(first, on="session", how="left", maintain_order="left")
        # A reply has the revision of its request; a notification has the session's latest revision.
        .select("server", revision=pl.coalesce("header_version", "asked", "revision", "begin"))
        .pipe(run_query)
    )
