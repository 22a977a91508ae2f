"""The table `tools`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Tools(Table):
    """One row per server and version of a tool definition."""

    name = "tools"
    key = ("server", "tool", "first_seen", "definition")

    server = Column(pl.String, "Label of the server.")
    server_name = Column(pl.String, "Name that the server reports.")
    tool = Column(pl.String, "Name of the tool.")
    definition = Column(pl.String, "Hash of the definition's canonical JSON (16 hex digits).")
    first_seen = Column(TIME, "First listing with this version.")
    last_seen = Column(TIME, "Last listing with this version.")
    sessions = Column(pl.UInt32, "Sessions that listed this version.")
    listings = Column(pl.UInt32, "Replies to tools/list with this version.")
    complete = Column(
        pl.Boolean,
        "Whether a session that listed this version received the last page of its listing.",
    )
    title = Column(pl.String, "Title.")
    description = Column(pl.String, "Description.")
    input_schema = Column(pl.String, "JSON text of inputSchema.")
    output_schema = Column(pl.String, "JSON text of outputSchema.")
    annotations = Column(pl.String, "JSON text of annotations.")
    bytes = Column(pl.Int64, "Length of the definition's canonical JSON.", "bytes")
    tokens = Column(pl.Int64, "Estimate: bytes over 4.", "tokens")
    input_dialect = Column(
        pl.String, "JSON Schema dialect of inputSchema: `2020-12` unless $schema says otherwise."
    )
    output_dialect = Column(pl.String, "JSON Schema dialect of outputSchema.")
    previous = Column(pl.String, "Previous version by `first_seen`; null for the first.")
    drift = Column(
        pl.String,
        "Worst change since the previous version: `breaking` (valid calls become invalid, or "
        "results no longer satisfy the old output schema), `compatible`, `unclear`, `wording` "
        "(texts only), `hints` (annotations and the like only).",
    )
    changed = Column(pl.List(pl.String), "Each change since the previous version, with its place.")
