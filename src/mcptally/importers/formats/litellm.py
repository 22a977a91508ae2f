"""Reads logs of LiteLLM's MCP gateway: standard logging payloads and rows of spend logs.

{"id":"…","call_type":"call_mcp_tool","status":"success","startTime":…,"endTime":…,
 "metadata":{"mcp_tool_call_metadata":{"name":"…","arguments":{…},"mcp_server_name":"…"}},
 "response":{"content":[…],"isError":false}}
"""

from collections.abc import Iterator
from typing import Any, Final

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.tool_records import Node, ToolRecord, read_records
from mcptally.importers.values import dict_of, parsed, text_of

_OF_MODELS: Final = ("completion", "responses", "messages", "generate_content")
"""Substrings of `call_type` in requests to language models."""


def read(source: Source) -> Iterator[Item]:
    """Yield the calls to MCP tools among the requests."""
    return read_records(source, _record, "a request that is not a call to an MCP tool", _node)


def _node(entry: dict[str, Any]) -> Node:
    kind = str(entry.get("call_type"))
    return Node(
        str(entry.get("id") or entry.get("request_id")),
        text_of(entry.get("session_id")) or text_of(entry.get("trace_id")),
        text_of(entry.get("model")) if any(part in kind for part in _OF_MODELS) else None,
    )


def _record(entry: dict[str, Any]) -> ToolRecord | None:
    metadata = dict_of(entry.get("metadata"))
    call = dict_of(metadata.get("mcp_tool_call_metadata", entry.get("mcp_tool_call_metadata")))
    if not call and entry.get("call_type") != "call_mcp_tool":
        return None
    response = _result(parsed(entry.get("response")) or call.get("result") or None)
    status = entry.get("status", metadata.get("status"))
    information = dict_of(entry.get("error_information", metadata.get("error_information")))
    error = text_of(entry.get("error_str")) or text_of(information.get("error_message"))
    failed = status == "failure" or bool(dict_of(response).get("isError"))
    session = call.get("mcp_session_id") or entry.get("session_id") or entry.get("trace_id")
    return ToolRecord(
        id=str(entry.get("id") or entry.get("request_id")),
        tool=text_of(call.get("name")),
        server=text_of(call.get("mcp_server_name")),
        session=str(session or ""),
        start=entry.get("startTime"),
        end=entry.get("endTime"),
        arguments=call.get("arguments"),
        result=None if status == "failure" else response,
        is_error=failed,
        raised=status == "failure",
        error=error,
    )


def _result(value: Any) -> Any:
    """Convert a logged tool result to one with MCP's member names.

    Some versions log Python attribute names and null members.
    """
    if not isinstance(value, dict) or not isinstance(value.get("content"), list):
        return value
    content = [
        {name: member for name, member in block.items() if member is not None}
        for block in value["content"]
        if isinstance(block, dict)
    ]
    structured = value.get("structuredContent", value.get("structured_content"))
    result = {"content": content, "isError": value.get("isError", value.get("is_error")) is True}
    return result if structured is None else {**result, "structuredContent": structured}
