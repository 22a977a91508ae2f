"""Declaration of the table `usage`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Usage(Table):
    """One row a session, tool and hour: what its calls add up to."""

    name = "usage"
    meaning = (
        "One row a session, tool and hour: what its calls add up to. Questions about rates read it "
        "in the place of the calls; every count adds up over rows."
    )
    key = ("recording", "session", "server", "tool", "hour")

    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    hour = Column(TIME, "The hour in which the calls were made; null where no time is known.")
    calls = Column(pl.UInt32, "Calls.")
    first_call = Column(TIME, "When the first was made.")
    last_call = Column(TIME, "When the last was made.")
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
    judged = Column(pl.UInt32, "Calls that the failure rate counts.")
    judged_errors = Column(pl.UInt32, "Of those, with verdict `tool_failure` or `business`.")
    failed = Column(pl.UInt32, "Of those, with verdict `tool_failure`.")
    ended_infrastructure = Column(
        pl.UInt32, "Calls that came to an end, with verdict `infrastructure`."
    )
    inputs_checked = Column(pl.UInt32, "Calls whose arguments a schema could judge.")
    inputs_invalid = Column(pl.UInt32, "Of those, with arguments that break it.")
    outputs_checked = Column(pl.UInt32, "Calls whose result a schema could judge.")
    outputs_invalid = Column(pl.UInt32, "Of those, with a result that breaks it, or without one.")
    retries = Column(pl.UInt32, "Calls that repeat a failed one.")
    retried_calls = Column(
        pl.UInt32, "Calls that were repeated, in the hour of the first repetition."
    )
    recovered_calls = Column(pl.UInt32, "Of those, that ended well, in the hour when they did.")
    retry_ms = Column(pl.Float64, "Time that the repetitions took.", "ms")
    retry_tokens = Column(pl.Int64, "What they cost a model: bytes over 4.", "tokens")
    latencies_ms = Column(
        pl.List(pl.Float64), "Latency of each call that was answered, unordered.", "ms"
    )
    ln_latency_ms = Column(pl.Float64, "Sum of the natural logarithms of the latencies.")
    response_tokens = Column(pl.List(pl.Int64), "Estimate of each response, unordered.", "tokens")
    sized = Column(pl.UInt32, "Calls with a response of more than nothing.")
    ln_response_bytes = Column(pl.Float64, "Sum of the natural logarithms of their sizes in bytes.")
    inspector_judged = Column(pl.UInt32, "Calls that have an `inspector_confidence`.")
    seed_judged = Column(pl.UInt32, "Calls that have a `seed_confidence`.")
    planned = Column(pl.UInt32, "Scenario results: each call is one.")
    seed_executed = Column(pl.UInt32, "Results that the seed document's reading classifies.")
    seed_passed = Column(pl.UInt32, "Of those, that indicate a working tool.")
    validation_errors = Column(pl.UInt32, "Errors that it calls business logic.")
    seed_weighed = Column(pl.Float64, "Sum of confidence times weight of the class.", "percent")
    seed_results = Column(pl.UInt32, "Results that have a class in the seed document's reading.")
    inspector_executed = Column(
        pl.UInt32, "Results that the original program classifies or throws on."
    )
    inspector_passed = Column(pl.UInt32, "Of those, that indicate a working tool.")
    happy = Column(pl.UInt32, "Of those, with scenario `happy_path`.")
    handled = Column(pl.UInt32, "Of the passed, with scenario `error_case`.")
    business_logic = Column(
        pl.UInt32, "Results `fully_working` whose evidence says business logic."
    )
    inspector_results = Column(pl.UInt32, "Results that have a class in the original program.")
    inspector_weighed = Column(
        pl.Float64, "Sum of confidence times weight of that class.", "percent"
    )
    inspector_confidences = Column(pl.Float64, "Sum of their confidences.", "percent")
    first_happy = Column(pl.String, "Class of the first of them with scenario `happy_path`.")
    first_happy_at = Column(TIME, "When that was asked.")
    first_happy_seq = Column(pl.Int64, "`seq` of that request.")
    first_happy_index = Column(pl.UInt32, "Its position in a JSON-RPC batch.")
