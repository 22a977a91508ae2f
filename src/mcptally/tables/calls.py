"""The table `calls`."""

from typing import Final

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table

FAILED_OUTCOMES: Final = (
    "tool_error",
    "protocol_error",
    "hidden_error",
    "timeout",
    "no_response",
    "cancelled",
)
"""Outcomes of calls that did not get the requested result."""


class Calls(Table):
    """One row per request of either side, answered or not.

    A request is an object with a string `method` and an `id` member.
    """

    name = "calls"
    key = ("recording", "seq", "index", "dir")

    # What was asked, of whom
    call_id = Column(pl.String, "Stable id: hash of recording, dir, seq and index (16 hex digits).")
    requested_at = Column(TIME, "When the request's last byte arrived.")
    server = Column(pl.String, "Label in `open`.")
    tool = Column(pl.String, "Tool of a `tools/call`.")
    method = Column(pl.String, "Method of the request.")
    prompt = Column(pl.String, "Prompt of a `prompts/get`.")
    resource_uri = Column(pl.String, "URI of a request about a resource.")
    client = Column(pl.String, "Name that the client reports.")
    dir = Column(pl.String, "Side that sent the request: `c2s` (client) or `s2c` (server).")

    # How it ended
    outcome = Column(
        pl.String,
        "`ok`, `hidden_error`, `tool_error`, `protocol_error`, "
        "`input_required`, `task`, `timeout`, `cancelled` or `no_response`.",
    )
    error_text = Column(pl.String, "Error text of the failing reply.")
    template = Column(
        pl.String,
        "What `error_text` says, up to 200 characters: its message without prefixes, JSON and "
        "tracebacks around it, with placeholders such as `<text>`, `<path>`, `<id>` and `<n>`.",
    )
    error_code = Column(pl.Int64, "JSON-RPC error code.")
    stderr_error = Column(
        pl.String,
        "Exception whose stack trace the server wrote to stderr while it answered, up to 500 "
        "characters.",
    )
    http_status = Column(pl.Int64, "Status of the HTTP exchange of the request.")
    answered_at = Column(TIME, "When the reply's last byte arrived.")
    latency_ms = Column(
        pl.Float64, "From the last byte of the request to the last of the reply.", "ms"
    )

    # Who is at fault
    verdict = Column(
        pl.String,
        "`business`, `tool_failure`, `infrastructure`, `ambiguous`; null unless the call failed.",
    )
    reason = Column(pl.String, "Sub-class of the verdict.")
    fault = Column(pl.String, "`agent`, `user`, `server`, `upstream` or `transport`.")
    retryable = Column(pl.String, "`yes`, `after_delay`, `after_change` or `no`.")
    confidence = Column(pl.Float64, "Calibrated probability that the verdict is right.", "percent")
    rule = Column(
        pl.String,
        "Id of the rule that the reason is from: the first one with this verdict that matches; "
        "null where none has it.",
    )
    evidence = Column(
        pl.List(pl.String), "Ids of all rules about failures that match, in order of precedence."
    )
    hidden_rule = Column(
        pl.String,
        "Id of the rule that decided whether a success hides an error; "
        "`hidden.trap.*` decide that it does not.",
    )
    hidden_confidence = Column(
        pl.Float64, "Calibrated probability that the hidden error is real.", "percent"
    )

    # What was sent
    arguments = Column(pl.String, "JSON text of the arguments (of a tool or prompt).")
    response = Column(pl.String, "JSON text of the reply's `result` or `error` member.")
    text = Column(
        pl.String,
        "Text of the result's content blocks, up to 4,000 characters; verdicts read it. "
        "Omitted with --no-payloads.",
    )

    # Whether it fits the tool's definition
    input_schema_state = Column(
        pl.String,
        "Result of validating the arguments against inputSchema: `none` (no schema, or not "
        "validated: the message is truncated, or redaction may have caused the error), `valid`, "
        "`invalid`, `unusable_schema`.",
    )
    input_schema_error = Column(pl.String, "Text of the first error.")
    input_schema_path = Column(
        pl.String, "Place of the first error in the arguments (JSON Pointer)."
    )
    output_schema_state = Column(
        pl.String,
        "Result of validating the output against outputSchema: `none`, `valid`, `invalid`, "
        "`unusable_schema`, `missing_output`.",
    )
    output_schema_error = Column(pl.String, "Text of the first error.")
    output_schema_path = Column(pl.String, "Place of the first error in the output (JSON Pointer).")
    definition = Column(pl.String, "Tool definition in force: hash, see `tools.definition`.")
    definition_source = Column(
        pl.String,
        "Which listing the definition comes from: `session` (before the "
        "call in its session), `later` (after it in the session), `server` (another "
        "session of this server), `none`.",
    )

    # Other attempts
    attempt_of = Column(
        pl.String, "First call of the chain that this call belongs to (possibly itself)."
    )
    attempt = Column(pl.UInt32, "Position in that chain, from 1.")
    attempt_why = Column(
        pl.String,
        "Link to the previous call in the chain: `retry`, `input_required`, `task`, "
        "`negotiation`; null for a first call.",
    )

    # The error in normal form
    error_category = Column(pl.String, "Normalised error (validation-logic seed): category.")
    error_code_name = Column(pl.String, "Normalised error: stable name of the code.")
    http_equivalent = Column(pl.Int64, "Normalised error: equivalent HTTP status.")
    error_retryable = Column(pl.Boolean, "Normalised error: whether trying again may help.")
    error_hint = Column(pl.String, "Normalised error: suggested action.")
    error_details = Column(pl.String, "Normalised error: JSON text of its details.")
    error_source = Column(pl.String, "Normalised error: `structured`, `partial` or `inferred`.")

    # Progress and cancellation
    cancelled_at = Column(TIME, "When the call was cancelled; null if it was not.")
    cancel_reason = Column(pl.String, "Reason given with the cancellation.")
    closed_by = Column(
        pl.String, "Side that closed the HTTP exchange: `client`, `server`, `proxy`."
    )
    first_progress_ms = Column(
        pl.Float64, "From the request to its first progress notification.", "ms"
    )
    progress_count = Column(pl.UInt32, "Progress notifications for this call.")

    # Size and parts of the reply
    request_bytes = Column(pl.Int64, "Request on the wire.", "bytes")
    response_bytes = Column(pl.Int64, "Reply on the wire.", "bytes")
    response_tokens = Column(
        pl.Int64, "Estimate: UTF-8 bytes of the response's JSON text over 4.", "tokens"
    )
    content_types = Column(pl.List(pl.String), "Type of each content block, in order.")
    text_blocks = Column(pl.UInt32, "Blocks of type text.")
    image_blocks = Column(pl.UInt32, "Blocks of type image.")
    audio_blocks = Column(pl.UInt32, "Blocks of type audio.")
    resource_blocks = Column(pl.UInt32, "Blocks of type resource or resource_link.")
    has_structured_content = Column(
        pl.Boolean, "Whether the result has the member structuredContent."
    )
    has_meta = Column(pl.Boolean, "Whether the result has the member _meta.")

    # Both ends and the wire between them
    server_name = Column(pl.String, "Name that the server reports.")
    server_version = Column(pl.String, "Version that the server reports (often its SDK's).")
    client_version = Column(pl.String, "Version that the client reports.")
    protocol_version = Column(pl.String, "Protocol revision in force for this request.")
    protocol_source = Column(
        pl.String, "Where the revision is stated: `header`, `meta`, `handshake`, `fallback`."
    )
    transport = Column(pl.String, "`stdio`, `streamable_http`, `http_sse` or `import`.")
    command = Column(pl.String, "Command line or URL in `open` (JSON text or plain).")

    # Where it is recorded
    recording = Column(pl.String, "Recording.")
    session = Column(
        pl.String, "Session: a pipe, an HTTP session, or a derived one where the protocol has none."
    )
    session_source = Column(
        pl.String,
        "How the session was determined: `pipe`, `http_session_id`, "
        "`sse_endpoint`, `client` (derived: one client, no pause over 30 min), `recording` "
        "(sessions cannot be told apart), `source` (stated by an imported log of calls).",
    )
    seq = Column(pl.Int64, "`seq` of the request.")
    index = Column(pl.UInt32, "Position in a JSON-RPC batch; 0 otherwise.")
    request_id = Column(pl.String, 'JSON text of the id as on the wire: `1` and `"1"` differ.')
    file = Column(pl.String, "Transcript file of the request.")
    line = Column(pl.Int64, "Line of the request in its file, from 1.")
