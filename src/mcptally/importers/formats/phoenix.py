"""Reads spans as Phoenix's REST API gives them (`GET /v1/projects/PROJECT/spans`).

    {"data":[{"name":"search","context":{"trace_id":"…","span_id":"…"},"span_kind":"TOOL",
      "parent_id":null,"start_time":"…","end_time":"…","status_code":"OK","status_message":"",
      "attributes":{"input.value":"{…}","output.value":"…","tool.name":"search"},"events":[]}],
     "next_cursor":null}

Phoenix stores neither the resource of a span (the program) nor whether a client or a server made
it. `span_calls` finds the calls among the spans.
"""

from collections.abc import Iterator
from typing import Any

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.span_calls import Span, read_spans
from mcptally.importers.tool_records import dict_of, objects, text_of


def read(source: Source) -> Iterator[Item]:
    """Yield the calls of a file; other spans are counted."""
    return read_spans(source, _spans)


def _spans(source: Source) -> Iterator[Span]:
    for line, data in objects(source):
        context = dict_of(data.get("context"))
        if "span_id" in context:
            yield _span(source, data, str(context["span_id"]), line)
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


def _exception(events: Any) -> str | None:
    """The message of the first exception that a span recorded; the status has the stack too."""
    for event in events if isinstance(events, list) else ():
        if message := text_of(dict_of(dict_of(event).get("attributes")).get("exception.message")):
            return message
    return None
