"""Archives of unusual size or shape, for benchmarks and tests."""

import json
from pathlib import Path


def _line(seq: int, direction: str, message: object, recording: str = "r") -> bytes:
    """Return a line of a transcript."""
    head = {"v": 1, "event": "message", "recording": recording, "seq": seq, "ts_ns": 10**18 + seq}
    return json.dumps(head | {"dir": direction, "bytes": 1, "msg": message}).encode() + b"\n"


def exchange(number: int, text: str, recording: str = "r") -> bytes:
    """A call to a tool and its reply."""
    call = {"name": "echo", "arguments": {"text": f"number {number}"}}
    result = {"content": [{"type": "text", "text": text}]}
    both = ("c2s", {"method": "tools/call", "params": call}), ("s2c", {"result": result})
    return b"".join(
        _line(2 * number + i, way, {"jsonrpc": "2.0", "id": number, **rest}, recording)
        for i, (way, rest) in enumerate(both)
    )


def frame(folder: Path, size: int = 200 * 1_000_000) -> Path:
    """Return one reply of this many bytes."""
    folder.mkdir()
    text = "lorem ipsum dolor sit amet, consectetur adipiscing elit " * (size // 56)
    (folder / "frame.jsonl").write_bytes(exchange(1, text))
    return folder


def session(folder: Path, calls: int = 1_000_000) -> Path:
    """Calls one after the other in one recording."""
    folder.mkdir()
    me = {"name": "c", "version": "1"}
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": me}
    answered = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": me}
    with (folder / "session.jsonl").open("wb") as file:
        head = {"jsonrpc": "2.0", "id": "i"}
        file.write(_line(0, "c2s", head | {"method": "initialize", "params": asked}))
        file.write(_line(1, "s2c", head | {"result": answered}))
        file.writelines(exchange(number, f"answer {number}") for number in range(1, calls))
    return folder


def sessions(folder: Path, size: int) -> Path:
    """Recordings of 200 calls, about `size` bytes in files of about 4 MB; each reply is another."""
    folder.mkdir()
    calls = [
        exchange(number, f"answer {number} of many\n" * 40, f"r{number // 200}")
        for number in range(size // 1300)
    ]
    for start in range(0, len(calls), 3200):
        (folder / f"{start}.jsonl").write_bytes(b"".join(calls[start : start + 3200]))
    return folder


def recordings(folder: Path, count: int = 1_000_000) -> Path:
    """Recordings of one call each, all in one file."""
    folder.mkdir()
    with (folder / "recordings.jsonl").open("wb") as file:
        file.writelines(exchange(1, "one answer", f"r{number}") for number in range(count))
    return folder


def files(folder: Path, count: int = 100_000) -> Path:
    """A recording of one call in each of many files."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.jsonl").write_bytes(exchange(1, "one answer", f"r{number}"))
    return folder
