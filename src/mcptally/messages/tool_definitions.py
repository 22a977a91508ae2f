"""Reads tool definitions from listings, and finds the version in force at each call.

replies to tools/list → listings and definitions → calls with definitions, table `tools`
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.messages.call_tables import PairedCalls
from mcptally.messages.event_tables import Replies
from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.ids import digest
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.tables.stages import TIME, Definitions, GatheredCalls, Listings, Timeline
from mcptally.tables.tools import Tools


def read_listings(calls: pl.DataFrame, messages: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the replies to tools/list; return the `Listings` and `Definitions` tables.

    Each distinct reply is parsed only once.
    """
    replies = (
        calls.lazy()
        .filter(
            (PairedCalls.method.col == "tools/list")
            & (PairedCalls.dir.col == "c2s")
            & PairedCalls.tools.col.is_not_null()
        )
        .select(
            PairedCalls.recording.col,
            PairedCalls.session.col,
            PairedCalls.server.col,
            PairedCalls.server_name.col,
            PairedCalls.tools.col,
            PairedCalls.file.col,
            PairedCalls.line.col,
            PairedCalls.seq.col,
            PairedCalls.index.col,
            PairedCalls.reply.col.alias(Listings.pos.name),
            PairedCalls.reply_ns.col.alias(Listings.listed_ns.name),
            PairedCalls.protocol_version.col.alias(Listings.revision.name),
            PairedCalls.response.col,
        )
        .pipe(run_query)
    )
    if not replies.height:
        return Listings.empty(), Definitions.empty()
    complete = [
        response and _is_last_page(response)
        for response in replies.get_column(Replies.response.name)
    ]
    changes = messages.lazy().filter(PairedCalls.method.col == "notifications/tools/list_changed")
    # Join by number: a reply's text contains all tools, and would be repeated for each tool.
    numbers: dict[str, int] = {}
    tools = replies.get_column(PairedCalls.tools.name)
    number = [numbers.setdefault(text, len(numbers)) for text in tools]
    placed = (
        replies.lazy()
        .drop("response", PairedCalls.tools.name)
        .with_columns(
            pl.Series(Listings.complete.name, complete, dtype=pl.Boolean),
            pl.Series("number", number, dtype=pl.UInt32),
        )
        # A listing with several pages is complete if its last page has no `nextCursor`.
        .with_columns(complete=Listings.complete.col.sort_by("pos").last().over("session"))
        .join(
            changes.group_by(PairedCalls.session.name).agg(announced_at=PairedCalls.pos.col.min()),
            on=PairedCalls.session.name,
            how="left",
            maintain_order="left",
        )
        .with_columns(
            (pl.col("announced_at") < Listings.pos.col)
            .fill_null(value=False)
            .alias(Listings.announced.name)
        )
    )
    rows: list[tuple[int, str, str]] = []
    definitions: dict[str, tuple[Any, ...]] = {}
    for text, place in numbers.items():
        for tool in _objects(text):
            name = tool.get("name")
            if not isinstance(name, str):
                continue
            canonical = canonical_json(tool)
            key = digest(canonical)
            rows.append((place, name, key))
            definitions[key] = (
                key,
                name,
                _string(tool, "title"),
                _string(tool, "description"),
                _json(tool, "inputSchema"),
                _json(tool, "outputSchema"),
                _json(tool, "annotations"),
                len(canonical.encode("utf-8", "surrogatepass")),
                None,  # omit `kind`, because `verdict.evidence.add_kinds` sets it
                canonical,
            )
    columns = {column.name: column.dtype for column in (Listings.tool, Listings.definition)}
    listed = pl.LazyFrame(rows, schema={"number": pl.UInt32, **columns}, orient="row")
    return (
        placed.join(listed, on="number", how="inner", maintain_order="left")
        .select(*Listings.columns())
        .pipe(run_query),
        pl.DataFrame(list(definitions.values()), schema=Definitions.schema(), orient="row"),
    )


def _is_last_page(result: str) -> bool:
    if "nextCursor" not in result:
        return True
    try:
        return msgspec.json.decode(result, type=dict[str, Any]).get("nextCursor") is None
    except (msgspec.DecodeError, RecursionError):
        return True


def canonical_json(value: Any) -> str:
    """Return JSON text with sorted keys and no spaces; equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _objects(text: str) -> list[dict[str, Any]]:
    try:
        tools = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [t for t in tools if isinstance(t, dict)] if isinstance(tools, list) else []


def _string(tool: dict[str, Any], name: str) -> str | None:
    value = tool.get(name)
    return value if isinstance(value, str) else None


def _json(tool: dict[str, Any], name: str) -> str | None:
    return canonical_json(tool[name]) if name in tool else None


def add_definitions(
    calls: pl.DataFrame, listed: pl.DataFrame, everywhere: pl.DataFrame
) -> pl.DataFrame:
    """Add `definition` and `definition_source` to each tool call.

    The version in force is the last one listed before the call in the same session, or else the
    first one listed after it. If the tool was not listed in the session, all sessions with the
    server are searched in the same way.

    Args:
        calls: a partition's calls.
        listed: the partition's `Listings`.
        everywhere: the whole archive's `Timeline`.
    """
    session, server = Calls.session.name, Calls.server.name
    tool, version = Calls.tool.name, Calls.definition.name
    is_tool_call = (Calls.dir.col == "c2s") & Calls.tool.col.is_not_null()
    if not everywhere.height:
        return calls.with_columns(
            pl.lit(None, pl.String).alias(version),
            pl.when(is_tool_call).then(pl.lit("none")).alias(Calls.definition_source.name),
        )
    pos, sent, listed_at = GatheredCalls.pos.name, GatheredCalls.ts_ns.name, Timeline.listed_ns.name
    in_session = listed.lazy().select(session, tool, pos, version).sort(pos, version)
    of_server = everywhere.lazy().select(*Timeline.columns()).sort(listed_at, version)
    tool_calls = (
        calls.lazy().filter(is_tool_call).select(session, server, tool, pos, sent).sort(pos)
    )

    def nearest(
        rows: pl.LazyFrame, versions: pl.LazyFrame, at: str, versions_at: str, by: str, after: str
    ) -> pl.LazyFrame:
        strategy: Any = "forward" if after else "backward"
        return rows.join_asof(
            versions,
            left_on=at,
            right_on=versions_at,
            by=[by, tool],
            strategy=strategy,
            check_sortedness=False,
        ).select(pos, pl.col(version).alias(f"{by}{after}"))

    by_time = tool_calls.sort(sent)
    found = tool_calls.select(pos)
    for part in (
        nearest(tool_calls, in_session, pos, pos, session, ""),
        nearest(tool_calls, in_session, pos, pos, session, "_later"),
        nearest(by_time, of_server, sent, listed_at, server, ""),
        nearest(by_time, of_server, sent, listed_at, server, "_later"),
    ):
        found = found.join(part, on=pos, how="left", maintain_order="left")
    sources = {
        session: "session",
        f"{session}_later": "later",
        server: "server",
        f"{server}_later": "server",
    }
    found = found.select(
        pos,
        pl.coalesce(*sources).alias(version),
        pl.coalesce(
            *(pl.when(pl.col(c).is_not_null()).then(pl.lit(s)) for c, s in sources.items()),
            pl.lit("none"),
        ).alias(Calls.definition_source.name),
    )
    return left_join_columns(calls, found, pos)


_VERSION_KEY: Final = (Listings.server.name, Listings.tool.name, Listings.definition.name)


def listing_changes(listed: pl.DataFrame) -> pl.DataFrame:
    """Keep the first and last of consecutive listings with the same definition (`Timeline`).

    The listings between the first and the last do not affect `add_definitions`.
    """
    rows = listed.lazy().select(*Timeline.columns()).sort(*Timeline.columns())
    changes = [
        pl.col(name).ne_missing(pl.col(name).shift(by)) for name in _VERSION_KEY for by in (1, -1)
    ]
    return rows.filter(pl.any_horizontal(changes)).pipe(run_query)


class ListingCounts(StageTable):
    """One row per server and definition: when it was listed, and in how many sessions."""

    server = Listings.server
    tool = Listings.tool
    definition = Listings.definition
    server_name = Listings.server_name
    first_ns = Column(pl.Int64, "First listing whose time is known.", "ns since 1970")
    last_ns = Column(pl.Int64, "Last listing whose time is known.", "ns since 1970")
    sessions = Tools.sessions
    listings = Tools.listings
    complete = Listings.complete


def count_listings(listed: pl.DataFrame) -> pl.DataFrame:
    """Aggregate `Listings` to the `ListingCounts` table."""
    # The time is 0 in imported events if their source had no times.
    known = Listings.listed_ns.col.filter(Listings.listed_ns.col > 0)
    return ListingCounts.select(
        listed.group_by(_VERSION_KEY).agg(
            Listings.server_name.col.min(),
            known.min().alias(ListingCounts.first_ns.name),
            known.max().alias(ListingCounts.last_ns.name),
            Listings.session.col.n_unique().alias(ListingCounts.sessions.name),
            pl.len().alias(ListingCounts.listings.name),
            Listings.complete.col.any(),
        )
    )


def sum_listing_counts(seen: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Sum the `ListingCounts` of several partitions, which have no sessions in common."""
    return (
        pl.concat(seen)
        .group_by(_VERSION_KEY)
        .agg(
            ListingCounts.server_name.col.min(),
            ListingCounts.first_ns.col.min(),
            ListingCounts.last_ns.col.max(),
            ListingCounts.sessions.col.sum(),
            ListingCounts.listings.col.sum(),
            ListingCounts.complete.col.any(),
        )
    )


def relevant_listings(listed: pl.DataFrame) -> pl.DataFrame:
    """Return the `Listings` that the rules about definitions need.

    These are each server's first listing of each version, the first listing with a duplicate name,
    and all listings in sessions in which a tool changed.
    """
    recording, session, tool = Listings.recording.name, Listings.session.name, Listings.tool.name
    server, definition = Listings.server.name, Listings.definition.name
    pos, listed_at = Listings.pos.name, Listings.listed_ns.name
    key = [recording, session, pos, tool]
    rows = listed.lazy().with_columns(
        times=pl.len().over(key),
        kinds=Listings.definition.col.n_unique().over(recording, session, tool),
    )
    first = rows.sort(listed_at, recording, Listings.seq.name).unique(
        [server, definition], keep="first", maintain_order=True
    )
    twice = (
        rows.filter(pl.col("times") > 1)
        .sort(listed_at, recording, pos)
        .unique([server, tool], keep="first", maintain_order=True)
    )
    changing = rows.filter(pl.col("kinds") > 1, pl.col("times") == 1)
    chosen = pl.concat([frame.select(key) for frame in (first, twice, changing)]).unique()
    query = rows.join(chosen, on=key, how="semi", nulls_equal=True).select(listed.columns)
    return query.pipe(run_query)


def tools_table(seen: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Build the `tools` table.

    Args:
        seen: the `ListingCounts`.
        definitions: the `Definitions`, with the column `tokens`.
    """
    key = Definitions.definition.name
    texts = definitions.lazy().drop(Definitions.tool.name).unique(key)
    return Tools.frame(
        seen.lazy()
        .join(texts, on=key, how="left")
        .with_columns(
            pl.from_epoch(ListingCounts.first_ns.col, time_unit="ns")
            .cast(TIME)
            .alias(Tools.first_seen.name),
            pl.from_epoch(ListingCounts.last_ns.col, time_unit="ns")
            .cast(TIME)
            .alias(Tools.last_seen.name),
        )
        .sort(Tools.key)
        .pipe(run_query)
    )
