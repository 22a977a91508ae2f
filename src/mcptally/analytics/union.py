"""The tables of one store, or of several as one: what a view of each reads.

A recording that several stores hold counts once, as the first of them has it. Versions of a tool's
definition are put in one line, and what changed between them is found again.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import polars as pl

from mcptally.jsonschemas import definition_diff
from mcptally.tables.all_tables import TABLES
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools

Files = Mapping[str, list[Path]]
"""The live files of a store, by table."""


def tables(connection: duckdb.DuckDBPyConnection, stores: Sequence[Files]) -> dict[str, str]:
    """Name of each table → what to put after FROM to read it, of stores by their live files."""
    if len(stores) == 1:
        return {table.name: read(stores[0][table.name]) for table in TABLES}
    shared = _shared(connection, stores)
    found = {}
    for table in TABLES:
        parts = [
            f"SELECT * FROM {read(files[table.name])}"
            + (
                f" WHERE recording IS NULL OR recording NOT IN (SELECT recording FROM {shared} "
                f"WHERE owner <> {number})"
                if "recording" in table.columns()
                else ""
            )
            for number, files in enumerate(stores)
        ]
        found[table.name] = f"({' UNION ALL BY NAME '.join(parts)})"
    found[Tools.name] = _versions(connection, found[Tools.name])
    return found


def as_pattern(path: Path) -> str:
    """The pattern that only this path fits: what DuckDB reads are patterns."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def read(files: Sequence[Path]) -> str:
    """The SQL that reads these files as one table."""
    names = ", ".join("'" + as_pattern(path).replace("'", "''") + "'" for path in files)
    return f"read_parquet([{names}])"


def _shared(connection: duckdb.DuckDBPyConnection, stores: Sequence[Files]) -> str:
    """A table of the recordings that several stores hold, with the number of the first."""
    parts = " UNION ALL ".join(
        f"SELECT recording, {number} AS owner FROM {read(files[Recordings.name])}"
        for number, files in enumerate(stores)
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
    tools = definition_diff.with_drift(Tools.frame(merged), texts)
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
