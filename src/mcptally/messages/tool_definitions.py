"""Read tool definitions from listings, and find the version in force for each call.

replies to tools/list → listings and definitions → calls with their definition, table `tools`
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.messages.call_tables import PairedCalls
from mcptally.tables.declaration import TIME
from mcptally.tables.ids import digest
from mcptally.tables.joins import left_join_columns
from mcptally.tables.tools import Tools

LISTING_SCHEMA: Final = pl.Schema(
    {
        "recording": pl.String(),
        "session": pl.String(),
        "pos": pl.UInt32(),
        "listed_ns": pl.Int64(),
        "server": pl.String(),
        "server_name": pl.String(),
        "tool": pl.String(),
        "definition": pl.String(),
        "revision": pl.String(),
        "file": pl.String(),
        "line": pl.Int64(),
        "seq": pl.Int64(),
        "index": pl.UInt32(),
        "announced": pl.Boolean(),
        "complete": pl.Boolean(),
    }
)
"""One row per tool in a reply to tools/list.

`pos` is the order of the reply in its partition; `file`, `line`, `seq` and `index` are those of the
request; `announced` is whether notifications/tools/list_changed came before in the session;
`complete` is whether the session's last reply is the last page of a listing.
"""

DEFINITION: Final = pl.Schema(
    {
        "definition": pl.String(),
        "tool": pl.String(),
        "title": pl.String(),
        "description": pl.String(),
        "input_schema": pl.String(),
        "output_schema": pl.String(),
        "annotations": pl.String(),
        "bytes": pl.Int64(),
        "text": pl.String(),
    }
)
"""One row per distinct definition; `text` is its canonical JSON."""

LISTING_CHANGE_COLUMNS: Final = ("server", "tool", "listed_ns", "definition")
"""The columns of listings that `add_definitions` needs of the whole archive."""


def read_listings(calls: pl.DataFrame, messages: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the listings and definitions in replies to tools/list.

    Their columns are `LISTING_SCHEMA` and `DEFINITION`. Each distinct reply is parsed once.
    """
    replies = calls.filter(
        (PairedCalls.method.col == "tools/list")
        & (PairedCalls.dir.col == "c2s")
        & PairedCalls.tools.col.is_not_null()
    ).select(
        *("recording", "session", "server", "server_name", "tools", "file", "line", "seq", "index"),
        pos="reply",
        listed_ns="reply_ns",
        revision="protocol_version",
        complete=pl.col("response").map_elements(_is_last_page, return_dtype=pl.Boolean),
    )
    # A client that read page by page has the whole listing if its last page names no further one.
    replies = replies.with_columns(
        complete=pl.col("complete").sort_by("pos").last().over("session")
    )
    changes = messages.filter(PairedCalls.method.col == "notifications/tools/list_changed")
    replies = replies.join(
        changes.group_by("session").agg(announced_at=PairedCalls.pos.col.min()),
        on="session",
        how="left",
        maintain_order="left",
    ).with_columns(announced=(pl.col("announced_at") < PairedCalls.pos.col).fill_null(value=False))
    # Join by number: the text of a reply contains all its tools, and there is a row for each.
    texts = replies.select(PairedCalls.tools.col.unique(maintain_order=True)).with_row_index(
        "number"
    )
    replies = replies.join(texts, on="tools", how="left", maintain_order="left").drop("tools")
    rows: list[tuple[int, str, str]] = []
    definitions: dict[str, tuple[Any, ...]] = {}
    for number, text in texts.iter_rows():
        for tool in _objects(text):
            name = tool.get("name")
            if not isinstance(name, str):
                continue
            canonical = canonical_json(tool)
            key = digest(canonical)
            rows.append((number, name, key))
            definitions[key] = (
                key,
                name,
                _string(tool, "title"),
                _string(tool, "description"),
                _json(tool, "inputSchema"),
                _json(tool, "outputSchema"),
                _json(tool, "annotations"),
                len(canonical.encode("utf-8", "surrogatepass")),
                canonical,
            )
    listed = pl.DataFrame(
        rows, schema={"number": pl.UInt32, "tool": pl.String, "definition": pl.String}, orient="row"
    )
    return (
        replies.join(listed, on="number", how="inner", maintain_order="left").select(
            LISTING_SCHEMA.names()
        ),
        pl.DataFrame(list(definitions.values()), schema=DEFINITION, orient="row"),
    )


def _is_last_page(result: str) -> bool:
    if "nextCursor" not in result:
        return True
    try:
        return msgspec.json.decode(result, type=dict[str, Any]).get("nextCursor") is None
    except (msgspec.DecodeError, RecursionError):
        return True


def canonical_json(value: Any) -> str:
    """Return JSON text with sorted keys and no spaces: equal values give equal texts."""
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
    """Add `definition` and `definition_source` to each call of a tool.

    The version in force is the one listed last before the call in its session; else the one listed
    first after it in the session; else the one that the server listed last before the call in any
    session, or first after it.

    Args:
        calls: calls of a partition.
        listed: `LISTING_SCHEMA` of the partition.
        everywhere: `LISTING_CHANGE_COLUMNS` of the whole archive.
    """
    in_session = listed.select("session", "tool", "pos", "definition").sort("pos", "definition")
    of_server = everywhere.select("server", "tool", "listed_ns", "definition").sort(
        "listed_ns", "definition"
    )
    tool_calls = (
        calls.filter((pl.col("dir") == "c2s") & pl.col("tool").is_not_null())
        .select("call_id", "session", "server", "tool", "pos", "ts_ns")
        .sort("pos")
    )

    def nearest(
        rows: pl.DataFrame, versions: pl.DataFrame, at: str, listed_at: str, by: str, after: str
    ) -> pl.DataFrame:
        strategy: Any = "forward" if after else "backward"
        return rows.join_asof(
            versions,
            left_on=at,
            right_on=listed_at,
            by=[by, "tool"],
            strategy=strategy,
            check_sortedness=False,
        ).select("call_id", pl.col("definition").alias(f"{by}{after}"))

    by_time = tool_calls.sort("ts_ns")
    found = tool_calls.select("call_id")
    for part in (
        nearest(tool_calls, in_session, "pos", "pos", "session", ""),
        nearest(tool_calls, in_session, "pos", "pos", "session", "_later"),
        nearest(by_time, of_server, "ts_ns", "listed_ns", "server", ""),
        nearest(by_time, of_server, "ts_ns", "listed_ns", "server", "_later"),
    ):
        found = found.join(part, on="call_id", how="left", maintain_order="left")
    sources = {
        "session": "session",
        "session_later": "later",
        "server": "server",
        "server_later": "server",
    }
    found = found.select(
        "call_id",
        definition=pl.coalesce(*sources),
        definition_source=pl.coalesce(
            *(pl.when(pl.col(c).is_not_null()).then(pl.lit(s)) for c, s in sources.items()),
            pl.lit("none"),
        ),
    )
    return left_join_columns(calls, found, "call_id")


_VERSION_KEY: Final = ("server", "tool", "definition")


def listing_changes(listed: pl.DataFrame) -> pl.DataFrame:
    """Return the listings with which a server starts or stops listing a definition.

    Their columns are `LISTING_CHANGE_COLUMNS`.
    Listings between two others of the same definition do not change the result of
    `add_definitions`.
    """
    rows = listed.select(LISTING_CHANGE_COLUMNS).sort(LISTING_CHANGE_COLUMNS)
    changes = [
        pl.col(name).ne_missing(pl.col(name).shift(by)) for name in _VERSION_KEY for by in (1, -1)
    ]
    return rows.filter(pl.any_horizontal(changes))


def count_listings(listed: pl.DataFrame) -> pl.DataFrame:
    """Return, per server and definition, when it was listed and in how many sessions."""
    # 0 is the time of an imported event whose source has none.
    known = pl.col("listed_ns").filter(pl.col("listed_ns") > 0)
    return listed.group_by(_VERSION_KEY).agg(
        pl.col("server_name").min(),
        first_ns=known.min(),
        last_ns=known.max(),
        sessions=pl.col("session").n_unique(),
        listings=pl.len(),
        complete=pl.col("complete").any(),
    )


def sum_listing_counts(seen: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Sum `sightings` of several partitions, which have no session in common."""
    return (
        pl.concat(seen)
        .group_by(_VERSION_KEY)
        .agg(
            pl.col("server_name", "first_ns").min(),
            pl.col("last_ns").max(),
            pl.col("sessions", "listings").sum(),
            pl.col("complete").any(),
        )
    )


def relevant_listings(listed: pl.DataFrame) -> pl.DataFrame:
    """Return the listings that rules about definitions need.

    These are the first listing of each version at a server, the first in which a name occurs twice,
    and all listings of a session in which a tool changes.
    """
    key = ["recording", "session", "pos", "tool"]
    rows = listed.with_columns(
        times=pl.len().over(key),
        kinds=pl.col("definition").n_unique().over("recording", "session", "tool"),
    )
    first = rows.sort("listed_ns", "recording", "seq").unique(
        ["server", "definition"], keep="first", maintain_order=True
    )
    twice = (
        rows.filter(pl.col("times") > 1)
        .sort("listed_ns", "recording", "pos")
        .unique(["server", "tool"], keep="first", maintain_order=True)
    )
    changing = rows.filter(pl.col("kinds") > 1, pl.col("times") == 1)
    chosen = pl.concat([frame.select(key) for frame in (first, twice, changing)]).unique()
    return rows.join(chosen, on=key, how="semi", nulls_equal=True).select(listed.columns)


def tools_table(seen: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Return the `tools` table from `sightings` and `DEFINITION` rows."""
    rows = seen.join(definitions.drop("tool").unique("definition"), on="definition", how="left")
    return Tools.frame(
        rows.with_columns(
            first_seen=pl.from_epoch("first_ns", time_unit="ns").cast(TIME),
            last_seen=pl.from_epoch("last_ns", time_unit="ns").cast(TIME),
            tokens=pl.col("bytes") // 4,
        )
    ).sort(Tools.key)
