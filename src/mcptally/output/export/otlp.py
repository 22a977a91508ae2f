"""Writes OTLP JSON: one span per call, named by OpenTelemetry's semantic conventions for MCP.

Each line is one ExportTraceServiceRequest, as collectors read them from a file. A span starts with
the last byte of the request and ends with the last byte of the reply, as seen by the recorder. Its
kind is CLIENT, or SERVER for requests of the server. A session is a trace; the id of a span is the
`call_id`. Attributes without a convention begin with `mcptally.`.
"""

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa

import mcptally
from mcptally.output.export.values import NO_TIME, dumps, plain
from mcptally.tables.calls import FAILED_OUTCOMES

_MAX_SPANS: Final = 500
"""Spans per line."""
_TRANSPORTS: Final = {"stdio": "pipe", "streamable_http": "tcp", "http_sse": "tcp"}
_EXTRA_COLUMNS: Final = (
    *("outcome", "verdict", "reason", "fault", "retryable", "confidence", "rule", "recording"),
    *("input_schema_state", "output_schema_state", "response_tokens", "definition"),
)
_STATUS_ERROR: Final = 2
_KIND_CLIENT: Final = 3
_KIND_SERVER: Final = 2


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (spans have a schema of their own)
    file: BinaryIO,
) -> Mapping[str, int]:
    """Write one line per sequence of calls of the same server, at most `_MAX_SPANS` spans long."""
    left_out = {NO_TIME: 0}
    server: tuple[Any, ...] = ()
    spans: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["requested_at"] is None:
                left_out[NO_TIME] += 1
                continue
            row_server = (row["server"], row["server_name"], row["server_version"])
            if spans and (row_server != server or len(spans) >= _MAX_SPANS):
                file.write(_export_request(server, spans))
                spans = []
            server = row_server
            spans.append(_span(row))
    if spans:
        file.write(_export_request(server, spans))
    return left_out


def _export_request(server: tuple[Any, ...], spans: list[dict[str, Any]]) -> bytes:
    label, name, version = server
    resource = {
        "service.name": label or name or "unknown_service",
        "mcptally.server.name": name,
        "mcptally.server.version": version,
    }
    scope = {"name": "mcptally", "version": mcptally.__version__}
    group = {
        "resource": {"attributes": _attributes(resource)},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }
    return dumps({"resourceSpans": [group]}) + b"\n"


def _span(row: dict[str, Any]) -> dict[str, Any]:
    start = _nanoseconds(row["requested_at"])
    latency = row["latency_ms"]
    end = start if latency is None else start + round(latency * 1e6)
    if latency is None and row["cancelled_at"] is not None:
        end = max(start, _nanoseconds(row["cancelled_at"]))
    name = row["tool"] or row["prompt"]
    status: dict[str, Any] = {}
    if row["outcome"] in FAILED_OUTCOMES:
        status = {"code": _STATUS_ERROR} | (
            {"message": row["error_text"]} if row["error_text"] else {}
        )
    return {
        "traceId": hashlib.blake2b((row["session"] or "").encode(), digest_size=16).hexdigest(),
        "spanId": row["call_id"],
        "name": f"{row['method']} {name}" if name else row["method"],
        "kind": _KIND_CLIENT if row["dir"] == "c2s" else _KIND_SERVER,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": _attributes(_span_attributes(row)),
        "status": status,
    }


def _span_attributes(row: dict[str, Any]) -> dict[str, Any]:
    is_tool_call = row["method"] == "tools/call"
    return {
        "mcp.method.name": row["method"],
        "mcp.protocol.version": (
            row["protocol_version"] if row["protocol_source"] != "fallback" else None
        ),
        "mcp.session.id": row["session"],
        "mcp.resource.uri": row["resource_uri"],
        "jsonrpc.request.id": _id_text(row["request_id"]),
        "rpc.response.status_code": _text(row["error_code"]),
        "error.type": _error_type(row),
        "gen_ai.operation.name": "execute_tool" if is_tool_call else None,
        "gen_ai.tool.name": row["tool"],
        "gen_ai.prompt.name": row["prompt"],
        "gen_ai.tool.call.arguments": row["arguments"] if is_tool_call else None,
        "gen_ai.tool.call.result": (
            row["response"] if is_tool_call and row["outcome"] != "protocol_error" else None
        ),
        "network.transport": _TRANSPORTS.get(row["transport"]),
        "http.response.status_code": row["http_status"],
        **{f"mcptally.{name}": row[name] for name in _EXTRA_COLUMNS},
    }


def _id_text(text: str | None) -> str | None:
    """The text of a JSON-RPC id, given as JSON; long numbers keep all digits."""
    return str(json.loads(text, parse_int=str, parse_float=str)) if text else None


def _error_type(row: dict[str, Any]) -> str | None:
    outcome = row["outcome"]
    if outcome == "tool_error":
        return "tool_error"
    if outcome == "protocol_error":
        return _text(row["error_code"]) or "_OTHER"
    return outcome if outcome in FAILED_OUTCOMES else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _nanoseconds(when: datetime.datetime) -> int:
    return round(when.timestamp() * 1_000_000) * 1000


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The attributes as OTLP JSON, without unknown values."""
    return [{"key": k, "value": _value(v)} for k, v in values.items() if v is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": plain(value)}
    return {"stringValue": str(value)}
