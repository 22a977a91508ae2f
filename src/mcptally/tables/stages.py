"""Declares the tables that pipeline stages pass to each other but that no store contains.

Before a stage passes a frame on, it selects the declared columns with `StageTable.select`. So a
missing or misspelt column raises an error in its own stage, and unneeded columns take no memory.
"""

from typing import Final

import polars as pl

from mcptally.tables import column_types
from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.seed_scores import INTERPRETATION_COLUMNS, SeedScores
from mcptally.tables.tools import Tools

_S, _I, _B, _F = pl.String, pl.Int64, pl.Boolean, pl.Float64
_U = pl.UInt32
_NS = "ns since 1970"
TIME: Final = column_types.TIME.dtype
"""The polars type of `column_types.TIME` columns."""


# --- from `gather` to `finish`, one partition ----------------------------------------------------


class ReplyContent(StageTable):
    """The parsed content of each reply's result or error."""

    response = Calls.response
    is_error = Column(_S, "JSON text of the result's `isError`.")
    structured_content = Column(_S, "JSON text of the result's `structuredContent`.")
    content_kind = Column(_S, "JSON type of the result's `content`, or `absent`.")
    content_types = Calls.content_types
    blocks_plain = Column(_B, "Whether every content block has only the members of its type.")
    text_blocks = Calls.text_blocks
    image_blocks = Calls.image_blocks
    audio_blocks = Calls.audio_blocks
    resource_blocks = Calls.resource_blocks
    first_text = Column(_S, "Text of the first text block.")
    text = Calls.text
    has_structured_content = Calls.has_structured_content
    has_meta = Calls.has_meta
    error_code = Calls.error_code
    error_data = Column(_S, "JSON text of the error's `data`.")


class GatheredCalls(ReplyContent):
    """The calls of a partition, paired with their replies but not yet judged."""

    call_id = Calls.call_id
    pos = Column(_U, "Place of the request among the messages of its partition.")
    reply = Column(_U, "`pos` of the reply; null without one.")
    match = Column(_S, "How the reply was found; see `messages.match`.")
    recording = Calls.recording
    file = Calls.file
    line = Calls.line
    seq = Calls.seq
    index = Calls.index
    dir = Calls.dir
    session = Calls.session
    session_source = Calls.session_source
    server = Calls.server
    command = Calls.command
    server_name = Calls.server_name
    server_version = Calls.server_version
    client = Calls.client
    client_version = Calls.client_version
    protocol_version = Calls.protocol_version
    protocol_source = Calls.protocol_source
    traceparent = Calls.traceparent
    model = Calls.model
    transport = Calls.transport
    id = Column(_S, "JSON text of the request's `id`.")
    method = Calls.method
    tool = Calls.tool
    prompt = Calls.prompt
    resource_uri = Calls.resource_uri
    ts_ns = Column(_I, "When the request's last byte arrived; 0 where no time is known.", _NS)
    reply_ns = Column(_I, "When the reply's last byte arrived.", _NS)
    cancelled_ns = Column(_I, "When the call was cancelled.", _NS)
    cancel_reason = Calls.cancel_reason
    latency_ms = Calls.latency_ms
    waiting_ms = Calls.waiting_ms
    first_progress_ms = Calls.first_progress_ms
    progress_count = Calls.progress_count
    request_bytes = Calls.request_bytes
    response_bytes = Calls.response_bytes
    truncated = Column(_B, "Whether only the head of the request was recorded.")
    reply_truncated = Column(_B, "Whether only the head of the reply was recorded.")
    http_status = Calls.http_status
    closed_by = Calls.closed_by
    arguments = Calls.arguments
    combination = Column(_S, "Names of the arguments of a tool's call, sorted.")
    request_state = Column(_S, "JSON text of the request's `requestState`.")
    input_responses = Column(_S, "JSON text of the request's `inputResponses`.")
    task_id = Column(_S, "Task that the request started or is about.")
    input_mode = Column(_S, "Mode of a server's request for elicitation.")
    serves = Column(_S, "Call of the client for which the server sends this request.")
    reply_state = Column(_S, "JSON text of the result's `requestState`.")
    outcome = Column(_S, "Outcome before hidden errors are looked for; see `calls.outcome`.")
    error_text = Calls.error_text
    error_shape = SeedScores.error_shape
    exit_code = Column(_I, "Exit code of the server, for calls in flight when it ended.")
    signal = Column(_I, "Number of the signal that ended the server, for calls in flight then.")
    closed = Column(_B, "True for calls that were in flight when their recording was closed.")
    stderr_error = Calls.stderr_error


class Validated(GatheredCalls):
    """Calls with the tool definition in force and the results of validation against its schemas."""

    definition = Calls.definition
    definition_source = Calls.definition_source
    input_schema_state = Calls.input_schema_state
    input_schema_error = Calls.input_schema_error
    input_schema_path = Calls.input_schema_path
    output_schema_state = Calls.output_schema_state
    output_schema_error = Calls.output_schema_error
    output_schema_path = Calls.output_schema_path


class Evidenced(Validated):
    """Validated calls, with facts about other calls to the same tool and server in the archive."""

    concurrent_failure_share = Column(
        _F, "Share of failures among the concurrent calls to the server's other tools."
    )
    results_seen = Column(_I, "Results of the tool with text.")
    results_json = Column(_I, "Of those, results whose text is JSON.")
    tool_record = Column(_S, "How often the tool works: `never`, `seldom`, `mostly`, `always`.")
    peer_record = Column(_S, "How often the server's other tools work; the same words.")
    tool_kind = Column(_S, "Kind of the tool; see `tools.kind`.")


class Judged(Evidenced):
    """Calls with their scenario, final outcome and, if they failed, verdict."""

    scenario = SeedScores.scenario
    scenario_source = SeedScores.scenario_source
    hidden_certainty = Calls.hidden_certainty
    hidden_rule = Calls.hidden_rule
    verdict = Calls.verdict
    reason = Calls.reason
    fault = Calls.fault
    retryable = Calls.retryable
    certainty = Calls.certainty
    rule = Calls.rule
    evidence = Calls.evidence
    response_tokens = Calls.response_tokens
    template = Calls.template


class NormalisedErrors(StageTable):
    """The normalised form of each failed call's error."""

    error_category = Calls.error_category
    error_code_name = Calls.error_code_name
    http_equivalent = Calls.http_equivalent
    error_retryable = Calls.error_retryable
    error_hint = Calls.error_hint
    error_details = Calls.error_details
    error_source = Calls.error_source


class Scored(Judged, NormalisedErrors):
    """Judged calls, with seed scores, attempts, normalised errors and earlier validations."""

    attempt_of = Calls.attempt_of
    attempt = Calls.attempt
    attempt_why = Calls.attempt_why
    continued_by = Calls.continued_by
    validated_by = SeedScores.validated_by
    validated_as = SeedScores.validated_as


for _name in INTERPRETATION_COLUMNS:
    setattr(Scored, _name, SeedScores.columns()[_name])


class GatheredMessages(StageTable):
    """The messages of a partition, each with the id of its call."""

    recording = Messages.recording
    seq = Messages.seq
    index = Messages.index
    pos = Column(_U, "Place of the message in its partition.")
    batch = Messages.batch
    session = Messages.session
    dir = Messages.dir
    scope = Messages.scope
    ts_ns = Column(_I, "When its last byte arrived; 0 where no time is known.", _NS)
    bytes = Messages.bytes
    kind = Messages.kind
    method = Messages.method
    id = Column(_S, "JSON text of `id`; null where absent.")
    call_id = Messages.call_id
    match = Messages.match
    file = Messages.file
    line = Messages.line


class GatheredRecordings(StageTable):
    """The `recordings` table of a partition, before its calls are judged."""


for _name, _column in Recordings.columns().items():
    if _name not in ("findings", "crash_method", "crash_call_id", "probe_failed"):
        setattr(GatheredRecordings, _name, _column)


# --- summaries of partitions, for other partitions and later runs --------------------------------


class Listings(StageTable):
    """One row per tool in a reply to tools/list."""

    recording = Calls.recording
    session = Calls.session
    pos = Column(_U, "Place of the reply in its partition.")
    listed_ns = Column(_I, "When the reply arrived; 0 where no time is known.", _NS)
    server = Calls.server
    server_name = Calls.server_name
    tool = Tools.tool
    definition = Tools.definition
    revision = Column(_S, "Protocol revision in force for the request.")
    file = Column(_S, "Transcript file of the request.")
    line = Column(_I, "Line of the request in its file, from 1.")
    seq = Column(_I, "`seq` of the request.")
    index = Column(_U, "Position of the request in a JSON-RPC batch; 0 otherwise.")
    announced = Column(
        _B, "Whether notifications/tools/list_changed had come before in the session."
    )
    complete = Column(_B, "Whether the session's last reply to tools/list was a last page.")


class Timeline(StageTable):
    """One row per listing, anywhere in the archive, that changes a tool's definition."""

    server = Listings.server
    tool = Listings.tool
    listed_ns = Listings.listed_ns
    definition = Listings.definition


class Definitions(StageTable):
    """One row per distinct tool definition."""

    definition = Tools.definition
    tool = Tools.tool
    title = Tools.title
    description = Tools.description
    input_schema = Tools.input_schema
    output_schema = Tools.output_schema
    annotations = Tools.annotations
    bytes = Tools.bytes
    kind = Tools.kind
    text = Column(_S, "Canonical JSON of the definition.")


class ArgumentCombinations(StageTable):
    """The number of calls per recording, tool and combination of argument names."""

    recording = Calls.recording
    server = Calls.server
    tool = Calls.tool
    combination = GatheredCalls.combination
    calls = Column(_U, "Calls with exactly these arguments.")


class DryRuns(StageTable):
    """One row per call that asked a server to validate arguments (`Validations`)."""

    call_id = Calls.call_id
    recording = Calls.recording
    session = Calls.session
    server = Calls.server
    native = Column(_S, "How it was asked: `tool` or `method`.")
    tool = Column(_S, "Tool whose arguments were to be validated.")
    arguments = Column(_S, "These arguments, as canonical JSON; null in stored summaries.")
    arguments_digest = Column(_S, "Digest of the arguments.")
    answered_ns = Column(_I, "When the answer arrived.", _NS)
    latency_ms = Column(_F, "How long the answer took.", "ms")
    valid = Column(_B, "The answer; null if it cannot be read.")
    errors = Column(pl.List(_S), "Errors of the answer.")
    warnings = Column(pl.List(_S), "Warnings of the answer.")
    phase = Column(_S, "How deep the server looked; see `validations.phase`.")


class ErrorForms(StageTable):
    """The number of a server's errors per recording and form."""

    recording = Calls.recording
    server = Calls.server
    shape = Column(_S, "Form of the error; see `seed_scores.error_shape`.")
    calls = Column(_U, "Calls with an error of this form.")


class CallsByMinute(StageTable):
    """The numbers of calls and of failed calls per recording, tool and minute."""

    recording = Calls.recording
    server = Calls.server
    minute = Column(_I, "Minute of the requests.", "minutes since 1970")
    tool = Calls.tool
    calls = Column(_I, "Calls.")
    failed = Column(_I, "Of those, failed.")


class ResultForms(StageTable):
    """Number of a tool's results per recording and form, and of its failed calls per recording."""

    server = Calls.server
    tool = Calls.tool
    recording = Calls.recording
    seen = Column(_I, "Results with text.")
    json = Column(_I, "Results whose text is JSON.")
    all = Column(_I, "Results with and without text.")
    xml = Column(_I, "Results whose text begins with an XML declaration.")
    undeclared_xml = Column(
        _I, "Results whose text is XML without a declaration, or has a declaration further on."
    )
    failed = Column(_I, "Failed calls.")


class Needs(StageTable):
    """The facts from other recordings on which a recording's rows depend, without duplicates."""

    recording = Calls.recording
    server = Calls.server
    tool = Column(_S, "Tool of the calls; null for calls of other methods.")
    minute = CallsByMinute.minute
    open_ns = Column(
        _I, "Time of a call to a tool that its own session never lists; otherwise null.", _NS
    )


# --- the content of earlier stores ---------------------------------------------------------------


class RecordingPlaces(StageTable):
    """Where a recording's rows are stored: store and part, one row per file of the recording."""

    store = Column(_I, "Number of the store.")
    part = Column(_S, "Name of the part.")
    recording = Recordings.recording
    server = Recordings.server
    file = Column(_S, "Transcript file with events of the recording.")


class FilePlaces(StageTable):
    """Where the findings about a file that concern no recording are stored: store and part."""

    store = RecordingPlaces.store
    part = RecordingPlaces.part
    file = Column(_S, "Transcript file.")


class ExcludedRecordings(StageTable):
    """Recordings whose rows in a store are not reused."""

    store = RecordingPlaces.store
    recording = Recordings.recording


class ExcludedFiles(StageTable):
    """Files whose own findings are not reused; findings about their recordings may be reused."""

    store = RecordingPlaces.store
    file = FilePlaces.file
