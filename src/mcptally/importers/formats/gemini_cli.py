"""Reads sessions of Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-*.jsonl`, or `.json`.

    {"sessionId":"…","projectHash":"…","startTime":"…"}
    {"id":"…","timestamp":"…","type":"gemini","toolCalls":[{"id":"…","name":"mcp_web_open",
     "args":{…},"status":"success","timestamp":"…","result":[{"functionResponse":{"response":…}}]}]}

Older versions write one document with `messages`. A message is written again whenever it changes:
the last state of a call counts. Times are those of the conversation: a call begins with the message
of the model and ends when its result is recorded, so it includes waiting for the user's permission.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers.items import MAX_PENDING_CALLS, Item
from mcptally.importers.json_array import elements
from mcptally.importers.source import OTHER_TOOL, Source
from mcptally.importers.tool_records import ToolRecord, dict_of, items_of, text_of

_SHOWN: Final = re.compile(r"(?P<tool>.+) \((?P<server>.+) MCP Server\)\Z", re.DOTALL)
"""`displayName` of a tool of an MCP server."""
_NAMED: Final = re.compile(r"mcp_(?P<server>[^_]+)_(?P<tool>.+)\Z", re.DOTALL)
"""Without such a `displayName`, the first underscore separates server and tool."""


class _Line(msgspec.Struct):
    session: object = msgspec.field(default=None, name="sessionId")
    project: object = msgspec.field(default=None, name="projectHash")
    timestamp: object = None
    model: object = None
    calls: object = msgspec.field(default=None, name="toolCalls")


_LINE: Final = msgspec.json.Decoder(_Line)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls of MCP tools in a session."""
    tally = source.tally
    session = source.stem
    calls: dict[str, tuple[int, _Line, dict[str, Any]]] = {}
    for line, event in _lines(source):
        if isinstance(event.session, str):
            session = event.session
        found = 0
        for call in event.calls if isinstance(event.calls, list) else ():
            if not isinstance(call, dict) or not isinstance(call.get("id"), str):
                continue
            if (_server_and_tool(call) is None) != source.built_in:
                if not source.built_in:
                    tally.notes["calls of built-in tools: left out"] += 1
                continue
            found = 1
            if len(calls) < MAX_PENDING_CALLS or call["id"] in calls:
                calls[call["id"]] = (line, event, call)
        if found:
            tally.used += 1
        else:
            tally.context[OTHER_TOOL[source.built_in]] += 1
    for line, message, call in calls.values():
        yield from items_of(source, _record(call, message, session), line)


def _lines(source: Source) -> Iterator[tuple[int, _Line]]:
    head = next(iter(source.preview().read_pieces()), b"")
    first = head.split(b"\n", 1)[0]
    if b'"messages"' not in first and first.strip() != b"{":
        yield from source.records(_LINE, "not a JSON object")
        return
    for element in elements(source.read_pieces(), ("messages",)):
        source.tally.seen += 1
        try:
            yield element.line, _LINE.decode(element.data or b"")
        except (msgspec.DecodeError, RecursionError, ValueError):
            source.tally.skip(element.line, "not a message, or cut off")


def _server_and_tool(call: dict[str, Any]) -> tuple[str, str] | None:
    for pattern, member in ((_SHOWN, "displayName"), (_NAMED, "name")):
        match = pattern.match(str(call.get(member) or ""))
        if match is not None:
            return match["server"], match["tool"]
    return None


def _record(call: dict[str, Any], message: _Line, session: str) -> ToolRecord:
    server, tool = _server_and_tool(call) or ("gemini-cli", text_of(call.get("name")))
    status = call.get("status")
    parts = call.get("result")
    first = dict_of(parts[0]) if isinstance(parts, list) and parts else {}
    response = dict_of(dict_of(first.get("functionResponse")).get("response"))
    error = text_of(response.get("error"))
    value = response.get("output", response.get("content", response or None))
    return ToolRecord(
        id=str(call["id"]),
        tool=tool,
        server=server,
        session=session,
        start=message.timestamp,
        end=call.get("timestamp"),
        arguments=call.get("args"),
        result=None if error else value,
        is_error={"success": False, "error": True}.get(str(status)),
        error=error,
        gave_up="cancelled" if status == "cancelled" else None,
        model=text_of(message.model),
    )
