"""Declares the table `calls`."""

from collections.abc import Iterable
from typing import Final

from mcptally.tables.column_types import BOOLEAN, FLOAT64, INT64, STRING, TIME, UINT32, list_of
from mcptally.tables.declaration import Column, Table
from mcptally.tables.outcomes import FAULTS, OUTCOMES, Verdict

MS_PER_NS: Final = 1e-6
"""Milliseconds per nanosecond. Columns are not divided by 1e6, because polars divides a single row,
but multiplies several rows by 1e-6, and the last digits may differ."""


def _one_of(values: Iterable[str]) -> str:
    """Join the values into a phrase such as "`a`, `b` or `c`"."""
    *most, last = (f"`{value}`" for value in values)
    return f"{', '.join(most)} or {last}"


class Calls(Table):
    """One row per request of either side, answered or not.

    A request is an object with a string `method` and an `id` member.
    """

    name = "calls"
    key = ("recording", "seq", "index", "dir")

    # The request and its recipient
    call_id = Column(STRING, "Stable id: hash of recording, dir, seq and index (16 hex digits).")
    requested_at = Column(TIME, "When the request's last byte arrived.")
    server = Column(STRING, "Label in `open`.")
    tool = Column(STRING, "Tool of a `tools/call`.")
    method = Column(STRING, "Method of the request.")
    prompt = Column(STRING, "Prompt of a `prompts/get`.")
    resource_uri = Column(STRING, "URI of a request about a resource.")
    client = Column(STRING, "Name that the client reports.")
    dir = Column(STRING, "Side that sent the request: `c2s` (client) or `s2c` (server).")

    # The outcome of the call
    outcome = Column(
        STRING,
        f"How the call ended: {_one_of(OUTCOMES)}. A call that started a task ended as the task "
        "did, and has `task` where its end is not recorded; an answered request about a task has "
        "`poll`.",
    )
    error_text = Column(STRING, "Error text of the failing reply.")
    template = Column(
        STRING,
        "What `error_text` says, up to 200 characters: its message without prefixes, JSON and "
        "tracebacks around it, with placeholders such as `<text>`, `<path>`, `<id>` and `<n>`.",
    )
    error_code = Column(INT64, "JSON-RPC error code.")
    stderr_error = Column(
        STRING,
        "Exception whose stack trace the server wrote to stderr while it answered, up to 500 "
        "characters.",
    )
    http_status = Column(INT64, "Status of the HTTP exchange of the request.")
    answered_at = Column(TIME, "When the reply's last byte arrived.")
    latency_ms = Column(
        FLOAT64,
        "From the last byte of the request to the last of the reply, or of the message that tells "
        "the end of the task that it started, without `waiting_ms`. The last leg of a chain of "
        "requests with input has the sum of all legs; the others have none.",
        "ms",
    )
    waiting_ms = Column(
        FLOAT64,
        "What the call waited for input that it asked for: from the user, the client's model, or "
        "the client's roots.",
        "ms",
    )

    # The verdict and the fault
    verdict = Column(
        STRING,
        f"{_one_of(Verdict)}; null unless the call failed.",
    )
    reason = Column(STRING, "Sub-class of the verdict.")
    fault = Column(
        STRING,
        "Whose fault the failure is: "
        + ", ".join(f"`{fault}` ({meaning})" for fault, meaning in FAULTS.items())
        + "; null: unknown.",
    )
    retryable = Column(STRING, "`yes`, `after_delay`, `after_change` or `no`.")
    certainty = Column(FLOAT64, "Calibrated probability that the verdict is right.", "percent")
    rule = Column(
        STRING,
        "Id of the rule that the reason is from: the first one with this verdict that matches; "
        "null where none has it.",
    )
    evidence = Column(
        list_of(STRING), "Ids of all rules about failures that match, in order of precedence."
    )
    hidden_rule = Column(
        STRING,
        "Id of the rule that decided whether a success hides an error; "
        "`hidden.trap.*` decide that it does not.",
    )
    hidden_certainty = Column(
        FLOAT64, "Calibrated probability that the hidden error is real.", "percent"
    )
    failure_kind = Column(
        STRING,
        "What failed calls of clients have in common: hash of the server, `method`, `tool`, "
        "`template`, `outcome`, the columns about the verdict and those about the input schema.",
    )

    # The arguments
    arguments = Column(STRING, "JSON text of the arguments (of a tool or prompt).")
    response = Column(STRING, "JSON text of the reply's `result` or `error` member.")
    text = Column(
        STRING,
        "Text of the result's content blocks, up to 4,000 characters; verdicts read it. "
        "Omitted with --no-payloads.",
    )

    # Validation against the tool's definition
    input_schema_state = Column(
        STRING,
        "Result of validating the arguments against inputSchema: `none` (no schema, or not "
        "validated: the message is truncated, or redaction may have caused the error), `valid`, "
        "`invalid`, `unusable_schema`.",
    )
    input_schema_error = Column(STRING, "Text of the first error.")
    input_schema_path = Column(STRING, "Place of the first error in the arguments (JSON Pointer).")
    output_schema_state = Column(
        STRING,
        "Result of validating the output against outputSchema: `none`, `valid`, `invalid`, "
        "`unusable_schema`, `missing_output`.",
    )
    output_schema_error = Column(STRING, "Text of the first error.")
    output_schema_path = Column(STRING, "Place of the first error in the output (JSON Pointer).")
    definition = Column(STRING, "Tool definition in force: hash, see `tools.definition`.")
    definition_source = Column(
        STRING,
        "Which listing the definition comes from: `session` (before the "
        "call in its session), `later` (after it in the session), `server` (another "
        "session of this server), `none`.",
    )

    # Other attempts
    attempt_of = Column(
        STRING, "First call of the chain that this call belongs to (possibly itself)."
    )
    attempt = Column(UINT32, "Position in that chain, from 1.")
    attempt_why = Column(
        STRING,
        "Link to the previous call in the chain: `retry`, `input_required`, `task`, "
        "`negotiation`; null for a first call.",
    )
    continued_by = Column(
        STRING,
        "Call that repeats this one with the input that its result requires. Both are one "
        "operation, which rates count once, with the last call's outcome.",
    )

    # The error in normal form
    error_category = Column(STRING, "Normalised error (validation-logic seed): category.")
    error_code_name = Column(STRING, "Normalised error: stable name of the code.")
    http_equivalent = Column(INT64, "Normalised error: equivalent HTTP status.")
    error_retryable = Column(BOOLEAN, "Normalised error: whether trying again may help.")
    error_hint = Column(STRING, "Normalised error: suggested action.")
    error_details = Column(STRING, "Normalised error: JSON text of its details.")
    error_source = Column(STRING, "Normalised error: `structured`, `partial` or `inferred`.")

    # Progress and cancellation
    cancelled_at = Column(TIME, "When the call was cancelled; null if it was not.")
    cancel_reason = Column(STRING, "Reason given with the cancellation.")
    closed_by = Column(STRING, "Side that closed the HTTP exchange: `client`, `server`, `proxy`.")
    first_progress_ms = Column(
        FLOAT64, "From the request to its first progress notification.", "ms"
    )
    progress_count = Column(UINT32, "Progress notifications for this call.")

    # Size and content of the reply
    request_bytes = Column(INT64, "Request on the wire.", "bytes")
    response_bytes = Column(INT64, "Reply on the wire.", "bytes")
    response_tokens = Column(
        INT64,
        "Estimated tokens of the response's JSON text: UTF-8 bytes over 4.",
        "tokens",
    )
    content_types = Column(list_of(STRING), "Type of each content block, in order.")
    text_blocks = Column(UINT32, "Blocks of type text.")
    image_blocks = Column(UINT32, "Blocks of type image.")
    audio_blocks = Column(UINT32, "Blocks of type audio.")
    resource_blocks = Column(UINT32, "Blocks of type resource or resource_link.")
    has_structured_content = Column(BOOLEAN, "Whether the result has the member structuredContent.")
    has_meta = Column(BOOLEAN, "Whether the result has the member _meta.")

    # Client, server and transport
    server_name = Column(STRING, "Name that the server reports.")
    server_version = Column(STRING, "Version that the server reports (often its SDK's).")
    client_version = Column(STRING, "Version that the client reports.")
    model = Column(
        STRING,
        "Language model that asked for the call, where an imported log names it: the name in the "
        "log.",
    )
    protocol_version = Column(STRING, "Protocol revision in force for this request.")
    protocol_source = Column(
        STRING, "Where the revision is stated: `header`, `meta`, `handshake`, `fallback`."
    )
    transport = Column(STRING, "`stdio`, `streamable_http`, `http_sse` or `import`.")
    command = Column(STRING, "Command line or URL in `open` (JSON text or plain).")

    # Place in the recording
    recording = Column(STRING, "Recording.")
    session = Column(
        STRING, "Session: a pipe, an HTTP session, or a derived one where the protocol has none."
    )
    session_source = Column(
        STRING,
        "How the session was determined: `pipe`, `http_session_id`, "
        "`sse_endpoint`, `client` (derived: one client, no pause over 30 min), `recording` "
        "(sessions cannot be told apart), `source` (stated by an imported log of calls).",
    )
    seq = Column(INT64, "`seq` of the request.")
    index = Column(UINT32, "Position in a JSON-RPC batch; 0 otherwise.")
    request_id = Column(STRING, 'JSON text of the id as on the wire: `1` and `"1"` differ.')
    traceparent = Column(
        STRING,
        "`_meta.traceparent` of the request: trace and span of the sender (W3C Trace Context).",
    )
    file = Column(STRING, "Transcript file of the request.")
    line = Column(INT64, "Line of the request in its file, from 1.")
