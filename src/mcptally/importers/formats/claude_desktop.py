"""Reads Claude Desktop's logs: `mcp-server-NAME.log` (one server) and `mcp.log` (all servers).

    2026-03-01T09:44:53.641Z [files] [info] Message from client: {…} { metadata: undefined }
    2025-06-17T13:21:34.077Z [info] [memory] Message from server: {…}

In the second line, the server and the level are in the opposite order. A line without a timestamp
is server stderr, or part of an object printed on several lines. Versions of 2026 cut out the middle
of long messages (`...[11759 chars truncated]...`); id, method, name and isError are then read from
the remaining text. The client parses messages before it prints them, so their length on the wire is
unknown.
"""

import re
from collections.abc import Iterator
from typing import Final

from mcptally.importers.items import Connection, Item
from mcptally.importers.source import Source
from mcptally.transcript.format import Dir
from mcptally.wire.framing import HEAD_BYTES, TAIL, TruncatedFrame
from mcptally.wire.truncated import fields_of_truncated

_LEVELS: Final = rb"(?:debug|info|warn|warning|error|trace|verbose|silly)"
_LINE: Final = re.compile(
    rb"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z?) "
    rb"(?:\[(?P<server>.+?)\] \["
    + _LEVELS
    + rb"\]|\["
    + _LEVELS
    + rb"\](?: \[(?P<second>[^\]]+)\])?)"
    rb" ?(?P<text>.*)\Z",
    re.DOTALL,
)
_MESSAGE: Final = re.compile(rb"Message from (?P<who>client|server): (?P<frame>.*)\Z", re.DOTALL)
_METADATA: Final = re.compile(rb" \{ metadata: (?:undefined|[^{}]{0,200}) \}\Z")
_CUT: Final = re.compile(rb"\.\.\.\[\d+ chars? truncated\]\.\.\.")
_COMMAND: Final = re.compile(rb"Using MCP server command: (?P<command>.+?) with (?:args|path)")
_ARGUMENTS: Final = "args: ["
_NO_MORE: Final = re.compile(r"\[length\]|\][ \t]*+,?[ \t\r]*+\n")
_WORD: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|`((?:[^`\\]|\\.)*)`")
_BEGINS: Final = (b"Initializing server",)
_ENDS: Final = (b"Server transport closed", b"Client transport closed")
_MAX_BLOCK: Final = 1000
"""Maximum number of lines of a printed object; further lines do not belong to it."""


def read(source: Source) -> Iterator[Item]:
    """Yield the messages, stderr lines and connections in a log."""
    tally = source.tally
    of_file = source.stem.removeprefix("mcp-server-") if source.stem != "mcp" else None
    block: list[bytes] | None = None
    block_connection = source.connection()
    for line, data in source.lines():
        match = _LINE.match(data)
        if match is None:
            if block is not None and len(block) < _MAX_BLOCK:
                block.append(data)
                tally.context["an object printed over several lines"] += 1
                if data[:1] == b"}":
                    if command := _command(block):
                        extra = {"command": command, "new": False}
                        yield Item("begin", line, block_connection, extra=extra)
                    block = None
            elif not data.strip():
                tally.context["blank"] += 1
            elif of_file is None:
                tally.skip(line, "a line without a time and server")
            else:
                tally.used += 1
                connection = source.connection(server=of_file, transport="stdio")
                yield Item("stderr", line, connection, data=data)
            continue
        block = None
        name = match["server"] or match["second"]
        label = name.decode(errors="replace") if name else of_file
        text = match["text"]
        if label is not None and of_file is None and label in source.servers_with_own_log:
            tally.context["also in the server's own log"] += 1
            continue
        connection = source.connection(server=label, transport="stdio")
        at = source.at(match["time"].decode())
        if message := _MESSAGE.match(text):
            if label is None:
                tally.skip(line, "a message without a server")
                continue
            tally.used += 1
            yield _message(
                message["who"], message["frame"], line=line, connection=connection, at=at
            )
            continue
        if text.endswith(b"{") and not text.endswith(b"{ metadata: {"):
            block, block_connection = [text], connection
        if text.startswith(_BEGINS):
            yield Item("begin", line, connection, at)
        elif text.startswith(_ENDS):
            yield Item("end", line, connection, at, extra={"reason": "transport_closed"})
        tally.context["a message of the client"] += 1


def _message(
    who: bytes, frame: bytes, *, line: int, connection: Connection, at: int | None
) -> Item:
    direction: Dir = "c2s" if who == b"client" else "s2c"
    # The suffix cannot be part of the message: its key has no quotes, which JSON requires.
    frame = _METADATA.sub(b"", frame.strip())
    # A message cut within a string may still be valid JSON, but with different content.
    if cut := _CUT.search(frame):
        begin, end = frame[: cut.start()][:HEAD_BYTES], frame[cut.end() :][-TAIL:]
        found = fields_of_truncated(TruncatedFrame(begin, end, 0, ""))
        return Item("head", line, connection, at, dir=direction, data=frame, extra=found)
    return Item("message", line, connection, at, dir=direction, data=frame)


def _command(block: list[bytes]) -> list[str] | None:
    """Return the command in a line `Using MCP server command: … { metadata: { args: [ …`."""
    found = _COMMAND.match(block[0])
    if found is None:
        return None
    text = b"\n".join(block).decode(errors="replace")
    words = text.partition(_ARGUMENTS)[2]
    end = _NO_MORE.search(words)
    arguments = _WORD.findall(words, 0, end.start()) if end else []
    return [found["command"].decode(errors="replace"), *("".join(word) for word in arguments)]
