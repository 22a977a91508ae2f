"""Copies transcripts with known changes: tools that fail more, are slower, or are renamed.

    python -m tests.analytics.change_traffic TRAFFIC OUT --fail time/convert_time=0.1 \
        --slow memory/search_nodes=2 --rename git/git_status=git_state
"""

import argparse
import io
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import zstandard

CRASH = {
    "content": [{"type": "text", "text": "TypeError: Cannot read properties of undefined"}],
    "isError": True,
}


def lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
        yield from io.BufferedReader(stream)


def changed(
    events: Iterator[bytes],
    *,
    fail: Mapping[tuple[str, str], float] | None = None,
    slow: Mapping[tuple[str, str], float] | None = None,
    rename: Mapping[tuple[str, str], str] | None = None,
    keep: Any = None,
    seed: int = 7,
) -> Iterator[bytes]:
    """Return the changed lines of one transcript; `keep(recording)` selects recordings."""
    fail, slow, rename = fail or {}, slow or {}, rename or {}
    dice = random.Random(seed)
    server: dict[str, str] = {}
    asked: dict[tuple[str, str], tuple[str, int]] = {}
    late: dict[str, int] = {}
    for line in events:
        try:
            event = json.loads(line)
            recording = event["recording"]
        except (ValueError, KeyError, TypeError):
            yield line
            continue
        if keep is not None and not keep(recording):
            continue
        if event["event"] == "open":
            server[recording] = event.get("server") or ""
        label = server.get(recording, "")
        if not any(name == label for name, _ in [*fail, *slow, *rename]):
            yield line
            continue
        msg = event.get("msg")
        if event["event"] == "message" and isinstance(msg, dict):
            _change(event, msg, label, asked, late, fail, slow, rename, dice)
        event["ts_ns"] += late.get(recording, 0)
        yield json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _change(event, msg, label, asked, late, fail, slow, rename, dice) -> None:
    recording = event["recording"]
    params = msg.get("params")
    if msg.get("method") == "tools/call" and isinstance(params, dict):
        tool = params.get("name")
        if isinstance(tool, str):
            key = (recording, json.dumps(msg.get("id")))
            asked[key] = (tool, event["ts_ns"])
            params["name"] = rename.get((label, tool), tool)
        return
    result = msg.get("result")
    if event["dir"] != "s2c" or not isinstance(result, dict):
        return
    for tool in result.get("tools") or ():
        if isinstance(tool, dict) and (label, tool.get("name")) in rename:
            tool["name"] = rename[label, tool["name"]]
    tool, at = asked.pop((recording, json.dumps(msg.get("id"))), (None, 0))
    if tool is None:
        return
    if dice.random() < fail.get((label, tool), 0):
        msg["result"] = CRASH
    # A slower call delays itself and all later events.
    extra = (slow.get((label, tool), 1) - 1) * (event["ts_ns"] - at)
    late[recording] = late.get(recording, 0) + int(extra)


def copy(source: Path, target: Path, **changes: Any) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.jsonl.zst")):
        data = b"".join(changed(lines(path), **changes))
        if data:
            (target / path.name).write_bytes(zstandard.compress(data, 1))


def _pairs(texts: list[str], kind: Any) -> dict[tuple[str, str], Any]:
    found = {}
    for text in texts:
        name, value = text.split("=")
        server, tool = name.split("/")
        found[server, tool] = kind(value)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--fail", action="append", default=[])
    parser.add_argument("--slow", action="append", default=[])
    parser.add_argument("--rename", action="append", default=[])
    given = parser.parse_args()
    copy(
        given.source,
        given.target,
        fail=_pairs(given.fail, float),
        slow=_pairs(given.slow, float),
        rename=_pairs(given.rename, str),
    )
