"""The tables of one store, or of several as one: what a view of each reads.

A recording that several stores hold counts once, as the first of them has it. Versions of a tool's
definition are put in one line, and what changed between them is found again.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import polars as pl

from mcptally import drift
from mcptally.errors import StoreError
from mcptally.schema import TABLES, Recordings, Table, Tools


def tables(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> dict[str, str]:
    """Name of each table → what to put after FROM to read it.

    Raises:
        StoreError: a store lacks a table: another version made it.
    """
    if len(paths) == 1:
        return {table.name: _read(paths[0], table) for table in TABLES}
    shared = _shared(connection, paths)
    found = {}
    for table in TABLES:
        parts = [
            f"SELECT * FROM {_read(path, table)}"
            + (
                f" WHERE recording IS NULL OR recording NOT IN (SELECT recording FROM {shared} "
                f"WHERE owner <> {number})"
                if "recording" in table.columns()
                else ""
            )
            for number, path in enumerate(paths)
        ]
        found[table.name] = f"({' UNION ALL BY NAME '.join(parts)})"
    found[Tools.name] = _versions(connection, found[Tools.name])
    return found


def as_pattern(path: Path) -> str:
    """The pattern that only this path fits: what DuckDB reads are patterns."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _read(path: Path, table: type[Table]) -> str:
    if next((path / table.name).rglob("*.parquet"), None) is None:
        raise StoreError(
            f"{path}: has no table {table.name}, so another version of mcptally made it; rebuild "
            f"it with: mcptally score ARCHIVE -o {path}"
        )
    folder = as_pattern(path.resolve() / table.name).replace("'", "''")
    return f"read_parquet('{folder}/**/*.parquet')"


def _shared(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> str:
    """A table of the recordings that several stores hold, with the number of the first."""
    parts = " UNION ALL ".join(
        f"SELECT recording, {number} AS owner FROM {_read(path, Recordings)}"
        for number, path in enumerate(paths)
    )
    connection.execute(
        "CREATE TABLE _shared AS SELECT recording, min(owner) AS owner "
        f"FROM ({parts}) WHERE recording IS NOT NULL GROUP BY recording HAVING count(*) > 1"
    )
    return "_shared"


def _versions(connection: duckdb.DuckDBPyConnection, source: str) -> str:
    """A table of the versions of tool definitions of all stores, and the drift between them."""
    once = [Tools.first_seen.name, Tools.last_seen.name, Tools.sessions.name, Tools.listings.name]
    frame: pl.DataFrame = connection.sql(f"SELECT * FROM {source}").pl()
    merged = frame.group_by("server", "tool", "definition", maintain_order=True).agg(
        pl.exclude("server", "tool", "definition", *once).first(),
        pl.col("first_seen").min(),
        pl.col("last_seen").max(),
        pl.col("sessions", "listings").sum(),
    )
    texts = {row["definition"]: _text(row) for row in merged.iter_rows(named=True)}
    tools = drift.with_drift(Tools.frame(merged), texts)
    # Icons, _meta and the like are not in the table: where nothing else differs, one of them did.
    unseen = pl.col("drift").is_not_null() & (pl.col("changed").list.len() == 0)
    tools = tools.with_columns(drift=pl.when(unseen).then(pl.lit("hints")).otherwise("drift"))
    connection.register("_merged", Tools.frame(tools).to_arrow())
    connection.execute("CREATE TABLE _versions AS SELECT * FROM _merged")
    connection.unregister("_merged")
    return "_versions"


_MEMBERS: Final = {
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
    "annotations": "annotations",
}


def _text(row: dict[str, Any]) -> str:
    """A definition's JSON text, as far as the table has it."""
    words = {key: row[key] for key in ("title", "description") if row[key] is not None}
    parts = {
        key: msgspec.Raw(row[column].encode())
        for key, column in _MEMBERS.items()
        if row[column] is not None
    }
    return msgspec.json.encode({"name": row["tool"], **words, **parts}).decode()
