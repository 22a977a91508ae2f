"""Reads logs of Inspect AI: `.eval` files, which are zip archives, and its JSON format.

    {"version":2,"eval":{…},"samples":[{"id":1,"epoch":1,"events":[{"event":"tool","id":"…",
     "function":"search","arguments":{…},"result":…,"error":null,"timestamp":"…","completed":"…"}]}]}

A sample is a session. In an archive, each sample is a member `samples/ID_epoch_N.json`. A text of
more than 100 characters is replaced with `attachment://ID`, and is in the sample's `attachments`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.json_array import elements
from mcptally.importers.source import Source
from mcptally.importers.tool_records import ToolRecord, items_of
from mcptally.importers.values import dict_of, text_of
from mcptally.importers.zip_members import is_zip, member_names, members
from mcptally.wire.json_text import decode_or_none

_GAVE_UP: Final = frozenset({"timeout", "cancelled"})
_REFUSED: Final = frozenset({"parsing", "approval"})
"""Errors of calls that did not reach the tool."""
_MEMBER: Final = re.compile(r"samples/[^/]+\.json\Z")
_HEADERS: Final = frozenset({"header.json", "_journal/start.json"})
_ATTACHMENT: Final = "attachment://"
_DEEPEST: Final = 100


class _Sample(msgspec.Struct):
    id: object = None
    epoch: object = None
    uuid: object = None
    events: list[dict[str, Any]] = []
    attachments: dict[str, Any] = {}


_SAMPLE: Final = msgspec.json.Decoder(_Sample)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls of the samples; other events are counted."""
    tally = source.tally
    for line, data in _samples(source):
        sample = decode_or_none(_SAMPLE, data or b"")
        if sample is None:
            tally.seen += 1
            tally.skip(line, "not a sample, or cut off")
            continue
        session = str(sample.uuid or f"{sample.id} {sample.epoch}")
        models: dict[str, str] = {}
        for event in sample.events:
            tally.seen += 1
            error = dict_of(event.get("error"))
            if event.get("event") == "model":
                models |= _models_of_calls(event)
            if event.get("event") != "tool":
                tally.context["an event that is not a call to a tool"] += 1
            elif str(error.get("type")) in _REFUSED:
                tally.context["a call that did not reach the tool"] += 1
            else:
                tally.used += 1
                full = {name: _with_texts(value, sample) for name, value in event.items()}
                model = models.get(str(event.get("id")))
                yield from items_of(source, _record(full, session, model), line)


def _samples(source: Source) -> Iterator[tuple[int, bytes | None]]:
    """Yield line and JSON text of every sample; in an archive, the number of the member."""
    if is_zip(source.path):
        found = members(source, lambda name: _MEMBER.match(name) is not None)
        yield from ((number, data) for number, (_, data) in enumerate(found, 1))
    else:
        yield from elements(source.read_pieces(), ("samples",))


def is_log(path: Path) -> bool:
    """Whether a zip archive is a log of Inspect."""
    return not _HEADERS.isdisjoint(member_names(path))


def _with_texts(value: Any, sample: _Sample, depth: int = 0) -> Any:
    """Replace references to attachments in a value by the texts in the sample's attachments."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return sample.attachments.get(value.removeprefix(_ATTACHMENT), value)
    if depth < _DEEPEST and isinstance(value, dict):
        return {name: _with_texts(each, sample, depth + 1) for name, each in value.items()}
    if depth < _DEEPEST and isinstance(value, list):
        return [_with_texts(each, sample, depth + 1) for each in value]
    return value


def _models_of_calls(event: dict[str, Any]) -> dict[str, str]:
    """Ids of the calls that a model asked for → the model."""
    model, choices = text_of(event.get("model")), dict_of(event.get("output")).get("choices")
    found: dict[str, str] = {}
    for choice in choices if model and isinstance(choices, list) else ():
        calls = dict_of(dict_of(choice).get("message")).get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            found[str(dict_of(call).get("id"))] = str(model)
    return found


def _record(event: dict[str, Any], session: str, model: str | None) -> ToolRecord:
    error = dict_of(event.get("error"))
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
        model=model,
    )
