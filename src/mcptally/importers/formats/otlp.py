"""Reads OTLP JSON: spans with the MCP semantic conventions, from exporters and collectors.

A file is one document, or one document per line. A span with `mcp.method.name` is a call. It has
arguments and result only if its program records them (`gen_ai.tool.call.arguments`, `…result`). If
client and server both have a span for a call, the server's span is used, because clients do not
record the tool. `jsonrpc.request.id` is unique within a session only: without a session id, the
span's own id is used.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import Connection, Item
from mcptally.importers.json_array import elements
from mcptally.importers.source import Source
from mcptally.transcript.format import Dir

_MAX_SPANS: Final = 2_000_000
"""Most server spans whose parents are remembered, to recognise client spans of the same call."""
_ERRORS: Final = (2, "2", "STATUS_CODE_ERROR", "ERROR")
_CLIENT: Final = (3, "3", "SPAN_KIND_CLIENT")
_SERVER: Final = (2, "2", "SPAN_KIND_SERVER")
_GAVE_UP: Final = frozenset({"timeout", "cancelled"})
_BY_SERVERS: Final = ("sampling/", "roots/list", "elicitation/create")
_TRANSPORTS: Final = {"pipe": "stdio", "tcp": "streamable_http", "quic": "streamable_http"}


class _Attribute(msgspec.Struct):
    key: str = ""
    value: Any = None


class _Status(msgspec.Struct):
    code: int | str | None = None
    message: str | None = None


class _Span(msgspec.Struct):
    id: str = msgspec.field(default="", name="spanId")
    parent: str | None = msgspec.field(default=None, name="parentSpanId")
    kind: int | str | None = None
    start: int | str | None = msgspec.field(default=None, name="startTimeUnixNano")
    end: int | str | None = msgspec.field(default=None, name="endTimeUnixNano")
    attributes: list[_Attribute] = []
    status: _Status | None = None


class _Scope(msgspec.Struct):
    spans: list[msgspec.Raw] = []


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _ResourceSpans(msgspec.Struct):
    resource: _Resource | None = None
    scopes: list[_Scope] = msgspec.field(default=[], name="scopeSpans")


_RESOURCE: Final = msgspec.json.Decoder(_ResourceSpans)
_SPAN: Final = msgspec.json.Decoder(_Span)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls of a file; other spans are counted."""
    tally = source.tally
    served: set[str] = set()
    for _, _, span in _spans(source.preview()):
        if span.kind in _SERVER and span.parent and len(served) < _MAX_SPANS:
            served.add(span.parent)
    for line, resource, span in _spans(source):
        attributes = _plain(span.attributes)
        method = attributes.get("mcp.method.name")
        if not isinstance(method, str):
            tally.context["a span without an MCP method"] += 1
        elif span.kind in _CLIENT and span.id in served:
            tally.context["also in the server's span"] += 1
        else:
            tally.used += 1
            yield from _call(source, span, attributes, resource, method, line)


def _spans(source: Source) -> Iterator[tuple[int, dict[str, Any], _Span]]:
    """Yield (line, attributes of the resource, span) for every span."""
    tally = source.tally
    for element in elements(source.read_pieces(), ("resourceSpans",)):
        line = element.line
        if element.data is None:
            tally.seen += 1
            tally.skip(line, "spans that are cut off or too large")
            continue
        try:
            group = _RESOURCE.decode(element.data)
        except (msgspec.DecodeError, RecursionError, ValueError):
            tally.seen += 1
            tally.skip(line, "not resource spans of OTLP")
            continue
        resource = _plain(group.resource.attributes if group.resource else [])
        for raw in (raw for scope in group.scopes for raw in scope.spans):
            tally.seen += 1
            try:
                span = _SPAN.decode(raw)
            except (msgspec.DecodeError, RecursionError, ValueError):
                tally.skip(line, "not a span of OTLP")
                continue
            yield line, resource, span


def _call(
    source: Source,
    span: _Span,
    attributes: dict[str, Any],
    resource: dict[str, Any],
    method: str,
    line: int,
) -> Iterator[Item]:
    direction: Dir = "s2c" if method.startswith(_BY_SERVERS) else "c2s"
    back: Dir = "c2s" if direction == "s2c" else "s2c"
    session = attributes.get("mcp.session.id")
    request = attributes.get("jsonrpc.request.id")
    connection = _connection(source, attributes, resource, session)
    start, end = source.at(_number(span.start)), source.at(_number(span.end))
    name = attributes.get("gen_ai.tool.name") or attributes.get("gen_ai.prompt.name")
    name = name if isinstance(name, str) else None
    uri = attributes.get("mcp.resource.uri")
    uri = uri if isinstance(uri, str) and method.startswith("resources/") else None
    if method.startswith("notifications/"):
        extra: dict[str, Any] = {"method": method}
        yield Item(
            kind="head",
            line=line,
            connection=connection,
            at=start,
            dir=direction,
            derived=True,
            extra=extra,
        )
        return
    call = str(request) if request is not None and session is not None else span.id
    arguments = call_records.NOT_RECORDED
    if method == "tools/call" and (given := attributes.get("gen_ai.tool.call.arguments")):
        arguments = _json(given)
    yield call_records.request(
        connection,
        call,
        line=line,
        at=start,
        tool=name,
        method=method,
        uri=uri,
        arguments=arguments,
        direction=direction,
    )
    if attributes.get("error.type") != "no_response":
        yield _reply(connection, call, span, attributes, line=line, at=end, direction=back)


def _reply(
    connection: Connection,
    call: str,
    span: _Span,
    attributes: dict[str, Any],
    *,
    line: int,
    at: int | None,
    direction: Dir,
) -> Item:
    status = span.status or _Status()
    told = attributes.get("error.type")
    error = None if told is None else str(told)
    code = attributes.get("rpc.response.status_code", attributes.get("jsonrpc.error.code"))
    failed = error is not None or status.code in _ERRORS
    result = attributes.get("gen_ai.tool.call.result")
    if error == "tool_error":
        if result is None and status.message:
            result = status.message
        if result is None:
            return call_records.result_reply(
                connection, call, line=line, at=at, is_error=True, direction=direction
            )
        text = call_records.result_of(result, is_error=True)
        return call_records.result_reply(
            connection, call, line=line, at=at, result=text, direction=direction
        )
    number = _code(code) if code is not None else _code(error)
    if number is not None and (number or failed):
        said = status.message
        return call_records.error_reply(
            connection, call, line=line, at=at, message=said, code=number, direction=direction
        )
    if error in _GAVE_UP:
        return call_records.cancellation(connection, call, line=line, at=at, why=error)
    if failed and error != "hidden_error":
        said = status.message or error
        return call_records.error_reply(
            connection, call, line=line, at=at, message=said, direction=direction
        )
    if result is not None:
        text = call_records.result_of(result)
        return call_records.result_reply(
            connection, call, line=line, at=at, result=text, direction=direction
        )
    return call_records.result_reply(
        connection, call, line=line, at=at, is_error=False, direction=direction
    )


def _connection(
    source: Source, attributes: dict[str, Any], resource: dict[str, Any], session: Any
) -> Connection:
    """The connection of a span, by its session, else by process and server address."""
    address = attributes.get("server.address")
    port = attributes.get("server.port")
    where = f"{address}:{port}" if address and port else address
    service = resource.get("service.name")
    label = where or (
        service if service and not str(service).startswith("unknown_service") else None
    )
    process = resource.get("service.instance.id") or resource.get("process.pid") or ""
    key = (
        str(session) if session is not None else f"{service or ''} {process} {where or ''}".strip()
    )
    carried = attributes.get("network.transport")
    transport = _TRANSPORTS.get(carried) if isinstance(carried, str) else None
    return source.connection(key, server=str(label) if label else None, transport=transport)


def _plain(attributes: list[_Attribute]) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: Any) -> Any:
    """The Python value of an OTLP `AnyValue`."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return _number(inner)
    if kind == "arrayValue":
        values = inner.get("values", []) if isinstance(inner, dict) else []
        return [_value(v) for v in values] if isinstance(values, list) else None
    if kind == "kvlistValue":
        pairs = inner.get("values", []) if isinstance(inner, dict) else []
        found = [p for p in pairs if isinstance(p, dict)] if isinstance(pairs, list) else []
        return {str(p.get("key")): _value(p.get("value")) for p in found}
    return inner


def _number(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return None


def _code(value: Any) -> int | None:
    """A JSON-RPC error code, which the conventions write as text."""
    return _number(value) if isinstance(value, (int, str)) else None


def _json(value: Any) -> msgspec.Raw:
    """Arguments as JSON text: a string that is JSON is used as it is."""
    if isinstance(value, str):
        try:
            msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return msgspec.Raw(call_records.json_bytes(value))
        return msgspec.Raw(value.encode(errors="replace"))
    return msgspec.Raw(call_records.json_bytes(value))
