"""The table `recordings`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Recordings(Table):
    """One row per recording, with counts and how it ended."""

    name = "recordings"
    key = ("recording",)

    recording = Column(pl.String, "Recording.")
    server = Column(pl.String, "Label of the server.")
    transport = Column(pl.String, "Transport.")
    command = Column(pl.String, "Command line (JSON text).")
    url = Column(pl.String, "URL of the server.")
    recorder = Column(pl.String, "Recorder, name and version.")
    redaction = Column(pl.String, "Redaction policy applied.")
    source = Column(pl.String, "Source of imported traffic.")
    files = Column(pl.List(pl.String), "Transcript files, in order.")
    segments = Column(pl.UInt32, "Segments seen.")
    opened_at = Column(TIME, "Time of the first event.")
    ended_at = Column(TIME, "Time of the last event.")
    server_name = Column(pl.String, "Name that the server reports.")
    server_version = Column(pl.String, "Version that the server reports.")
    server_capabilities = Column(
        pl.String, "JSON text of the capabilities that the server announced."
    )
    client = Column(pl.String, "Name that the client reports.")
    client_version = Column(pl.String, "Version that the client reports.")
    client_capabilities = Column(
        pl.String, "JSON text of the capabilities that the client announced."
    )
    protocol_versions = Column(
        pl.List(pl.String), "Protocol revisions in force, in order of appearance."
    )
    sessions = Column(pl.UInt32, "Sessions.")
    events = Column(pl.UInt32, "Events of every kind.")
    messages = Column(pl.UInt32, "Messages.")
    calls = Column(pl.UInt32, "Calls.")
    tool_calls = Column(pl.UInt32, "Calls of tools.")
    unanswered = Column(pl.UInt32, "Calls without a reply.")
    raws = Column(pl.UInt32, "Frames that were not strict JSON.")
    stderr_lines = Column(pl.UInt32, "Events on stderr.")
    exchanges = Column(pl.UInt32, "HTTP exchanges.")
    gaps = Column(pl.UInt32, "Gap events.")
    lost = Column(pl.Int64, "Events that the recorder reports as lost.")
    findings = Column(pl.UInt32, "Findings, except those about tool definitions.")
    end = Column(pl.String, "`closed` (has a close event) or `open` (still running, or killed).")
    close_reason = Column(pl.String, "Reason in the close event.")
    exit_code = Column(pl.Int64, "Exit code of the server.")
    signal = Column(pl.String, "Signal that ended the server.")
