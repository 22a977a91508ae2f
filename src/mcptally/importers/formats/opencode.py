"""Reads opencode's sessions: `opencode.db`, `opencode export`, and `opencode run --format json`.

    {"info":{"id":"ses_…"},"messages":[{"info":{…},"parts":[{"type":"tool","callID":"…",
     "tool":"web_open","state":{"status":"completed","input":{…},"output":"…",
     "time":{"start":1768748943936,"end":1768748987338}}}]}]}

In the database, the table `part` contains the parts of all sessions as JSON in the column `data`.

An MCP server's tool is called `SERVER_TOOL`; names are split at the first underscore. A call that
opencode rejects is logged as a call to the tool `invalid`, whose input names the requested tool.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import Item
from mcptally.importers.source import OTHER_TOOL, Source
from mcptally.importers.sqlite_tables import MAGIC, rows
from mcptally.importers.tool_records import ToolRecord, items_of
from mcptally.importers.values import dict_of, text_of

_BUILT_IN: Final = frozenset(
    {
        *("apply_patch", "plan_enter", "plan_exit"),
        *("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"),
    }
)
"""Built-in tools with an underscore in their names; other built-in tools have none."""


class _Line(msgspec.Struct):
    info: object = None
    part: object = None
    parts: object = None


_LINE: Final = msgspec.json.Decoder(_Line)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls to MCP tools in a session."""
    tally = source.tally
    for line, message in _messages(source):
        parts = message.parts if isinstance(message.parts, list) else [message.part]
        found = 0
        for part in parts:
            if not isinstance(part, dict) or part.get("type") != "tool":
                continue
            name = part.get("tool")
            refused = name == "invalid"
            if refused:
                name = dict_of(dict_of(part.get("state")).get("input")).get("tool")
            if not isinstance(name, str):
                continue
            if "_" not in name.strip("_") or name in _BUILT_IN:
                tally.notes["calls to built-in tools: left out"] += 1
                continue
            if refused:
                tally.notes[call_records.REFUSED] += 1
                continue
            found = 1
            record = _record(part, *name.split("_", 1))
            record.model = text_of(dict_of(message.info).get("modelID"))
            yield from items_of(source, record, line)
        if found:
            tally.used += 1
        else:
            tally.context[OTHER_TOOL] += 1


def _messages(source: Source) -> Iterator[tuple[int, _Line]]:
    with source.path.open("rb") as file:
        is_sqlite = file.read(len(MAGIC)) == MAGIC
    return _rows(source) if is_sqlite else source.messages(_LINE)


TABLES: Final = {
    "part": {"id", "message_id", "session_id", "time_created", "data"},
    "message": {"id", "data"},
}
_QUERY: Final = """
    SELECT p.session_id, p.data, m.data
    FROM part p LEFT JOIN message m ON m.id = p.message_id
    ORDER BY p.time_created, p.id
"""


def _rows(source: Source) -> Iterator[tuple[int, _Line]]:
    """Yield a database's parts, oldest first, each as a separate message."""
    query = rows(source, "opencode", TABLES, _QUERY, lambda text: text.decode(errors="replace"))
    for number, (session, part, message) in enumerate(query, 1):
        about = dict_of(part)
        if about:
            about["sessionID"] = session
            yield number, _Line(info=dict_of(message), part=about)
        else:
            source.tally.skip(number, "a part that is not a JSON object")


def _record(part: dict[str, Any], server: str, tool: str) -> ToolRecord:
    state = dict_of(part.get("state"))
    times = dict_of(state.get("time"))
    status = state.get("status")
    is_error = {"completed": False, "error": True}.get(str(status))
    return ToolRecord(
        id=str(part.get("callID")),
        tool=tool,
        server=server,
        session=str(part.get("sessionID") or ""),
        start=times.get("start"),
        end=times.get("end"),
        arguments=state.get("input"),
        result=state.get("output"),
        is_error=is_error,
        error=text_of(state.get("error")),
    )
