"""The table `usage`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Usage(Table):
    """One row per session, tool and hour, with sums over its calls.

    Questions about rates read it instead of the calls; every count can be summed over rows.
    """

    name = "usage"
    key = ("recording", "session", "server", "tool", "hour")

    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    hour = Column(TIME, "Hour in which the calls were made; null where the time is unknown.")
    calls = Column(pl.UInt32, "Calls.")
    first_call = Column(TIME, "Time of the first call.")
    last_call = Column(TIME, "Time of the last call.")
    ok = Column(pl.UInt32, "Calls with outcome `ok`.")
    hidden_errors = Column(pl.UInt32, "Calls with outcome `hidden_error`.")
    tool_errors = Column(pl.UInt32, "Calls with outcome `tool_error`.")
    protocol_errors = Column(pl.UInt32, "Calls with outcome `protocol_error`.")
    timeouts = Column(pl.UInt32, "Calls with outcome `timeout`.")
    no_responses = Column(pl.UInt32, "Calls with outcome `no_response`.")
    cancelled = Column(pl.UInt32, "Calls with outcome `cancelled`.")
    input_required = Column(pl.UInt32, "Calls with outcome `input_required`.")
    tasks = Column(pl.UInt32, "Calls with outcome `task`.")
    business = Column(pl.UInt32, "Calls with verdict `business`.")
    tool_failures = Column(pl.UInt32, "Calls with verdict `tool_failure`.")
    infrastructure = Column(pl.UInt32, "Calls with verdict `infrastructure`.")
    ambiguous = Column(pl.UInt32, "Calls with verdict `ambiguous`.")
    judged = Column(pl.UInt32, "Calls that count for the failure rate.")
    judged_errors = Column(
        pl.UInt32, "Calls in `judged` with verdict `tool_failure` or `business`."
    )
    failed = Column(pl.UInt32, "Calls in `judged` with verdict `tool_failure`.")
    ended_infrastructure = Column(pl.UInt32, "Calls that ended, with verdict `infrastructure`.")
    inputs_checked = Column(pl.UInt32, "Calls whose arguments were validated.")
    inputs_invalid = Column(pl.UInt32, "Calls in `inputs_checked` with invalid arguments.")
    outputs_checked = Column(pl.UInt32, "Calls whose output was validated.")
    outputs_invalid = Column(
        pl.UInt32, "Calls in `outputs_checked` with invalid or missing output."
    )
    retries = Column(pl.UInt32, "Calls that retry a failed call.")
    retried_calls = Column(
        pl.UInt32, "Calls that were retried, counted in the hour of the first retry."
    )
    recovered_calls = Column(
        pl.UInt32, "Calls in `retried_calls` that succeeded, counted in the hour of the success."
    )
    retry_ms = Column(pl.Float64, "Duration of the retries.", "ms")
    retry_tokens = Column(pl.Int64, "Estimated tokens of the retries: bytes over 4.", "tokens")
    latencies_ms = Column(pl.List(pl.Float64), "Latency of each answered call, in any order.", "ms")
    ln_latency_ms = Column(pl.Float64, "Sum of the natural logarithms of the latencies.")
    response_tokens = Column(
        pl.List(pl.Int64), "Estimated tokens of each response, in any order.", "tokens"
    )
    sized = Column(pl.UInt32, "Calls with a non-empty response.")
    ln_response_bytes = Column(
        pl.Float64, "Sum of the natural logarithms of the responses' sizes in bytes."
    )
    inspector_judged = Column(pl.UInt32, "Calls that have an `inspector_confidence`.")
    seed_judged = Column(pl.UInt32, "Calls that have a `seed_confidence`.")
    planned = Column(pl.UInt32, "Scenario results: all calls.")
    seed_executed = Column(pl.UInt32, "Results that the seed document's reading classifies.")
    seed_passed = Column(pl.UInt32, "Results in `seed_executed` that indicate a working tool.")
    validation_errors = Column(
        pl.UInt32, "Errors that the seed document's reading classifies as business logic."
    )
    seed_weighed = Column(pl.Float64, "Sum of confidence times weight of the class.", "percent")
    seed_results = Column(pl.UInt32, "Results that have a class in the seed document's reading.")
    inspector_executed = Column(
        pl.UInt32, "Results that the original program classifies or throws on."
    )
    inspector_passed = Column(
        pl.UInt32, "Results in `inspector_executed` that indicate a working tool."
    )
    happy = Column(pl.UInt32, "Results in `inspector_passed` with scenario `happy_path` or none.")
    handled = Column(pl.UInt32, "Results in `inspector_passed` with scenario `error_case`.")
    business_logic = Column(
        pl.UInt32, "Results of class `fully_working` with business logic as evidence."
    )
    inspector_results = Column(pl.UInt32, "Results that have a class in the original program.")
    inspector_weighed = Column(
        pl.Float64, "Sum of confidence times weight of that class.", "percent"
    )
    inspector_confidences = Column(
        pl.Float64, "Sum of the confidences of the results in `inspector_results`.", "percent"
    )
    first_happy = Column(
        pl.String,
        "Class of the first result in `inspector_results` with scenario `happy_path` or none.",
    )
    first_happy_at = Column(TIME, "Time of that request.")
    first_happy_seq = Column(pl.Int64, "`seq` of that request.")
    first_happy_index = Column(pl.UInt32, "Position of that request in a JSON-RPC batch.")
