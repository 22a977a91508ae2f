"""The pytest plugin records the servers that tests use, reports findings, and applies gates."""

import subprocess
import sys

import pytest

import mcptally as mt

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("shop", log_level="ERROR")

@server.tool(structured_output=False)
def price(item: str) -> str:
    "The price of an item."
    if item == "pear":
        raise ZeroDivisionError("division by zero")
    return f"{item}: 3 EUR"
"""

STDIO_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    fails = asked["params"]["arguments"]["item"] == "pear"
    said = "ZeroDivisionError: division by zero" if fails else "3 EUR"
    result = {"content": [{"type": "text", "text": said}], "isError": fails}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""

STDIO = """
import json, subprocess, sys
import pytest

@pytest.mark.parametrize("n", range(3))
def test_price(mcp_recorder, n):
    calls = [
        {"jsonrpc": "2.0", "id": i, "method": "tools/call",
         "params": {"name": "price", "arguments": {"item": item}}}
        for i, item in enumerate(["apple", "pear", "pear"])
    ]
    command = mcp_recorder.command(sys.executable, "server.py", name="shop")
    asked = "".join(json.dumps(call) + "\\n" for call in calls)
    assert "3 EUR" in subprocess.run(command, input=asked, capture_output=True, text=True).stdout
"""

HTTP = """
import asyncio
import server
from mcp import Client

def ask(target, *items):
    async def run():
        async with Client(target) as client:
            return [(await client.call_tool("price", {"item": each})).content[0].text
                    for each in items]
    return asyncio.run(run())

def test_an_object(mcp_recorder):
    with mcp_recorder.url(server.server) as url:
        assert ask(url, "apple") == ["apple: 3 EUR"]

def test_an_app(mcp_recorder):
    with mcp_recorder.url(server.server.streamable_http_app(), name="app") as url:
        ask(url, *["pear"] * 9)
"""


@pytest.fixture
def suite(pytester, monkeypatch, tmp_path):
    """Runs a test suite in its own process, with its recordings in `kept`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(source, *arguments, server=SERVER):
        pytester.makepyfile(server=server, test_server=source)
        return pytester.runpytest_subprocess(*arguments)

    return run


def calls_of(folder, tmp_path):
    mt.score([folder], out=tmp_path / "store")
    rows = mt.open_store(tmp_path / "store").sql(
        "SELECT server, outcome, count(*) FROM calls WHERE method = 'tools/call' "
        "GROUP BY ALL ORDER BY ALL"
    )
    return rows.fetchall()


def test_workers_of_xdist_record_stdio_servers_into_one_archive_and_a_gate_fails_the_run(
    suite, pytester, tmp_path
):
    gate = "--mcptally-fail-on=failure_rate > 5%"
    done = suite(STDIO, "-n2", "--mcptally-out=kept", gate, server=STDIO_SERVER)
    assert done.ret == 1
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["*mcptally: recorded MCP traffic*", "*9 calls to 1 tool*",
                               "*1. shop: price*", "FAILED shop/price: failure_rate*"])  # fmt: skip
    assert len(list((pytester.path / "kept").iterdir())) == 1
    assert calls_of(pytester.path / "kept", tmp_path) == [
        ("shop", "ok", 3),
        ("shop", "tool_error", 6),
    ]


def test_apps_and_server_objects_are_recorded_and_the_cache_keeps_the_last_run_only(
    suite, pytester, tmp_path
):
    cache = pytester.path / ".pytest_cache" / "d" / "mcptally"
    earlier = cache / "20200101T000000Z-abcdef"
    earlier.mkdir(parents=True)
    done = suite(HTTP)
    assert done.ret == 0, "findings alone do not fail the run"
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*1. app: price*"])
    [kept] = cache.iterdir()
    assert kept != earlier
    assert calls_of(kept, tmp_path) == [("app", "tool_error", 9), ("shop", "ok", 1)]


def test_a_gate_that_cannot_work_is_refused_before_the_run(suite):
    done = suite(STDIO, "--mcptally-fail-on=failure > 5%")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--mcptally-fail-on: *failure_rate*"])


def test_a_run_without_recordings_prints_and_keeps_nothing(suite, pytester):
    done = suite("def test_nothing(): pass", "--mcptally-out=kept")
    assert done.ret == 0
    assert "mcptally: recorded" not in done.stdout.str()
    assert not (pytester.path / "kept").exists()


def test_loading_the_plugin_loads_nothing_that_analyzes():
    source = (
        "import sys, mcptally.pytest_plugin\n"
        "print([n for n in ('polars', 'pyarrow', 'duckdb', 'mcp', 'uvicorn') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
