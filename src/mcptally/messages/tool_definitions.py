"""Tool definitions: what servers list, in versions, and which one is in force for a call.

listings (replies to tools/list) → versions of definitions → calls with their definition
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.tables.declaration import TIME
from mcptally.tables.ids import digest
from mcptally.tables.joins import left_join_columns
from mcptally.tables.tools import Tools

LISTING: Final = pl.Schema(
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
    }
)
"""One row a tool in a reply to tools/list.

`pos` is the place of the reply in its partition; `file`, `line`, `seq` and `index` are those of the
request; `announced`: the server had said notifications/tools/list_changed in the session before.
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
"""One row a distinct definition; `text` is its canonical JSON."""

TIMELINE: Final = ("server", "tool", "listed_ns", "definition")
"""The columns of listings that `in_force` asks for."""


def listings(calls: pl.DataFrame, messages: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the calls of tools/list were answered: (`LISTING` rows, `DEFINITION` rows).

    Each distinct answer is parsed once.
    """
    answers = calls.filter(
        (pl.col("method") == "tools/list")
        & (pl.col("dir") == "c2s")
        & pl.col("tools").is_not_null()
    ).select(
        *("recording", "session", "server", "server_name", "tools", "file", "line", "seq", "index"),
        pos="reply",
        listed_ns="reply_ns",
        revision="protocol_version",
    )
    changes = messages.filter(pl.col("method") == "notifications/tools/list_changed")
    answers = answers.join(
        changes.group_by("session").agg(announced_at=pl.col("pos").min()),
        on="session",
        how="left",
        maintain_order="left",
    ).with_columns(announced=(pl.col("announced_at") < pl.col("pos")).fill_null(value=False))
    # By number: a text is as long as all its tools together, and has a row for each of them.
    texts = answers.select(pl.col("tools").unique(maintain_order=True)).with_row_index("answer")
    answers = answers.join(texts, on="tools", how="left", maintain_order="left").drop("tools")
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
        rows, schema={"answer": pl.UInt32, "tool": pl.String, "definition": pl.String}, orient="row"
    )
    return (
        answers.join(listed, on="answer", how="inner", maintain_order="left").select(
            LISTING.names()
        ),
        pl.DataFrame(list(definitions.values()), schema=DEFINITION, orient="row"),
    )


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys and no spaces: equal values, equal text."""
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


def in_force(calls: pl.DataFrame, listed: pl.DataFrame, everywhere: pl.DataFrame) -> pl.DataFrame:
    """`definition` and `definition_source` of each call of a tool.

    The version listed last before the call in its session; else the one listed first after it
    there; else, of all sessions of the server (`everywhere`: the `TIMELINE` of the whole
    archive), the one listed last before the call, or first after it.
    """
    mine = listed.select("session", "tool", "pos", "definition").sort("pos", "definition")
    theirs = everywhere.select("server", "tool", "listed_ns", "definition").sort(
        "listed_ns", "definition"
    )
    asks = (
        calls.filter((pl.col("dir") == "c2s") & pl.col("tool").is_not_null())
        .select("call_id", "session", "server", "tool", "pos", "ts_ns")
        .sort("pos")
    )

    def nearest(
        rows: pl.DataFrame, known: pl.DataFrame, at: str, seen: str, by: str, after: str
    ) -> pl.DataFrame:
        strategy: Any = "forward" if after else "backward"
        return rows.join_asof(
            known,
            left_on=at,
            right_on=seen,
            by=[by, "tool"],
            strategy=strategy,
            check_sortedness=False,
        ).select("call_id", pl.col("definition").alias(f"{by}{after}"))

    by_time = asks.sort("ts_ns")
    found = asks.select("call_id")
    for part in (
        nearest(asks, mine, "pos", "pos", "session", ""),
        nearest(asks, mine, "pos", "pos", "session", "_later"),
        nearest(by_time, theirs, "ts_ns", "listed_ns", "server", ""),
        nearest(by_time, theirs, "ts_ns", "listed_ns", "server", "_later"),
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


_VERSION: Final = ("server", "tool", "definition")


def timeline(listed: pl.DataFrame) -> pl.DataFrame:
    """When each server began and ceased to list which definition of a tool: `TIMELINE` columns.

    What lies between two listings of the same definition says nothing more to `in_force`.
    """
    rows = listed.select(TIMELINE).sort(TIMELINE)
    beside = [
        pl.col(name).ne_missing(pl.col(name).shift(by)) for name in _VERSION for by in (1, -1)
    ]
    return rows.filter(pl.any_horizontal(beside))


def sightings(listed: pl.DataFrame) -> pl.DataFrame:
    """By server and version of a definition: in how many sessions and when it was listed."""
    # 0 is the time of an imported event whose source has none.
    known = pl.col("listed_ns").filter(pl.col("listed_ns") > 0)
    return listed.group_by(_VERSION).agg(
        pl.col("server_name").min(),
        first_ns=known.min(),
        last_ns=known.max(),
        sessions=pl.col("session").n_unique(),
        listings=pl.len(),
    )


def sum_sightings(seen: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """`sightings` of several partitions, which have no session in common, as one."""
    return (
        pl.concat(seen)
        .group_by(_VERSION)
        .agg(
            pl.col("server_name", "first_ns").min(),
            pl.col("last_ns").max(),
            pl.col("sessions", "listings").sum(),
        )
    )


def relevant_listings(listed: pl.DataFrame) -> pl.DataFrame:
    """Those `LISTING` rows by which definitions are judged: as many, however often one is listed.

    The first listing of each version at a server, the first in which a name stands twice, and all
    of a session that changes a tool.
    """
    one = ["recording", "session", "pos", "tool"]
    rows = listed.with_columns(
        times=pl.len().over(one),
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
    chosen = pl.concat([frame.select(one) for frame in (first, twice, changing)]).unique()
    return rows.join(chosen, on=one, how="semi", nulls_equal=True).select(listed.columns)


def versions(seen: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """The `tools` table: one row a server and version of a definition that was `seen`."""
    rows = seen.join(definitions.drop("tool").unique("definition"), on="definition", how="left")
    return Tools.frame(
        rows.with_columns(
            first_seen=pl.from_epoch("first_ns", time_unit="ns").cast(TIME),
            last_seen=pl.from_epoch("last_ns", time_unit="ns").cast(TIME),
            tokens=pl.col("bytes") // 4,
        )
    ).sort(Tools.key)
