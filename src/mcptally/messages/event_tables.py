"""Declares the tables that `decode` returns: one per kind of event, and tables of message contents.

Times (`ts_ns`) are nanoseconds since 1970 in UTC. A member stored as JSON text is null if it was
absent, and the text `null` if it was a JSON null.
"""

import polars as pl

from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.stages import ReplyContent


class Event(StageTable):
    """The columns that all event tables share."""

    file = Column(pl.UInt32, "Index of the transcript file in the list of files.")
    line = Column(pl.Int64, "Line in the file, from 1.")
    recording = Column(pl.String, "Recording.")
    seq = Column(pl.Int64, "Order of arrival within the recording.")
    ts_ns = Column(pl.Int64, "Time of arrival; 0 if an import has none.", "ns")


class DecodedMessages(Event):
    """One row per JSON-RPC message, in file order; each member of a batch is a message."""

    row = Column(pl.UInt32, "Number of the message, by which parameters and replies refer to it.")
    dir = Column(pl.String, "`c2s` (client to server) or `s2c`.")
    scope = Column(pl.String, "HTTP exchange; null on a pipe.")
    bytes = Column(pl.Int64, "Length on the wire.", "bytes")
    sse_id = Column(pl.String, "Event id in a stream of server-sent events.")
    redacted = Column(pl.Int64, "Redacted values in the message.")
    model = Column(pl.String, "Language model that asked for the call, as an imported log says.")
    index = Column(pl.UInt32, "Position in a JSON-RPC batch; 0 otherwise.")
    batch = Column(pl.Boolean, "Whether the message came in a batch.")
    jsonrpc = Column(pl.String, "JSON text of `jsonrpc`.")
    id = Column(pl.String, "JSON text of `id`.")
    method = Column(pl.String, "Method of a request or notification.")
    has_result = Column(pl.Boolean, "Whether the message has the member `result`.")
    has_error = Column(pl.Boolean, "Whether the message has the member `error`.")
    truncated = Column(pl.Boolean, "Whether only the head of the message was recorded.")


class RequestParams(StageTable):
    """One row per request or notification with `params`; `row` refers to `DecodedMessages.row`."""

    row = DecodedMessages.row
    name = Column(pl.String, "Tool or prompt.")
    uri = Column(pl.String, "Resource.")
    arguments = Column(pl.String, "JSON text of the arguments of a tool or prompt.")
    request_id = Column(pl.String, "JSON text of the id of the request that is cancelled.")
    progress_token = Column(pl.String, "JSON text of the token of a progress notification.")
    reason = Column(pl.String, "Reason of a cancellation.")
    protocol_version = Column(pl.String, "Protocol revision that `initialize` requests.")
    client_info = Column(pl.String, "JSON text of `clientInfo`.")
    capabilities = Column(pl.String, "JSON text of the client's capabilities.")
    request_state = Column(pl.String, "State that the client returns with the required input.")
    input_responses = Column(pl.String, "JSON text of the required input.")
    progress = Column(pl.String, "JSON text of the progress so far.")
    cursor = Column(pl.String, "JSON text of the cursor of a listing.")
    task = Column(pl.String, "JSON text of the requested task.")
    task_id = Column(pl.String, "Task that the request is about.")
    meta_progress_token = Column(pl.String, "JSON text of `_meta.progressToken`.")
    meta_protocol_version = Column(pl.String, "Protocol revision in `_meta`.")
    meta_client_info = Column(pl.String, "JSON text of the client's name and version in `_meta`.")
    meta_capabilities = Column(pl.String, "JSON text of the client's capabilities in `_meta`.")
    meta_traceparent = Column(pl.String, "`_meta.traceparent` (W3C Trace Context).")
    params = Column(
        pl.String,
        "JSON text of `params`; null for a `tools/call` whose form the other columns determine.",
    )


class Replies(ReplyContent):
    """One row per result or error; `row` refers to `DecodedMessages.row`."""

    row = DecodedMessages.row
    result_type = Column(pl.String, "`resultType`.")
    tools = Column(pl.String, "JSON text of the tools of a listing.")
    task = Column(pl.String, "JSON text of `task`.")
    error_message = Column(pl.String, "JSON-RPC error message.")
    request_state = Column(pl.String, "State that the client is to return with the input.")
    protocol_version = Column(pl.String, "Protocol revision that the server accepts.")
    server_info = Column(pl.String, "JSON text of `serverInfo`.")
    capabilities = Column(pl.String, "JSON text of the server's capabilities.")
    meta_server_info = Column(pl.String, "JSON text of the server's name and version in `_meta`.")
    meta_subscription = Column(pl.String, "JSON text of the subscription id in `_meta`.")
    text_only = Column(pl.Boolean, "Whether all blocks have text and no annotations or `_meta`.")
    odd = Column(pl.Boolean, "Whether a member has another type than it should.")


class RawFrames(Event):
    """One row per frame that is not strict JSON or exceeds the recorder's size limit."""

    dir = DecodedMessages.dir
    why = Column(pl.String, "Why the frame is raw, for example `not_json` or `too_large`.")
    scope = DecodedMessages.scope
    bytes = DecodedMessages.bytes
    text = Column(pl.String, "Text of the frame, or its head.")
    sse_id = DecodedMessages.sse_id
    sse_event = Column(pl.String, "Type of a server-sent event.")
    id = Column(pl.String, "JSON text of `id`, found in the head.")
    method = Column(pl.String, "Method, found in the head.")
    name = Column(pl.String, "Tool or prompt, found in the head.")
    is_error = Column(pl.Boolean, "`isError`, found in the head.")
    model = DecodedMessages.model


class HttpEvents(Event):
    """One row per HTTP request head, response head, or end of an exchange."""

    dir = DecodedMessages.dir
    phase = Column(pl.String, "`request`, `response` or `end`.")
    scope = DecodedMessages.scope
    method = Column(pl.String, "HTTP method.")
    path = Column(pl.String, "Path and query of the request.")
    status = Column(pl.Int64, "Status of the response.")
    closed_by = Column(pl.String, "Side that closed the exchange: `client`, `server`, `proxy`.")
    why = Column(pl.String, "Why the recorder answered or ended the exchange.")
    mcp_session_id = Column(pl.String, "Header Mcp-Session-Id.")
    mcp_protocol_version = Column(pl.String, "Header Mcp-Protocol-Version.")
    mcp_method = Column(pl.String, "Header Mcp-Method.")
    mcp_name = Column(pl.String, "Header Mcp-Name.")
    last_event_id = Column(pl.String, "Header Last-Event-Id.")


class Opens(Event):
    """One row per `open` event, with which each segment of a recording starts."""

    transport = Column(pl.String, "Transport.")
    server = Column(pl.String, "Label of the server.")
    command = Column(pl.String, "JSON text of the command line.")
    url = Column(pl.String, "URL of the server.")
    recorder = Column(pl.String, "Recorder, name and version.")
    redaction = Column(pl.String, "JSON text of the redaction policy.")
    source = Column(pl.String, "JSON text of the source of imported traffic.")
    segment = Column(pl.Int64, "Number of the segment, from 0.")


class Closes(Event):
    """One row per `close` event, which a properly closed recording has."""

    reason = Column(pl.String, "Why the recording ended.")
    exit_code = Column(pl.Int64, "Exit code of the server.")
    signal = Column(pl.String, "JSON text of the signal that ended the server.")
    counts = Column(pl.String, "JSON text of the recorder's counts of events.")
    detail = Column(pl.String, "Why the server could not be started.")


class Gaps(Event):
    """One row per `gap` event, which the recorder writes after losing events."""

    lost = Column(pl.Int64, "Events that were lost.")
    why = Column(pl.String, "Why they were lost.")


class StderrEvents(Event):
    """One row per chunk of the server's stderr."""

    text = Column(pl.String, "The output; null where it is not UTF-8.")


class DuplicateMembers(StageTable):
    """One row per line whose message contains a member twice."""

    file = Event.file
    line = Event.line
    names = Column(pl.String, "Names of the members, up to 200 characters.")
