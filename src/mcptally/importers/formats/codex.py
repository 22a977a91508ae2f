r"""Reads Codex rollouts (`sessions/**/rollout-*.jsonl`) and the output of `codex exec --json`.

    {"timestamp":"…","type":"event_msg","payload":{"type":"mcp_tool_call_end","call_id":"…",
     "invocation":{"server":"…","tool":"…","arguments":{}},"duration":{"secs":1,"nanos":0},
     "result":{"Ok":{"content":[],"isError":false}}}}

    {"timestamp":"…","type":"event_msg","payload":{"type":"item_completed","item":{
     "type":"McpToolCall","id":"…","server":"…","tool":"…","arguments":{},"status":"completed",
     "result":{"content":[],"isError":false},"duration":{"secs":1,"nanos":0}}}}

    {"timestamp":"…","type":"response_item","payload":{"type":"function_call","name":"shell",
     "arguments":"{\"command\":[…]}","call_id":"…"}}
    {"timestamp":"…","type":"response_item","payload":{"type":"function_call_output",
     "call_id":"…","output":"{\"output\":\"…\",\"metadata\":{\"exit_code\":0}}"}}

A call of an MCP tool is logged at its end, with its duration: by version 0.169 as the second of
these lines, by earlier versions as the first, or as `{"id":"…","msg":{…}}`. The last two are a call
of a built-in tool, or with `"namespace":"mcp__SERVER"` the request of an MCP tool, which has no
reply if no end follows. Newer versions write the output of a command as text after lines such as
`Process exited with code 0`. The output of `exec --json` has no times.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import Connection, Item
from mcptally.importers.source import OTHER_TOOL, Source
from mcptally.importers.timestamps import add_duration
from mcptally.importers.tool_records import dict_of, parsed, text_of

_SECOND: Final = 10**9
_CANCELLED: Final = ("user cancelled", "user canceled", "user rejected", "cancelled", "canceled")
"""Start of the error of a call that the client cancelled; other errors come from the server."""


class _Line(msgspec.Struct):
    timestamp: object = None
    type: object = None
    payload: object = None
    msg: object = None
    item: object = None


_LINE: Final = msgspec.json.Decoder(_Line)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls of a rollout."""
    tally = source.tally
    session, model = "", None
    begun = call_records.PendingCalls(tally)
    for line, event in source.records(_LINE, "not a JSON object"):
        at = source.at(event.timestamp)
        body = _first_object(event.payload, event.msg, event.item)
        if event.type == "session_meta" and isinstance(body.get("id"), str):
            session = body["id"]
        if event.type == "turn_context":
            model = text_of(body.get("model"))
        kind = body.get("type")
        if source.built_in:
            yield from _built_in(source, body, session, begun, line=line, at=at, model=model)
            continue
        if kind == "mcp_tool_call" and event.type in ("item.started", "item.completed"):
            kind = "mcp_tool_call_begin" if event.type == "item.started" else "mcp_tool_call_end"
            body = _of_item(body)
        if kind == "item_completed" and dict_of(body.get("item")).get("type") == "McpToolCall":
            kind, body = "mcp_tool_call_end", _of_item(dict_of(body["item"]))
        if kind in ("function_call", "function_call_output"):
            yield from _requested(source, body, session, begun, line=line, at=at, model=model)
            continue
        if kind not in ("mcp_tool_call_begin", "mcp_tool_call_end"):
            tally.context[OTHER_TOOL[False]] += 1
            continue
        call, invocation = body.get("call_id"), body.get("invocation")
        if not isinstance(call, str) or not isinstance(invocation, dict):
            tally.skip(line, "a call without id or invocation")
            continue
        tally.used += 1
        took = _duration(body.get("duration"))
        start = at if took is None or kind == "mcp_tool_call_begin" else add_duration(at, -took)
        ask = _asked(source, invocation, session, call, line=line, at=start, model=model)
        if kind == "mcp_tool_call_begin":
            begun.add(call, ask)
            continue
        first = begun.pop(call)
        yield first if first is not None and took is None else ask
        yield _answered(ask.connection, call, body.get("result"), line=line, at=at)
    yield from begun.left()


def _requested(
    source: Source,
    body: dict[str, Any],
    session: str,
    begun: call_records.PendingCalls,
    *,
    line: int,
    at: int | None,
    model: str | None,
) -> Iterator[Item]:
    """Remember the request of an MCP tool, or yield a call whose output comes before its end."""
    tally, call, space = source.tally, body.get("call_id"), _server(body)
    if isinstance(call, str) and space is not None:
        tally.used += 1
        given = dict_of(body.get("arguments"))
        invocation = {"server": space, "tool": body.get("name"), "arguments": given}
        begun.add(call, _asked(source, invocation, session, call, line=line, at=at, model=model))
    elif isinstance(call, str) and "output" in body and (ask := begun.pop(call)) is not None:
        tally.used += 1
        if str(body["output"]).startswith("aborted"):
            yield ask
            yield call_records.cancellation(ask.connection, call, line=line, at=at, why="aborted")
        else:
            tally.notes[call_records.REFUSED] += 1
    else:
        tally.context[OTHER_TOOL[False]] += 1


def _server(body: dict[str, Any]) -> str | None:
    """The MCP server of the tool that a model asked for; None: a built-in tool, or unknown."""
    space = body.get("namespace")
    of_mcp = isinstance(space, str) and space.startswith("mcp__")
    return str(space).removeprefix("mcp__") if of_mcp else None


def _built_in(
    source: Source,
    body: dict[str, Any],
    session: str,
    begun: call_records.PendingCalls,
    *,
    line: int,
    at: int | None,
    model: str | None,
) -> Iterator[Item]:
    """Yield a call of a built-in tool when its output is read."""
    if body.get("type") == "command_execution":
        body = _of_command(body)
    call, name, output = body.get("call_id"), body.get("name"), body.get("output")
    if not isinstance(call, str) or str(body.get("type")) not in _BUILT_IN:
        source.tally.context[OTHER_TOOL[True]] += 1
    elif isinstance(name, str) and "__" not in name and _server(body) is None:
        source.tally.used += 1
        given = parsed(body.get("arguments", body.get("input")))
        given = given if isinstance(given, dict) else {"input": given}
        begun.add(
            call,
            call_records.request(
                source.connection(session, server="codex"),
                call,
                line=line,
                at=at,
                tool=name,
                arguments=msgspec.Raw(call_records.json_bytes(given)),
                model=model,
            ),
        )
    elif (ask := begun.pop(call)) is not None:
        source.tally.used += 1
        said, failed = _result(output)
        text = call_records.result_of(said, is_error=failed)
        yield ask
        yield call_records.result_reply(ask.connection, call, line=line, at=at, result=text)
    else:
        source.tally.context[OTHER_TOOL[True]] += 1


def _result(output: Any) -> tuple[Any, bool | None]:
    """What a built-in tool returned, and whether it failed; None: unknown."""
    if isinstance(output, str):
        if output.startswith("unsupported call: "):
            return output, True
        if text := _AFTER_HEAD.match(output):
            code = _EXIT_CODE.search(text["head"])
            return text["output"], None if code is None else int(code["code"]) != 0
    about = dict_of(output)
    metadata = about.get("metadata")
    code = metadata.get("exit_code") if isinstance(metadata, dict) else None
    return about.get("output", output), None if code is None else code != 0


def _of_command(item: dict[str, Any]) -> dict[str, Any]:
    """A command in the output of `exec --json`, converted to the fields of a rollout."""
    ended = item.get("status") != "in_progress"
    output = {"output": item.get("aggregated_output"), "metadata": item}
    return {
        "call_id": item.get("id"),
        **(
            {"type": "function_call_output", "output": output}
            if ended
            else {
                "type": "function_call",
                "name": "command_execution",
                "arguments": {"command": item.get("command")},
            }
        ),
    }


_AFTER_HEAD: Final = re.compile(
    r"(?P<head>(?:(?!Output:)[A-Z][^\n]{1,80}\n){1,8})Output:\n(?P<output>.*)\Z", re.DOTALL
)
_EXIT_CODE: Final = re.compile(
    r"^(?:Process exited with code|Exit code:) (?P<code>-?\d{1,9})$", re.MULTILINE
)

_BUILT_IN: Final = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
"""Kinds of items about built-in tools. Those of MCP tools have `__` in the name of the tool."""


def _asked(
    source: Source,
    invocation: dict[str, Any],
    session: str,
    call: str,
    *,
    line: int,
    at: int | None,
    model: str | None,
) -> Item:
    server, tool = invocation.get("server"), invocation.get("tool")
    arguments = call_records.NOT_RECORDED
    if invocation.get("arguments") is not None:
        arguments = msgspec.Raw(call_records.json_bytes(invocation["arguments"]))
    connection = source.connection(session, server=server if isinstance(server, str) else None)
    name = tool if isinstance(tool, str) else None
    return call_records.request(
        connection, call, line=line, at=at, tool=name, arguments=arguments, model=model
    )


def _answered(connection: Connection, call: str, result: Any, *, line: int, at: int | None) -> Item:
    if isinstance(result, dict) and "Ok" in result:
        return call_records.result_reply(
            connection, call, line=line, at=at, result=call_records.result_of(result["Ok"])
        )
    if isinstance(result, dict) and "Err" in result:
        why = result["Err"] if isinstance(result["Err"], str) else str(result["Err"])
        if call_records.TIMED_OUT.match(why):
            return call_records.cancellation(connection, call, line=line, at=at, why="timeout")
        if why.lower().startswith(_CANCELLED):
            return call_records.cancellation(connection, call, line=line, at=at, why=why)
        return call_records.error_reply(connection, call, line=line, at=at, message=why)
    return call_records.result_reply(connection, call, line=line, at=at)


def _of_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item of `exec --json` or of a rollout, converted to the fields of an older event."""
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
