"""Receives spans over OTLP/HTTP, and writes them to a file of OTLP JSON, one request per line."""

import base64
import signal
import socket
import zlib
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from mcptally.errors import UsageError

PATH: Final = "/v1/traces"
"""The path that exporters send spans to."""
MAX_REQUEST: Final = 64 * 2**20
"""Maximum uncompressed size of a request in bytes; exporters send a few hundred spans at a time."""
_IDS: Final = ("traceId", "spanId", "parentSpanId")
_GZIP: Final = 31
"""zlib's window bits for the gzip format."""


def receive(sockets: Sequence[socket.socket], spans: BinaryIO, ready: Callable[[], None]) -> None:
    """Write the spans that arrive at `sockets` to a file until SIGINT or SIGTERM arrives.

    A request is answered after its spans have been written. `ready` is called once the signal
    handlers are installed.
    """
    application = Starlette(routes=[Route(PATH, _handler(spans), methods=["POST"])])
    config = uvicorn.Config(
        application, log_level="error", access_log=False, ws="none", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    # uvicorn installs its own handlers, and re-raises the signal for the previous handlers.
    stop = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, server.handle_exit) for number in stop}
    try:
        ready()
        server.run(sockets=list(sockets))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handler(spans: BinaryIO) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        # A page on another site cannot send these types without a preflight request (CORS).
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = request.headers.get("content-encoding", "identity").lower()
        if kind not in _READERS or encoding not in {"identity", "gzip"}:
            return PlainTextResponse("send JSON or protobuf, with gzip or as it is\n", 415)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_REQUEST:
                return PlainTextResponse(f"more than {MAX_REQUEST} bytes\n", 413)
        try:
            if encoding == "gzip":
                body = zlib.decompressobj(_GZIP).decompress(body, MAX_REQUEST + 1)
                if len(body) > MAX_REQUEST:
                    return PlainTextResponse(f"more than {MAX_REQUEST} bytes\n", 413)
            line = _READERS[kind](body)
        except (ValueError, RecursionError, zlib.error) as error:
            return PlainTextResponse(f"not a request of {kind}: {error}\n", 400)
        try:
            spans.write(line + b"\n")
            spans.flush()
        except OSError as error:
            return PlainTextResponse(f"the spans cannot be written: {error.strerror}\n", 503)
        return JSONResponse({}) if kind == _JSON else Response(media_type=kind)

    return handle


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


def _compact(body: bytes) -> bytes:
    """Return a request's JSON on one line."""
    msgspec.json.decode(body, type=dict[str, Any])
    return msgspec.json.format(body, indent=-1)


def _from_protobuf(body: bytes) -> bytes:
    return msgspec.json.encode(trace_request(body))


_JSON: Final = "application/json"
_READERS: Final = {_JSON: _compact, "application/x-protobuf": _from_protobuf}
