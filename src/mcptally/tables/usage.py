"""Declares the table `usage`. To add an aggregate, add a column here."""

from mcptally.tables.column_types import FLOAT64, INT64, STRING, TIME, UINT32, list_of
from mcptally.tables.declaration import Aggregate, Column, Table
from mcptally.tables.outcomes import Verdict


def _count(condition: str, meaning: str) -> Aggregate:
    """Declare a column that counts the calls for which an SQL condition is true."""
    return Aggregate("count", condition, UINT32, meaning)


def _outcome(name: str) -> Aggregate:
    return _count(f"outcome = '{name}'", f"Calls with outcome `{name}`.")


def _verdict(name: Verdict) -> Aggregate:
    return _count(f"verdict = '{name}'", f"Calls with verdict `{name}`.")


class Usage(Table):
    """One row per session, tool and hour, with aggregates of its calls.

    Questions about rates read this table instead of the calls; every count can be summed over rows.
    """

    name = "usage"
    key = ("recording", "session", "server", "tool", "hour")

    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    tool = Column(STRING, "Tool that was called.")
    hour = Column(TIME, "Hour in which the calls were made; null if no time is known.")
    calls = Aggregate("rows", "", UINT32, "Calls.")
    first_call = Aggregate("min", "requested_at", TIME, "Time of the first call.")
    last_call = Aggregate("max", "requested_at", TIME, "Time of the last call.")
    ok = _outcome("ok")
    hidden_errors = _outcome("hidden_error")
    tool_errors = _outcome("tool_error")
    protocol_errors = _outcome("protocol_error")
    timeouts = _outcome("timeout")
    no_responses = _outcome("no_response")
    cancelled = _outcome("cancelled")
    input_required = _outcome("input_required")
    tasks = _outcome("task")
    unknown = _outcome("unknown")
    business = _verdict(Verdict.BUSINESS)
    tool_failures = _verdict(Verdict.TOOL_FAILURE)
    infrastructure = _verdict(Verdict.INFRASTRUCTURE)
    ambiguous = _verdict(Verdict.AMBIGUOUS)
    inputs_checked = _count("input_checked", "Calls whose arguments a schema could validate.")
    inputs_invalid = _count(
        "input_schema_state = 'invalid'", "Of those, calls with invalid arguments."
    )
    outputs_checked = _count("output_checked", "Calls whose result a schema could validate.")
    outputs_invalid = _count(
        "output_checked AND output_schema_state <> 'valid'",
        "Of those, calls with an invalid result or without one.",
    )
    retries = _count("is_retry", "Calls that repeat a failed one.")
    retried_calls = _count(
        "is_first_retry", "Calls that were repeated, in the hour of the first repetition."
    )
    recovered_calls = _count(
        "is_first_recovery", "Of those, calls that succeeded later, in the hour when they did."
    )
    retry_ms = Aggregate(
        "sum",
        "CASE WHEN is_retry THEN latency_ms END",
        FLOAT64,
        "Latency of the repetitions.",
        "ms",
    )
    retry_tokens = Aggregate(
        "sum",
        "CASE WHEN is_retry "
        "THEN coalesce(request_bytes, 0) // 4 + coalesce(response_tokens, 0) END",
        INT64,
        "What the repetitions cost a model: `response_tokens`, and bytes of the request over 4.",
        "tokens",
    )
    latencies_ms = Aggregate(
        "list",
        "latency_ms",
        list_of(FLOAT64),
        "Latency of each call that was answered, unordered.",
        "ms",
    )
    ln_latency_ms = Aggregate(
        "sum",
        "CASE WHEN latency_ms IS NOT NULL THEN ln(greatest(latency_ms, 0.001)) END",
        FLOAT64,
        "Sum of the natural logarithms of the latencies.",
    )
    response_tokens = Aggregate(
        "list",
        "response_tokens",
        list_of(INT64),
        "Tokens of each response, unordered.",
        "tokens",
    )
    sized = _count("response_bytes > 0", "Calls with a response that is not empty.")
    ln_response_bytes = Aggregate(
        "sum",
        "CASE WHEN response_bytes > 0 THEN ln(response_bytes) END",
        FLOAT64,
        "Sum of the natural logarithms of the sizes of those responses in bytes.",
    )
