"""Reads Cursor's log for an MCP server (`MCP user-NAME.log`, or in 2025 `Cursor MCP.log`).

    2025-02-25 01:21:18.278 [info] web: Calling tool 'open'
    2026-02-04 18:00:27.386 [info] Calling tool 'open' with toolCallId: call_yJZ9…
    2026-02-04 18:00:28.330 [info] Successfully called tool 'open'
    2026-01-16 15:11:17.939 [error] Error calling tool 'open': MCP error -32000: Connection closed

Timestamps are local, without a time zone. The end of a call names only the tool, so concurrent
calls to the same tool are matched in order. Cursor logs a result with `isError` as a success.
"""

import re
from collections.abc import Iterator
from typing import Final

from mcptally.importers import call_records
from mcptally.importers.call_records import CallEnd
from mcptally.importers.items import Item, Tally
from mcptally.importers.source import Source

_LINE: Final = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) \[\w+\] (?P<text>.*)\Z", re.DOTALL
)
_CALL: Final = re.compile(
    r"(?:(?P<server>[^']{1,200}?): )?(?P<what>Calling|Successfully called|Error calling) tool "
    r"'(?P<tool>[^']+)'(?: with toolCallId: (?P<id>\S+))?(?:: (?P<error>.*))?",
    re.DOTALL,
)
_CODE: Final = re.compile(r"(?:MCP error (?P<code>-?\d+): )+(?P<message>.*)\Z", re.DOTALL)
_TIMEOUT: Final = -32001
"""The TypeScript SDK's error code for a request that timed out."""

IN_ORDER: Final = "calls to one tool at the same time: replies taken in order"


def read(source: Source) -> Iterator[Item]:
    """Yield the calls; count other lines."""
    tally = source.tally
    of_file = source.stem.removeprefix("MCP ").removeprefix("user-")
    pending = call_records.PendingCalls(tally)
    timed = False
    for line, data in source.lines():
        match = _LINE.match(data.decode(errors="replace"))
        if match is None:
            if not data.strip():
                tally.context["blank"] += 1
            elif timed:
                tally.context["the rest of a message"] += 1
            else:
                tally.skip(line, "a line without a time")
            continue
        timed = True
        call = _CALL.match(match["text"])
        if call is None:
            tally.context["a message of Cursor or of the server"] += 1
            continue
        connection = source.connection(server=call["server"] or of_file)
        at = source.at(match["time"])
        key = (call["server"], call["tool"])
        if call["what"] == "Calling":
            tally.used += 1
            if key in pending:
                tally.notes[IN_ORDER] += 1
            id_ = call["id"] or f"line {line}"
            request = call_records.request(connection, id_, line, at, tool=call["tool"])
            pending.add(key, request)
            yield request
        elif (begun := pending.pop(key)) is None:
            tally.skip(line, "the end of a call that did not begin in this file")
        else:
            tally.used += 1
            yield _reply(tally, CallEnd(connection, str(begun.extra["id"]), line, at), call)


def _reply(tally: Tally, end: CallEnd, call: re.Match[str]) -> Item:
    if call["what"] != "Error calling":
        tally.notes[call_records.OUTCOME_UNKNOWN] += 1
        return end.result()
    text = call["error"] or ""
    coded = _CODE.match(text)
    code = None if coded is None else int(coded["code"])
    if code == _TIMEOUT:
        return end.cancelled("timeout")
    return end.error((text if coded is None else coded["message"]) or None, code)
