"""Records the fleet: every feature of the protocol, on several SDKs, transports and revisions.

    python -m tests.fleet.record [NAME…]      `none` writes the truth alone

Runs each client directly, through the recorder, and against `mcptally mock` of the recording, and
prints where the client got different results. Writes tests/fleet/transcripts/NAME.jsonl.zst and the
truth about all calls, truth.json. It needs environments that hold the SDKs: FLEET_SDK (folder of
@modelcontextprotocol/sdk 1.x), FLEET_SDK_2 (folder of @modelcontextprotocol/server, client and node
2.x, without the name of the scope), FLEET_PYTHON_1 (a Python with mcp 1.x) and FLEET_FASTMCP (one
with fastmcp); a row whose environment is missing is left out.
"""

import contextlib
import difflib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import zstandard

FOLDER: Final = Path(__file__).parent
TRANSCRIPTS: Final = FOLDER / "transcripts"
TRUTH: Final = FOLDER / "truth.json"
SERVERS: Final = FOLDER / "servers"

OK: Final = ("ok", None, None)
CRASH: Final = ("tool_error", "tool_failure", "tool")
MASKED: Final = ("tool_error", "ambiguous", None)
"""A crash whose cause is only in the server's own log, because the Python SDK 2.x hides it."""

REFUSAL: Final = ("tool_error", "business", "caller")
TIMEOUT: Final = ("timeout", "infrastructure", None)
CANCELLED: Final = ("cancelled", None, None)
UNKNOWN_END: Final = ("task", None, None)
OLD_API: Final = ("tool_error", "tool_failure", "tool")

Step = tuple[list[Any], tuple[str, str | None, str | None] | None]
"""A client's step, and the true outcome, verdict and fault of its call; None: no tool call."""

CALLS: Final[list[Step]] = [
    (["call", "work", {"count": 1}], OK),
    (["call", "crash", {"count": 1}], CRASH),
    (["call", "refuse", {"count": 0}], REFUSAL),
    (["report"], OK),
    (["call", "weather", {"city": "Oslo"}], OK),
    (["read", "note://1"], None),
    (["prompt"], None),
]
ASKS: Final[list[Step]] = [
    (["elicit", "accept", "ask"], OK),
    (["elicit", "decline", "ask"], OK),
    (["elicit", "cancel", "ask"], OK),
]
MORE: Final[list[Step]] = [
    (["elicit", "accept", "sign_in"], OK),
    (["call", "summarise", {}], OK),
    (["call", "link", {}], OK),
    (["complete"], None),
]
GIVING_UP: Final[list[Step]] = [
    (["timeout", "hang", 1.0], TIMEOUT),
    (["cancel", "hang", 0.33], CANCELLED),
]
TASKS: Final[list[Step]] = [
    (["task", "task_work", {"count": 2}, "get"], OK),
    (["task", "task_crash", {"count": 2}, "get"], CRASH),
    (["task", "task_refuse", {"count": 0}, "get"], REFUSAL),
    (
        ["task", "task_reject", {"count": 2}, "get"],
        ("protocol_error", "infrastructure", None),
    ),
    (["task", "task_ask", {}, "get"], OK),
    (["task", "task_hang", {}, "cancel"], CANCELLED),
    (["task", "task_hang", {}, "none"], UNKNOWN_END),
]
OLD_TASKS: Final[list[Step]] = [
    (["task", "task_work", {"count": 2}, "result"], OK),
    (["task", "task_crash", {"count": 2}, "result"], CRASH),
    (["task", "task_refuse", {"count": 0}, "result"], REFUSAL),
    (["task", "task_work", {"count": 2}, "get"], OK),
    (["task", "task_hang", {"count": 1}, "cancel"], CANCELLED),
    (["task", "task_hang", {"count": 1}, "none"], UNKNOWN_END),
]
OLD_GIVING_UP: Final[list[Step]] = [
    (["timeout", "hang"], TIMEOUT),
    (["cancel", "hang"], CANCELLED),
]
LISTEN: Final[list[Step]] = [(["listen"], OK)]
SUBSCRIBE: Final[list[Step]] = [(["subscribe"], OK), (["templates"], None)]
REMOVED_API: Final[list[Step]] = [(["elicit", "accept", "ask"], OLD_API)]
REJECTED: Final[list[Step]] = [
    (["call", "reject", {"count": 0}], ("tool_error", "infrastructure", None)),
    (["call", "work", {"count": "x"}], REFUSAL),
    (["call", "nothing", {}], ("protocol_error", "business", "caller")),
]
RESUMED: Final[list[Step]] = [(["call", "polled", {}], OK)]

PYTHON_2: Final = [sys.executable, str(SERVERS / "python_2.py")]
PYTHON_2_CLIENT: Final = [sys.executable, str(SERVERS / "python_2_client.py")]
PYTHON_1: Final = [os.environ.get("FLEET_PYTHON_1", ""), str(SERVERS / "fastmcp_server.py"), "sdk"]
PYTHON_1_CLIENT: Final = [PYTHON_1[0], str(SERVERS / "python_1_client.py")]
FASTMCP: Final = [os.environ.get("FLEET_FASTMCP", ""), str(SERVERS / "fastmcp_server.py"), "own"]
NODE: Final = "node" if "FLEET_SDK" in os.environ else ""
TYPESCRIPT_1: Final = [NODE, str(SERVERS / "typescript_1.mjs")]
TYPESCRIPT_1_CLIENT: Final = [NODE, str(SERVERS / "typescript_1_client.mjs")]
TYPESCRIPT_2: Final = [
    "node" if "FLEET_SDK_2" in os.environ else "",
    str(SERVERS / "typescript_2.mjs"),
]
TYPESCRIPT_2_CLIENT: Final = [TYPESCRIPT_2[0], str(SERVERS / "typescript_2_client.mjs")]

PYTHON_STEPS: Final = [*CALLS, *ASKS, *MORE, *GIVING_UP]
PYTHON_HTTP_STEPS: Final = [
    (step, MASKED if true == CRASH else true) for step, true in [*PYTHON_STEPS, *TASKS, *LISTEN]
]
TYPESCRIPT_STEPS: Final = [*CALLS, *ASKS, *MORE, *OLD_GIVING_UP, *OLD_TASKS]
TYPESCRIPT_2_STEPS: Final = [*CALLS, *ASKS, *MORE, *REJECTED, *GIVING_UP]
MODERN_STEPS: Final = [*TYPESCRIPT_2_STEPS, *LISTEN, (["elicit", "accept", "old_ask"], OLD_API)]
LEGACY_STEPS: Final = [*TYPESCRIPT_2_STEPS, *SUBSCRIBE, *RESUMED]
FLEET: Final[dict[str, tuple[list[str], list[str], str, list[Step]]]] = {
    "python-2-stdio": (
        PYTHON_2,
        [*PYTHON_2_CLIENT, "auto"],
        "stdio",
        [*PYTHON_STEPS, *TASKS, *LISTEN],
    ),
    "python-2-stdio-2025": (PYTHON_2, [*PYTHON_2_CLIENT, "legacy"], "stdio", PYTHON_STEPS),
    "python-2-http": (PYTHON_2, [*PYTHON_2_CLIENT, "auto"], "http", PYTHON_HTTP_STEPS),
    "python-2-http-2025": (
        PYTHON_2,
        [*PYTHON_2_CLIENT, "legacy"],
        "http",
        PYTHON_HTTP_STEPS[: len(PYTHON_STEPS)],
    ),
    "python-1-stdio": (PYTHON_1, PYTHON_1_CLIENT, "stdio", [*CALLS, *ASKS]),
    "python-1-http": (PYTHON_1, PYTHON_1_CLIENT, "http", [*CALLS, *ASKS]),
    "fastmcp-stdio": (FASTMCP, [*PYTHON_2_CLIENT, "auto"], "stdio", [*CALLS, *REMOVED_API]),
    "fastmcp-http-2025": (
        FASTMCP,
        [*PYTHON_2_CLIENT, "legacy"],
        "http",
        [*CALLS, *ASKS, *GIVING_UP],
    ),
    "typescript-1-stdio": (TYPESCRIPT_1, TYPESCRIPT_1_CLIENT, "stdio", TYPESCRIPT_STEPS),
    "typescript-1-http": (TYPESCRIPT_1, TYPESCRIPT_1_CLIENT, "http", TYPESCRIPT_STEPS),
    "typescript-2-stdio": (TYPESCRIPT_2, [*TYPESCRIPT_2_CLIENT, "auto"], "stdio", MODERN_STEPS),
    "typescript-2-http": (TYPESCRIPT_2, [*TYPESCRIPT_2_CLIENT, "auto"], "http", MODERN_STEPS),
    "typescript-2-stdio-2025": (
        TYPESCRIPT_2,
        [*TYPESCRIPT_2_CLIENT, "legacy"],
        "stdio",
        LEGACY_STEPS,
    ),
    "typescript-2-http-2025": (
        TYPESCRIPT_2,
        [*TYPESCRIPT_2_CLIENT, "legacy"],
        "http",
        LEGACY_STEPS,
    ),
}
"""Name → server, client, transport and steps."""

MOCK: Final = [sys.executable, "-m", "mcptally", "mock"]
RECORD: Final = [sys.executable, "-m", "mcptally", "record", "--out"]


CHANGING: Final = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|task-\d+", "ID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z?|datetime\([^)]*\)", "TIME"),
)
"""Patterns for text that differs between two runs of a client, and its replacements."""


def record(name: str, folder: Path) -> list[str]:
    """Record a row of the fleet in a folder, and return what the client printed, step by step."""
    server, client, transport, steps = FLEET[name]
    recorder = [*RECORD, str(folder), "--name", name]
    if transport == "stdio":
        return _printed(client, steps, [*recorder, "--", *server])
    own, shown = _free_port(), _free_port()
    where = ["--url", f"http://127.0.0.1:{own}", "--listen", f"127.0.0.1:{shown}"]
    with _running([*server, str(own)], own), _running([*recorder, *where], shown):
        return _printed(client, steps, [f"http://127.0.0.1:{shown}/mcp"])


def run_directly(name: str) -> list[str]:
    """Run the client of a row without the recorder, and return what it printed, step by step."""
    server, client, transport, steps = FLEET[name]
    if transport == "stdio":
        return _printed(client, steps, server)
    port = _free_port()
    with _running([*server, str(port)], port):
        return _printed(client, steps, [f"http://127.0.0.1:{port}/mcp"])


def run_with_mock(name: str) -> list[str]:
    """Run the client of a row with `mcptally mock` of its transcript; return what it printed."""
    _, client, transport, steps = FLEET[name]
    mock = [*MOCK, str(TRANSCRIPTS / f"{name}.jsonl.zst")]
    if transport == "stdio":
        return _printed(client, steps, mock)
    port = _free_port()
    with _running([*mock, "--listen", f"127.0.0.1:{port}"], port):
        return _printed(client, steps, [f"http://127.0.0.1:{port}/mcp"])


def _printed(client: list[str], steps: list[Step], where: list[str]) -> list[str]:
    run = [*client, json.dumps([step for step, _ in steps]), *where]
    said = subprocess.run(run, check=True, timeout=120, stdout=subprocess.PIPE, text=True).stdout
    for pattern, replacement in CHANGING:
        said = re.sub(pattern, replacement, said)
    return said.splitlines()


def _keep(name: str, folder: Path) -> None:
    """Write the transcript in a folder to the transcripts of the fleet."""
    parts = [path.read_bytes() for path in sorted(folder.rglob("*.jsonl"))]
    TRANSCRIPTS.mkdir(exist_ok=True)
    packed = zstandard.compress(_without_paths(b"".join(parts)), 19)
    (TRANSCRIPTS / f"{name}.jsonl.zst").write_bytes(packed)


def _without_paths(transcript: bytes) -> bytes:
    """Return the transcript without paths of this machine (in `open` and in tracebacks)."""
    places = {str(FOLDER.parents[1]): "/fleet", sys.prefix: "/python", sys.base_prefix: "/python"}
    places |= {str(Path(each[0]).parents[1]): "/python" for each in (PYTHON_1, FASTMCP) if each[0]}
    places |= {os.environ.get(name, "/fleet"): "/sdk" for name in ("FLEET_SDK", "FLEET_SDK_2")}
    places |= {str(Path.home()): "/home"}
    for path, name in sorted(places.items(), key=lambda item: -len(item[0])):
        transcript = transcript.replace(path.encode(), name.encode())
    return transcript


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(300):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def main(names: list[str]) -> None:
    """Record rows of the fleet, all by default (`none`: no row), and write the truth."""
    for name in (set(names) - {"none"}) if names else FLEET:
        if FLEET[name][0][0] and FLEET[name][1][0]:
            print(name, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                recorded_lines = record(name, Path(folder))
                _keep(name, Path(folder))
            direct = run_directly(name)
            print(*difflib.unified_diff(direct, recorded_lines, "direct", "recorded"), sep="\n")
            print(*difflib.unified_diff(direct, run_with_mock(name), "direct", "mock"), sep="\n")
    recorded = sorted(path.name.removesuffix(".jsonl.zst") for path in TRANSCRIPTS.iterdir())
    truth = {name: [true for _, true in FLEET[name][3] if true] for name in recorded}
    lines = [f" {json.dumps(name)}: {json.dumps(truth[name])}" for name in recorded]
    TRUTH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
