"""Converts OTLP trace requests from protobuf to JSON with OpenTelemetry's library."""

import base64
from typing import Any, Final

from mcptally.errors import UsageError

_IDS: Final = ("traceId", "spanId", "parentSpanId")


def require_library() -> None:
    """Check that OpenTelemetry's protobuf library is installed.

    Raises:
        UsageError: the library is missing.
    """
    try:
        import opentelemetry.proto.collector.trace.v1.trace_service_pb2  # noqa: F401, PLC0415
    except ImportError as error:
        raise UsageError(
            "--listen needs the package opentelemetry-proto, which is not installed: "
            "pip install 'mcptally[otlp]'"
        ) from error


def trace_request(data: bytes) -> dict[str, Any]:
    """Decode an `ExportTraceServiceRequest` to objects as in OTLP JSON.

    Protobuf's own JSON has ids in base64; OTLP JSON has them in hexadecimal.

    Raises:
        ValueError: the bytes are not an `ExportTraceServiceRequest`.
    """
    from google.protobuf import json_format, message  # noqa: PLC0415  (an extra)
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    try:
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(data)
        found: dict[str, Any] = json_format.MessageToDict(request, use_integers_for_enums=True)
    except (message.Error, json_format.Error) as error:
        raise ValueError(error) from error
    for group in found.get("resourceSpans", ()):
        for scope in group.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in span.keys() & set(_IDS):
                    span[name] = base64.b64decode(span[name]).hex()
    return found
