"""Reads logs of Inspect AI in its JSON format (`--log-format json`, or `inspect log convert`).

    {"version":2,"eval":{…},"samples":[{"id":1,"epoch":1,"events":[{"event":"tool","id":"…",
     "function":"search","arguments":{…},"result":…,"error":null,"timestamp":"…","completed":"…"}]}]}

A sample is a session. Logs in the `.eval` format are archives and must be converted first.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.json_array import elements
from mcptally.importers.source import Source
from mcptally.importers.tool_records import ToolRecord, dict_of, items_of, text_of

_GAVE_UP: Final = frozenset({"timeout", "cancelled"})
_REFUSED: Final = frozenset({"parsing", "approval"})
"""Errors of calls that did not reach the tool."""


class _Sample(msgspec.Struct):
    id: object = None
    epoch: object = None
    uuid: object = None
    events: list[dict[str, Any]] = []


_SAMPLE: Final = msgspec.json.Decoder(_Sample)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls of the samples; other events are counted."""
    tally = source.tally
    for element in elements(source.read_pieces(), ("samples",)):
        try:
            sample = _SAMPLE.decode(element.data or b"")
        except (msgspec.DecodeError, RecursionError, ValueError):
            tally.seen += 1
            tally.skip(element.line, "not a sample, or cut off")
            continue
        session = str(sample.uuid or f"{sample.id} {sample.epoch}")
        for event in sample.events:
            tally.seen += 1
            error = dict_of(event.get("error"))
            if event.get("event") != "tool":
                tally.context["an event that is not a call of a tool"] += 1
            elif str(error.get("type")) in _REFUSED:
                tally.context["a call that did not reach the tool"] += 1
            else:
                tally.used += 1
                yield from items_of(source, _record(event, error, session), element.line)


def _record(event: dict[str, Any], error: dict[str, Any], session: str) -> ToolRecord:
    bridge = dict_of(dict_of(event.get("metadata")).get("bridge"))
    failed = bool(error) or event.get("failed") is True
    ended = event.get("completed") is not None
    kind = str(error.get("type"))
    return ToolRecord(
        id=str(event.get("id")),
        tool=text_of(event.get("function")),
        server=text_of(bridge.get("server")),
        session=session,
        start=event.get("timestamp"),
        end=event.get("completed"),
        arguments=event.get("arguments"),
        result=None if failed else event.get("result"),
        is_error=failed if ended or failed else None,
        error=text_of(error.get("message")),
        gave_up=kind if kind in _GAVE_UP else None,
    )
