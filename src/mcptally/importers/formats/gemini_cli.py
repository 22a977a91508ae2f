"""Reads Gemini CLI's sessions: `~/.gemini/tmp/PROJECT/chats/session-*.jsonl`, or `.json`.

    {"sessionId":"…","projectHash":"…","startTime":"…"}
    {"id":"…","timestamp":"…","type":"gemini","toolCalls":[{"id":"…","name":"mcp_web_open",
     "args":{…},"status":"success","timestamp":"…","result":[{"functionResponse":{"response":…}}]}]}

Older versions write one document with `messages`. A message is written again whenever it changes;
the last state of a call counts. The failure of an MCP tool is logged as a sentence that ends with
the server's result as JSON. A failed shell command has the status `success` and a line `Exit Code:
1`. The timestamps belong to the conversation: a call starts with the model's message and ends when
its result is recorded, so its duration includes the time for the user's permission.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import MAX_PENDING_CALLS, Item
from mcptally.importers.source import OTHER_TOOL, Source
from mcptally.importers.tool_records import ToolRecord, items_of
from mcptally.importers.values import dict_of, parsed, text_of

_SHOWN: Final = re.compile(r"(?P<tool>.+) \((?P<server>.+) MCP Server\)\Z", re.DOTALL)
"""Matches the `displayName` of an MCP tool."""
_NAMED: Final = re.compile(r"mcp_(?P<server>[^_]+)_(?P<tool>.+)\Z", re.DOTALL)
"""Matches names of MCP tools without a `displayName`; the first underscore separates server and
tool."""
_REPORTED: Final = re.compile(r"MCP tool '[^'\n]{1,200}' reported tool error for function call: ")
"""Start of the error texts of failed calls to MCP tools, which end with the response as JSON."""
_REFUSED: Final = re.compile(r"params(?:/\S{1,200})? must ")
"""Start of the error texts of calls whose arguments Gemini CLI itself rejected."""
_WRAPPED: Final = re.compile(
    r"<untrusted_context>\n(?P<text>.*)\n</untrusted_context>\Z", re.DOTALL
)


class _Line(msgspec.Struct):
    session: object = msgspec.field(default=None, name="sessionId")
    project: object = msgspec.field(default=None, name="projectHash")
    timestamp: object = None
    model: object = None
    calls: object = msgspec.field(default=None, name="toolCalls")


_LINE: Final = msgspec.json.Decoder(_Line)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls to MCP tools in a session."""
    tally = source.tally
    session = source.stem
    calls: dict[str, tuple[int, _Line, dict[str, Any]]] = {}
    for line, event in source.messages(_LINE):
        if isinstance(event.session, str):
            session = event.session
        found = 0
        for call in event.calls if isinstance(event.calls, list) else ():
            if not isinstance(call, dict) or not isinstance(call.get("id"), str):
                continue
            if _server_and_tool(call) is None:
                tally.notes["calls to built-in tools: left out"] += 1
                continue
            if _REFUSED.match(_response(call)[1] or ""):
                calls.pop(call["id"], None)
                tally.notes[call_records.REFUSED] += 1
                continue
            found = 1
            if len(calls) < MAX_PENDING_CALLS or call["id"] in calls:
                calls[call["id"]] = (line, event, call)
        if found:
            tally.used += 1
        else:
            tally.context[OTHER_TOOL] += 1
    for line, message, call in calls.values():
        yield from items_of(source, _record(call, message, session), line)


def _server_and_tool(call: dict[str, Any]) -> tuple[str, str] | None:
    for pattern, member in ((_SHOWN, "displayName"), (_NAMED, "name")):
        match = pattern.match(str(call.get(member) or ""))
        if match is not None:
            return match["server"], match["tool"]
    return None


def _response(call: dict[str, Any]) -> tuple[Any, str | None, bool]:
    """Return the tool's response, the error text, and whether the call ended without a result."""
    response = _function_response(call.get("result"))
    error = text_of(response.get("error"))
    if error is not None and _REPORTED.match(error):
        response = _function_response(parsed(error.partition(" with response: ")[2]))
        error = text_of(dict_of(response.get("error")).get("message"))
        return (None, error, True) if error is not None else (response, None, False)
    if error is not None:
        return None, error, False
    value = response.get("output", response.get("content", response or None))
    wrapped = _WRAPPED.match(value) if isinstance(value, str) else None
    return (value if wrapped is None else wrapped["text"]), None, False


def _function_response(parts: Any) -> dict[str, Any]:
    first = dict_of(parts[0]) if isinstance(parts, list) and parts else {}
    return dict_of(dict_of(first.get("functionResponse")).get("response"))


def _record(call: dict[str, Any], message: _Line, session: str) -> ToolRecord:
    server, tool = _server_and_tool(call) or (None, None)
    status = call.get("status")
    value, error, raised = _response(call)
    is_error = {"success": False, "error": True}.get(str(status))
    return ToolRecord(
        id=str(call["id"]),
        tool=tool,
        server=server,
        session=session,
        start=message.timestamp,
        end=call.get("timestamp"),
        arguments=call.get("args"),
        result=value,
        is_error=is_error,
        error=error,
        raised=raised,
        gave_up="cancelled" if status == "cancelled" else None,
        model=text_of(message.model),
    )
