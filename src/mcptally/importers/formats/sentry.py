r"""Reads Sentry's spans, from envelopes as its SDKs send them or from events in JSON Lines.

    {"event_id":"…","sent_at":"…"}
    {"type":"transaction","length":1297}
    {"type":"transaction","contexts":{"trace":{"op":"mcp.server","data":{"mcp.tool.name":"…"}}},
     "start_timestamp":…,"timestamp":…,"spans":[{"op":"…","data":{…}}]}

A transaction is a span with its descendants. An item with streamed spans is `{"items":[…]}`.
`span_calls` finds the calls among all spans.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.span_calls import read_spans
from mcptally.importers.span_conventions import SENTRY, Span

_EXECUTE_TOOL: Final = "gen_ai.execute_tool"
_GAVE_UP: Final = {"deadline_exceeded": "timeout", "cancelled": "cancelled"}


class _Line(msgspec.Struct):
    transaction: object = None
    contexts: object = None
    spans: object = None
    items: object = None
    start: object = msgspec.field(default=None, name="start_timestamp")
    end: object = msgspec.field(default=None, name="timestamp")
    server: object = msgspec.field(default=None, name="server_name")


_LINE: Final = msgspec.json.Decoder(_Line)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls among the spans; count envelope headers and other items."""
    return read_spans(source, _spans)


def _spans(source: Source) -> Iterator[Span]:
    tally = source.tally
    for line, event in source.records(_LINE, "not a JSON object"):
        found = list(_of_line(event))
        if not found:
            tally.context["an envelope header, or an item without spans"] += 1
            continue
        tally.seen += len(found) - 1
        for span in found:
            if isinstance(span, dict):
                yield _span(source, span, line)
            else:
                tally.skip(line, "not a span of Sentry")


def _of_line(event: _Line) -> Iterator[Any]:
    """Yield the spans in a line; yield values that are not spans unchanged."""
    contexts = event.contexts if isinstance(event.contexts, dict) else {}
    trace = contexts.get("trace")
    if isinstance(trace, dict) and event.start is not None:
        times = {"start_timestamp": event.start, "timestamp": event.end}
        yield {"description": event.transaction, **trace, **times}
    if isinstance(event.spans, list):
        yield from event.spans
    if isinstance(event.items, list):
        yield from (item for item in event.items if not isinstance(item, dict) or "span_id" in item)


def _span(source: Source, span: dict[str, Any], line: int) -> Span:
    data = span.get("data")
    attributes = dict(data) if isinstance(data, dict) else {}
    typed = span.get("attributes")  # streamed spans map each name to {"type":…, "value":…}
    for key, value in typed.items() if isinstance(typed, dict) else ():
        attributes[key] = value.get("value") if isinstance(value, dict) else value
    op = span.get("op") or attributes.get("sentry.op")
    if op == _EXECUTE_TOOL:
        attributes.setdefault("gen_ai.operation.name", "execute_tool")
    status = span.get("status")
    if gave_up := _GAVE_UP.get(str(status)):
        attributes.setdefault("error.type", gave_up)
    failed = status is not None and status not in ("ok", "unset")
    if failed and "mcp.tool.name" in attributes:
        # Sentry records no JSON-RPC codes, and SDKs report a tool's exception as `isError`.
        attributes.setdefault("error.type", "tool_error")
    name = span.get("description") or span.get("name")
    parent = span.get("parent_span_id")
    return Span(
        line,
        str(span.get("span_id")),
        parent if isinstance(parent, str) else None,
        name if isinstance(name, str) else "",
        source.at(span.get("start_timestamp")),
        source.at(span.get("timestamp", span.get("end_timestamp"))),
        attributes,
        {},
        SENTRY,
        "server",
        failed,  # the span's status is a code, not an error text
    )
