"""Reads Langfuse observations, as returned by its API and its export.

    {"id":"…","traceId":"…","type":"TOOL","name":"search","startTime":"…","endTime":"…",
     "level":"DEFAULT","statusMessage":null,"input":{…},"output":…}

Older SDKs have no type TOOL; their calls look like other spans and are not recognised.
"""

from collections.abc import Iterator
from typing import Any

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.tool_records import Node, ToolRecord, read_records
from mcptally.importers.values import dict_of, parsed, text_of, unwrapped


def read(source: Source) -> Iterator[Item]:
    """Yield the calls among the observations."""
    return read_records(source, _record, "an observation that is not of a tool", _node)


def _node(seen: dict[str, Any]) -> Node:
    of_model = str(seen.get("type")).upper() == "GENERATION"
    return Node(
        str(seen.get("id")),
        text_of(seen.get("parentObservationId")) or text_of(seen.get("traceId")),
        text_of(seen.get("model")) if of_model else None,
    )


def _record(seen: dict[str, Any]) -> ToolRecord | None:
    if str(seen.get("type")).upper() != "TOOL":
        return None
    result, failed = unwrapped(seen.get("output"))
    given = parsed(seen.get("input"))
    if isinstance(given, dict) and given.keys() == {
        "args",
        "kwargs",
    }:  # the input holds the arguments of a decorated Python function
        given = given["kwargs"] if not given["args"] else given
    ended = seen.get("endTime") is not None
    metadata = dict_of(seen.get("metadata"))
    return ToolRecord(
        id=str(seen.get("id")),
        tool=text_of(seen.get("name")),
        server=text_of(metadata.get("mcp.server.name")),
        session=str(seen.get("sessionId") or seen.get("traceId") or ""),
        start=seen.get("startTime"),
        end=seen.get("endTime"),
        arguments=given,
        result=result,
        is_error=seen.get("level") == "ERROR" or failed if ended else None,
        error=text_of(seen.get("statusMessage")),
    )
