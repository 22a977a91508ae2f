"""Builds calls from the exports of platforms, which contain one JSON object per tool call."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import Item
from mcptally.importers.model_of_call import ModelsOfCalls
from mcptally.importers.source import Source
from mcptally.importers.values import ERROR_CODE, parsed

_IN_MEMBER: Final = re.compile(rb'\s*\{\s*"(?P<name>data|runs|observations)"\s*:\s*\[')
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])

NO_SERVER: Final = "a call of an agent: the source does not say which server ran the tool"


class ToolRecord(msgspec.Struct, kw_only=True):
    """The facts that a log records about a tool call; missing facts are None."""

    id: str
    tool: str | None
    server: str | None = None
    transport: str | None = None
    session: str = ""
    start: object = None
    end: object = None
    arguments: Any = None
    result: Any = None
    is_error: bool | None = None
    """Whether the tool failed; None if the call has no reply."""
    error: str | None = None
    """Error text."""
    raised: bool = False
    """Whether the call failed without a result, for example because of a protocol error."""
    model: str | None = None
    """Language model that requested the call."""
    gave_up: str | None = None
    """`timeout` or `cancelled` if the client stopped waiting for a reply."""


class Node(NamedTuple):
    """An object's position in the tree of its trace, and the language model that it names."""

    id: str
    parent: str | None
    model: str | None


def read_records(
    source: Source,
    record_of: Callable[[dict[str, Any]], ToolRecord | None],
    other: str,
    node_of: Callable[[dict[str, Any]], Node],
) -> Iterator[Item]:
    """Yield the calls in a file of JSON objects, which has one of the forms that `objects` accepts.

    The file is read twice, because an object about a model may follow the objects about its calls.

    Args:
        source: the file.
        record_of: returns the call that an object describes, or None if it describes none.
        other: the reason under which other objects are counted.
        node_of: returns an object's position in its trace.
    """
    models = ModelsOfCalls()
    for _, data in objects(source.preview()):
        models.add(*node_of(data))
    tally = source.tally
    for line, data in objects(source):
        record = record_of(data)
        if record is None:
            tally.context[other] += 1
        else:
            tally.used += 1
            record.model = models.of(node_of(data).id)
            yield from items_of(source, record, line)


def items_of(source: Source, record: ToolRecord, line: int) -> Iterator[Item]:
    """Yield the items for a call's request and reply."""
    if record.server is None and source.server is None:
        source.tally.notes[NO_SERVER] += 1
    connection = source.connection(record.session, server=record.server, transport=record.transport)
    arguments = call_records.NOT_RECORDED
    given = parsed(record.arguments)
    if isinstance(given, dict):
        arguments = msgspec.Raw(call_records.json_bytes(given))
    elif given is not None:
        source.tally.notes["arguments that are not a JSON object: left out"] += 1
    yield call_records.request(
        connection,
        record.id,
        line,
        source.at(record.start),
        tool=record.tool,
        arguments=arguments,
        model=record.model,
    )
    failed = record.is_error
    code = ERROR_CODE.search(record.error or "") if failed else None
    gave_up = record.gave_up
    if failed and call_records.TIMED_OUT.match(record.error or ""):
        gave_up = "timeout"
    end = call_records.CallEnd(connection, record.id, line, source.at(record.end))
    if gave_up is not None:
        yield end.cancelled(gave_up)
    elif code is not None:
        yield end.error(code["message"], int(code["code"]))
    elif record.raised:
        yield end.error(record.error)
    elif failed is not None:
        value = record.result if record.result is not None or not failed else record.error
        result = call_records.NOT_RECORDED
        if value is not None:
            result = msgspec.Raw(call_records.result_of(value, is_error=True if failed else None))
        yield end.result(result, is_error=failed)


def objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and value of each JSON object in a file.

    The file contains an array of objects, an object with such an array as a member, or JSON Lines.
    """
    head = source.head()
    member = _IN_MEMBER.match(head)
    if member is None and head.lstrip()[:1] != b"[":
        yield from source.records(_OBJECT, "not a JSON object")
        return
    path = () if member is None else (member["name"].decode(),)
    cut_off = "an object that is cut off or too large"
    yield from source.elements(path, _OBJECT, "not a JSON object", cut_off=cut_off)
