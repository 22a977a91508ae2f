"""Real servers and clients get the same results with and without the recorder."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.record.http_rig import free_port, recordings
from tests.record.recorder_process import events, of
from tests.record.test_http_process import Program

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 120.0

TOOLS = """
@server.tool
def echo(text: str) -> str:
    return text

@server.tool
def fail(text: str) -> str:
    raise ValueError(text)

@server.tool
async def steps(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step, 3)
    return "done"
"""
SDK_SERVER = f"""
import sys
from mcp.server.mcpserver import Context, MCPServer
server = MCPServer("sdk", log_level="ERROR")
{TOOLS.replace("@server.tool", "@server.tool()")}
port, kind = int(sys.argv[1]), sys.argv[2]
if kind == "sse":
    server.run("sse", port=port)
else:
    server.run("streamable-http", port=port, stateless_http="stateless" in kind,
               json_response="json" in kind)
"""
FASTMCP_SERVER = f"""
import sys
from fastmcp import Context, FastMCP
server = FastMCP("fast")
{TOOLS}
server.run("http", port=int(sys.argv[1]), show_banner=False)
"""

CLIENT = """
import asyncio, json, sys
from mcp.client import Client
from mcp.client.sse import sse_client

async def main(mode, *urls):
    print(json.dumps([await results(url, mode) for url in urls]))

async def results(url, mode):
    steps = []
    async def progress(done, total, message):
        steps.append([done, total])
    target = sse_client(url) if url.endswith("/sse") else url
    async with Client(target, mode=mode) as client:
        found = [sorted(tool.name for tool in (await client.list_tools()).tools)]
        for tool, arguments in [("echo", {"text": "h\\u2028\\u00e9"}), ("fail", {"text": "no"}),
                                ("echo", {"text": "x" * 300_000}), ("echo", {})]:
            result = await client.call_tool(tool, arguments)
            found.append(result.model_dump(mode="json", exclude={"meta"}))
        many = [client.call_tool("echo", {"text": str(n)}) for n in range(20)]
        found.append([r.content[0].text for r in await asyncio.gather(*many)])
        await client.call_tool("steps", {}, progress_callback=progress)
        found.append(steps)
    return found

asyncio.run(main(*sys.argv[1:]))
"""


SERVERS = Path(os.environ.get("MCPTALLY_SERVERS", "/nowhere"))
if not (SERVERS / "http" / "bin" / "python").exists():
    pytest.skip(
        "no servers: bash .ci/servers-http.sh FOLDER, MCPTALLY_SERVERS=FOLDER",
        allow_module_level=True,
    )


@pytest.fixture(scope="session")
def servers():
    return SERVERS


@pytest.fixture(scope="session")
def node(servers):
    if not (servers / "node22").exists() or not (servers / "http" / "node_modules").is_dir():
        pytest.skip("the npm servers and clients could not be installed")
    return str(servers / "node22")


@contextlib.contextmanager
def running(command, port, **popen):
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **popen
    )
    try:
        until = time.monotonic() + TIMEOUT_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, "the server did not start"
            time.sleep(0.05)
            assert time.monotonic() < until, "the server does not listen"
        yield
    finally:
        process.kill()
        process.wait()


def run(command, **options):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def checked_recordings(out):
    """Return the recordings, after checking that each request and its response share one."""
    records = recordings(events(out))
    for own in records:
        assert own[-1]["event"] == "close"
        asked = [json.dumps(e["msg"]["id"]) for e in of(own, "message", dir="c2s")
                 if "method" in e["msg"] and "id" in e["msg"]]  # fmt: skip
        answered = [json.dumps(e["msg"].get("id")) for e in of(own, "message", dir="s2c")
                    if "method" not in e["msg"]]  # fmt: skip
        assert sorted(asked) == sorted(answered)
        ends = [e["scope"] for e in of(own, "http", phase="end")]
        assert len(ends) == len(set(ends)) == len(of(own, "http", phase="request"))
    return records


def check_sdk_client(tmp_path, command, kind, mode, port):
    path = "/sse" if kind == "sse" else "/mcp"
    client = [sys.executable, "-c", CLIENT]
    with running(command, port), Program(tmp_path, port) as program:
        urls = [f"http://127.0.0.1:{at}{path}" for at in (port, program.port)]
        direct, recorded = json.loads(run([*client, mode, *urls]))
        program.end()
    assert recorded == direct
    assert direct[-1] == ([] if "json" in kind else [[0, 3], [1, 3], [2, 3]])
    records = checked_recordings(tmp_path)
    calls = [e for own in records for e in of(own, "message", dir="c2s")
             if e["msg"].get("method") == "tools/call"]  # fmt: skip
    assert len(calls) == 25
    return records


@pytest.mark.parametrize(
    ("kind", "mode", "recordings_expected"),
    [
        ("stateless json", "auto", {"streamable_http": 1}),
        ("sse", "legacy", {"http_sse": 1}),
    ],
)
def test_the_python_sdk_gets_the_same_results(tmp_path, kind, mode, recordings_expected):
    port = free_port()
    command = [sys.executable, "-c", SDK_SERVER, str(port), kind]
    records = check_sdk_client(tmp_path, command, kind, mode, port)
    transports = [own[0]["transport"] for own in records]
    assert {t: transports.count(t) for t in transports} == recordings_expected


@pytest.mark.server
def test_fastmcp_gets_the_same_results(tmp_path, servers):
    port = free_port()
    python = str(servers / "http" / "bin" / "python")
    command = [python, "-c", FASTMCP_SERVER, str(port)]
    assert len(check_sdk_client(tmp_path, command, "stateful", "legacy", port)) == 1


@pytest.fixture
def everything(servers, node):
    """Run the TypeScript everything-server; yield its port."""
    port = free_port()
    script = servers / "http/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    environment = {**os.environ, "PORT": str(port)}
    with running([node, script, "streamableHttp"], port, env=environment):
        yield port


INSPECTIONS = [
    ["--method", "tools/call", "--tool-name", "echo"],
    ["--method", "tools/call", "--tool-name", "get-sum", "--tool-arg", "a=2", "b=3"],
]


@pytest.mark.server
def test_the_inspector_shows_the_same_results(tmp_path, servers, node, everything):
    port = everything
    launcher = servers / "http/node_modules/@modelcontextprotocol/inspector/clients/launcher"
    environment = {**os.environ, "HOME": str(tmp_path)}

    def inspect(port, arguments):
        done = subprocess.run(
            [node, launcher / "build/index.js", "--cli", f"http://127.0.0.1:{port}/mcp",
             *arguments],
            capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=environment,
        )  # fmt: skip
        return done.returncode, done.stdout

    with Program(tmp_path / "t", port) as program:
        for arguments in INSPECTIONS:
            direct = inspect(port, arguments)
            assert inspect(program.port, arguments) == direct
            assert direct[1]
        program.end()
    records = recordings(events(tmp_path / "t"))
    mine = [o for o in records if o[0]["transport"] == "streamable_http" and len(o) > 6]
    assert len(mine) >= len(INSPECTIONS)


def outcomes(folder):
    """Return the result of every check of every scenario."""
    records = {}
    for path in sorted(folder.glob("**/checks.json")):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", path.parent.name)
        records[scenario] = [
            (check["id"], check.get("status")) for check in json.loads(path.read_text())
        ]
    return records


@pytest.mark.server
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_official_conformance_checks_have_the_same_results(tmp_path, servers, node, revision):
    port = free_port()
    python = str(servers / "http" / "bin" / "python")
    runner = servers / "http/node_modules/@modelcontextprotocol/conformance"
    script = json.loads((runner / "package.json").read_text())["bin"]
    script = runner / (script if isinstance(script, str) else script["conformance"])

    def conformance(port, name):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        subprocess.run(
            [node, script, "server", "--url", f"http://127.0.0.1:{port}/mcp", "--suite", "all",
             "--spec-version", revision, "-o", tmp_path / name],
            capture_output=True, timeout=4 * TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        return outcomes(tmp_path / name)

    command = [python, "-m", "mcp_everything_server", "--port", str(port), "--log-level", "ERROR"]
    with running(command, port), Program(tmp_path / "t", port) as program:
        direct = conformance(port, "direct")
        recorded = conformance(program.port, "recorded")
        assert program.end() == (0, "")
    assert sum(map(len, direct.values())) > 50
    assert recorded == direct
    recordings(events(tmp_path / "t"))
