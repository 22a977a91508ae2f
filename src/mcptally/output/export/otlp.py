"""OTLP JSON: a call a span, with the names of OpenTelemetry's MCP conventions where there are any.

One ExportTraceServiceRequest a line, as collectors read them from a file. A span is of kind CLIENT
and lasts from the request's last byte to the reply's at the recorder, which stood between the two.
A session is a trace; a span's id is the call's. Names of ours begin with `mcptally.`.
"""

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa

import mcptally
from mcptally.output.export.values import dumps, plain
from mcptally.tables.calls import FAILED

_SPANS: Final = 500
_TRANSPORTS: Final = {"stdio": "pipe", "streamable_http": "tcp", "http_sse": "tcp"}
_OURS: Final = (
    *("outcome", "verdict", "reason", "fault", "retryable", "confidence", "rule", "recording"),
    *("input_schema_state", "output_schema_state", "response_tokens", "definition"),
)
_ERROR: Final = 2
_CLIENT: Final = 3
_SERVER: Final = 2


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (spans have their own)
    file: BinaryIO,
) -> Mapping[str, int]:
    """A line for each run of calls of one server."""
    left_out = {"without a time": 0}
    server: tuple[Any, ...] = ()
    held: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["requested_at"] is None:
                left_out["without a time"] += 1
                continue
            of = (row["server"], row["server_name"], row["server_version"])
            if held and (of != server or len(held) >= _SPANS):
                file.write(_request(server, held))
                held = []
            server = of
            held.append(_span(row))
    if held:
        file.write(_request(server, held))
    return left_out


def _request(server: tuple[Any, ...], spans: list[dict[str, Any]]) -> bytes:
    label, name, version = server
    about = {
        "service.name": label or name or "unknown_service",
        "mcptally.server.name": name,
        "mcptally.server.version": version,
    }
    scope = {"name": "mcptally", "version": mcptally.__version__}
    group = {
        "resource": {"attributes": _attributes(about)},
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
    if row["outcome"] in FAILED:
        status = {"code": _ERROR} | ({"message": row["error_text"]} if row["error_text"] else {})
    return {
        "traceId": hashlib.blake2b((row["session"] or "").encode(), digest_size=16).hexdigest(),
        "spanId": row["call_id"],
        "name": f"{row['method']} {name}" if name else row["method"],
        "kind": _CLIENT if row["dir"] == "c2s" else _SERVER,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": _attributes(_known(row)),
        "status": status,
    }


def _known(row: dict[str, Any]) -> dict[str, Any]:
    of_tool = row["method"] == "tools/call"
    request_id = row["request_id"]
    return {
        "mcp.method.name": row["method"],
        "mcp.protocol.version": (
            row["protocol_version"] if row["protocol_source"] != "fallback" else None
        ),
        "mcp.session.id": row["session"],
        "mcp.resource.uri": row["resource_uri"],
        "jsonrpc.request.id": _id(request_id),
        "rpc.response.status_code": _text(row["error_code"]),
        "error.type": _error_type(row),
        "gen_ai.operation.name": "execute_tool" if of_tool else None,
        "gen_ai.tool.name": row["tool"],
        "gen_ai.prompt.name": row["prompt"],
        "gen_ai.tool.call.arguments": row["arguments"] if of_tool else None,
        "gen_ai.tool.call.result": (
            row["response"] if of_tool and row["outcome"] != "protocol_error" else None
        ),
        "network.transport": _TRANSPORTS.get(row["transport"]),
        "http.response.status_code": row["http_status"],
        **{f"mcptally.{name}": row[name] for name in _OURS},
    }


def _id(text: str | None) -> str | None:
    """An id of JSON-RPC as text; a number keeps its digits, however many."""
    return str(json.loads(text, parse_int=str, parse_float=str)) if text else None


def _error_type(row: dict[str, Any]) -> str | None:
    outcome = row["outcome"]
    if outcome == "tool_error":
        return "tool_error"
    if outcome == "protocol_error":
        return _text(row["error_code"]) or "_OTHER"
    return outcome if outcome in FAILED else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _nanoseconds(when: datetime.datetime) -> int:
    return round(when.timestamp() * 1_000_000) * 1000


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP writes them; what is not known is left out."""
    return [{"key": k, "value": _value(v)} for k, v in values.items() if v is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": plain(value)}
    return {"stringValue": str(value)}
