"""Write the examples of finding rules as transcripts. Their notation: docs/reference/rules.md."""

import gzip
import json
import re
from pathlib import Path
from typing import Any, Final

META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

CLIENT: Final = {"roots": {}, "sampling": {}, "elicitation": {}}
SERVER: Final = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "logging": {},
    "completions": {},
}

TOKEN: Final = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8"  # noqa: S105
"""A made-up token. Rule files do not contain it, so that secret scanners do not report them."""

ARROW: Final = re.compile(r"^(?:(\w+) )?([<>])(raw)? ?(.*)$", re.DOTALL)
REQUEST: Final = re.compile(r"^(\w+) (GET|POST|DELETE) (\{.*\})$")
RESPONSE: Final = re.compile(r"^(\w+) (\d{3}) (\{.*\})$")


class Conversation:
    """Builds the lines of one recording from the lines of an example."""

    def __init__(self, name: str, *, server: str = "") -> None:
        self.name = name
        self.server = server or name
        self.seq = 0
        self.now = 1_700_000_000_000_000_000
        self.lines: list[bytes] = []
        self.last_id = 1000

    def event(self, kind: str, **fields: Any) -> None:
        about = {"v": 1, "event": kind, "recording": self.name, "seq": self.seq, "ts_ns": self.now}
        merged = about | fields
        if merged["seq"] == self.seq:
            self.seq += 1
        self.now += 1_000_000
        self.lines.append(json.dumps(merged, ensure_ascii=False).encode() + b"\n")

    def message(self, arrow: str, text: str, scope: str | None = None) -> None:
        # The bytes of the message itself, as a recorder writes them.
        self.event("message", dir=_dir(arrow), scope=scope, bytes=len(text), msg="MSG")
        self.lines[-1] = self.lines[-1].replace(b'"MSG"', text.encode())

    def request(self, method: str, params: Any, result: str) -> None:
        self.last_id += 1
        request = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        self.message(">", json.dumps(request))
        if result:
            self.message("<", f'{{"jsonrpc":"2.0","id":{self.last_id},"result":{result}}}')

    def line(self, text: str) -> None:
        if text.startswith("@"):
            self.handshake(text[1:])
        elif text.startswith("= "):
            fields = json.loads(text[2:])
            self.event(fields.pop("event"), **fields)
        elif text.startswith("| "):
            self.lines.append(text[2:].encode() + b"\n")
        elif text.startswith("seq "):
            self.seq = int(text[4:])
        elif text.startswith("+ "):
            self.now += int(text[2:]) * 1_000_000
        elif text.startswith("tools "):
            self.request("tools/list", {}, f'{{"tools":{text[6:]}}}')
        elif text.startswith("call "):
            _, tool, rest = text.split(" ", 2)
            arguments, end = json.JSONDecoder().raw_decode(rest)
            params = {"name": tool, "arguments": arguments}
            self.request("tools/call", params, rest[end:].strip())
        elif match := REQUEST.match(text):
            self.http(match[1], "request", method=match[2], headers=json.loads(match[3]))
        elif match := RESPONSE.match(text):
            self.http(match[1], "response", status=int(match[2]), headers=json.loads(match[3]))
        elif match := ARROW.match(text):
            scope, arrow, raw, body = match.groups()
            if raw:
                size = {"bytes": len(body), "why": "not_json"}
                self.event("raw", dir=_dir(arrow), scope=scope, text=body, **size)
            else:
                self.message(arrow, body, scope)
        else:
            raise ValueError(f"unknown kind of line in an example: {text!r}")

    def http(self, scope: str, phase: str, **fields: Any) -> None:
        side = "c2s" if phase == "request" else "s2c"
        self.event("http", dir=side, scope=scope, phase=phase, path="/mcp", **fields)

    def handshake(self, revision: str) -> None:
        info = {"name": "a", "version": "1"}
        params = {"protocolVersion": revision, "capabilities": CLIENT, "clientInfo": info}
        result = {"protocolVersion": revision, "capabilities": SERVER, "serverInfo": info}
        self.last_id -= 1
        self.request("initialize", params, json.dumps(result))
        self.message(">", '{"jsonrpc":"2.0","method":"notifications/initialized"}')


def _dir(arrow: str) -> str:
    return "c2s" if arrow == ">" else "s2c"


def write(example: str, path: Path, name: str) -> Path:
    """Write an example as a transcript file and return its path."""
    talk = Conversation(name)
    text = example.strip("\n").replace("META", json.dumps(META))
    text = re.sub(r"TOKEN(\d+)", lambda m: (TOKEN * 9)[: int(m[1])], text)
    if text.startswith("$"):
        return _file(text, talk, path)
    if not text.startswith('= {"event":"open"') and '"seq"' not in text:
        http = re.match(r"\w+ (POST|GET|DELETE) ", text)
        transport = "streamable_http" if http else "stdio"
        talk.event("open", transport=transport, server=talk.server, command=["x"], segment=0)
    for line in text.splitlines():
        talk.line(line)
    path = path.with_suffix(".jsonl")
    path.write_bytes(b"".join(talk.lines))
    return path


def _file(which: str, talk: Conversation, path: Path) -> Path:
    """Write a file that cannot be described line by line."""
    talk.event("open", transport="stdio", server=talk.server, command=["x"], segment=0)
    for number in range(50):
        talk.line(f'> {{"jsonrpc":"2.0","id":{number},"method":"ping"}}')
    whole = b"".join(talk.lines)
    copies = {"$twice": whole, "$conflict": whole.replace(b'"ping"', b'"pong"')}
    about = b'{"v":1,"event":"stderr","recording":"x","seq":99,"ts_ns":1,"text":'
    contents = {
        **dict.fromkeys(("$link", *copies), whole),
        "$cut-gzip": gzip.compress(whole)[:-60],
        "$empty": b"",
        "$noise": whole + b"\n" * 1_000_001,
        "$zip": b"PK\x03\x04" + whole,
        "$not-utf8": whole + about + b'"\xff"}\n',
        "$deep": whole + about + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        "$torn": whole[:-20],
    }
    if which in copies:
        path.with_suffix(".copy.jsonl").write_bytes(copies[which])
    elif which == "$link":
        path.with_suffix(".copy.jsonl").symlink_to(path.parent.parent)
    path = path.with_suffix(".jsonl.gz" if which == "$cut-gzip" else ".jsonl")
    path.write_bytes(contents[which])
    return path
