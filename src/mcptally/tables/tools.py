"""Declares the table `tools`."""

from mcptally.tables.column_types import BOOLEAN, INT64, STRING, TIME, UINT32, list_of
from mcptally.tables.declaration import Column, Table


class Tools(Table):
    """One row per server and version of a tool definition."""

    name = "tools"
    key = ("server", "tool", "first_seen", "definition")

    server = Column(STRING, "Label of the server.")
    server_name = Column(STRING, "Name that the server reports.")
    tool = Column(STRING, "Name of the tool.")
    definition = Column(STRING, "Hash of the definition's canonical JSON (16 hex digits).")
    first_seen = Column(TIME, "First listing with this version.")
    last_seen = Column(TIME, "Last listing with this version.")
    sessions = Column(UINT32, "Sessions that listed this version.")
    listings = Column(UINT32, "Replies to tools/list with this version.")
    complete = Column(
        BOOLEAN,
        "Whether a session that listed this version received the last page of its listing.",
    )
    title = Column(STRING, "Title.")
    description = Column(STRING, "Description.")
    input_schema = Column(STRING, "JSON text of inputSchema.")
    output_schema = Column(STRING, "JSON text of outputSchema.")
    annotations = Column(STRING, "JSON text of annotations.")
    kind = Column(
        STRING,
        "Kind of a tool whose results are other people's words: `browser`, `program`, `shell`, "
        "`query`, `search`, `web`, `files`; null for others. By name, description and arguments.",
    )
    bytes = Column(INT64, "Length of the definition's canonical JSON.", "bytes")
    tokens = Column(
        INT64,
        "Estimated tokens of the canonical JSON: UTF-8 bytes over 4.",
        "tokens",
    )
    input_dialect = Column(
        STRING, "JSON Schema dialect of inputSchema: `2020-12` unless $schema says otherwise."
    )
    output_dialect = Column(STRING, "JSON Schema dialect of outputSchema.")
    previous = Column(STRING, "Previous version by `first_seen`; null for the first.")
    drift = Column(
        STRING,
        "Worst change since the previous version: `breaking` (valid calls become invalid, or "
        "results no longer satisfy the old output schema), `compatible`, `unclear`, `wording` "
        "(texts only), `hints` (annotations and other hints only).",
    )
    changed = Column(list_of(STRING), "Each change since the previous version, with its place.")
