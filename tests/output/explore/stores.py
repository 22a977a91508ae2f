"""Makes a store of 40,020 calls that fail for reasons known to the tests."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.output.html.stores import scored

SESSIONS: Final = 667
CALLS: Final = 60
"""Calls per session."""
DAY: Final = 86_400_000_000_000
SECOND: Final = 1_000_000_000
START: Final = 1_790_000_000 * SECOND
BROKEN_FROM: Final = 0.6
"""The share of sessions before `list_dir` begins to fail for one client."""
SLOW: Final = (30, 40)
"""The session of the slowest call, and its position there."""

READ: Final = {
    "name": "read_file",
    "description": "reads a file",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "head": {"type": "integer"}},
        "required": ["path"],
    },
}
LIST: Final = {"name": "list_dir", "description": "lists", "inputSchema": {"type": "object"}}
QUERY: Final = {"name": "query", "description": "asks", "inputSchema": {"type": "object"}}
SEND: Final = {"name": "send", "description": "sends", "inputSchema": {"type": "object"}}


def busy(folder: Path, sessions: int = SESSIONS) -> Path:
    """The store. `ghost` never starts, because a module is missing.

    `read_file` refuses an empty path; `list_dir` fails from `BROKEN_FROM` on for the client `beta`;
    `query` has one call of nine seconds; `send` sometimes fails with the same arguments.
    """
    events = itertools.chain.from_iterable(_session(number, sessions) for number in range(sessions))
    return scored(folder, itertools.chain(events, *(_ghost(number) for number in range(3))))


class _Recording:
    """Writes the events of one recording, with times."""

    def __init__(self, name: str, server: str, at: int) -> None:
        self._name, self._seq, self.at = name, 0, at
        self.first = self._event(
            "open", transport="stdio", server=server, command=[server], segment=0
        )

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        made = {
            "v": 1,
            "event": kind,
            "recording": self._name,
            "seq": self._seq,
            "ts_ns": self.at,
            **fields,
        }
        self._seq += 1
        return made

    def message(self, direction: str, after_ms: float, **msg: Any) -> dict[str, Any]:
        self.at += int(after_ms * 1e6)
        frame = {"jsonrpc": "2.0", **msg}
        return self._event("message", dir=direction, scope=None, bytes=100, msg=frame)

    def stderr(self, text: str) -> dict[str, Any]:
        return self._event("stderr", text=text)

    def close(self, code: int) -> dict[str, Any]:
        reason = "server_exited" if code else "stdin-eof"
        return self._event("close", reason=reason, exit_code=code, signal=None, counts={})


def _session(number: int, sessions: int) -> Iterator[dict[str, Any]]:
    server = ("files", "files", "search", "mail")[number % 4]
    client = "beta" if number % 3 == 0 else "alpha"
    one = _Recording(f"s{number:02}", server, START + number * DAY // 4)
    yield one.first
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    about = {"name": client, "version": "1"}
    yield one.message("c2s", 1, id=0, method="initialize", params={**hello, "clientInfo": about})
    offered = {
        **hello,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": server, "version": "2"},
    }
    yield one.message("s2c", 20, id=0, result=offered)
    tools = {"files": [READ, LIST], "search": [QUERY], "mail": [SEND]}[server]
    if number >= sessions // 2:
        tools = [tool | {"description": f"{tool['description']} quickly"} for tool in tools]
    yield one.message("c2s", 1, id=1, method="tools/list")
    yield one.message("s2c", 5, id=1, result={"tools": tools})
    for place in range(CALLS):
        yield from _call(
            one, number, place, server, fails=client == "beta" and number >= BROKEN_FROM * sessions
        )
    if server == "mail" and number % 8 == 3:
        yield one.stderr("RuntimeError: out of cheese\n")
        yield one.close(1)
    else:
        yield one.close(0)


def _call(
    one: _Recording, number: int, place: int, server: str, *, fails: bool
) -> Iterator[dict[str, Any]]:
    at = number * CALLS + place
    tool, arguments, error, took = "send", {"to": f"a{at % 50}"}, "", 12.0
    if server == "files" and place % 2:
        tool, arguments = "read_file", {"path": "" if at % 7 == 0 else f"notes/{at % 90}.txt"}
        error = "" if arguments["path"] else "path must not be empty"
    elif server == "files":
        tool, arguments = "list_dir", {"depth": at % 5}
        error = "KeyError: 'cwd'" if fails else ""
    elif server == "search":
        tool, arguments = "query", {"q": f"word {at % 200}"}
        took = 9_000.0 if (number, place) == SLOW else 30.0 + at % 60
    elif at % 11 == 0:
        error, took = "connect ETIMEDOUT 10.0.0.7:25", 250.0
    params = {"name": tool, "arguments": arguments}
    yield one.message("c2s", 5, id=at + 2, method="tools/call", params=params)
    if took > 1_000:
        for done in range(3):
            progress = {"progressToken": at + 2, "progress": done}
            yield one.message("s2c", took / 4, method="notifications/progress", params=progress)
        took /= 4
    text = [{"type": "text", "text": error or "fine"}]
    yield one.message("s2c", took, id=at + 2, result={"content": text, "isError": bool(error)})


def _ghost(number: int) -> Iterator[dict[str, Any]]:
    one = _Recording(f"ghost{number}", "ghost", START + number * DAY)
    yield one.first
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "alpha"}}
    yield one.message("c2s", 1, id=0, method="initialize", params=hello)
    yield one.stderr("ModuleNotFoundError: No module named 'ectoplasm'\n")
    yield one.close(1)
