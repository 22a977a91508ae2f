"""Finds the recordings that must be scored again because answers changed."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from mcptally.review.answers import Answer, AppliedReviews
from mcptally.tables.calls import Calls


def changed_recordings(
    before: Iterable[Mapping[str, Any]], now: AppliedReviews, calls: Collection[Path]
) -> set[str]:
    """Return the recordings with calls that added, changed or removed answers may affect.

    Args:
        before: the answers with which the store was scored, from its manifest.
        now: the answers that this run applies.
        calls: the Parquet files of `calls`.
    """
    old = {msgspec.json.encode(row): row for row in before}
    new = {msgspec.json.encode(row): row for row in msgspec.to_builtins([*now.calls, *now.groups])}
    changed = [
        msgspec.convert({**old, **new}[key], Answer) for key in sorted(old.keys() ^ new.keys())
    ]
    found = {row.recording for row in changed}
    tools = {(row.server, row.tool) for row in changed if row.scope == "group"}
    if tools and calls:
        wanted = pl.LazyFrame(
            list(tools),
            orient="row",
            schema={Calls.server.name: pl.String, Calls.tool.name: pl.String},
        )
        rows = pl.scan_parquet(sorted(calls), glob=False).select(
            Calls.recording.name, Calls.server.name, Calls.tool.name
        )
        keys = [Calls.server.name, Calls.tool.name]
        reached = rows.join(wanted, on=keys, how="semi", nulls_equal=True)
        found |= set(reached.select(Calls.recording.col.unique()).collect().to_series())
    return found
