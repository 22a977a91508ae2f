"""Archives for benchmarks: generated from a seed, copies of real traffic, or of unusual size.

The `traffic` shape has the kinds of lines, sizes, errors and oddities of the 888 recordings of the
corpus (355.7 MB, measured 2026-11-22): quantiles of line lengths by kind of line, 46 % stderr
lines, 35 % of calls failed, 1.08 content blocks a result, one line in 50 odd. The `small` shape has
many short messages (median about 590 bytes, mean 1.2 kB), of which 5 % are errors: it shows the
cost per message, not per byte.
"""

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

Quantiles = tuple[tuple[float, int], ...]
"""Quantiles of line lengths: shares of the lines, and lengths."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """The distribution of the lines of an archive."""

    results: Quantiles
    arguments: Quantiles
    error_share: float
    stderr_a_call: float
    odd_share: float
    calls_a_session: int


SHAPES: Final = {
    "traffic": Shape(
        results=(
            *((0, 60), (0.25, 100), (0.5, 200), (0.75, 420), (0.9, 1780), (0.95, 5050)),
            *((0.99, 40_000), (0.998, 1_200_000), (1, 4_000_000)),
        ),
        arguments=(
            *((0, 10), (0.25, 40), (0.5, 70), (0.75, 130), (0.9, 300), (0.95, 390)),
            *((0.99, 3300), (0.999, 70_000), (1, 1_000_000)),
        ),
        error_share=0.35,
        stderr_a_call=2.7,
        odd_share=0.02,
        calls_a_session=45,
    ),
    "small": Shape(
        results=((0, 100), (0.5, 500), (0.9, 3800), (0.99, 12_000), (1, 60_000)),
        arguments=((0, 20), (0.5, 120), (0.9, 700), (1, 2000)),
        error_share=0.05,
        stderr_a_call=0.05,
        odd_share=0.0001,
        calls_a_session=200,
    ),
}

_VOCABULARY: Final = (
    "report index file customer order invoice path value status ready queue branch commit table "
    "page window search result total amount price delta naïve Zürich größe 東京 first second"
)
_WORDS: Final = _VOCABULARY.split()
_ERRORS: Final = (
    "File not found: /srv/data/{w}.txt",
    "Invalid value for parameter '{w}': expected a number",
    "{w} is required",
    "Error: connect ECONNREFUSED 127.0.0.1:{n}",
    "Traceback (most recent call last):\n  File \"server.py\", line {n}, in call\nKeyError: '{w}'",
    "rate limit exceeded, try again in {n} seconds",
    "User {n} does not exist",
    "Permission denied: {w}",
    "Unknown tool: {w}",
)
_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def generate(folder: Path, *, size: int, shape: str = "traffic", seed: int = 1) -> list[Path]:
    """Transcripts of about `size` bytes in `folder`, in files of about 4 MB."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    written, number = 0, 0
    while written < size:
        path = folder / f"{len(files):06d}.jsonl"
        with path.open("wb") as file:
            while file.tell() < 4 << 20 and written + file.tell() < size:
                for line in _recording(chance, SHAPES[shape], number):
                    file.write(line)
                number += 1
            written += file.tell()
        files.append(path)
    return files


def _recording(chance: random.Random, shape: Shape, number: int) -> Iterator[bytes]:
    """The lines of one recording of a stdio server."""
    name = f"{chance.getrandbits(128):032x}"
    server = f"server-{number % 30}"
    clock = 1_795_000_000_000_000_000 + number * 60_000_000_000
    seq = 0

    def line(event: str, **members: object) -> bytes:
        nonlocal seq, clock
        clock += chance.randrange(100_000, 20_000_000)
        head = {"v": 1, "event": event, "recording": name, "seq": seq, "ts_ns": clock}
        seq += 1
        text = json.dumps(head | members, separators=(",", ":"), ensure_ascii=False)
        return text.encode() + b"\n"

    def message(direction: str, **members: object) -> bytes:
        size = len(json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode())
        return line("message", dir=direction, scope=None, bytes=size, msg=members)

    yield line(
        "open", transport="stdio", server=server, command=[server], recorder="made", segment=0
    )
    revision = chance.choice(_REVISIONS)
    info = {"name": server, "version": "1.0"}
    asked = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
    yield message("c2s", jsonrpc="2.0", id=0, method="initialize", params=asked)
    given = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}
    yield message("s2c", jsonrpc="2.0", id=0, result=given)
    yield message("c2s", jsonrpc="2.0", method="notifications/initialized")
    yield message("c2s", jsonrpc="2.0", id=1, method="tools/list", params={})
    tools = [_tool(place, number % 30) for place in range(8 + number % 9)]
    yield message("s2c", jsonrpc="2.0", id=1, result={"tools": tools})
    for call in range(2, 2 + shape.calls_a_session):
        for _ in range(int(shape.stderr_a_call + chance.random())):
            yield line("stderr", text=_text(chance, chance.randrange(40, 160)))
        tool = chance.choice(tools)
        arguments = {"path": f"/srv/{chance.choice(_WORDS)}", "limit": chance.randrange(100)}
        if chance.random() < 0.1:
            arguments["limit"] = "many"
        arguments["query"] = _text(chance, _size(chance, shape.arguments))
        params = {"name": tool["name"], "arguments": arguments}
        yield message("c2s", jsonrpc="2.0", id=call, method="tools/call", params=params)
        if chance.random() < 0.01:
            continue
        reply: dict[str, object] = {"jsonrpc": "2.0", "id": call}
        if chance.random() < shape.odd_share:
            odd = chance.choice([{"result": []}, {"result": {"content": "x"}}, {"method": 5}])
            yield message("s2c", **(reply | odd))
        elif chance.random() < shape.error_share:
            said = chance.choice(_ERRORS).format(w=chance.choice(_WORDS), n=chance.randrange(9999))
            if chance.random() < 0.25:
                yield message("s2c", **reply, error={"code": -32602, "message": said})
            else:
                block = {"type": "text", "text": said}
                yield message("s2c", **reply, result={"content": [block], "isError": True})
        else:
            yield message("s2c", **reply, result=_result(chance, _size(chance, shape.results)))
    yield line("close", reason="stdin-eof", exit_code=0, signal=None)


def _tool(place: int, server: int) -> dict[str, object]:
    properties = {
        "path": {"type": "string", "description": f"Where to look, {server}"},
        "limit": {"type": "integer", "minimum": 0},
        "query": {"type": "string"},
    }
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    return {"name": f"tool_{place}", "description": "Finds things. " * 8, "inputSchema": schema}


def _result(chance: random.Random, size: int) -> dict[str, object]:
    if chance.random() < 0.3:
        rows = [{"id": i, "name": chance.choice(_WORDS), "ok": True} for i in range(1 + size // 45)]
        text = json.dumps(rows, indent=1 if chance.random() < 0.3 else None)
    else:
        text = _text(chance, size)
    blocks = [{"type": "text", "text": text}]
    if chance.random() < 0.08:
        blocks.append({"type": "text", "text": "done"})
    result: dict[str, object] = {"content": blocks}
    if chance.random() < 0.15:
        result["structuredContent"] = {"result": text[:2000]}
    return result


def _text(chance: random.Random, size: int) -> str:
    """Return words with line ends and quotes between them; long texts repeat a random part."""
    words = [chance.choice(_WORDS) for _ in range(min(size, 20_000) // 7 + 1)]
    for place in range(9, len(words), 12):
        words[place] = chance.choice(['"quoted"', "line\n", "tab\t", "C:\\temp"])
    text = " ".join(words)
    return (text * (size // len(text) + 1))[:size]


def _size(chance: random.Random, quantiles: Quantiles) -> int:
    """Draw a length by linear interpolation between the quantiles on a logarithmic scale."""
    share = chance.random()
    for (low, small), (high, large) in itertools.pairwise(quantiles):
        if share <= high:
            part = (share - low) / (high - low)
            return round(math.exp(math.log(small) * (1 - part) + math.log(large) * part))
    return quantiles[-1][1]


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
