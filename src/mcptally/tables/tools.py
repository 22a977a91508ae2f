"""Declaration of the table `tools`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Tools(Table):
    """One row a version of a tool definition of a server."""

    name = "tools"
    meaning = "One row a version of a tool definition of a server."
    key = ("server", "tool", "first_seen", "definition")

    server = Column(pl.String, "Label of the server.")
    server_name = Column(pl.String, "Name that the server gives itself.")
    tool = Column(pl.String, "Name of the tool.")
    definition = Column(pl.String, "Hash of the definition's canonical JSON (16 hex digits).")
    first_seen = Column(TIME, "First listing that held this version.")
    last_seen = Column(TIME, "Last listing that held this version.")
    sessions = Column(pl.UInt32, "Sessions that listed it.")
    listings = Column(pl.UInt32, "Replies to tools/list that held it.")
    title = Column(pl.String, "Title.")
    description = Column(pl.String, "Description.")
    input_schema = Column(pl.String, "JSON text of inputSchema.")
    output_schema = Column(pl.String, "JSON text of outputSchema.")
    annotations = Column(pl.String, "JSON text of annotations.")
    bytes = Column(pl.Int64, "The definition's canonical JSON.", "bytes")
    tokens = Column(pl.Int64, "Estimate: bytes over 4.", "tokens")
    input_dialect = Column(
        pl.String, "JSON Schema dialect of inputSchema: `2020-12` unless $schema says otherwise."
    )
    output_dialect = Column(pl.String, "JSON Schema dialect of outputSchema.")
    previous = Column(pl.String, "The version before it, by `first_seen`; null for the first.")
    drift = Column(
        pl.String,
        "What became of the version before: `breaking` (calls that were right are wrong, or "
        "results are no longer what was promised), `compatible`, `unclear`, `wording` (texts "
        "only), `hints` (annotations and the like only).",
    )
    changed = Column(pl.List(pl.String), "What changed since the version before, place by place.")
