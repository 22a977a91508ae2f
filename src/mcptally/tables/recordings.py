"""Declares the table `recordings`."""

from mcptally.tables.column_types import BOOLEAN, FLOAT64, INT64, STRING, TIME, UINT32, list_of
from mcptally.tables.declaration import Column, Table
from mcptally.tables.outcomes import START_FAILURES


class Recordings(Table):
    """One row per recording, with counts, and facts about how it ended."""

    name = "recordings"
    key = ("recording",)

    recording = Column(STRING, "Recording.")
    server = Column(STRING, "Label of the server.")
    transport = Column(STRING, "Transport.")
    command = Column(STRING, "Command line (JSON text).")
    url = Column(STRING, "URL of the server.")
    recorder = Column(STRING, "Recorder, name and version.")
    redaction = Column(STRING, "Redaction policy applied.")
    source = Column(STRING, "Source of imported traffic.")
    files = Column(list_of(STRING), "Transcript files, in order.")
    segments = Column(UINT32, "Segments seen.")
    opened_at = Column(TIME, "Time of the first event.")
    ended_at = Column(TIME, "Time of the last event.")
    server_name = Column(STRING, "Name that the server reports.")
    server_version = Column(STRING, "Version that the server reports.")
    server_capabilities = Column(STRING, "JSON text of the capabilities that the server announced.")
    client = Column(STRING, "Name that the client reports.")
    client_version = Column(STRING, "Version that the client reports.")
    client_capabilities = Column(STRING, "JSON text of the capabilities that the client announced.")
    protocol_versions = Column(
        list_of(STRING), "Protocol revisions in force, in order of appearance."
    )
    sessions = Column(UINT32, "Sessions.")
    events = Column(UINT32, "Events of every kind.")
    messages = Column(UINT32, "Messages.")
    calls = Column(UINT32, "Calls.")
    tool_calls = Column(UINT32, "Calls to tools.")
    unanswered = Column(UINT32, "Calls without a reply.")
    raws = Column(UINT32, "Frames that were not strict JSON.")
    stderr_lines = Column(UINT32, "Events on stderr.")
    exchanges = Column(UINT32, "HTTP exchanges.")
    gaps = Column(UINT32, "Gap events.")
    lost = Column(INT64, "Events that the recorder reports as lost.")
    findings = Column(UINT32, "Findings, except those about tool definitions.")
    end = Column(STRING, "`closed` (has a close event) or `open` (still running, or killed).")
    close_reason = Column(STRING, "Reason in the close event.")
    exit_code = Column(INT64, "Exit code of the server.")
    signal = Column(STRING, "Signal that ended the server.")
    start = Column(
        STRING,
        "How the start of the server went, over stdio: `ready` (it answered, or a tool was "
        "called), `failed` (it could not be started, or failed before an answer), `unanswered` (it "
        "gave no answer within 5 s), `unused` (nothing was asked, or the recording ended before).",
    )
    ready_ms = Column(
        FLOAT64, "From its start to its first answer, which is that to the handshake.", "ms"
    )
    start_failure = Column(
        STRING,
        "Why the start failed: "
        + ", ".join(f"`{name}` ({why})" for name, (_, why) in START_FAILURES.items())
        + ".",
    )
    crash = Column(
        STRING,
        "When the server crashed: during its `start`, during a `call`, or while it was `idle`.",
    )
    crash_method = Column(
        STRING,
        "Method of the first request that the crash left open; null if a call to a tool was open.",
    )
    crash_call_id = Column(STRING, "Call id of that request.")
    probe_failed = Column(
        BOOLEAN, "Whether the client's `server/discover` failed, which newer clients send first."
    )
    ended_by = Column(STRING, "Who ended the server: `client` or `server`; null where unknown.")
    last_words = Column(
        STRING, "Line on stderr, or on stdout if it is not MCP, that says why the server failed."
    )
    noise_lines = Column(UINT32, "Frames of the server on stdout that are not the protocol.")
