"""Reads spans as returned by Phoenix's REST API (`GET /v1/projects/PROJECT/spans`).

    {"data":[{"name":"search","context":{"trace_id":"…","span_id":"…"},"span_kind":"TOOL",
      "parent_id":null,"start_time":"…","end_time":"…","status_code":"OK","status_message":"",
      "attributes":{"input.value":"{…}","output.value":"…","tool.name":"search"},"events":[]}],
     "next_cursor":null}

Or as returned by `GET /v1/projects/PROJECT/spans/otlpv1`, with all but one member of a value null:

    {"data":[{"name":"search","trace_id":"…","span_id":"…","parent_span_id":null,
      "start_time_unix_nano":1795378695637502976,"end_time_unix_nano":1795378695829408000,
      "attributes":[{"key":"tool.name","value":{"string_value":"search","int_value":null}}],
      "status":{"code":2,"message":"…"},"events":null}]}

Phoenix stores neither the resource of a span (the program) nor whether a client or a server made
it. `span_calls` finds the calls among the spans.
"""

from collections.abc import Iterator
from typing import Any, Final

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.span_calls import read_spans
from mcptally.importers.span_conventions import ERROR_STATUSES, Span
from mcptally.importers.tool_records import objects
from mcptally.importers.values import dict_of, text_of


def read(source: Source) -> Iterator[Item]:
    """Yield the calls of a file; other spans are counted."""
    return read_spans(source, _spans)


def _spans(source: Source) -> Iterator[Span]:
    for line, data in objects(source):
        context = dict_of(data.get("context"))
        if "span_id" in context:
            yield _span(source, data, str(context["span_id"]), line)
        elif "span_id" in data and "start_time_unix_nano" in data:
            yield _otlp_span(source, data, line)
        else:
            source.tally.skip(line, "not a span of Phoenix")


def _span(source: Source, data: dict[str, Any], id_: str, line: int) -> Span:
    attributes = dict_of(data.get("attributes"))
    attributes.setdefault("openinference.span.kind", data.get("span_kind"))
    return Span(
        line,
        id_,
        text_of(data.get("parent_id")),
        text_of(data.get("name")) or "",
        source.at(data.get("start_time")),
        source.at(data.get("end_time")),
        attributes,
        {},
        failed=data.get("status_code") == "ERROR",
        message=_exception(data.get("events")) or text_of(data.get("status_message")),
    )


def _otlp_span(source: Source, data: dict[str, Any], line: int) -> Span:
    status = dict_of(data.get("status"))
    events = data.get("events")
    plain = [
        {"attributes": _plain(dict_of(event).get("attributes"))}
        for event in (events if isinstance(events, list) else ())
    ]
    return Span(
        line,
        str(data["span_id"]),
        text_of(data.get("parent_span_id")),
        text_of(data.get("name")) or "",
        source.at(data.get("start_time_unix_nano")),
        source.at(data.get("end_time_unix_nano")),
        _plain(data.get("attributes")),
        {},
        failed=status.get("code") in ERROR_STATUSES,
        message=_exception(plain) or text_of(status.get("message")),
    )


_MAX_DEPTH: Final = 20
"""Maximum depth of nested values that are read."""


def _plain(attributes: Any, depth: int = 0) -> dict[str, Any]:
    pairs = [dict_of(pair) for pair in attributes] if isinstance(attributes, list) else []
    return {str(pair.get("key")): _value(pair.get("value"), depth) for pair in pairs}


def _value(value: Any, depth: int) -> Any:
    """Return the Python value of an `AnyValue`, taken from the member that is not null."""
    members = value if isinstance(value, dict) and depth < _MAX_DEPTH else {}
    kind, inner = next(((k, v) for k, v in members.items() if v is not None), ("", None))
    if kind == "kvlist_value":
        return _plain(dict_of(inner).get("values"), depth + 1)
    if kind == "array_value":
        values = dict_of(inner).get("values")
        return [_value(each, depth + 1) for each in values] if isinstance(values, list) else None
    return inner


def _exception(events: Any) -> str | None:
    """Return the message of a span's first exception; the status also has the stack trace."""
    for event in events if isinstance(events, list) else ():
        if message := text_of(dict_of(dict_of(event).get("attributes")).get("exception.message")):
            return message
    return None
