"""Reads VS Code's output for an MCP server at log level trace (in some versions debug or info).

    2026-10-05 09:49:21.377 [debug] [editor -> server] {"jsonrpc":"2.0","id":1,…}

Timestamps are local, without a time zone. Versions from early 2025 wrote `[Client Says]` and
`[Server Says]`. The editor parses messages before printing, so their wire length is unknown.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.transcript.format import Dir

_LINE: Final = re.compile(
    rb"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) \[(?P<level>\w+)\] (?P<text>.*)\Z", re.DOTALL
)
_SAYS: Final[dict[bytes, Dir]] = {
    b"[editor -> server] ": "c2s",
    b"[server -> editor] ": "s2c",
    b"[Client Says] ": "c2s",
    b"[Server Says] ": "s2c",
}
_STDERR: Final = b"[server stderr] "
_NOT_JSON: Final = re.compile(rb'Failed to parse message: (?P<text>".*")\s*\Z', re.DOTALL)
"""Matches a log line about stdout output that is not a message; the line quotes the output as a
JSON string."""
_STARTING: Final = re.compile(rb"Starting server (?!from )(?P<name>.+)\Z")
_COMMAND: Final = re.compile(rb"Server command line: (?P<command>.+)\Z")
_OVER: Final = re.compile(rb"Connection state: (?P<how>Stopped|Error)")


def read(source: Source) -> Iterator[Item]:
    """Yield the messages, stderr lines and connections in a log."""
    tally = source.tally
    server: str | None = None
    of_stderr = False
    for line, data in source.lines():
        match = _LINE.match(data)
        connection = source.connection(server=server)
        if match is None:
            if not data.strip():
                tally.context["blank"] += 1
            elif of_stderr:
                tally.used += 1
                yield Item("stderr", line, connection, data=data)
            else:
                tally.skip(line, "a line without a time")
            continue
        at = source.at(match["time"].decode())
        text = match["text"]
        said = next((words for words in _SAYS if text.startswith(words)), None)
        of_stderr = text.startswith(_STDERR)
        if said is not None:
            tally.used += 1
            frame = text[len(said) :].strip()
            yield Item("message", line, connection, at, dir=_SAYS[said], data=frame)
        elif (written := _not_json(text)) is not None:
            tally.used += 1
            yield Item("message", line, connection, at, dir="s2c", data=written)
        elif of_stderr:
            tally.used += 1
            text = text[len(_STDERR) :]
            yield Item("stderr", line, connection, at, data=text)
        else:
            tally.context["a message of the editor"] += 1
            if starting := _STARTING.match(text):
                server = starting["name"].strip().decode(errors="replace")
                yield Item("begin", line, source.connection(server=server), at)
            elif command := _COMMAND.match(text):
                words = command["command"].strip().decode(errors="replace").split(" ")
                extra = {"command": words, "new": False}
                yield Item("begin", line, connection, at, extra=extra)
            elif over := _OVER.match(text):
                extra = {"reason": f"connection_{over['how'].decode().lower()}"}
                yield Item("end", line, connection, at, extra=extra)


def _not_json(text: bytes) -> bytes | None:
    """Return the stdout line that the editor could not parse as a message; None for other lines."""
    match = _NOT_JSON.match(text)
    if match is None:
        return None
    try:
        return msgspec.json.decode(match["text"], type=str).rstrip("\n").encode()
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
