"""Record the servers with injected faults and label each call with its true cause.

    python -m tests.truth                         all of them
    python -m tests.truth orders-fastmcp          this one, keeping the labels of the others

Needs mcptally and its test tools installed in this Python, npm, Perl, Java 17, bash, curl, jq and
sqlite3. SDKs are installed at the versions below into FOLDER (`--folder`, /srv/truth): the
recordings show this folder and nothing else of the machine. Recordings differ from those here in
times, ids and port numbers.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import zstandard
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport

from tests.truth import upstream

HERE: Final = Path(__file__).resolve().parent
SERVERS: Final = HERE / "servers"
LABELS: Final = HERE / "labels.jsonl"
RECORDINGS: Final = HERE / "recordings"

LIBRARIES: Final = ("httpx==0.28.1", "pg8000", "pymysql", "redis", "requests")
PYTHON_SDKS: Final = {
    "mcp2": ("mcp==2.3.0", *LIBRARIES),
    "mcp1": ("mcp==1.30.0", *LIBRARIES),
    "fastmcp": ("fastmcp==4.1.2", *LIBRARIES),
    "rich": ("mcp[cli]==2.3.0", *LIBRARIES),
}
ENVIRONMENTS: Final = {
    "plain": "mcp1",
    "lowlevel": "mcp2",
    "lowlevel1": "mcp1",
    "masked": "fastmcp",
}
"""Environment in which a server is run, where it is not named like the SDK."""
NPM_PACKAGES: Final = (
    "@modelcontextprotocol/sdk@1.32.2",
    "fastmcp@4.20.16",
    "zod@4.6.7",
    "axios",
    "ioredis",
    "pg",
)
CAUSES: Final = {
    "crash": ("tool_failure", "exception_bug"),
    "misconfig": ("tool_failure", "misconfig_or_missing_dependency"),
    "internal": ("tool_failure", "internal_error"),
    "network": ("infrastructure", "network"),
    "timeout": ("infrastructure", "timeout_or_cancel"),
    "upstream": ("infrastructure", "upstream_5xx_or_malformed"),
    "down": ("infrastructure", "dependency_down"),
    "validation": ("business", "validation"),
    "not_found": ("business", "not_found"),
    "permission": ("business", "permission_policy"),
    "auth": ("business", "auth_rejected"),
    "quota": ("business", "rate_or_quota"),
    "state": ("business", "precondition_state"),
    "payload": ("business", "user_payload_error"),
    "conflict": ("business", "conflict"),
    "unsupported": ("business", "unsupported_or_disabled"),
    "unknown": ("business", "unknown_tool"),
}
"""Cause that a server declares → `verdict` and `reason` of the label."""
MAX_TEXT: Final = 400
"""Characters of a reply's text in its label; the recording has all of it."""


@dataclass(frozen=True)
class Server:
    """One recording: the tools of a module in `servers/`, served with one SDK."""

    module: str
    sdk: str
    part: str
    """`read`: its mistakes may be looked at to improve rules. `held`: they are only counted."""
    script: str = ""
    """File in `servers/` that serves itself; without it, serve.py or serve.mjs serves `module`."""

    @property
    def name(self) -> str:
        return f"{self.module}-{self.sdk}"

    def commands(self, folder: Path) -> tuple[list[str], list[str]]:
        """Return the commands that serve and that print the planned calls."""
        is_python = (SERVERS / f"{self.module}.py").exists()
        script = self.script or ("serve.py" if is_python else "serve.mjs")
        python = folder / ENVIRONMENTS.get(self.sdk, self.sdk) / "bin" / "python"
        interpreter = {
            ".py": str(python),
            ".mjs": "node",
            ".pl": "perl",
            ".java": "java",
            ".sh": "bash",
        }
        start = [interpreter[Path(script).suffix], str(folder / "servers" / script)]
        if self.script:
            return [*start, self.sdk], [*start, self.sdk, "--plan"]
        return [*start, self.sdk, self.module], [*start, "--plan", self.module]


ALL: Final = (
    Server("orders", "fastmcp", "read"),
    Server("orders", "mcp2", "read"),
    Server("orders", "plain", "read"),
    Server("library", "mcp1", "read"),
    Server("library", "mcp2", "read"),
    Server("library", "fastmcp", "read"),
    Server("studio", "typescript", "read"),
    Server("studio", "plain", "read"),
    Server("fleet", "typescript", "read"),
    Server("fleet", "fastmcp", "read"),
    Server("hotel", "mcp1", "read", "hotel.py"),
    Server("hotel", "mcp2", "read", "hotel.py"),
    Server("hotel", "rich", "read", "hotel.py"),
    Server("invoices", "mcp1", "held", "invoices.py"),
    Server("invoices", "mcp2", "held", "invoices.py"),
    Server("invoices", "rich", "held", "invoices.py"),
    Server("sensors", "fastmcp", "read", "sensors.py"),
    Server("sensors", "masked", "read", "sensors.py"),
    Server("recipes", "fastmcp", "held", "recipes.py"),
    Server("recipes", "masked", "held", "recipes.py"),
    Server("geodata", "lowlevel", "held", "geodata.py"),
    Server("tickets", "typescript", "held", "tickets.mjs"),
    Server("phrasebook", "typescript-server", "read", "phrasebook.mjs"),
    Server("repository", "perl", "read", "repository.pl"),
    Server("gallery", "java", "held", "Gallery.java"),
    Server("payroll", "mcp1", "held", "payroll.py"),
    Server("payroll", "mcp2", "held", "payroll.py"),
    Server("podcasts", "fastmcp", "held", "podcasts.py"),
    Server("podcasts", "masked", "held", "podcasts.py"),
    Server("laboratory", "lowlevel1", "held", "laboratory.py"),
    Server("parking", "typescript", "held", "parking.mjs"),
    Server("backups", "bash", "held", "backups.sh"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="server and SDK")
    parser.add_argument("--folder", type=Path, default=Path("/srv/truth"))
    options = parser.parse_args()
    known = {server.name: server for server in ALL}
    if unknown := set(options.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    chosen = options.names or list(known)
    install(options.folder)
    rows = [] if chosen == list(known) else _labels_except(chosen)
    for name in chosen:
        rows += record(options.folder, known[name])
    position = {name: number for number, name in enumerate(known)}
    rows.sort(key=lambda row: position[f"{row['server']}-{row['sdk']}"])
    LABELS.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )


def _labels_except(names: list[str]) -> list[dict[str, Any]]:
    rows = map(json.loads, LABELS.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if f"{row['server']}-{row['sdk']}" not in names]


def install(folder: Path) -> None:
    """Create the environments of the SDKs that `folder` lacks, and copy the servers into it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "servers", ignore_errors=True)
    shutil.copytree(SERVERS, folder / "servers", ignore=shutil.ignore_patterns("__pycache__"))
    system = Path("/usr/bin/python3")
    for sdk, packages in PYTHON_SDKS.items():
        python = folder / sdk / "bin" / "python"
        if not python.exists():
            base = str(system) if system.exists() else sys.executable
            subprocess.run([base, "-m", "venv", str(folder / sdk)], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    if not (folder / "node_modules").exists():
        (folder / "package.json").write_text('{"private": true}')
        npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run([*npm, *NPM_PACKAGES], check=True, cwd=folder)


def record(folder: Path, server: Server) -> list[dict[str, Any]]:
    """Make all calls that the server plans, keep the recording and return the labels."""
    serve, print_plan = server.commands(folder)
    work, out = folder / "work" / server.name, folder / "traces" / server.name
    for path in (work, out):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(work), "LANG": "C.UTF-8"}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    plan = json.loads(
        subprocess.run(print_plan, check=True, capture_output=True, env=env, cwd=work).stdout
    )
    recorder = [sys.executable, "-m", "mcptally", "record", "--no-compress", "--redact", "none"]
    recorder += ["--out", str(out), "--name", server.name, "--", *serve]
    with upstream.running() as settings:
        parameters = StdioServerParameters(
            command=recorder[0], args=recorder[1:], env={**env, **settings}, cwd=work
        )
        with Path(os.devnull).open("w") as nowhere:
            asyncio.run(_make_calls(stdio_client(parameters, errlog=nowhere), plan))
    transcript = b"".join(path.read_bytes() for path in sorted(out.glob("*.jsonl")))
    RECORDINGS.mkdir(exist_ok=True)
    target = RECORDINGS / f"{server.name}.jsonl.zst"
    target.write_bytes(zstandard.compress(transcript, 19))
    return list(_labelled(server, plan, transcript))


async def _make_calls(transport: Transport, plan: list[dict[str, Any]]) -> None:
    async with Client(transport) as client:
        await client.list_tools()
        for call in plan:
            # Error replies raise; the recording has them.
            with contextlib.suppress(MCPError, RuntimeError, ValueError):
                await client.call_tool(call["tool"], call["arguments"])


def _labelled(
    server: Server, plan: list[dict[str, Any]], transcript: bytes
) -> Iterator[dict[str, Any]]:
    """Yield one label per planned call whose reply has the declared outcome; print the others."""
    events = [json.loads(line) for line in transcript.splitlines()]
    messages = [event for event in events if event["event"] == "message"]
    replies = {
        json.dumps(event["msg"]["id"]): event["msg"]
        for event in messages
        if event["dir"] == "s2c" and "id" in event["msg"]
    }
    requests = [event["msg"] for event in messages if event["msg"].get("method") == "tools/call"]
    if len(requests) != len(plan):
        raise SystemExit(f"{server.name}: {len(requests)} calls recorded, {len(plan)} planned")
    for call, request in zip(plan, requests, strict=True):
        reply = replies[json.dumps(request["id"])]
        error = reply.get("error")
        result = reply.get("result", {})
        blocks = [block.get("text", "") for block in result.get("content", [])]
        text = error["message"] if error else "\n".join(blocks)
        is_error = error is not None or result.get("isError") is True
        if is_error != (call["outcome"] == "error"):
            print(f"{server.name}: {call['tool']}: expected {call['outcome']}: {text:.200}")
            continue
        verdict, reason = CAUSES[call["cause"]] if call["cause"] else ("not_error", "")
        yield {
            "recording": events[0]["recording"],
            "id": request["id"],
            "method": "tools/call",
            "part": server.part,
            "server": server.module,
            "sdk": server.sdk,
            "tool": call["tool"],
            "args": json.dumps(call["arguments"]),
            "text": text[:MAX_TEXT],
            "is_error": is_error,
            "channel": "protocol" if error else "tool",
            "code": error["code"] if error else None,
            "hidden": call["outcome"] == "hidden",
            "verdict": verdict,
            "reason": reason,
        }


if __name__ == "__main__":
    main()
