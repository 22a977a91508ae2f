"""Builds items from spans that describe calls.

Nested spans about the same call (from the agent, the client and the server) are merged, because
clients often do not record the tool, and servers do not record the arguments. `jsonrpc.request.id`
is unique only within a session, so without a session id, the span's id is used.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import MAX_PENDING_CALLS, Connection, Item, Tally
from mcptally.importers.model_of_call import ModelsOfCalls
from mcptally.importers.source import Source
from mcptally.importers.span_conventions import OWN_OUTCOME, Span, SpanCall, call_of, model_of
from mcptally.importers.values import ERROR_CODE, parsed, text_of
from mcptally.transcript.format import Dir
from mcptally.wire.strict_json import strict_json_error

_MAX_SPANS: Final = 1_000_000
"""Maximum number of spans whose parents are remembered to find spans about the same call."""
_MAX_DISTANCE: Final = 4
"""Maximum number of steps from a span to an ancestor that describes the same call."""
_GAVE_UP: Final = frozenset({"timeout", "cancelled"})
_BY_SERVERS: Final = ("sampling/", "roots/list", "elicitation/create")
_CARRIERS: Final = {"pipe": "stdio", "tcp": "streamable_http", "quic": "streamable_http"}
_TRANSPORTS: Final = {"stdio": "stdio", "http": "streamable_http", "sse": "http_sse"}
_CODES: Final = ("rpc.response.status_code", "jsonrpc.error.code", "mcp.error.code")


def read_spans(source: Source, spans: Callable[[Source], Iterator[Span]]) -> Iterator[Item]:
    """Yield the calls among the spans of a file, which is read twice; count the other spans."""
    tally = source.tally
    groups, models = _surveyed(spans(source.preview()))
    sizes = Counter(groups.values())
    waiting: dict[str, list[tuple[Span, SpanCall]]] = {}
    for span in spans(source):
        call = call_of(span)
        if call is None:
            tally.context["a span without a call"] += 1
            continue
        group = groups.get(span.id, span.id)
        about = waiting.setdefault(group, [])
        about.append((span, call))
        if len(about) >= sizes.get(group, 1):
            yield from _items(source, *_merged(waiting.pop(group), tally), models)
        elif len(waiting) > MAX_PENDING_CALLS:
            yield from _items(source, *_merged(waiting.pop(next(iter(waiting))), tally), models)
    for about in waiting.values():
        yield from _items(source, *_merged(about, tally), models)


def joined(
    sources: Sequence[Source], spans: Callable[[Source], Iterator[Span]]
) -> Iterator[Source]:
    """Yield the sources, after combining sources between which spans about calls are nested.

    A span whose parent is in another file probably describes the same call as the parent.
    """
    home: dict[str, int] = {}
    wanted: list[tuple[int, str]] = []
    for number, source in enumerate(sources):
        for span in spans(source.preview()):
            if len(home) < _MAX_SPANS:
                home[span.id] = number
            if span.parent and call_of(span):
                wanted.append((number, span.parent))
    first = list(range(len(sources)))
    for number, parent in wanted:
        low, high = sorted((first[number], first[home.get(parent, number)]))
        if low != high:
            first = [low if each == high else each for each in first]
    for number, source in enumerate(sources):
        if first[number] == number:
            rest = [each for at, each in enumerate(sources) if first[at] == number != at]
            yield dataclasses.replace(source, more=tuple(rest))


def _surveyed(spans: Iterator[Span]) -> tuple[dict[str, str], ModelsOfCalls]:
    """Return a file's nested spans and models, which must be known before the calls are built.

    The nested spans map the id of each span to the id of the outermost span about the same call.
    """
    parents: dict[str, str | None] = {}
    calls: dict[str, SpanCall] = {}
    models = ModelsOfCalls()
    for span in spans:
        models.add(span.id, span.parent, model_of(span.attributes))
        if len(parents) >= _MAX_SPANS:
            break
        parents[span.id] = span.parent
        if call := call_of(span):
            calls[span.id] = SpanCall(call.method, call.rank, call.tool)
    outer: dict[str, str] = {}
    for id_, call in calls.items():
        above = parents[id_]
        for _ in range(_MAX_DISTANCE):
            if above is None or above in calls:
                break
            above = parents.get(above)
        if above is not None and above in calls and _same_call(calls[above], call):
            outer[id_] = above
    groups: dict[str, str] = {}
    for id_ in outer:
        top, steps = id_, 0
        while top in outer and steps < _MAX_DISTANCE:
            top, steps = outer[top], steps + 1
        groups[id_] = groups[top] = top
    return groups, models


def _merged(about: list[tuple[Span, SpanCall]], tally: Tally) -> tuple[Span, SpanCall]:
    """Merge all spans about a call: return the best span, with its missing facts filled in."""
    tally.used += 1
    if len(about) > 1:
        tally.context["also in another span of the same call"] += len(about) - 1
        # Among spans with the same rank, the shortest is the innermost.
        about.sort(
            key=lambda each: (
                each[1].is_part,
                -each[1].rank,
                (each[0].end or 0) - (each[0].start or 0),
            )
        )
    span, call = about[0]
    if call.rank == 0:
        tally.notes["a span of an agent: it does not say which server ran the tool"] += 1
    for other, told in about[1:]:
        span = msgspec.structs.replace(
            span,
            attributes=other.attributes | span.attributes,
            failed=span.failed or other.failed,
            message=span.message or other.message,
        )
        session, request = (
            (told.session, told.request) if call.session is None else (call.session, call.request)
        )
        call = SpanCall(
            call.method,
            call.rank,
            call.tool or told.tool,
            told.arguments if call.arguments is None else call.arguments,
            told.result if call.result is None else call.result,
            told.is_error if call.is_error is None else call.is_error,
            session,
            request,
            call.label or told.label,
            reports_errors=call.reports_errors or told.reports_errors,
        )
    return span, call


def _same_call(outer: SpanCall, inner: SpanCall) -> bool:
    """Return whether two nested spans describe the same call.

    In an agent's outer span, the tool's name may be prefixed with the server's name.
    """
    if outer.method != inner.method or (outer.rank == inner.rank == 2) or outer.rank > inner.rank:
        return False
    return outer.tool is None or inner.tool is None or outer.tool.endswith(inner.tool)


def _items(source: Source, span: Span, call: SpanCall, models: ModelsOfCalls) -> Iterator[Item]:
    direction: Dir = "s2c" if call.method.startswith(_BY_SERVERS) else "c2s"
    back: Dir = "c2s" if direction == "s2c" else "s2c"
    connection = _connection(source, span, call)
    line = span.line
    uri = text_of(span.attributes.get("mcp.resource.uri"))
    uri = uri if call.method.startswith("resources/") else None
    if call.method.startswith("notifications/"):
        extra: dict[str, Any] = {"method": call.method}
        yield Item("head", line, connection, span.start, dir=direction, derived=True, extra=extra)
        return
    known = call.request is not None and call.session is not None
    id_ = str(call.request) if known else span.id
    arguments = call_records.NOT_RECORDED
    if call.method == "tools/call" and call.arguments is not None:
        if isinstance(parsed(call.arguments), dict):
            arguments = _json(call.arguments)
        else:
            source.tally.notes["arguments that are not a JSON object: left out"] += 1
    yield call_records.request(
        connection,
        id_,
        line,
        span.start,
        tool=call.tool,
        method=call.method,
        uri=uri,
        arguments=arguments,
        version=text_of(span.attributes.get("mcp.protocol.version")),
        model=models.of(span.id) if direction == "c2s" else None,
        direction=direction,
    )
    if span.attributes.get("error.type") != "no_response":
        yield _reply(call_records.CallEnd(connection, id_, line, span.end, back), span, call)


def _reply(end: call_records.CallEnd, span: Span, call: SpanCall) -> Item:
    attributes = span.attributes
    told = attributes.get("error.type")
    if told is None and attributes.get(OWN_OUTCOME) == "cancelled":
        told = "cancelled"  # our own spans of cancelled calls have no `error.type`
    error = None if told is None else str(told)
    code = next((attributes[name] for name in _CODES if name in attributes), None)
    failed = error is not None or span.failed
    if error in _GAVE_UP:
        return end.cancelled(error)
    number = _code(code) if code is not None else _code(error)
    number = None if error == "tool_error" else number
    # agentgateway writes `mcp.error.message`. Our own spans have `mcptally.error_text` for caller
    # errors.
    message = text_of(attributes.get("mcp.error.message")) or span.message
    message = message or text_of(attributes.get("mcptally.error_text"))
    # Unlike a span that follows the MCP conventions, an agent's span does not identify the kind of
    # error.
    if (
        number is None
        and call.rank == 0
        and call.is_error
        and (said := ERROR_CODE.search(message or ""))
    ):
        number, message = int(said["code"]), said["message"]
    if number is not None and (number or failed):
        return end.error(message, number)
    if failed and not call.is_error and error != "hidden_error":
        return end.error(message or error)
    result = call.result
    if call.is_error and result is None:
        result = message
    if result is None:
        is_error = call.is_error
        if is_error is None and (call.reports_errors or call.method != "tools/call"):
            is_error = False
        return end.result(is_error=is_error)
    if call.method == "tools/list" and isinstance(result, dict):
        return end.result(call_records.json_bytes(result))
    return end.result(call_records.result_of(result, is_error=True if call.is_error else None))


def _connection(source: Source, span: Span, call: SpanCall) -> Connection:
    """Return a span's connection.

    The session identifies the connection, or else the process and the server's address.
    """
    attributes, resource = span.attributes, span.resource
    address = attributes.get("server.address")
    port = attributes.get("server.port")
    where = f"{address}:{port}" if address and port else address
    service = resource.get("service.name")
    label = (
        call.label
        or where
        or (service if service and not str(service).startswith("unknown_service") else None)
    )
    process = resource.get("service.instance.id") or resource.get("process.pid") or ""
    key = (
        str(call.session)
        if call.session is not None
        else f"{service or ''} {process} {where or ''}".strip()
    )
    carried, named = attributes.get("network.transport"), attributes.get("mcp.transport")
    transport = _CARRIERS.get(carried) if isinstance(carried, str) else None
    transport = _TRANSPORTS.get(named, transport) if isinstance(named, str) else transport
    return source.connection(
        key,
        server=str(label) if label else None,
        transport=transport,
        is_session=call.session is not None,
    )


def _code(value: Any) -> int | None:
    """Parse a JSON-RPC error code, which the conventions define as text."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _json(value: Any) -> msgspec.Raw:
    """Return arguments as JSON text; a string that is valid JSON is returned unchanged."""
    if isinstance(value, str):
        data = value.encode(errors="replace")
        if strict_json_error(data) is None:
            return msgspec.Raw(data)
    return msgspec.Raw(call_records.json_bytes(value))
