"""Writes our recordings in the log formats of programs that cannot run in the tests.

The formats follow real logs of these programs (docs/reference/import-formats.md).
"""

import datetime
import json
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def plain(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def parse_timestamp(ns: int, form: str, parse_timezone: datetime.tzinfo = datetime.UTC) -> str:
    when = datetime.datetime.fromtimestamp(ns // 10**9, parse_timezone)
    return when.strftime(form) + f".{ns // 10**6 % 1000:03d}"


def claude_desktop(events: Iterable[Event]) -> str:
    lines = []
    for e in events:
        head = f"{parse_timestamp(e['ts_ns'], '%Y-%m-%dT%H:%M:%S')}Z [time] [info]"
        if e["event"] == "open":
            lines += [
                f"{head} Initializing server... {{ metadata: undefined }}",
                f"{head} Using MCP server command: {e['command'][0]} with args and path: {{",
                "  metadata: {",
                f"    args: [ {', '.join(map(repr, e['command'][1:]))}, [length]: 2 ],",
                "    paths: [",
                "      '/usr/bin',",
                "      [length]: 1",
                "    ]",
                "  }",
                "}",
            ]
        elif e["event"] == "message":
            who = "client" if e["dir"] == "c2s" else "server"
            lines.append(f"{head} Message from {who}: {plain(e['msg'])} {{ metadata: undefined }}")
        elif e["event"] == "stderr":
            lines.append(e["text"])
        elif e["event"] == "close":
            lines.append(f"{head} Server transport closed {{ metadata: undefined }}")
    return "".join(f"{line}\n" for line in lines)


def claude_desktop_all(events: Iterable[Event]) -> str:
    """The format of `mcp.log`, with the level before the server."""
    lines = []
    for e in events:
        if e["event"] == "message":
            who = "client" if e["dir"] == "c2s" else "server"
            when = parse_timestamp(e["ts_ns"], "%Y-%m-%dT%H:%M:%S")
            lines.append(f"{when}Z [info] [time] Message from {who}: {plain(e['msg'])}\n")
    return "".join(lines)


def vscode(events: Iterable[Event], parse_timezone: datetime.tzinfo = datetime.UTC) -> str:
    lines = []
    for e in events:
        when = parse_timestamp(e["ts_ns"], "%Y-%m-%d %H:%M:%S", parse_timezone)
        if e["event"] == "open":
            lines += [
                f"{when} [info] Starting server time",
                f"{when} [info] Connection state: Running",
            ]
        elif e["event"] == "message":
            direction = "editor -> server" if e["dir"] == "c2s" else "server -> editor"
            lines.append(f"{when} [debug] [{direction}] {plain(e['msg'])}")
        elif e["event"] == "stderr":
            lines.append(f"{when} [warning] [server stderr] {e['text']}")
        elif e["event"] == "close":
            lines.append(f"{when} [info] Connection state: Stopped")
    return "".join(f"{line}\n" for line in lines)


def vscode_old(events: Iterable[Event]) -> str:
    """The format of spring 2025."""
    return (
        vscode(events)
        .replace("[editor -> server]", "[Client Says]")
        .replace("[server -> editor]", "[Server Says]")
    )


def enveloped(events: Iterable[Event]) -> str:
    """JSON Lines in an envelope with unusual names."""
    return "".join(
        plain(
            {
                "at": parse_timestamp(e["ts_ns"], "%Y-%m-%dT%H:%M:%S") + "Z",
                "way": "out" if e["dir"] == "c2s" else "in",
                "conn": e["recording"],
                "inner": {"frame": plain(e["msg"])},
            }
        )
        + "\n"
        for e in events
        if e["event"] == "message"
    )


def bare(events: Iterable[Event]) -> str:
    return "".join(plain(e["msg"]) + "\n" for e in events if e["event"] == "message")
