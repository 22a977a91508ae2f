"""Build transcripts for tests, line by line."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from mcptally.transcript.files import read_lines


def event(kind: str, seq: int, recording: str = "r1", **fields: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "event": kind,
        "recording": recording,
        "seq": seq,
        "ts_ns": 1_700_000_000_000_000_000 + seq * 1_000_000,
        **fields,
    }


def opened(recording: str = "r1", *, server: str = "demo", **fields: Any) -> dict[str, Any]:
    about = {"transport": "stdio", "server": server, "command": ["demo"], "segment": 0}
    return event("open", 0, recording, **(about | fields))


def c2s(seq: int, msg: Any, recording: str = "r1", **fields: Any) -> dict[str, Any]:
    about = {"dir": "c2s", "scope": None, "bytes": 100, "msg": msg}
    return event("message", seq, recording, **(about | fields))


def s2c(seq: int, msg: Any, recording: str = "r1", **fields: Any) -> dict[str, Any]:
    about = {"dir": "s2c", "scope": None, "bytes": 100, "msg": msg}
    return event("message", seq, recording, **(about | fields))


def request(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def result(id_: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": members}


def error(id_: Any, code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message, **more}}


def call(id_: Any, tool: str = "echo", **arguments: Any) -> dict[str, Any]:
    return request(id_, "tools/call", name=tool, arguments=arguments)


def text(id_: Any, words: str = "fine", **members: Any) -> dict[str, Any]:
    return result(id_, content=[{"type": "text", "text": words}], **members)


def exchange(*messages: Any, recording: str = "r1", first: int = 1) -> list[dict[str, Any]]:
    """The events of messages one after the other: those with a method come from the client."""
    return [
        (c2s if "method" in message else s2c)(seq, message, recording)
        for seq, message in enumerate(messages, first)
    ]


def write(path: Path, events: Iterable[dict[str, Any] | bytes]) -> Path:
    """Write a transcript file and return its path; bytes are written unchanged as lines."""
    lines = [e if isinstance(e, bytes) else json.dumps(e).encode() + b"\n" for e in events]
    data = b"".join(lines)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def lines_of(path: Path) -> list[bytes]:
    """The lines of a whole transcript, with their ends."""
    return [line for run in read_lines(path) for line in run.data.splitlines(keepends=True)]


def bomb(path: Path, block: bytes, mebibytes: int, *, head: bytes = b"", tail: bytes = b"") -> Path:
    """Write a file of some kB that decompresses to copies of a block, of this size together."""
    many = block * max(1, (1 << 20) // len(block))
    with path.open("wb") as out, zstandard.ZstdCompressor().stream_writer(out) as packed:
        packed.write(head)
        for _ in range(mebibytes):
            packed.write(many)
        packed.write(tail)
    return path
