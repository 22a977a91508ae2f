r"""Reads Claude Code's logs and transcripts.

MCP logs are `mcp-logs-SERVER/TIME.jsonl`, transcripts are `projects/**.jsonl`:

    {"debug":"Calling MCP tool: send","timestamp":"…","sessionId":"…","cwd":"…"}
    {"debug":"Tool 'send' completed successfully in 505ms",…}
    {"type":"assistant","message":{"content":[{"type":"tool_use","name":"mcp__server__tool",…}]},…}
    {"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"…","is_error":true}]}}

Both contain calls, not frames. A log contains the tool, outcome, duration and error text, but no
arguments or results. A transcript contains arguments and results, but its timestamps belong to the
conversation, so a call's duration includes the time for the user's permission.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.importers import call_records
from mcptally.importers.items import Connection, Item
from mcptally.importers.source import OTHER_TOOL, Source
from mcptally.importers.timestamps import add_duration, parse_duration
from mcptally.importers.values import dict_of, text_of

_CALLING: Final = re.compile(r"Calling MCP tool: (?P<tool>.+)\Z", re.DOTALL)
_DONE: Final = re.compile(r"Tool '(?P<tool>.+?)' completed successfully in (?P<took>\S.*)\Z")
_FAILED: Final = re.compile(
    r"Tool '(?P<tool>.+?)' failed after (?P<took>[^:]{1,40}): (?P<why>.*)\Z", re.DOTALL
)
_STDERR: Final = "Server stderr: "
_BEGINS: Final = ("Starting connection", "Initializing ")
_ENDS: Final = re.compile(r"(?:\w+ )*connection closed", re.IGNORECASE)
_TOOL: Final = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)\Z", re.DOTALL)
_OWN_REFUSALS: Final = (
    "The user doesn't want to proceed with this tool use",
    "Claude requested permissions to use",
    "[Request interrupted by user",
    "<tool_use_error>",
)
"""Start of results that the client itself created, because the user or a rule did not permit the
call or because the call was invalid."""


class _Line(msgspec.Struct):
    type: object = None
    timestamp: object = None
    session: object = msgspec.field(default=None, name="sessionId")
    debug: object = None
    error: object = None
    message: object = None
    result: object = msgspec.field(default=None, name="toolUseResult")


_LINE: Final = msgspec.json.Decoder(_Line)
_FOLDER: Final = re.compile(r"mcp-logs-(?P<server>.+)\Z")


def read(source: Source) -> Iterator[Item]:
    """Yield the calls in an MCP log or a transcript."""
    folder = _FOLDER.match(source.path.parent.name)
    reader = _Reader(source, folder["server"] if folder else None)
    for line, event in source.records(_LINE, "not a JSON object"):
        if isinstance(event.debug, str) or isinstance(event.error, str):
            yield from reader.log(event, line)
        else:
            yield from reader.turn(event, line)
    yield from reader.unanswered()


class _Reader:
    """Reads a file's lines; remembers the calls that have no result yet."""

    def __init__(self, source: Source, server: str | None) -> None:
        self.source = source
        self.tally = source.tally
        self.server = server
        self.calls = call_records.PendingCalls(source.tally)
        """Calls in an MCP log, by session and tool."""
        self.uses = call_records.PendingCalls(source.tally)

    # --- MCP logs -----------------------------------------------------------------------------

    def log(self, event: _Line, line: int) -> Iterator[Item]:
        at = self.source.at(event.timestamp)
        session = event.session if isinstance(event.session, str) else ""
        connection = self.source.connection(session, server=self.server)
        said = event.debug if isinstance(event.debug, str) else event.error
        text = said if isinstance(said, str) else ""
        if match := _CALLING.match(text):
            tool = match["tool"]
            ask = call_records.request(connection, f"{line}", line, at, tool=tool)
            self.calls.add((session, tool), ask)
            self.tally.used += 1
        elif (match := _DONE.match(text)) or (match := _FAILED.match(text)):
            self.tally.used += 1
            yield from self.over(match, connection, session, line, at)
        elif text.startswith(_STDERR):
            self.tally.used += 1
            for part in text.removeprefix(_STDERR).rstrip("\n").split("\n"):
                data = part.encode(errors="replace")
                yield Item("stderr", line, connection, at, data=data)
        else:
            self.tally.context["a message of the client"] += 1
            if text.startswith(_BEGINS):
                yield Item("begin", line, connection, at)
            elif _ENDS.match(text):
                extra = {"reason": "connection_closed"}
                yield Item("end", line, connection, at, extra=extra)

    def over(
        self, match: re.Match[str], connection: Connection, session: str, line: int, at: int | None
    ) -> Iterator[Item]:
        tool = match["tool"]
        ask = self.calls.pop((session, tool)) or call_records.request(
            connection, f"{line}", line, None, tool=tool
        )
        call = str(ask.extra["id"])
        took = parse_duration(match["took"])
        exact = took is not None and match["took"].strip().endswith("ms")
        if at is not None and took is not None and (exact or ask.at is None):
            # Durations in whole seconds are less precise than the lines' timestamps.
            ask.at = add_duration(at, -took)
        yield ask
        end = call_records.CallEnd(connection, call, line, at)
        if (why := match.groupdict().get("why")) is None:
            yield end.result(is_error=False)
        else:
            failure = call_records.result_of(why, is_error=True)
            yield end.sdk_failure(why) or end.result(failure)

    # --- transcripts --------------------------------------------------------------------------

    def turn(self, event: _Line, line: int) -> Iterator[Item]:
        content = event.message.get("content") if isinstance(event.message, dict) else None
        found = 0
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_use":
                found += self.use(event, block, line)
            elif block.get("type") == "tool_result":
                for item in self.result(event, block, line):
                    found = 1
                    yield item
        if found:
            self.tally.used += 1
        else:
            self.tally.context[OTHER_TOOL] += 1

    def use(self, event: _Line, block: dict[str, Any], line: int) -> int:
        name, call = block.get("name"), block.get("id")
        match = _TOOL.match(name) if isinstance(name, str) else None
        if match is None or not isinstance(call, str) or call in self.uses:
            return 0
        server, tool = match.group("server", "tool")
        session = event.session if isinstance(event.session, str) else ""
        connection = self.source.connection(session, server=server)
        arguments = (
            call_records.json_bytes(block["input"])
            if "input" in block
            else call_records.NOT_RECORDED
        )
        ask = call_records.request(
            connection,
            call,
            line,
            self.source.at(event.timestamp),
            tool=tool,
            arguments=arguments,
            model=text_of(dict_of(event.message).get("model")),
        )
        self.uses.add(call, ask)
        return 1

    def result(self, event: _Line, block: dict[str, Any], line: int) -> Iterator[Item]:
        call = block.get("tool_use_id")
        ask = self.uses.pop(call) if isinstance(call, str) else None
        if ask is None or not isinstance(call, str):
            return
        end = call_records.CallEnd(ask.connection, call, line, self.source.at(event.timestamp))
        failed = block.get("is_error") is True
        content = block.get("content")
        said = _text(content)
        if failed and said.startswith(_OWN_REFUSALS):
            self.tally.notes[call_records.REFUSED] += 1
            return
        yield ask
        if "content" not in block:
            yield end.result(is_error=failed)
            return
        if failed and (failure := end.sdk_failure(said)):
            yield failure
            return
        structured = event.result if isinstance(event.result, dict) else {}
        value: Any = content
        if isinstance(content, list) and "structuredContent" in structured:
            value = {"content": content, "structuredContent": structured["structuredContent"]}
        yield end.result(call_records.result_of(value, is_error=failed))

    def unanswered(self) -> Iterator[Item]:
        """Yield the calls that have no result at the end of the file."""
        yield from self.calls.unanswered()
        yield from self.uses.unanswered()


def _text(content: Any) -> str:
    """Return the first text in a result's content, or an empty string."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = (block.get("text") for block in blocks if isinstance(block, dict))
    return next((text for text in texts if isinstance(text, str)), "")
