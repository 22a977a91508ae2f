r"""Reads the access logs of agentgateway (text or JSON) and of Envoy AI Gateway (JSON).

    2026-07-12T20:28:00.857219Z  info  request route=… http.status=200 protocol=mcp
      mcp.method.name=tools/call mcp.target=web gen_ai.tool.name=open duration=69ms   (one line)
    {"level":"info","time":"…","scope":"request","http.status":200,"mcp.method.name":…}
    {"start_time":"…","duration":653,"response_code":200,"mcp.method.name":"tools/call",
     "mcp.tool.name":"open","mcp.provider.name":"web","jsonrpc.request.id":"3",…}

A line describes an HTTP request. Fields are named like span attributes in the MCP conventions, so
`span_calls` reads them. The logs contain no contents, so it is unknown whether a result is an
error.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.span_calls import read_spans
from mcptally.importers.span_conventions import ACCESS_LOG, Span
from mcptally.importers.timestamps import add_duration, parse_duration
from mcptally.wire.json_text import decode_or_none

_TEXT: Final = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)\s+\w+\s+request\s(?P<fields>.*)\Z",
    re.DOTALL,
)
_FIELD: Final = re.compile(r'(?<![\w.-])(?P<name>[\w.-]+)=(?P<value>"(?:[^"\\]|\\.)*"|\S*)')
_MESSAGE: Final = re.compile(r'(?:time=|\[)?"?\d{4}-\d\d-\d\d')
"""Matches the start of a line that is not about a request."""
_OLD: Final = {"mcp.method": "mcp.method.name", "mcp.resource.name": "gen_ai.tool.name"}
"""Maps field names in older versions of agentgateway to current names."""
_SERVER: Final = ("mcp.target", "mcp.provider.name", "route")
_STATUS: Final = ("http.status", "response_code")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_STRING: Final = msgspec.json.Decoder(str)
_MS: Final = 1_000_000


def read(source: Source) -> Iterator[Item]:
    """Yield the requests that are MCP calls; count all other lines."""
    return read_spans(source, _spans)


def _spans(source: Source) -> Iterator[Span]:
    tally = source.tally
    for line, data in source.lines():
        text = data.decode(errors="replace").strip()
        fields = _fields(text)
        if fields is None and text and not _MESSAGE.match(text):
            tally.skip(line, "neither a request nor a message of the gateway")
        elif fields is None:
            tally.context["a message of the gateway" if text else "blank"] += 1
        elif "mcp.method.name" not in fields:
            tally.context["a request without an MCP method"] += 1
        else:
            yield _span(source, fields, line)


def _fields(text: str) -> dict[str, Any] | None:
    """Return the non-empty fields of a line; None if the line is not about a request."""
    if text[:1] == "{":
        found = decode_or_none(_OBJECT, text)
        if found is None:
            return None
    elif match := _TEXT.search(text):
        found = {"time": match["time"]}
        for field in _FIELD.finditer(match["fields"]):
            found.setdefault(field["name"], _value(field["value"]))
    else:
        return None
    old = found.get("mcp.resource") not in (None, "tool")
    for name, now in _OLD.items():
        if name in found and not (old and now == "gen_ai.tool.name"):
            found.setdefault(now, found[name])
    return {name: value for name, value in found.items() if value not in (None, "", "-")}


def _value(text: str) -> str:
    """Parse a value; quoted values are JSON strings."""
    value = decode_or_none(_STRING, text)
    return text if value is None else value


def _span(source: Source, fields: dict[str, Any], line: int) -> Span:
    status = next((str(fields[name]) for name in _STATUS if name in fields), "")
    fields["mcp.server.name"] = next((fields[name] for name in _SERVER if name in fields), None)
    fields["mcp.transport"] = "http"
    failed = status[:1] in {"4", "5"} or "error" in fields or "mcp.error.code" in fields
    if status == "0":  # Envoy logs status 0 if the client disconnected before the reply
        fields["error.type"] = "no_response"
    elif not failed:
        source.tally.notes[call_records.OUTCOME_UNKNOWN] += 1
    took = _duration(fields.get("duration"))
    start, end = source.at(fields.get("start_time")), source.at(fields.get("time"))
    if end is None:
        end = None if took is None else add_duration(start, took)
    elif start is None:
        start = None if took is None else add_duration(end, -took)
    return Span(
        line,
        f"line {line}",
        None,
        str(fields["mcp.method.name"]),
        start,
        end,
        fields,
        {},
        ACCESS_LOG,
        failed=failed,
        message=str(fields["error"]) if "error" in fields else f"HTTP {status}" if failed else None,
    )


def _duration(value: Any) -> int | None:
    """Convert a duration of agentgateway (`69ms`) or Envoy (milliseconds) to nanoseconds."""
    if isinstance(value, str) and not value.isdigit():
        return parse_duration(value)
    try:
        return None if isinstance(value, bool) else int(value) * _MS
    except (TypeError, ValueError, OverflowError):
        return None
