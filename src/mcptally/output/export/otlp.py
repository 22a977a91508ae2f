"""Writes spans or metrics as OTLP JSON, according to OpenTelemetry's conventions for MCP.

Each line is an ExportTraceServiceRequest or ExportMetricsServiceRequest, which collectors can read
from a file. There is one span per operation, such as a chain of input requests, or a call and the
task that it started; requests about tasks have no span of their own. A span starts with the last
byte of the (first) request and ends with the last byte of the final message, as seen by the
recorder. The resource is the server, so the span kind is SERVER, or CLIENT for server requests.
Trace and parent come from the request's `_meta.traceparent`; without it, the session is the trace.
The span id is the `call_id`. The metrics are `mcp.server.operation.duration` and, for server
requests, `mcp.client.operation.duration`. Attributes without a convention start with `mcptally.`.
"""

import bisect
import datetime
import hashlib
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa

import mcptally
from mcptally.output.formats.values import dumps, plain
from mcptally.output.formats.written import NO_TIME, Written
from mcptally.tables.outcomes import FAILED

_MAX_SPANS: Final = 500
"""Maximum number of spans per line."""
_TRANSPORTS: Final = {"stdio": "pipe", "streamable_http": "tcp", "http_sse": "tcp"}
_EXTRA_COLUMNS: Final = (
    *("outcome", "verdict", "reason", "fault", "retryable", "certainty", "rule", "recording"),
    *("input_schema_state", "output_schema_state", "response_tokens", "definition"),
)
_STATUS_ERROR: Final = 2
_KIND_SERVER: Final = 2
_KIND_CLIENT: Final = 3
_ERRORS_OF_CALLERS: Final = (-32700, -32600, -32601, -32602, -32002)
"""Codes of JSON-RPC errors that callers cause (semantic-conventions-genai, pull request 404)."""
PART_OF_ANOTHER: Final = "requests that are part of the operation of another one"
_CUMULATIVE: Final = 2
_BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bucket boundaries of the duration histogram in seconds, as recommended by the conventions."""
NO_REPLY: Final = "calls without a reply or cancellation"


_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-[0-9a-f]{2}"
)
"""Matches a valid W3C Trace Context `traceparent`; later versions may append fields."""


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (spans have a schema of their own)
    file: BinaryIO,
) -> Written:
    """Write one line per run of calls to the same server, with at most `_MAX_SPANS` spans."""
    left_out = {NO_TIME: 0, PART_OF_ANOTHER: 0}
    server: tuple[Any, ...] = ()
    spans: list[dict[str, Any]] = []
    pages: dict[str | None, list[Any]] = {}
    for row in _operations(batches, left_out):
        if spans and (_server(row) != server or len(spans) >= _MAX_SPANS):
            file.write(_export_request(server, spans))
            spans = []
        server = _server(row)
        spans.append(_span(row, _definitions(row, pages)))
    if spans:
        file.write(_export_request(server, spans))
    return Written(left_out)


def _operations(
    batches: Iterator[pa.RecordBatch], left_out: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the rows that are operations with a time, and count the others in `left_out`."""
    for batch in batches:
        for row in batch.to_pylist():
            if row["requested_at"] is None:
                left_out[NO_TIME] += 1
            elif row["continued_by"] is not None or row["outcome"] == "poll":
                left_out[PART_OF_ANOTHER] += 1
            else:
                yield row


def _server(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["server"], row["server_name"], row["server_version"]


_SCOPE: Final = {"name": "mcptally", "version": mcptally.__version__}


def _resource(server: tuple[Any, ...]) -> dict[str, Any]:
    label, name, version = server
    attributes = {
        "service.name": label or name or "unknown_service",
        "mcptally.server": label,
        "mcptally.server.name": name,
        "mcptally.server.version": version,
    }
    return {"attributes": _attributes(attributes)}


def _export_request(server: tuple[Any, ...], spans: list[dict[str, Any]]) -> bytes:
    group = {
        "resource": _resource(server),
        "scopeSpans": [{"scope": _SCOPE, "spans": spans}],
    }
    return dumps({"resourceSpans": [group]}) + b"\n"


def _span(row: dict[str, Any], definitions: str | None) -> dict[str, Any]:
    start, end = _times(row)
    name = row["tool"] or row["prompt"]
    status: dict[str, Any] = {}
    if _is_error(row):
        status = {"code": _STATUS_ERROR} | (
            {"message": row["error_text"]} if row["error_text"] else {}
        )
    parent = _TRACEPARENT.match(row["traceparent"] or "")
    session = hashlib.blake2b((row["session"] or "").encode(), digest_size=16)
    return {
        "traceId": session.hexdigest() if parent is None else parent["trace"],
        "spanId": row["call_id"],
        **({} if parent is None else {"parentSpanId": parent["span"]}),
        "name": f"{row['method']} {name}" if name else row["method"],
        "kind": _kind(row),
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": _attributes(_span_attributes(row, definitions)),
        "status": status,
    }


def _kind(row: dict[str, Any]) -> int:
    return _KIND_SERVER if row["dir"] == "c2s" else _KIND_CLIENT


def _is_error(row: dict[str, Any]) -> bool:
    """Return whether an operation failed; for a server's span, the caller's errors do not count."""
    if row["outcome"] == "protocol_error" and _kind(row) == _KIND_SERVER:
        return row["error_code"] not in _ERRORS_OF_CALLERS
    return row["outcome"] in FAILED


def _times(row: dict[str, Any]) -> tuple[int, int]:
    """Return the start and end of an operation, including time spent waiting for input."""
    start, waited = _nanoseconds(row["requested_at"]), _waited(row)
    if waited is None:
        return start, start
    waited += int((row["waiting_ms"] or 0) * 1e6 + 0.5)
    # The last request in a chain has the total latency.
    end = start + waited if row["attempt_why"] != "input_required" else None
    if end is None:
        end = start if row["answered_at"] is None else _nanoseconds(row["answered_at"])
        start = end - waited
    return start, end


def _waited(row: dict[str, Any]) -> int | None:
    """Return the nanoseconds from request to reply or cancellation; None if there is neither."""
    if row["latency_ms"] is not None:
        return int(row["latency_ms"] * 1e6 + 0.5)
    if row["cancelled_at"] is None:
        return None
    return max(0, _nanoseconds(row["cancelled_at"]) - _nanoseconds(row["requested_at"]))


def _span_attributes(row: dict[str, Any], definitions: str | None) -> dict[str, Any]:
    is_tool_call = row["method"] == "tools/call"
    return {
        **_operation(row),
        "mcp.session.id": row["session"],
        "mcp.resource.uri": row["resource_uri"],
        "jsonrpc.request.id": _id_text(row["request_id"]),
        "gen_ai.request.model": row["model"],
        "gen_ai.tool.call.arguments": row["arguments"] if is_tool_call else None,
        "gen_ai.tool.call.result": (
            row["response"] if is_tool_call and row["outcome"] != "protocol_error" else None
        ),
        "gen_ai.tool.definitions": definitions,
        "http.response.status_code": row["http_status"],
        **{f"mcptally.{name}": row[name] for name in _EXTRA_COLUMNS},
        # Only an error status has a message, so other error texts are attributes.
        "mcptally.error_text": None if _is_error(row) else row["error_text"],
    }


def _definitions(row: dict[str, Any], pages: dict[str | None, list[Any]]) -> str | None:
    """Return all definitions in a listing, as JSON, if this call returns its last page; else None.

    Only the span of the last page has the definitions, so `pages` collects the earlier pages.
    """
    if row["method"] != "tools/list" or row["outcome"] != "ok" or row["response"] is None:
        return None
    reply = json.loads(row["response"])
    tools = reply.get("tools")
    if not isinstance(tools, list):
        return None
    tools = pages.pop(row["session"], []) + tools
    if reply.get("nextCursor") is None:
        return json.dumps(tools, ensure_ascii=False)
    pages[row["session"]] = tools
    return None


def _operation(row: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that the span of an operation and its metrics have in common."""
    carrier = _TRANSPORTS.get(row["transport"])
    address, port = _address(row["server_url"]) if row["dir"] == "c2s" else (None, None)
    return {
        "mcp.method.name": row["method"],
        "mcp.protocol.version": (
            row["protocol_version"] if row["protocol_source"] != "fallback" else None
        ),
        "rpc.response.status_code": _text(row["error_code"]),
        "error.type": _error_type(row),
        "gen_ai.operation.name": "execute_tool" if row["method"] == "tools/call" else None,
        "gen_ai.tool.name": row["tool"],
        "gen_ai.prompt.name": row["prompt"],
        "network.transport": carrier,
        "network.protocol.name": "http" if carrier == "tcp" else None,
        "server.address": address,
        "server.port": port,
    }


def _address(url: str | None) -> tuple[str | None, int | None]:
    """Return the host and the port in a URL; a missing part is None."""
    try:
        parts = urllib.parse.urlsplit(url or "")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None, None
    return (parts.hostname, port) if parts.hostname else (None, None)


class _Histogram:
    """A histogram of the durations, in seconds, of calls with the same attributes."""

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.sum = 0.0
        self.least = float("inf")
        self.greatest = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(_BOUNDS, seconds)] += 1
        self.sum += seconds
        self.least = min(self.least, seconds)
        self.greatest = max(self.greatest, seconds)

    def data_point(self, attributes: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
        """Return the histogram as an OTLP data point for the period from `start` to `end`."""
        return {
            "attributes": _attributes(attributes),
            "startTimeUnixNano": str(start),
            "timeUnixNano": str(end),
            "count": str(sum(self.counts)),
            "sum": self.sum,
            "min": self.least,
            "max": self.greatest,
            "bucketCounts": [str(count) for count in self.counts],
            "explicitBounds": list(_BOUNDS),
        }


def write_metrics(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (metrics have a schema of their own)
    file: BinaryIO,
) -> Written:
    """Write one line per server, with a histogram of durations per operation and error type."""
    left_out = {NO_TIME: 0, PART_OF_ANOTHER: 0, NO_REPLY: 0}
    servers: dict[tuple[Any, ...], dict[tuple[Any, ...], _Histogram]] = {}
    names: Sequence[str] = ()
    start, end = 2**63 - 1, 0
    for row in _operations(batches, left_out):
        waited = _waited(row)
        if waited is None:
            left_out[NO_REPLY] += 1
            continue
        attributes = _operation(row)
        names = tuple(attributes)
        histograms = servers.setdefault(_server(row), {})
        key = (_kind(row), *attributes.values())
        histograms.setdefault(key, _Histogram()).add(waited / 1e9)
        began = _nanoseconds(row["requested_at"])
        start, end = min(start, began), max(end, began + waited)
    for server, histograms in servers.items():
        points: dict[int, list[dict[str, Any]]] = {}
        for each, histogram in histograms.items():
            kind, *values = each
            point = histogram.data_point(dict(zip(names, values, strict=True)), start, end)
            points.setdefault(kind, []).append(point)
        file.write(_metrics_request(server, points))
    return Written(left_out)


def _metrics_request(server: tuple[Any, ...], points: Mapping[int, list[dict[str, Any]]]) -> bytes:
    """Return an export request with a server's metrics; `points` maps span kinds to data points."""
    metrics = [
        {
            "name": f"mcp.{side}.operation.duration",
            "unit": "s",
            "description": "Time from a request to its reply, as seen by the recorder.",
            "histogram": {"aggregationTemporality": _CUMULATIVE, "dataPoints": points[kind]},
        }
        for kind, side in ((_KIND_SERVER, "server"), (_KIND_CLIENT, "client"))
        if kind in points
    ]
    group = {
        "resource": _resource(server),
        "scopeMetrics": [{"scope": _SCOPE, "metrics": metrics}],
    }
    return dumps({"resourceMetrics": [group]}) + b"\n"


def _id_text(text: str | None) -> str | None:
    """Return a JSON-RPC id (JSON text) as plain text; long numbers retain all digits."""
    return str(json.loads(text, parse_int=str, parse_float=str)) if text else None


def _error_type(row: dict[str, Any]) -> str | None:
    outcome = row["outcome"]
    if not _is_error(row):
        return None
    return _text(row["error_code"]) or "_OTHER" if outcome == "protocol_error" else str(outcome)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _nanoseconds(when: datetime.datetime) -> int:
    return round(when.timestamp() * 1_000_000) * 1000


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert attributes to OTLP JSON; omit attributes whose value is None."""
    return [{"key": k, "value": _value(v)} for k, v in values.items() if v is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": plain(value)}
    return {"stringValue": str(value)}
