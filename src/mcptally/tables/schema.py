"""Every table and column of a store: name, type, unit, meaning. Born here and nowhere else.

Write `Calls.method.col` where an expression is wanted and `Calls.method.name` where a name is.
The reference page of the tables is generated from these declarations.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

import polars as pl

TIME: Final = pl.Datetime("us", "UTC")
"""Points in time: UTC, microseconds (what DuckDB and Parquet readers agree on)."""


class Column:
    """A column of a table."""

    __slots__ = ("dtype", "meaning", "name", "unit")

    name: str

    def __init__(
        self, dtype: pl.DataType | type[pl.DataType], meaning: str, unit: str = ""
    ) -> None:
        self.dtype = dtype() if isinstance(dtype, type) else dtype
        self.meaning = meaning
        self.unit = unit

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def col(self) -> pl.Expr:
        """The column as an expression."""
        return pl.col(self.name)


class Aggregate(Column):
    """A column of `Usage`: how it is aggregated over calls, and what of each call.

    `tables.usage_sums` makes the SQL and the polars expressions of these declarations.
    """

    __slots__ = ("how", "value")

    def __init__(
        self,
        how: Literal["rows", "count", "sum", "min", "max", "list", "first"],
        value: str,
        dtype: pl.DataType | type[pl.DataType],
        meaning: str,
        unit: str = "",
    ) -> None:
        """Declare an aggregate.

        Args:
            how: `rows` counts calls, `count` counts calls for which `value` is true, `list`
                collects values that are not null, `first` takes the value of the first call with
                scenario `happy_path`.
            value: SQL over the columns of `Calls` and over `tables.usage_sums.FACTS`, in the
                dialect that DuckDB and `polars.sql_expr` share.
            dtype: type of the column.
            meaning: what the column holds.
            unit: its unit.
        """
        super().__init__(dtype, meaning, unit)
        self.how: Final = how
        self.value: Final = value


def _count(condition: str, meaning: str) -> Aggregate:
    """The number of calls for which an SQL condition is true."""
    return Aggregate("count", condition, pl.UInt32, meaning)


class Table:
    """A table of a store: its columns, in order, are the class's `Column` attributes."""

    name: ClassVar[str]
    meaning: ClassVar[str]
    key: ClassVar[tuple[str, ...]]
    """What the rows are sorted by, and what tells them apart."""

    @classmethod
    @functools.cache
    def columns(cls) -> dict[str, Column]:
        """Name → column, in order."""
        return {
            name: column
            for base in reversed(cls.__mro__)
            for name, column in vars(base).items()
            if isinstance(column, Column)
        }

    @classmethod
    @functools.cache
    def schema(cls) -> pl.Schema:
        """Name → type, in order."""
        return pl.Schema({name: column.dtype for name, column in cls.columns().items()})

    @classmethod
    def frame(cls, data: pl.DataFrame) -> pl.DataFrame:
        """`data` with exactly this table's columns and types; what it lacks is null."""
        if data.schema == cls.schema():
            return data
        missing = [
            pl.lit(None, dtype=column.dtype).alias(name)
            for name, column in cls.columns().items()
            if name not in data.columns
        ]
        return data.with_columns(missing).select(
            pl.col(name).cast(column.dtype) for name, column in cls.columns().items()
        )


_S, _I, _B, _F = pl.String, pl.Int64, pl.Boolean, pl.Float64
_U = pl.UInt32


class Messages(Table):
    """One row a JSON-RPC message, batch members apart."""

    name = "messages"
    meaning = "One row a message, members of a batch apart."
    key = ("recording", "seq", "index")

    recording = Column(_S, "Recording the message was recorded in.")
    seq = Column(_I, "Order of arrival within the recording.")
    index = Column(_U, "Position in a JSON-RPC batch; 0 otherwise.")
    batch = Column(_B, "Whether the message came in a JSON-RPC batch.")
    session = Column(_S, "Session it belongs to; see `calls.session`.")
    dir = Column(_S, "`c2s` (client to server) or `s2c`.")
    scope = Column(_S, "HTTP exchange; null on a pipe.")
    at = Column(TIME, "When its last byte arrived.")
    bytes = Column(_I, "Length on the wire; of a batch member: of the whole batch.", "bytes")
    kind = Column(_S, "`request`, `notification`, `result`, `error` or `invalid`.")
    method = Column(_S, "Method of a request or notification.")
    request_id = Column(_S, "JSON text of `id` as on the wire; null where absent.")
    call_id = Column(_S, "Call that it asks, answers, cancels or reports progress of.")
    match = Column(
        _S,
        "How a reply found its call: `exact`, `loose` (by value only), `late`, "
        "`second`, `replay`, `orphan`; null for other kinds.",
    )
    file = Column(_S, "Transcript file.")
    line = Column(_I, "Line in the file, from 1.")


class Calls(Table):
    """One row a request, of either side and any method."""

    name = "calls"
    meaning = (
        "One row for every object with a string `method` and an `id` member, of either "
        "side, answered or not."
    )
    key = ("recording", "seq", "index", "dir")

    call_id = Column(_S, "Stable id: hash of recording, dir, seq and index (16 hex digits).")
    dir = Column(_S, "Who asked: `c2s` the client, `s2c` the server.")
    recording = Column(_S, "Recording.")
    seq = Column(_I, "`seq` of the request.")
    index = Column(_U, "Position in a JSON-RPC batch; 0 otherwise.")
    file = Column(_S, "Transcript file of the request.")
    line = Column(_I, "Line of the request in its file, from 1.")
    session = Column(_S, "Session: a pipe, an HTTP session, or what is derived in their place.")
    session_source = Column(
        _S,
        "How the session is known: `pipe`, `http_session_id`, "
        "`sse_endpoint`, `client` (derived: one client, no pause over 30 min), `recording` "
        "(nothing tells sessions apart), `source` (an imported log of calls says so).",
    )
    server = Column(_S, "Label in `open`.")
    command = Column(_S, "Command line or URL in `open` (JSON text or plain).")
    server_name = Column(_S, "Name that the server gives itself.")
    server_version = Column(_S, "Version that the server gives itself (often its SDK's).")
    client = Column(_S, "Name that the client gives itself.")
    client_version = Column(_S, "Version that the client gives itself.")
    protocol_version = Column(_S, "Protocol revision in force for this request.")
    protocol_source = Column(_S, "How it is known: `header`, `meta`, `handshake`, `fallback`.")
    transport = Column(_S, "`stdio`, `streamable_http`, `http_sse` or `import`.")
    method = Column(_S, "Method asked.")
    tool = Column(_S, "Tool of a `tools/call`.")
    resource_uri = Column(_S, "URI of a request about a resource.")
    prompt = Column(_S, "Prompt of a `prompts/get`.")
    request_id = Column(_S, 'JSON text of the id as on the wire: `1` and `"1"` differ.')
    requested_at = Column(TIME, "When the request's last byte arrived.")
    answered_at = Column(TIME, "When the reply's last byte arrived.")
    latency_ms = Column(_F, "From the last byte of the request to the last of the reply.", "ms")
    first_progress_ms = Column(_F, "From the request to its first progress notification.", "ms")
    progress_count = Column(_U, "Progress notifications for this call.")
    request_bytes = Column(_I, "Request on the wire.", "bytes")
    response_bytes = Column(_I, "Reply on the wire.", "bytes")
    arguments = Column(_S, "JSON text of the arguments (of a tool or prompt).")
    response = Column(_S, "JSON text of the reply's `result` or `error` member.")
    outcome = Column(
        _S,
        "`ok`, `hidden_error`, `tool_error`, `protocol_error`, "
        "`input_required`, `task`, `timeout`, `cancelled` or `no_response`.",
    )
    cancelled_at = Column(TIME, "When the call was cancelled, if it was.")
    cancel_reason = Column(_S, "Reason given with the cancellation.")
    closed_by = Column(_S, "Who closed the HTTP exchange: `client`, `server`, `proxy`.")
    error_code = Column(_I, "JSON-RPC error code.")
    error_text = Column(_S, "What the failing reply says.")
    http_status = Column(_I, "Status of the HTTP exchange of the request.")
    text = Column(
        _S,
        "Text of the result's blocks, up to 4,000 characters; what verdicts read. "
        "Left out with --no-payloads.",
    )
    verdict = Column(
        _S,
        "`business`, `tool_failure`, `infrastructure`, `ambiguous`; null unless the call failed.",
    )
    reason = Column(_S, "Sub-class of the verdict.")
    fault = Column(_S, "`agent`, `user`, `server`, `upstream` or `transport`.")
    retryable = Column(_S, "`yes`, `after_delay`, `after_change` or `no`.")
    confidence = Column(_F, "Calibrated probability that the verdict is right.", "percent")
    rule = Column(_S, "Id of the rule that decided the verdict.")
    hidden_rule = Column(
        _S,
        "Id of the rule that decided whether a success hides an error, for or "
        "against (`hidden.trap.*`).",
    )
    hidden_confidence = Column(
        _F, "Calibrated probability that the hidden error is one.", "percent"
    )
    content_types = Column(pl.List(_S), "Type of each content block, in order.")
    text_blocks = Column(_U, "Blocks of type text.")
    image_blocks = Column(_U, "Blocks of type image.")
    audio_blocks = Column(_U, "Blocks of type audio.")
    resource_blocks = Column(_U, "Blocks of type resource or resource_link.")
    has_structured_content = Column(_B, "Whether the result has the member structuredContent.")
    has_meta = Column(_B, "Whether the result has the member _meta.")
    response_tokens = Column(
        _I, "Estimate: UTF-8 bytes of the response's JSON text over 4.", "tokens"
    )
    error_category = Column(_S, "Normalised error (validation-logic seed): category.")
    error_code_name = Column(_S, "Normalised error: stable name of the code.")
    http_equivalent = Column(_I, "Normalised error: HTTP status that says the same.")
    error_retryable = Column(_B, "Normalised error: whether trying again may help.")
    error_hint = Column(_S, "Normalised error: what to do.")
    error_details = Column(_S, "Normalised error: JSON text of its details.")
    error_source = Column(_S, "Normalised error: `structured`, `partial` or `inferred`.")
    error_shape = Column(
        _S,
        "In what form a tool's error came: `JSON-RPC error`, `isError, text`, `isError, JSON`, "
        "`isError, structuredContent`, `isError, nothing`, `text without isError`, "
        "`JSON without isError`; null where no form tells an error.",
    )
    definition = Column(_S, "Tool definition in force: hash, see `tools.definition`.")
    definition_source = Column(
        _S,
        "How the definition is known: `session` (listed before the "
        "call), `later` (listed later in the session), `server` (another "
        "session of this server), `none`.",
    )
    input_schema_state = Column(
        _S,
        "Arguments against inputSchema: `none` (no schema, or not judged: only a head was kept, "
        "or what breaks it may be what redaction put there), `valid`, `invalid`, "
        "`unusable_schema`.",
    )
    input_schema_error = Column(_S, "First error's text.")
    input_schema_path = Column(_S, "First error's place in the arguments (JSON Pointer).")
    output_schema_state = Column(
        _S,
        "Output against outputSchema: `none`, `valid`, `invalid`, "
        "`unusable_schema`, `missing_output`.",
    )
    output_schema_error = Column(_S, "First error's text.")
    output_schema_path = Column(_S, "First error's place in the output (JSON Pointer).")
    validated_by = Column(
        _S,
        "Call of the server's own validation that judged the same tool and arguments last, in "
        "this session or, on this server, within an hour before.",
    )
    validated_as = Column(_B, "What that validation said.")
    scenario = Column(_S, "`happy_path`, `edge_case`, `boundary` or `error_case`.")
    scenario_source = Column(_S, "How the scenario is known: `arguments` or `given`.")
    attempt_of = Column(_S, "First call of the chain this call belongs to (itself, if it began).")
    attempt = Column(_U, "Position in that chain, from 1.")
    attempt_why = Column(
        _S,
        "What links it to the call before: `retry`, `input_required`, `task`, "
        "`negotiation`; null for a first call.",
    )


_FACTOR_MEANINGS: Final = {
    "mcp_code": "Factor 1: an MCP error code.",
    "business_pattern": "Factor 2: a phrase of business logic.",
    "http_status": "Factor 3: an HTTP status code.",
    "structured_error": "Factor 4: an error with structure.",
    "validates_test_data": "Factor 5: refers to test data.",
    "validation_expected": "Factor 6: a tool that is expected to validate.",
}

_READINGS: Final = {
    "seed": "the seed document as written",
    "inspector": "the original program, exactly",
}


def _add_readings() -> None:
    """The seed score's columns, once for each of its two readings."""
    columns = {
        "classification": Column(_S, "Classification; null where the original throws."),
        "confidence": Column(_F, "Confidence in the classification.", "percent"),
        "is_valid": Column(_B, "Whether the response indicates a working tool."),
        "is_error": Column(_B, "Whether the response is an error."),
        "issues": Column(pl.List(_S), "What is wrong with the response."),
        "evidence": Column(pl.List(_S), "What the classification rests on."),
        "is_business_error": Column(_B, "Whether an error is business logic."),
        "business_confidence": Column(_F, "Share of the points for business logic, 0 to 1."),
        "threshold": Column(_F, "What that share has to reach."),
        **{f"factor_{name}": Column(_B, text) for name, text in _FACTOR_MEANINGS.items()},
        "error": Column(_S, "What the reading cannot judge, and why."),
    }
    for prefix, reading in _READINGS.items():
        for name, column in columns.items():
            copy = Column(column.dtype, f"{column.meaning} Reading: {reading}.", column.unit)
            setattr(Calls, f"{prefix}_{name}", copy)
            copy.__set_name__(Calls, f"{prefix}_{name}")


_add_readings()


class Findings(Table):
    """One row a violation or oddity."""

    name = "findings"
    meaning = "One row a violation or oddity."
    key = (
        *("file", "recording", "seq", "index", "rule", "path", "message"),
        *("call_id", "tool", "definition", "server", "session", "line", "evidence"),
    )

    rule = Column(_S, "Id of the rule.")
    severity = Column(_S, "`info`, `warning` or `error`.")
    about = Column(
        _S, "What it is about: `file`, `recording`, `message`, `call`, `tool`, `server`."
    )
    recording = Column(_S, "Recording.")
    session = Column(_S, "Session.")
    server = Column(_S, "Label of the server.")
    tool = Column(_S, "Tool it is about.")
    definition = Column(_S, "Tool definition.")
    call_id = Column(_S, "Call it is about.")
    seq = Column(_I, "`seq` of the message.")
    index = Column(_U, "Position in a JSON-RPC batch.")
    file = Column(_S, "Transcript file.")
    line = Column(_I, "Line in the file, from 1.")
    path = Column(_S, "Place within the message (JSON Pointer).")
    message = Column(_S, "What is wrong, in words.")
    evidence = Column(_S, "The offending value, cut to 500 characters.")


class Tools(Table):
    """One row a version of a tool definition of a server."""

    name = "tools"
    meaning = "One row a version of a tool definition of a server."
    key = ("server", "tool", "first_seen", "definition")

    server = Column(_S, "Label of the server.")
    server_name = Column(_S, "Name that the server gives itself.")
    tool = Column(_S, "Name of the tool.")
    definition = Column(_S, "Hash of the definition's canonical JSON (16 hex digits).")
    first_seen = Column(TIME, "First listing that held this version.")
    last_seen = Column(TIME, "Last listing that held this version.")
    sessions = Column(_U, "Sessions that listed it.")
    listings = Column(_U, "Replies to tools/list that held it.")
    title = Column(_S, "Title.")
    description = Column(_S, "Description.")
    input_schema = Column(_S, "JSON text of inputSchema.")
    output_schema = Column(_S, "JSON text of outputSchema.")
    annotations = Column(_S, "JSON text of annotations.")
    bytes = Column(_I, "The definition's canonical JSON.", "bytes")
    tokens = Column(_I, "Estimate: bytes over 4.", "tokens")
    input_dialect = Column(
        _S, "JSON Schema dialect of inputSchema: `2020-12` unless $schema says otherwise."
    )
    output_dialect = Column(_S, "JSON Schema dialect of outputSchema.")
    previous = Column(_S, "The version before it, by `first_seen`; null for the first.")
    drift = Column(
        _S,
        "What became of the version before: `breaking` (calls that were right are wrong, or "
        "results are no longer what was promised), `compatible`, `unclear`, `wording` (texts "
        "only), `hints` (annotations and the like only).",
    )
    changed = Column(pl.List(_S), "What changed since the version before, place by place.")


class Recordings(Table):
    """One row a recording."""

    name = "recordings"
    meaning = "One row a recording, with counts and how it ended."
    key = ("recording",)

    recording = Column(_S, "Recording.")
    server = Column(_S, "Label of the server.")
    transport = Column(_S, "Transport.")
    command = Column(_S, "Command line (JSON text).")
    url = Column(_S, "URL of the server.")
    recorder = Column(_S, "Recorder, name and version.")
    redaction = Column(_S, "Redaction policy applied.")
    source = Column(_S, "Where imported traffic comes from.")
    files = Column(pl.List(_S), "Transcript files, in order.")
    segments = Column(_U, "Segments seen.")
    opened_at = Column(TIME, "First event.")
    ended_at = Column(TIME, "Last event.")
    server_name = Column(_S, "Name that the server gives itself.")
    server_version = Column(_S, "Version that the server gives itself.")
    server_capabilities = Column(_S, "JSON text of the capabilities that the server announced.")
    client = Column(_S, "Name that the client gives itself.")
    client_version = Column(_S, "Version that the client gives itself.")
    client_capabilities = Column(_S, "JSON text of the capabilities that the client announced.")
    protocol_versions = Column(pl.List(_S), "Protocol revisions in force, in order of appearance.")
    sessions = Column(_U, "Sessions.")
    events = Column(_U, "Events of every kind.")
    messages = Column(_U, "Messages.")
    calls = Column(_U, "Calls.")
    tool_calls = Column(_U, "Calls of tools.")
    unanswered = Column(_U, "Calls without a reply.")
    raws = Column(_U, "Frames that were not strict JSON.")
    stderr_lines = Column(_U, "Events on stderr.")
    exchanges = Column(_U, "HTTP exchanges.")
    gaps = Column(_U, "Gap events.")
    lost = Column(_I, "Events that the recorder says were lost.")
    findings = Column(_U, "Findings, those about tool definitions apart.")
    end = Column(_S, "`closed` (has a close event) or `open` (still running, or stopped hard).")
    close_reason = Column(_S, "Reason in the close event.")
    exit_code = Column(_I, "Exit code of the server.")
    signal = Column(_S, "Signal that ended the server.")


class Validations(Table):
    """One row a dry run that a server was asked for."""

    name = "validations"
    meaning = "One row a call of the validation protocol (a `validate` tool, or `tools/validate`)."
    key = ("recording", "call_id")

    call_id = Column(_S, "The call that asks for validation.")
    recording = Column(_S, "Recording.")
    session = Column(_S, "Session.")
    server = Column(_S, "Label of the server.")
    native = Column(_S, "How it was asked: `tool` or `method`.")
    tool = Column(_S, "Tool that is to be validated.")
    definition = Column(_S, "Definition of that tool then in force.")
    arguments = Column(_S, "Its arguments, as canonical JSON. Left out with --no-payloads.")
    answered_at = Column(TIME, "When the answer arrived.")
    latency_ms = Column(_F, "How long it took.", "ms")
    valid = Column(_B, "The answer; null if it is none.")
    errors = Column(pl.List(_S), "Errors of the answer.")
    warnings = Column(pl.List(_S), "Warnings of the answer.")
    phase = Column(
        _S,
        "How deep the answer's words show the server to look: `schema`, `semantic` or `deep`; "
        "null where they show nothing.",
    )


class UiRuns(Table):
    """One row a test run of a UI probe."""

    name = "ui_runs"
    meaning = "One row a test run of a UI probe, found in a tool's result."
    key = ("recording", "call_id", "run_id")

    call_id = Column(_S, "The call whose result holds it.")
    recording = Column(_S, "Recording.")
    session = Column(_S, "Session.")
    server = Column(_S, "Label of the server.")
    tool = Column(_S, "Tool that was called.")
    run_id = Column(_S, "Its `runId`.")
    url = Column(_S, "Page under test.")
    viewport = Column(_S, "Viewport.")
    user_agent = Column(_S, "User agent.")
    result = Column(_S, "`passed`, `passed_with_warnings` or `failed`, as the run says.")
    result_determined = Column(_S, "The same as the program determines it from the errors.")
    steps = Column(_U, "Steps listed.")
    errors = Column(_U, "Errors listed.")
    forms = Column(_U, "Forms found.")
    axe_violations = Column(_I, "Violations of accessibility.")
    total_time_ms = Column(_F, "Duration that the run tells.", "ms")
    steps_told = Column(_I, "`metrics.steps`.")
    network_errors_told = Column(_I, "`metrics.networkErrors`.")
    console_errors_told = Column(_I, "`metrics.consoleErrors`.")
    shape_issues = Column(pl.List(_S), "What the program's schema finds wrong: `path: code`.")


class UiSteps(Table):
    """One row a step of a UI test run."""

    name = "ui_steps"
    meaning = "One row a step of a UI test run."
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(_S, "The call whose result holds it.")
    recording = Column(_S, "Recording.")
    session = Column(_S, "Session.")
    server = Column(_S, "Label of the server.")
    tool = Column(_S, "Tool that was called.")
    run_id = Column(_S, "Run it belongs to.")
    position = Column(_U, "Place in `flow`, from 0.")
    step_id = Column(_S, "Its `stepId`.")
    action = Column(_S, "`fill`, `click`, `navigate`, `assert` or `wait`.")
    selector = Column(_S, "CSS selector.")
    intent = Column(_S, "What the step is meant to do.")
    input = Column(_S, "JSON text of what was put in.")
    outcome = Column(_S, "`success`, `fail` or `timeout`.")
    latency_ms = Column(_F, "How long it took.", "ms")
    timestamp = Column(_S, "When, as the run says it.")


class UiErrors(Table):
    """One row an error of a UI test run."""

    name = "ui_errors"
    meaning = "One row an error that a UI test run lists."
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(_S, "The call whose result holds it.")
    recording = Column(_S, "Recording.")
    session = Column(_S, "Session.")
    server = Column(_S, "Label of the server.")
    tool = Column(_S, "Tool that was called.")
    run_id = Column(_S, "Run it belongs to.")
    position = Column(_U, "Place in `errors`, from 0.")
    type = Column(_S, "`validation`, `console`, `network`, `timeout` or `accessibility`.")
    code = Column(_S, "Code of the error, as `E_NETWORK`.")
    code_known = Column(_B, "Whether the program or its documents know the code.")
    selector = Column(_S, "CSS selector.")
    message = Column(_S, "Message.")
    evidence = Column(_S, "JSON text of the evidence.")
    timestamp = Column(_S, "When, as the run says it.")


_CLASS_WEIGHTS: Final = (
    "WHEN 'fully_working' THEN 1.0 WHEN 'partially_working' THEN 0.7 "
    "WHEN 'connectivity_only' THEN 0.3 WHEN 'error' THEN 0.2 WHEN 'broken' THEN 0.0"
)
"""Weight of each class of a scenario result; `rules/seed.toml` has the same numbers."""


class Usage(Table):
    """One row per session, tool and hour, with aggregates of its calls.

    To add an aggregate, add one row here.
    """

    name = "usage"
    meaning = (
        "One row per session, tool and hour, with aggregates of its calls. Questions about rates "
        "read it instead of the calls; every count can be summed over rows."
    )
    key = ("recording", "session", "server", "tool", "hour")

    recording = Column(_S, "Recording.")
    session = Column(_S, "Session.")
    server = Column(_S, "Label of the server.")
    tool = Column(_S, "Tool that was called.")
    hour = Column(TIME, "Hour in which the calls were made; null if no time is known.")
    calls = Aggregate("rows", "", _U, "Calls.")
    first_call = Aggregate("min", "requested_at", TIME, "Time of the first call.")
    last_call = Aggregate("max", "requested_at", TIME, "Time of the last call.")
    ok = _count("outcome = 'ok'", "Calls with outcome `ok`.")
    hidden_errors = _count("outcome = 'hidden_error'", "Calls with outcome `hidden_error`.")
    tool_errors = _count("outcome = 'tool_error'", "Calls with outcome `tool_error`.")
    protocol_errors = _count("outcome = 'protocol_error'", "Calls with outcome `protocol_error`.")
    timeouts = _count("outcome = 'timeout'", "Calls with outcome `timeout`.")
    no_responses = _count("outcome = 'no_response'", "Calls with outcome `no_response`.")
    cancelled = _count("outcome = 'cancelled'", "Calls with outcome `cancelled`.")
    input_required = _count("outcome = 'input_required'", "Calls with outcome `input_required`.")
    tasks = _count("outcome = 'task'", "Calls with outcome `task`.")
    business = _count("verdict = 'business'", "Calls with verdict `business`.")
    tool_failures = _count("verdict = 'tool_failure'", "Calls with verdict `tool_failure`.")
    infrastructure = _count("verdict = 'infrastructure'", "Calls with verdict `infrastructure`.")
    ambiguous = _count("verdict = 'ambiguous'", "Calls with verdict `ambiguous`.")
    judged = _count("judged", "Calls that the failure rate counts.")
    judged_errors = _count(
        "judged AND verdict IN ('tool_failure', 'business')",
        "Of those, calls with verdict `tool_failure` or `business`.",
    )
    failed = _count(
        "judged AND verdict = 'tool_failure'", "Of those, calls with verdict `tool_failure`."
    )
    ended_infrastructure = _count(
        "ended AND verdict = 'infrastructure'",
        "Calls that ended, with verdict `infrastructure`.",
    )
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
        "sum", "CASE WHEN is_retry THEN latency_ms END", _F, "Latency of the repetitions.", "ms"
    )
    retry_tokens = Aggregate(
        "sum",
        "CASE WHEN is_retry "
        "THEN coalesce(request_bytes, 0) // 4 + coalesce(response_tokens, 0) END",
        _I,
        "What the repetitions cost a model: bytes over 4.",
        "tokens",
    )
    latencies_ms = Aggregate(
        "list",
        "latency_ms",
        pl.List(_F),
        "Latency of each call that was answered, unordered.",
        "ms",
    )
    ln_latency_ms = Aggregate(
        "sum",
        "CASE WHEN latency_ms IS NOT NULL THEN ln(greatest(latency_ms, 0.001)) END",
        _F,
        "Sum of the natural logarithms of the latencies.",
    )
    response_tokens = Aggregate(
        "list",
        "response_tokens",
        pl.List(_I),
        "Estimate of each response, unordered.",
        "tokens",
    )
    sized = _count("response_bytes > 0", "Calls with a response that is not empty.")
    ln_response_bytes = Aggregate(
        "sum",
        "CASE WHEN response_bytes > 0 THEN ln(response_bytes) END",
        _F,
        "Sum of the natural logarithms of the sizes of those responses in bytes.",
    )
    inspector_judged = _count(
        "inspector_confidence IS NOT NULL", "Calls that have an `inspector_confidence`."
    )
    seed_judged = _count("seed_confidence IS NOT NULL", "Calls that have a `seed_confidence`.")
    planned = Aggregate("rows", "", _U, "Scenario results: each call is one.")
    seed_executed = _count("seed_executed", "Results that the seed document's reading classifies.")
    seed_passed = _count(
        "seed_executed AND seed_is_valid", "Of those, results that indicate a working tool."
    )
    validation_errors = _count(
        "seed_is_error AND seed_is_business_error", "Errors that it calls business logic."
    )
    seed_weighed = Aggregate(
        "sum",
        f"seed_confidence * CASE seed_classification {_CLASS_WEIGHTS} END",
        _F,
        "Sum of confidence times weight of the class.",
        "percent",
    )
    seed_results = _count(
        "seed_classification IS NOT NULL",
        "Results that have a class in the seed document's reading.",
    )
    inspector_executed = _count(
        "inspector_executed", "Results that the original program classifies or throws on."
    )
    inspector_passed = _count(
        "inspector_executed AND inspector_is_valid",
        "Of those, results that indicate a working tool.",
    )
    happy = _count(
        "inspector_executed AND inspector_is_valid AND planned_scenario = 'happy_path'",
        "Of those, results with scenario `happy_path`.",
    )
    handled = _count(
        "inspector_executed AND inspector_is_valid AND planned_scenario = 'error_case'",
        "Of the passed, results with scenario `error_case`.",
    )
    business_logic = _count(
        "inspector_class = 'fully_working' "
        "AND strpos(array_to_string(inspector_evidence, ' | '), 'business logic') > 0",
        "Results `fully_working` whose evidence says business logic.",
    )
    inspector_results = _count(
        "inspector_class IS NOT NULL", "Results that have a class in the original program."
    )
    inspector_weighed = Aggregate(
        "sum",
        f"inspector_points * CASE inspector_class {_CLASS_WEIGHTS} END",
        _F,
        "Sum of confidence times weight of that class.",
        "percent",
    )
    inspector_confidences = Aggregate(
        "sum", "inspector_points", _F, "Sum of their confidences.", "percent"
    )
    first_happy = Aggregate(
        "first",
        "inspector_class",
        _S,
        "Class of the first of them with scenario `happy_path`.",
    )
    first_happy_at = Aggregate("first", "requested_at", TIME, "Time of that request.")
    first_happy_seq = Aggregate("first", "seq", _I, "`seq` of that request.")
    first_happy_index = Aggregate("first", '"index"', _U, "Its position in a JSON-RPC batch.")


TABLES: Final[tuple[type[Table], ...]] = (
    Calls,
    Messages,
    Findings,
    Tools,
    Recordings,
    Validations,
    UiRuns,
    UiSteps,
    UiErrors,
    Usage,
)
"""The tables of a store."""

Severity = Literal["info", "warning", "error"]
FAILED: Final = (
    "tool_error",
    "protocol_error",
    "hidden_error",
    "timeout",
    "no_response",
    "cancelled",
)
"""Outcomes of calls that did not get what they asked for."""

About = Literal["file", "recording", "message", "call", "tool", "server"]


class Finding(NamedTuple):
    """A finding as a row, for the few that are not made by columns."""

    rule: str
    severity: Severity
    about: About
    message: str
    file: str | None = None
    line: int | None = None
    recording: str | None = None
    evidence: str | None = None


def findings_frame(rows: Sequence[Finding]) -> pl.DataFrame:
    """Single findings as a frame with all columns of `Findings`."""
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * len(Finding._fields)
    schema = Findings.schema()
    data = {
        name: pl.Series(name, values, dtype=schema[name])
        for name, values in zip(Finding._fields, columns, strict=True)
    }
    return Findings.frame(pl.DataFrame(data))
