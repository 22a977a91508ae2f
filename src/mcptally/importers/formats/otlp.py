"""Reads OTLP JSON from exporters and collectors; `span_calls` finds the calls among the spans.

A file contains a single document, or one document per line.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.json_array import elements
from mcptally.importers.source import Source
from mcptally.importers.span_calls import joined, read_spans
from mcptally.importers.span_conventions import ERROR_STATUSES, Span
from mcptally.wire.json_text import decode_or_none

_CLIENT: Final = (3, "3", "SPAN_KIND_CLIENT")
_SERVER: Final = (2, "2", "SPAN_KIND_SERVER")


class _Attribute(msgspec.Struct):
    key: str = ""
    value: Any = None


class _Status(msgspec.Struct):
    code: int | str | None = None
    message: str | None = None


class _Event(msgspec.Struct):
    attributes: list[_Attribute] = []


class _Span(msgspec.Struct):
    id: str = msgspec.field(default="", name="spanId")
    parent: str | None = msgspec.field(default=None, name="parentSpanId")
    name: str = ""
    kind: int | str | None = None
    start: int | str | None = msgspec.field(default=None, name="startTimeUnixNano")
    end: int | str | None = msgspec.field(default=None, name="endTimeUnixNano")
    attributes: list[_Attribute] = []
    status: _Status | None = None
    events: list[_Event] = []


class _Library(msgspec.Struct):
    name: str | None = None


class _Scope(msgspec.Struct):
    library: _Library | None = msgspec.field(default=None, name="scope")
    spans: list[msgspec.Raw] = []


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _ResourceSpans(msgspec.Struct):
    resource: _Resource | None = None
    scopes: list[_Scope] = msgspec.field(default=[], name="scopeSpans")


_RESOURCE: Final = msgspec.json.Decoder(_ResourceSpans)
_SPAN: Final = msgspec.json.Decoder(_Span)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls in a file; count other spans."""
    return read_spans(source, _spans)


def related(sources: Sequence[Source]) -> Iterator[Source]:
    """Yield the sources.

    If a file has spans whose parents are in another file, the two files are combined.
    """
    yield from joined(sources, _spans)


def _spans(source: Source) -> Iterator[Span]:
    tally = source.tally
    for element in elements(source.read_pieces(), ("resourceSpans",)):
        line = element.line
        if element.data is None:
            tally.seen += 1
            tally.skip(line, "spans that are cut off or too large")
            continue
        group = decode_or_none(_RESOURCE, element.data)
        if group is None:
            tally.seen += 1
            tally.skip(line, "not resource spans of OTLP")
            continue
        resource = _plain(group.resource.attributes if group.resource else [])
        for library, raw in _of_group(group):
            tally.seen += 1
            if (span := decode_or_none(_SPAN, raw)) is None:
                tally.skip(line, "not a span of OTLP")
            else:
                yield _span(source, span, resource, library, line)


def _of_group(group: _ResourceSpans) -> Iterator[tuple[str | None, msgspec.Raw]]:
    """Yield the spans in a group, each with the name of the library that wrote it."""
    for scope in group.scopes:
        library = scope.library.name if scope.library else None
        for raw in scope.spans:
            yield library, raw


def _span(
    source: Source, span: _Span, resource: dict[str, Any], library: str | None, line: int
) -> Span:
    status = span.status or _Status()
    return Span(
        line,
        span.id,
        span.parent or None,
        span.name,
        source.at(_number(span.start)),
        source.at(_number(span.end)),
        _plain(span.attributes),
        resource,
        library,
        "client" if span.kind in _CLIENT else "server" if span.kind in _SERVER else None,
        status.code in ERROR_STATUSES,
        _message(status.message, _exception(span.events)),
    )


def _message(status: str | None, exception: str | None) -> str | None:
    """Return the error text: the status, or the exception if the status just adds a stack trace."""
    return exception if not status or (exception and exception in status) else status


def _exception(events: list[_Event]) -> str | None:
    """Return the message of the first exception recorded in a span."""
    for event in events:
        message = _plain(event.attributes).get("exception.message")
        if isinstance(message, str) and message:
            return message
    return None


def _plain(attributes: list[_Attribute]) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: Any) -> Any:
    """Convert an OTLP `AnyValue` to a Python value."""
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
