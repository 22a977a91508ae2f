"""Writes the SQL that reads the tables of one store, or of several as one.

A recording that several stores contain counts once, as the first of them has it. The versions of a
tool's definition are merged into one history, and the drift between them is computed again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from mcptally.store.manifest import LiveFiles, as_pattern
from mcptally.tables.all_tables import TABLES
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools


def tables(connection: duckdb.DuckDBPyConnection, stores: Sequence[LiveFiles]) -> dict[str, str]:
    """Name of each table → the FROM clause that reads it from the live files of the stores."""
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


def read(files: Sequence[Path]) -> str:
    """The SQL expression that reads these files as one table."""
    names = ", ".join("'" + as_pattern(path).replace("'", "''") + "'" for path in files)
    return f"read_parquet([{names}])"


def _shared(connection: duckdb.DuckDBPyConnection, stores: Sequence[LiveFiles]) -> str:
    """Create a table of the recordings that several stores contain, with the first such store."""
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
    """Create a table of the versions of tool definitions of all stores, with their drift."""
    import polars as pl  # noqa: PLC0415  (takes as long as most questions; one store needs none)

    from mcptally.jsonschemas import definition_diff  # noqa: PLC0415

    summed = [
        *(Tools.first_seen.name, Tools.last_seen.name, Tools.sessions.name, Tools.listings.name),
        Tools.complete.name,
    ]
    frame: pl.DataFrame = connection.sql(f"SELECT * FROM {source}").pl()
    version = [Tools.server.name, Tools.tool.name, Tools.definition.name]
    merged = frame.group_by(version, maintain_order=True).agg(
        pl.exclude(*version, *summed).first(),
        Tools.first_seen.col.min(),
        Tools.last_seen.col.max(),
        Tools.sessions.col.sum(),
        Tools.listings.col.sum(),
        Tools.complete.col.any(),
    )
    texts = {
        row[Tools.definition.name]: _definition_json(row) for row in merged.iter_rows(named=True)
    }
    tools = definition_diff.add_drift(Tools.frame(merged), texts)
    # The table lacks fields such as icons and _meta. If no other field changed, one of these did.
    unseen = Tools.drift.col.is_not_null() & (Tools.changed.col.list.len() == 0)
    tools = tools.with_columns(
        pl.when(unseen).then(pl.lit("hints")).otherwise(Tools.drift.col).alias(Tools.drift.name)
    )
    connection.register("_merged", Tools.frame(tools).to_arrow())
    connection.execute("CREATE TABLE _versions AS SELECT * FROM _merged")
    connection.unregister("_merged")
    return "_versions"


_MEMBERS: Final = {
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
    "annotations": "annotations",
}


def _definition_json(row: dict[str, Any]) -> str:
    """The JSON text of a definition, with the fields that the table has."""
    texts = {key: row[key] for key in ("title", "description") if row[key] is not None}
    schemas = {
        key: msgspec.Raw(row[column].encode())
        for key, column in _MEMBERS.items()
        if row[column] is not None
    }
    return msgspec.json.encode({"name": row["tool"], **texts, **schemas}).decode()
