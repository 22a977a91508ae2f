r"""Reads Codex rollouts (`sessions/**/rollout-*.jsonl`) and the output of `codex exec --json`.

    {"timestamp":"…","type":"event_msg","payload":{"type":"mcp_tool_call_end","call_id":"…",
     "invocation":{"server":"…","tool":"…","arguments":{}},"duration":{"secs":1,"nanos":0},
     "result":{"Ok":{"content":[],"isError":false}}}}

    {"timestamp":"…","type":"event_msg","payload":{"type":"item_completed","item":{
     "type":"McpToolCall","id":"…","server":"…","tool":"…","arguments":{},"status":"completed",
     "result":{"content":[],"isError":false},"duration":{"secs":1,"nanos":0}}}}

    {"timestamp":"…","type":"response_item","payload":{"type":"function_call","name":"…",
     "namespace":"mcp__SERVER","arguments":"{…}","call_id":"…"}}
    {"timestamp":"…","type":"response_item","payload":{"type":"function_call_output",
     "call_id":"…","output":"…"}}

A call to an MCP tool is logged when it ends, with its duration. Version 0.169 logs the call like
the second example above; earlier versions log it like the first, or as `{"id":"…","msg":{…}}`. The
last example is a request for an MCP tool and its output; unless the end of a call follows, the
request has no reply. Without `namespace`, the example is a call to a built-in tool. The output of
`exec --json` has no timestamps.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.call_records import CallEnd
from mcptally.importers.items import Item
from mcptally.importers.source import OTHER_TOOL, Source
from mcptally.importers.timestamps import add_duration
from mcptally.importers.values import dict_of, text_of

_SECOND: Final = 10**9
_CANCELLED: Final = ("user cancelled", "user canceled", "user rejected", "cancelled", "canceled")
"""Start of the error texts of calls that the client cancelled. Other error texts come from the
server."""


class _Line(msgspec.Struct):
    timestamp: object = None
    type: object = None
    payload: object = None
    msg: object = None
    item: object = None


_LINE: Final = msgspec.json.Decoder(_Line)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls in a rollout."""
    rollout = _Rollout(source)
    for line, event in source.records(_LINE, "not a JSON object"):
        yield from rollout.items(line, event)
    yield from rollout.pending.unanswered()


class _Rollout:
    """Reads the lines of a rollout; remembers pending calls, the session and the model."""

    def __init__(self, source: Source) -> None:
        self.pending = call_records.PendingCalls(source.tally)
        self._source = source
        self._tally = source.tally
        self._session = ""
        self._model: str | None = None
        self._line = 0
        self._at: int | None = None

    def items(self, line: int, event: _Line) -> Iterator[Item]:
        """Yield the items that a line gives rise to."""
        self._line, self._at = line, self._source.at(event.timestamp)
        body = _first_object(event.payload, event.msg, event.item)
        if event.type == "session_meta" and isinstance(body.get("id"), str):
            self._session = body["id"]
        if event.type == "turn_context":
            self._model = text_of(body.get("model"))
        kind = body.get("type")
        if kind == "mcp_tool_call" and event.type in ("item.started", "item.completed"):
            kind = "mcp_tool_call_begin" if event.type == "item.started" else "mcp_tool_call_end"
            body = _of_item(body)
        if kind == "item_completed" and dict_of(body.get("item")).get("type") == "McpToolCall":
            kind, body = "mcp_tool_call_end", _of_item(dict_of(body["item"]))
        if kind in ("function_call", "function_call_output"):
            yield from self._requested(body)
        elif kind in ("mcp_tool_call_begin", "mcp_tool_call_end"):
            yield from self._of_mcp(body, is_begin=kind == "mcp_tool_call_begin")
        else:
            self._tally.context[OTHER_TOOL] += 1

    def _of_mcp(self, body: dict[str, Any], *, is_begin: bool) -> Iterator[Item]:
        """Remember a call to an MCP tool when it starts; yield the call when it ends."""
        call, invocation = body.get("call_id"), body.get("invocation")
        if not isinstance(call, str) or not isinstance(invocation, dict):
            self._tally.skip(self._line, "a call without id or invocation")
            return
        self._tally.used += 1
        took = _duration(body.get("duration"))
        start = self._at if took is None or is_begin else add_duration(self._at, -took)
        request = self._request(invocation, call, at=start)
        first = self.pending.pop(call)
        if is_begin:
            self.pending.add(call, request)
            return
        yield first if first is not None and took is None else request
        yield _answered(self._end(request, call), body.get("result"))

    def _requested(self, body: dict[str, Any]) -> Iterator[Item]:
        """Remember a request for an MCP tool; yield a cancellation if its output reports one."""
        call, server = body.get("call_id"), _server(body)
        if isinstance(call, str) and server is not None:
            self._tally.used += 1
            arguments = dict_of(body.get("arguments"))
            invocation = {"server": server, "tool": body.get("name"), "arguments": arguments}
            self.pending.pop(call)
            self.pending.add(call, self._request(invocation, call, at=self._at))
        elif (
            isinstance(call, str)
            and "output" in body
            and (request := self.pending.pop(call)) is not None
        ):
            self._tally.used += 1
            if str(body["output"]).startswith("aborted"):
                yield request
                yield self._end(request, call).cancelled("aborted")
            else:
                self._tally.notes[call_records.REFUSED] += 1
        else:
            self._tally.context[OTHER_TOOL] += 1

    def _end(self, request: Item, call: str) -> CallEnd:
        return CallEnd(request.connection, call, self._line, self._at)

    def _request(self, invocation: dict[str, Any], call: str, *, at: int | None) -> Item:
        arguments = call_records.NOT_RECORDED
        if invocation.get("arguments") is not None:
            arguments = msgspec.Raw(call_records.json_bytes(invocation["arguments"]))
        server, tool = invocation.get("server"), invocation.get("tool")
        return call_records.request(
            self._source.connection(
                self._session, server=server if isinstance(server, str) else None
            ),
            call,
            self._line,
            at,
            tool=tool if isinstance(tool, str) else None,
            arguments=arguments,
            model=self._model,
        )


def _server(body: dict[str, Any]) -> str | None:
    """Return the requested tool's MCP server; None if the tool is built-in or unknown."""
    space = body.get("namespace")
    of_mcp = isinstance(space, str) and space.startswith("mcp__")
    return str(space).removeprefix("mcp__") if of_mcp else None


def _answered(end: CallEnd, result: Any) -> Item:
    if isinstance(result, dict) and "Ok" in result:
        return end.result(call_records.result_of(result["Ok"]))
    if isinstance(result, dict) and "Err" in result:
        why = result["Err"] if isinstance(result["Err"], str) else str(result["Err"])
        if call_records.TIMED_OUT.match(why):
            return end.cancelled("timeout")
        return end.cancelled(why) if why.lower().startswith(_CANCELLED) else end.error(why)
    return end.result()


def _of_item(item: dict[str, Any]) -> dict[str, Any]:
    """Convert an item in `exec --json` or in a rollout to the fields that older versions log."""
    result: Any = None
    error, failed = item.get("error"), item.get("status") == "failed"
    returned = item.get("result")
    if isinstance(returned, dict):
        returned = dict(returned)
        structured = returned.pop("structured_content", None)
        returned |= {} if structured is None else {"structuredContent": structured}
        returned |= {"isError": True} if failed else {}
    if error is None and returned is not None:
        result = {"Ok": returned}
    elif failed or error is not None:
        message = error.get("message") if isinstance(error, dict) else error
        result = {"Err": message if isinstance(message, str) else "failed"}
    return {
        "call_id": item.get("id"),
        "invocation": {key: item.get(key) for key in ("server", "tool", "arguments")},
        "result": result,
        "duration": item.get("duration"),
    }


def _duration(value: Any) -> int | None:
    if not isinstance(value, dict):
        return None
    seconds, nanos = value.get("secs", 0), value.get("nanos", 0)
    whole = isinstance(seconds, int) and isinstance(nanos, int)
    return seconds * _SECOND + nanos if whole and seconds >= 0 and nanos >= 0 else None


def _first_object(*values: object) -> dict[str, Any]:
    return next((value for value in values if isinstance(value, dict)), {})
