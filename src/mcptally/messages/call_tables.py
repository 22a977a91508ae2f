"""Declares the tables that `sessions` and `pair` return: messages with sessions, and calls."""

import polars as pl

from mcptally.messages.event_tables import (
    DecodedMessages,
    Event,
    Opens,
    Replies,
    RequestParams,
)
from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.stages import ReplyContent


class SessionMessages(DecodedMessages):
    """One row per message, in order of arrival, with its session and HTTP exchange."""

    pos = Column(pl.UInt32, "Order of arrival in the partition.")
    http_status = Column(pl.Int64, "Status of the HTTP exchange.")
    closed_by = Column(pl.String, "Side that closed the HTTP exchange.")
    closed_ns = Column(pl.Int64, "Time when it was closed.", "ns")
    header_version = Column(pl.String, "Protocol revision in the exchange's header.")
    resumes = Column(
        pl.Boolean, "Whether the exchange may repeat messages of an earlier one; null on a pipe."
    )
    kind = Messages.kind
    asker = Column(pl.String, "Side that sent the request that the message belongs to.")
    id_key = Column(pl.String, "Value of `id`: two ids match if their keys are equal.")
    session = Calls.session
    session_source = Calls.session_source


class SessionIdentities(StageTable):
    """One row per session in which at least one side reports its name, version or capabilities."""

    session = Calls.session
    server_name = Calls.server_name
    server_version = Calls.server_version
    server_capabilities = Recordings.server_capabilities
    client = Calls.client
    client_version = Calls.client_version
    client_capabilities = Recordings.client_capabilities
    negotiated = Column(pl.String, "First protocol revision that the server accepted.")


class OpenedRecordings(StageTable):
    """One row per recording; a recording without an `open` event has null in all other columns."""

    recording = Event.recording
    transport = Opens.transport
    server = Opens.server
    command = Opens.command
    url = Opens.url
    recorder = Opens.recorder
    redaction = Opens.redaction
    source = Opens.source


class PairedMessages(SessionMessages):
    """One row per message, with the call to which it belongs."""

    replay = Column(pl.Boolean, "Whether a resumed SSE stream sent the message again.")
    call_id = Messages.call_id
    match = Messages.match


class PairedCalls(Event, ReplyContent, SessionIdentities):
    """One row per request that is not a replay, with its reply, cancellation and progress."""

    call_id = Calls.call_id
    pos = SessionMessages.pos
    row = DecodedMessages.row
    index = DecodedMessages.index
    dir = DecodedMessages.dir
    scope = DecodedMessages.scope
    bytes = DecodedMessages.bytes
    id = DecodedMessages.id
    method = DecodedMessages.method
    truncated = DecodedMessages.truncated
    model = DecodedMessages.model
    http_status = SessionMessages.http_status
    closed_by = SessionMessages.closed_by
    closed_ns = SessionMessages.closed_ns
    header_version = SessionMessages.header_version
    id_key = SessionMessages.id_key
    session_source = SessionMessages.session_source
    replay = PairedMessages.replay

    name = RequestParams.name
    uri = RequestParams.uri
    arguments = RequestParams.arguments
    request_state = RequestParams.request_state
    input_responses = RequestParams.input_responses
    task_id = RequestParams.task_id
    meta_progress_token = RequestParams.meta_progress_token
    meta_protocol_version = RequestParams.meta_protocol_version
    meta_client_info = RequestParams.meta_client_info
    traceparent = Calls.traceparent
    asked_version = Column(pl.String, "Protocol revision that `initialize` requests.")
    tool = Calls.tool
    prompt = Calls.prompt
    resource_uri = Calls.resource_uri

    reply = Column(pl.UInt32, "`pos` of the reply; null if there is none.")
    reply_row = Column(pl.UInt32, "`row` of the reply.")
    reply_ns = Column(pl.Int64, "Time of the reply.", "ns")
    match = Column(pl.String, "How the reply was matched: `exact` or `loose` (by value only).")
    error_reply = Column(pl.Boolean, "Whether the reply is a JSON-RPC error.")
    reply_truncated = Column(pl.Boolean, "Whether only the head of the reply was recorded.")
    result_type = Replies.result_type
    task = Replies.task
    tools = Replies.tools
    error_message = Replies.error_message
    reply_state = Column(pl.String, "State that the client is to return with the input.")
    reply_version = Column(pl.String, "Protocol revision in the reply to `initialize`.")
    latency_ms = Calls.latency_ms
    request_bytes = Calls.request_bytes
    response_bytes = Calls.response_bytes
    refused = Column(
        pl.String,
        "Message of the error without an id in the call's HTTP exchange.",
    )
    refusal_code = Column(pl.Int64, "Code of that error.")
    refusal_body = Column(pl.String, "Text that is not JSON-RPC in the reply of that exchange.")

    handshake = Column(pl.String, "Protocol revision of the session's last handshake before.")
    transport = OpenedRecordings.transport
    server = OpenedRecordings.server
    command = Column(pl.String, "Command line or, if there is none, URL in `open`.")
    protocol_version = Calls.protocol_version
    protocol_source = Calls.protocol_source

    cancelled_ns = Column(pl.Int64, "Time of the first cancellation.", "ns")
    cancel_reason = Calls.cancel_reason
    progress_ns = Column(pl.Int64, "Time of the first progress notification.", "ns")
    progress_count = Calls.progress_count
    first_progress_ms = Calls.first_progress_ms
    outcome = Calls.outcome
    error_text = Calls.error_text
