"""Reads the JSON log file of ContextForge, IBM's gateway (`LOG_TO_FILE`, `LOG_FORMAT=json`).

    {…,"metadata":{"event":"mcp_call_started","tool_name":"open","server_url":"http://…",…},
     "correlation_id":"…"}
    {…,"resource_type":"tool","resource_action":"invoke","resource_id":"…","levelname":"ERROR",
     "custom_fields":{"tool_name":"web-open","integration_type":"MCP","error_message":null},
     "duration_ms":78.3,"correlation_id":"…","timestamp":"…"}

The second record is the call; the first, which precedes it, has the server. A failure without an
`error_message` is an error that the tool returned.
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mcptally.importers.items import MAX_PENDING_CALLS, Item
from mcptally.importers.source import OTHER_TOOL, Source
from mcptally.importers.timestamps import add_duration
from mcptally.importers.tool_records import ToolRecord, items_of
from mcptally.importers.values import dict_of, text_of

_LINE: Final = msgspec.json.Decoder(dict[str, Any])
_TRANSPORTS: Final = {"streamablehttp": "streamable_http", "sse": "http_sse", "stdio": "stdio"}
_SEPARATORS: Final = "-_./:"
_MS: Final = 1_000_000
_DETAIL: Final = "also in the record of the call"


def read(source: Source) -> Iterator[Item]:
    """Yield the calls to MCP tools; other lines are counted."""
    tally = source.tally
    started: dict[tuple[str, str], dict[str, Any]] = {}
    for line, entry in source.records(_LINE, "not a JSON object"):
        told = dict_of(entry.get("metadata"))
        event = str(told.get("event"))
        request = str(entry.get("correlation_id"))
        if event.startswith("mcp_call_") or event == "tool_timeout":
            tally.context[_DETAIL] += 1
            facts = started.setdefault((request, str(told.get("tool_id"))), {"line": line})
            facts |= told
            if event == "tool_timeout":
                facts["timed_out"] = True
            elif event == "mcp_call_started":
                facts["start"] = entry.get("timestamp")
            if len(started) > MAX_PENDING_CALLS:
                del started[next(iter(started))]
        elif entry.get("resource_action") != "invoke" or entry.get("resource_type") != "tool":
            tally.context["not a call to a tool"] += 1
        elif dict_of(entry.get("custom_fields")).get("integration_type") != "MCP":
            tally.context[OTHER_TOOL[False]] += 1
        else:
            tally.used += 1
            facts = started.pop((request, str(entry.get("resource_id"))), {})
            yield from items_of(source, _record(source, entry, facts, request, line), line)
    for (request, _), facts in started.items():
        if facts.get("event") == "mcp_call_started":  # the log ends before the reply
            tally.context[_DETAIL] -= 1
            tally.used += 1
            server, tool = _names(None, facts)
            call = ToolRecord(id=request, tool=tool, server=server, start=facts.get("start"))
            yield from items_of(source, call, facts["line"])


def _record(
    source: Source, entry: dict[str, Any], facts: dict[str, Any], request: str, line: int
) -> ToolRecord:
    fields = dict_of(entry.get("custom_fields"))
    server, tool = _names(text_of(fields.get("tool_name")), facts)
    error = text_of(fields.get("error_message"))
    end, took = source.at(entry.get("timestamp")), entry.get("duration_ms")
    lasted = -took * _MS if isinstance(took, (int, float)) else None
    return ToolRecord(
        id=f"{request} {line}",
        tool=tool,
        server=server,
        transport=_TRANSPORTS.get(str(facts.get("transport"))),
        start=None if lasted is None else add_duration(end, lasted),
        end=end,
        is_error=entry.get("levelname") == "ERROR",
        error=error,
        raised=error is not None,
        gave_up="timeout" if facts.get("timed_out") else None,
    )


def _names(name: str | None, facts: dict[str, Any]) -> tuple[str | None, str | None]:
    """Server and tool: the gateway puts its name for the server before the tool's own name."""
    own, url = text_of(facts.get("tool_name")), text_of(facts.get("server_url"))
    if name and own and name.endswith(own) and name.removesuffix(own)[-1:] in [*_SEPARATORS]:
        return name.removesuffix(own).rstrip(_SEPARATORS) or None, own
    try:
        return urlsplit(url or "").netloc or None, own or name
    except ValueError:
        return None, own or name
