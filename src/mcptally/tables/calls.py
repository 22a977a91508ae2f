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

    call_id = Column(pl.String, "Stable id: hash of recording, dir, seq and index (16 hex digits).")
    dir = Column(pl.String, "Side that sent the request: `c2s` (client) or `s2c` (server).")
    recording = Column(pl.String, "Recording.")
    seq = Column(pl.Int64, "`seq` of the request.")
    index = Column(pl.UInt32, "Position in a JSON-RPC batch; 0 otherwise.")
    file = Column(pl.String, "Transcript file of the request.")
    line = Column(pl.Int64, "Line of the request in its file, from 1.")
    session = Column(
        pl.String, "Session: a pipe, an HTTP session, or a derived one where the protocol has none."
    )
    session_source = Column(
        pl.String,
        "How the session was determined: `pipe`, `http_session_id`, "
        "`sse_endpoint`, `client` (derived: one client, no pause over 30 min), `recording` "
        "(sessions cannot be told apart), `source` (stated by an imported log of calls).",
    )
    server = Column(pl.String, "Label in `open`.")
    command = Column(pl.String, "Command line or URL in `open` (JSON text or plain).")
    server_name = Column(pl.String, "Name that the server reports.")
    server_version = Column(pl.String, "Version that the server reports (often its SDK's).")
    client = Column(pl.String, "Name that the client reports.")
    client_version = Column(pl.String, "Version that the client reports.")
    protocol_version = Column(pl.String, "Protocol revision in force for this request.")
    protocol_source = Column(
        pl.String, "Where the revision is stated: `header`, `meta`, `handshake`, `fallback`."
    )
    transport = Column(pl.String, "`stdio`, `streamable_http`, `http_sse` or `import`.")
    method = Column(pl.String, "Method of the request.")
    tool = Column(pl.String, "Tool of a `tools/call`.")
    resource_uri = Column(pl.String, "URI of a request about a resource.")
    prompt = Column(pl.String, "Prompt of a `prompts/get`.")
    request_id = Column(pl.String, 'JSON text of the id as on the wire: `1` and `"1"` differ.')
    requested_at = Column(TIME, "When the request's last byte arrived.")
    answered_at = Column(TIME, "When the reply's last byte arrived.")
    latency_ms = Column(
        pl.Float64, "From the last byte of the request to the last of the reply.", "ms"
    )
    first_progress_ms = Column(
        pl.Float64, "From the request to its first progress notification.", "ms"
    )
    progress_count = Column(pl.UInt32, "Progress notifications for this call.")
    request_bytes = Column(pl.Int64, "Request on the wire.", "bytes")
    response_bytes = Column(pl.Int64, "Reply on the wire.", "bytes")
    arguments = Column(pl.String, "JSON text of the arguments (of a tool or prompt).")
    response = Column(pl.String, "JSON text of the reply's `result` or `error` member.")
    outcome = Column(
        pl.String,
        "`ok`, `hidden_error`, `tool_error`, `protocol_error`, "
        "`input_required`, `task`, `timeout`, `cancelled` or `no_response`.",
    )
    cancelled_at = Column(TIME, "When the call was cancelled; null if it was not.")
    cancel_reason = Column(pl.String, "Reason given with the cancellation.")
    closed_by = Column(
        pl.String, "Side that closed the HTTP exchange: `client`, `server`, `proxy`."
    )
    error_code = Column(pl.Int64, "JSON-RPC error code.")
    error_text = Column(pl.String, "Error text of the failing reply.")
    stderr_error = Column(
        pl.String,
        "Exception whose stack trace the server wrote to stderr while it answered, up to 500 "
        "characters.",
    )
    http_status = Column(pl.Int64, "Status of the HTTP exchange of the request.")
    text = Column(
        pl.String,
        "Text of the result's content blocks, up to 4,000 characters; verdicts read it. "
        "Omitted with --no-payloads.",
    )
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
    content_types = Column(pl.List(pl.String), "Type of each content block, in order.")
    text_blocks = Column(pl.UInt32, "Blocks of type text.")
    image_blocks = Column(pl.UInt32, "Blocks of type image.")
    audio_blocks = Column(pl.UInt32, "Blocks of type audio.")
    resource_blocks = Column(pl.UInt32, "Blocks of type resource or resource_link.")
    has_structured_content = Column(
        pl.Boolean, "Whether the result has the member structuredContent."
    )
    has_meta = Column(pl.Boolean, "Whether the result has the member _meta.")
    response_tokens = Column(
        pl.Int64, "Estimate: UTF-8 bytes of the response's JSON text over 4.", "tokens"
    )
    error_category = Column(pl.String, "Normalised error (validation-logic seed): category.")
    error_code_name = Column(pl.String, "Normalised error: stable name of the code.")
    http_equivalent = Column(pl.Int64, "Normalised error: equivalent HTTP status.")
    error_retryable = Column(pl.Boolean, "Normalised error: whether trying again may help.")
    error_hint = Column(pl.String, "Normalised error: suggested action.")
    error_details = Column(pl.String, "Normalised error: JSON text of its details.")
    error_source = Column(pl.String, "Normalised error: `structured`, `partial` or `inferred`.")
    error_shape = Column(
        pl.String,
        "Form of a tool's error: `JSON-RPC error`, `isError, text`, `isError, JSON`, "
        "`isError, structuredContent`, `isError, nothing`, `text without isError`, "
        "`JSON without isError`; null where the reply has none of these forms.",
    )
    definition = Column(pl.String, "Tool definition in force: hash, see `tools.definition`.")
    definition_source = Column(
        pl.String,
        "Which listing the definition comes from: `session` (before the "
        "call in its session), `later` (after it in the session), `server` (another "
        "session of this server), `none`.",
    )
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
    validated_by = Column(
        pl.String,
        "Last call of the server's own validation for the same tool and arguments, in "
        "this session or, on this server, within the hour before.",
    )
    validated_as = Column(pl.Boolean, "Whether that validation accepted the arguments.")
    scenario = Column(pl.String, "`happy_path`, `edge_case`, `boundary` or `error_case`.")
    scenario_source = Column(pl.String, "Where the scenario comes from: `arguments` or `given`.")
    attempt_of = Column(
        pl.String, "First call of the chain that this call belongs to (possibly itself)."
    )
    attempt = Column(pl.UInt32, "Position in that chain, from 1.")
    attempt_why = Column(
        pl.String,
        "Link to the previous call in the chain: `retry`, `input_required`, `task`, "
        "`negotiation`; null for a first call.",
    )


_FACTOR_MEANINGS: Final = {
    "mcp_code": "Factor 1: an MCP error code.",
    "business_pattern": "Factor 2: a phrase of business logic.",
    "http_status": "Factor 3: an HTTP status code.",
    "structured_error": "Factor 4: a structured error.",
    "validates_test_data": "Factor 5: refers to test data.",
    "validation_expected": "Factor 6: a tool that is expected to validate.",
}

_READINGS: Final = {
    "seed": "the seed document as written",
    "inspector": "the original program, exactly",
}


def _add_seed_columns() -> None:
    """Declare the columns of the seed score, once for each of its two readings."""
    columns = {
        "classification": Column(
            pl.String, "Classification; null where the original program throws."
        ),
        "confidence": Column(pl.Float64, "Confidence in the classification.", "percent"),
        "is_valid": Column(pl.Boolean, "Whether the response indicates a working tool."),
        "is_error": Column(pl.Boolean, "Whether the response is an error."),
        "issues": Column(pl.List(pl.String), "What is wrong with the response."),
        "evidence": Column(pl.List(pl.String), "Evidence for the classification."),
        "is_business_error": Column(pl.Boolean, "Whether an error is business logic."),
        "business_confidence": Column(
            pl.Float64, "Share of the points for business logic, 0 to 1."
        ),
        "threshold": Column(pl.Float64, "Minimum share for a business error."),
        **{f"factor_{name}": Column(pl.Boolean, text) for name, text in _FACTOR_MEANINGS.items()},
        "error": Column(pl.String, "Why the reading cannot judge the response."),
    }
    for prefix, reading in _READINGS.items():
        for name, column in columns.items():
            copy = Column(column.dtype, f"{column.meaning} Reading: {reading}.", column.unit)
            setattr(Calls, f"{prefix}_{name}", copy)
            copy.__set_name__(Calls, f"{prefix}_{name}")


_add_seed_columns()
