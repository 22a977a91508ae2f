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

from tests.record.http_rig import checked_recordings, free_port, recordings
from tests.record.recorder_process import events, of
from tests.record.test_http_process import Program

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 120.0

SDK_SERVER = """
import sys
from mcp.server.mcpserver import Context, MCPServer
server = MCPServer("sdk", log_level="ERROR")

@server.tool()
def echo(text: str) -> str:
    return text

@server.tool()
def fail(text: str) -> str:
    raise ValueError(text)

@server.tool()
async def steps(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step, 3)
    return "done"

server.run("sse", port=int(sys.argv[1]))
"""

CLIENT = """
import asyncio, json, sys
from mcp.client import Client
from mcp.client.sse import sse_client

async def main(*urls):
    print(json.dumps([await results(url) for url in urls]))

async def results(url):
    steps = []
    async def progress(done, total, message):
        steps.append([done, total])
    async with Client(sse_client(url), mode="legacy") as client:
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
def node():
    if not (SERVERS / "node22").exists() or not (SERVERS / "http" / "node_modules").is_dir():
        pytest.skip("the npm package could not be installed")
    return str(SERVERS / "node22")


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


def test_the_python_sdk_gets_the_same_results_over_legacy_sse(tmp_path):
    port = free_port()
    client = [sys.executable, "-c", CLIENT]
    command = [sys.executable, "-c", SDK_SERVER, str(port)]
    with running(command, port), Program(tmp_path, port) as program:
        urls = [f"http://127.0.0.1:{at}/sse" for at in (port, program.port)]
        direct, recorded = json.loads(run([*client, *urls]))
        program.end()
    assert recorded == direct
    assert direct[-1] == [[0, 3], [1, 3], [2, 3]]
    records = checked_recordings(tmp_path)
    calls = [e for own in records for e in of(own, "message", dir="c2s")
             if e["msg"].get("method") == "tools/call"]  # fmt: skip
    assert len(calls) == 25
    assert [own[0]["transport"] for own in records] == ["http_sse"]


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
def test_the_official_conformance_checks_have_the_same_results(tmp_path, node, revision):
    port = free_port()
    python = str(SERVERS / "http" / "bin" / "python")
    runner = SERVERS / "http/node_modules/@modelcontextprotocol/conformance"
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
