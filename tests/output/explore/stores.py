"""Makes a store of 40,020 calls that fail for reasons known to the tests."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests import transcripts as t
from tests.output.html.stores import answered, asked, scored, session

SESSIONS: Final = 667
CALLS: Final = 60
"""Calls per session."""
DAY: Final = 86_400_000_000_000
START: Final = 1_790_000_000_000_000_000
BROKEN_FROM: Final = 0.6
"""The share of sessions before `list_dir` begins to fail for one client."""
SLOW: Final = (30, 40)
"""The session of the slowest call, and its position there."""

READ: Final = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "head": {"type": "integer"}},
    "required": ["path"],
}
"""The input schema of `read_file`."""
TOOLS: Final = {"files": ("read_file", "list_dir"), "search": ("query",), "mail": ("send",)}
"""Server → its tools."""


def busy(folder: Path, sessions: int = SESSIONS) -> Path:
    """The store. `ghost` never starts, because a module is missing.

    `read_file` refuses an empty path; `list_dir` fails from `BROKEN_FROM` on for the client `beta`;
    `query` has one call of nine seconds; `send` sometimes fails with the same arguments.
    """
    events = itertools.chain.from_iterable(_session(number, sessions) for number in range(sessions))
    return scored(folder, itertools.chain(events, *(_ghost(number) for number in range(3))))


def _session(number: int, sessions: int) -> Iterator[dict[str, Any]]:
    name, server = f"s{number:02}", ("files", "files", "search", "mail")[number % 4]
    client = "beta" if number % 3 == 0 else "alpha"
    fails = client == "beta" and number >= BROKEN_FROM * sessions
    about = "does it quickly" if number >= sessions // 2 else "does it"
    schemas = {"read_file": READ}
    tools = [
        {"name": tool, "description": about, "inputSchema": schemas.get(tool, {"type": "object"})}
        for tool in TOOLS[server]
    ]
    calls, times = [], [20.0, 5.0]
    for place in range(CALLS):
        tool, arguments, error, took = _call(number, place, server, fails=fails)
        calls.append((asked(tool, **arguments), answered(error or "fine", isError=bool(error))))
        times.append(took)
    *events, close = session(name, server, tools, calls, client=client)
    if server == "mail" and number % 8 == 3:
        said = t.event("stderr", close["seq"], name, text="RuntimeError: out of cheese\n")
        events += [said, _crashed(close["seq"] + 1, name)]
    else:
        events.append(close)
    at, took = START + number * DAY // 4, iter(times)
    for event in events:
        at += int(1e6 * (next(took) if event.get("dir") == "s2c" else 5))
        yield event | {"ts_ns": at}


def _call(number: int, place: int, server: str, *, fails: bool) -> tuple[str, dict, str, float]:
    """Return a call's tool and arguments, its error, and how many milliseconds it takes."""
    at = number * CALLS + place
    if server == "files" and place % 2:
        path = "" if at % 7 == 0 else f"notes/{at % 90}.txt"
        return "read_file", {"path": path}, "" if path else "path must not be empty", 12.0
    if server == "files":
        return "list_dir", {"depth": at % 5}, "KeyError: 'cwd'" if fails else "", 12.0
    if server == "search":
        took = 9_000.0 if (number, place) == SLOW else 30.0 + at % 60
        return "query", {"q": f"word {at % 200}"}, "", took
    error, took = ("connect ETIMEDOUT 10.0.0.7:25", 250.0) if at % 11 == 0 else ("", 12.0)
    return "send", {"to": f"a{at % 50}"}, error, took


def _crashed(seq: int, name: str) -> dict[str, Any]:
    return t.event("close", seq, name, reason="server_exited", exit_code=1, signal=None, counts={})


def _ghost(number: int) -> Iterator[dict[str, Any]]:
    name, at = f"ghost{number}", {"ts_ns": START + number * DAY}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "alpha"}}
    text = "ModuleNotFoundError: No module named 'ectoplasm'\n"
    yield t.opened(name, server="ghost") | at
    yield t.c2s(1, t.request(0, "initialize", **hello), name) | at
    yield t.event("stderr", 2, name, text=text) | at
    yield _crashed(3, name) | at
