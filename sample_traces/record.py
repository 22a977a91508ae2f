"""Record the traces in this folder again: real servers, real clients, our recorder.

    python sample_traces/record.py                all of them
    python sample_traces/record.py git time       these

Needs mcptally installed in this Python, Python 3.11+ with venv, git, and npm for the servers from
npm. Servers are installed at the versions below into FOLDER/servers (`--folder`, /srv/demo unless
told: what is recorded shows this folder and nothing else of the machine). What the clients ask is
in plans.py. The traces differ from those here in times, ids and the order of concurrent answers.
"""
# ruff: noqa: INP001, T201 - a script: it belongs to no package, and tells how far it is

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import anyio
import plans
import zstandard
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    Implementation,
    ListRootsResult,
    Root,
    TextContent,
)

HERE: Final = Path(__file__).resolve().parent
NPM_CLIENTS: Final = (
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/inspector@2.12.0",
)
SESSION_SECONDS: Final = 60
START_SECONDS: Final = 30
SERVER_PORT: Final = 8931
RECORDER_PORT: Final = 8932


Behind = list[str] | str
"""Where a client finds the server: the recorder's command line, or the recorder's URL."""


@dataclass(frozen=True)
class Trace:
    """One file here: a server, how it is started, who drives it, in how many sessions."""

    packages: tuple[str, ...]
    registry: str
    """`pypi` or `npm`."""
    command: tuple[str, ...]
    """The program, without its folder, and arguments; `{cwd}` is the session's folder."""
    sessions: int
    client: str = "python"
    """`python` (mode auto), `python-legacy`, `typescript` or `inspector`."""
    probes: tuple[int, ...] = ()
    """Sessions in which a legacy client tries the stateless revision first all the same."""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    last_env: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environment of the last session only."""
    http: bool = False
    """The server listens at SERVER_PORT, path /mcp; all sessions go to one process."""
    plain: bool = False
    """Leave the file uncompressed, for people to look at."""


TRACES: Final = {
    "git": Trace(("mcp-server-git==2026.10.19",), "pypi", ("mcp-server-git",), 12),
    "time": Trace(
        ("mcp-server-time==2025.8.4", "mcp==1.12.4", "pydantic==2.11.7"),
        "pypi",
        ("mcp-server-time", "--local-timezone", "UTC"),
        12,
        client="python-legacy",
        plain=True,
    ),
    "sqlite": Trace(
        ("mcp-server-sqlite==2025.4.25", "mcp==1.6.0", "pydantic==2.11.7"),
        "pypi",
        ("mcp-server-sqlite", "--db-path", "{cwd}/shop.db"),
        12,
        client="python-legacy",
        probes=(7,),
    ),
    "everything": Trace(
        ("@modelcontextprotocol/server-everything@2026.8.31",), "npm", ("mcp-server-everything",), 6
    ),
    "everything-tasks": Trace(
        ("@modelcontextprotocol/server-everything@2026.8.31",),
        "npm",
        ("mcp-server-everything",),
        3,
        client="typescript",
    ),
    "filesystem": Trace(
        ("@modelcontextprotocol/server-filesystem@2026.8.31",),
        "npm",
        ("mcp-server-filesystem", "{cwd}/files"),
        12,
        client="typescript",
        last_env={"NODE_OPTIONS": "--max-old-space-size=24"},
    ),
    "commands": Trace(("mcp-server-commands@0.5.0",), "npm", ("mcp-server-commands",), 6),
    "excel": Trace(("@negokaz/excel-mcp-server@0.12.0",), "npm", ("excel-mcp-server",), 6),
    "memory": Trace(
        ("@modelcontextprotocol/server-memory@2026.8.31",),
        "npm",
        ("mcp-server-memory",),
        8,
        client="inspector",
        env={"MEMORY_FILE_PATH": "{work}/memory.jsonl"},
    ),
    "everything-http": Trace(
        ("@modelcontextprotocol/server-everything@2026.8.31",),
        "npm",
        ("mcp-server-everything", "streamableHttp"),
        3,
        env={"PORT": str(SERVER_PORT)},
        http=True,
    ),
    "excel-http": Trace(
        ("excel-mcp-server==2.2.2",),
        "pypi",
        ("excel-mcp-server", "streamable-http", "--port", str(SERVER_PORT)),
        6,
        env={"EXCEL_FILES_PATH": "{work}"},
        http=True,
    ),
}


class Demo:
    """The neutral folder: servers, work, recordings."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self._python = python
        self._home = folder / "home"
        self._home.mkdir(parents=True, exist_ok=True)

    @property
    def env(self) -> dict[str, str]:
        """What clients, recorder and servers get: nothing of this machine's own settings."""
        return {
            "HOME": str(self._home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "USER": "demo",
            "LOGNAME": "demo",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @property
    def node(self) -> Path:
        """Where everything from npm is installed."""
        return self.folder / "servers" / "node"

    def install(self, name: str, trace: Trace) -> Path:
        """Install the trace's server; the folder its program is in."""
        if trace.registry == "npm":
            self._npm(trace.packages)
            return self.node / "node_modules" / ".bin"
        venv = self.folder / "servers" / name
        if not (venv / "bin" / trace.command[0]).exists():
            subprocess.run([self._python, "-m", "venv", str(venv)], check=True)
            pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, "--disable-pip-version-check", *trace.packages], check=True)
        return venv / "bin"

    def install_clients(self) -> None:
        """Install the clients that are not Python's."""
        self._npm(NPM_CLIENTS)
        shutil.copy(HERE / "client.mjs", self.node)

    def _npm(self, packages: tuple[str, ...]) -> None:
        self.node.mkdir(parents=True, exist_ok=True)
        manifest = self.node / "package.json"
        if not manifest.exists():
            manifest.write_text('{"private": true}')
        have = json.loads(manifest.read_text()).get("dependencies", {})
        wanted = dict(package.rsplit("@", 1) for package in packages)
        if wanted.items() <= have.items():
            return
        # Install scripts fetch browsers and binaries that nothing here needs.
        npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"]
        subprocess.run([*npm, "--loglevel=error", *packages], check=True, cwd=self.node)


def record(demo: Demo, name: str, trace: Trace) -> None:
    """Record all sessions of a trace and join them to one file beside this one."""
    programs = demo.install(name, trace)
    if trace.client in {"typescript", "inspector"}:
        demo.install_clients()
    work = demo.folder / "work" / name
    out = demo.folder / "traces" / name
    for folder in (work, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    recorder = [sys.executable, "-m", "mcptally", "record", "--no-compress", "--redact", "none"]
    recorder += ["--out", str(out), "--name", name]
    program, *arguments = trace.command
    command = [str(programs / program), *arguments]
    env = {key: value.format(work=work) for key, value in trace.env.items()}
    with contextlib.ExitStack() as running:
        if trace.http:
            at = f"http://127.0.0.1:{SERVER_PORT}/mcp"
            listen = f"127.0.0.1:{RECORDER_PORT}"
            running.enter_context(_server(command, {**demo.env, **env}, SERVER_PORT, work))
            listening = [*recorder, "--url", at, "--listen", listen]
            running.enter_context(_server(listening, demo.env, RECORDER_PORT, work))
        for number in range(1, trace.sessions + 1):
            cwd = work / f"{number:02}"
            cwd.mkdir()
            dice = random.Random(f"{name} {number}")  # noqa: S311 - to repeat, not to hide
            steps = plans.PLANS[name](plans.Session(cwd, number, dice))
            last = trace.last_env if number == trace.sessions else {}
            client = "python" if number in trace.probes else trace.client
            behind = [*recorder, "--", *[word.format(cwd=cwd) for word in command]]
            to = f"http://127.0.0.1:{RECORDER_PORT}/mcp" if trace.http else behind
            print(f"{name} {number}/{trace.sessions}: {len(steps)} steps", file=sys.stderr)
            CLIENTS[client](demo, to, cwd, {**env, **last}, steps)
    join(out, HERE / f"{name}.jsonl", plain=trace.plain)


@contextlib.contextmanager
def _server(command: list[str], env: dict[str, str], port: int, cwd: Path) -> Iterator[None]:
    """A process that listens at `port` of the loopback, until the block ends."""
    process = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"record.py: {command[0]} does not listen at port {port}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def join(recordings: Path, to: Path, *, plain: bool) -> None:
    """Write all recordings, oldest first, to one file (with `.zst` unless plain)."""
    whole = b"".join(path.read_bytes() for path in sorted(recordings.glob("*.jsonl")))
    if not whole:
        raise SystemExit(f"record.py: the recorder wrote nothing into {recordings}")
    packed = to.with_name(to.name + ".zst")
    to.unlink(missing_ok=True)
    packed.unlink(missing_ok=True)
    if plain:
        to.write_bytes(whole)
    else:
        packed.write_bytes(zstandard.compress(whole, 19))


def python(
    demo: Demo,
    to: Behind,
    cwd: Path,
    env: dict[str, str],
    steps: list[plans.Step],
    *,
    mode: str,
) -> None:
    """Drive the server with the Python SDK's client."""

    def transport(nowhere: TextIO) -> Transport:
        if isinstance(to, str):
            return streamable_http_client(to)
        server = StdioServerParameters(command=to[0], args=to[1:], env={**demo.env, **env}, cwd=cwd)
        return stdio_client(server, errlog=nowhere)

    async def run(nowhere: TextIO) -> None:
        client = Client(
            transport(nowhere),
            mode=mode,
            client_info=Implementation(name="demo-python", version="1.0.0"),
            sampling_callback=_sample,
            elicitation_callback=_elicit,
            list_roots_callback=_roots,
        )
        async with client:
            await _walk(client, steps)

    try:
        with Path(os.devnull).open("w") as nowhere:
            asyncio.run(asyncio.wait_for(run(nowhere), SESSION_SECONDS))
    except* (MCPError, TimeoutError, OSError, anyio.ClosedResourceError) as ended:
        print(f"  ended by {ended.exceptions[0]!r:.200}", file=sys.stderr)


async def _walk(client: Client, steps: list[plans.Step]) -> None:
    async with anyio.create_task_group() as group:
        for step in steps:
            if step.together:
                group.start_soon(_take, client, step)
                # One turn of the loop, so that requests go out in the order of the plan.
                await anyio.lowlevel.checkpoint()
            else:
                await _take(client, step)


async def _take(client: Client, step: plans.Step) -> None:
    ways: dict[str, Callable[[], Any]] = {
        "tools/list": client.list_tools,
        "resources/list": client.list_resources,
        "prompts/list": client.list_prompts,
        "resources/read": partial(client.read_resource, step.name),
        "prompts/get": partial(client.get_prompt, step.name, step.arguments),
        "tools/call": partial(
            client.call_tool,
            step.name,
            step.arguments,
            read_timeout_seconds=step.timeout,
            progress_callback=_heard,
        ),
    }
    try:
        with anyio.move_on_after(step.cancel_after):
            await ways[step.method]()
    except (MCPError, RuntimeError, ValueError) as error:
        # The wire is what is recorded; here an error only means: go on with the next step.
        print(f"  {step.name}: {error!s:.120}", file=sys.stderr)


async def _heard(_done: float, _total: float | None, _message: str | None) -> None:
    """Progress is wanted on the wire; nothing here shows it."""


async def _sample(_context: Any, _params: Any) -> CreateMessageResult:
    content = TextContent(type="text", text="Aurora")
    return CreateMessageResult(role="assistant", content=content, model="demo-model")


async def _elicit(_context: Any, _params: Any) -> ElicitResult:
    return ElicitResult(action="decline")


async def _roots(_context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri="file:///srv/demo/work", name="work")])


def typescript(
    demo: Demo, to: Behind, cwd: Path, env: dict[str, str], steps: list[plans.Step]
) -> None:
    """Drive the server with the TypeScript SDK's client."""
    told = {
        "command": to[0],
        "args": to[1:],
        "cwd": str(cwd),
        "env": {**demo.env, **env},
        "steps": [dataclasses.asdict(step) for step in steps],
    }
    _run(["node", "client.mjs", json.dumps(told)], demo.env, demo.node)


def inspector(
    demo: Demo, to: Behind, cwd: Path, env: dict[str, str], steps: list[plans.Step]
) -> None:
    """Ask the server with the Inspector's command line: a session for every question."""
    for step in steps:
        asked = ["--method", step.method]
        if step.method == "tools/call":
            pairs = [f"{key}={json.dumps(value)}" for key, value in step.arguments.items()]
            asked += ["--tool-name", step.name, *(["--tool-arg", *pairs] if pairs else [])]
        config = {"command": to[0], "args": to[1:], "env": {**demo.env, **env}}
        file = cwd / "inspector.json"
        file.write_text(json.dumps({"mcpServers": {"demo": config}}))
        program = str(demo.node / "node_modules" / ".bin" / "inspector")
        _run([program, "--cli", "--config", str(file), "--server", "demo", *asked], demo.env, cwd)


def _run(command: list[str], env: dict[str, str], cwd: Path) -> None:
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, timeout=SESSION_SECONDS, check=False, capture_output=True
        )
    except subprocess.TimeoutExpired:
        print(f"  no end within {SESSION_SECONDS} s", file=sys.stderr)
        return
    for line in done.stderr.decode(errors="replace").splitlines():
        print(f"  {line:.120}", file=sys.stderr)


CLIENTS: Final[dict[str, Callable[[Demo, Behind, Path, dict[str, str], list[plans.Step]], None]]]
CLIENTS = {
    "python": partial(python, mode="auto"),
    "python-legacy": partial(python, mode="legacy"),
    "typescript": typescript,
    "inspector": inspector,
}


def main() -> None:
    """Record what the command line names, or everything."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TRACES)}")
    words.add_argument("--folder", type=Path, default=Path("/srv/demo"))
    system = Path("/usr/bin/python3")
    words.add_argument("--python", default=str(system) if system.exists() else sys.executable)
    told = words.parse_args()
    if unknown := set(told.names) - set(TRACES):
        words.error(f"no such trace: {', '.join(sorted(unknown))}; there are {', '.join(TRACES)}")
    demo = Demo(told.folder, told.python)
    for name in told.names or TRACES:
        record(demo, name, TRACES[name])


if __name__ == "__main__":
    main()
