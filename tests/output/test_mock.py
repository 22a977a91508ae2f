"""`mcptally mock`: replies, their order, failures, and requests that it cannot answer."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

import mcptally as mt
from mcptally.output import mock
from tests.fleet.test_fleet import TRANSCRIPTS
from tests.transcripts import call, error, exchange, opened, request, result, text, write

pytestmark = pytest.mark.slow

LISTED = [
    {"name": "read", "description": "Reads", "inputSchema": {"type": "object"}},
    {"name": "write", "inputSchema": {"type": "object"}},
]
FILE = {"uri": "file:///a", "text": "resource a"}
CLIENT, SERVER = {"name": "c", "version": "1"}, {"name": "files", "version": "1.2"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}}
EVENTS = [
    opened(),
    *exchange(
        request(0, "initialize", clientInfo=CLIENT, **HELLO),
        result(0, serverInfo=SERVER, instructions="Read first.", **HELLO),
        *(request(1, "tools/list"), result(1, tools=LISTED[:1], nextCursor="2")),
        *(request(2, "tools/list", cursor="2"), result(2, tools=LISTED[1:])),
        *(call(3, "read", path="a", lines=2), text(3, "no such file", isError=True)),
        *(call(4, "write", path="a", content="new"), text(4, "written")),
        *(call(5, "read", path="a", lines=2), text(5, "new")),
        *(call(6, "read", path="b"), error(6, -32602, "too big", data=7)),
        call(7, "read", path="c"),
        *(request(8, "resources/read", uri="file:///a"), result(8, contents=[FILE])),
        request(9, "prompts/get", name="sum", arguments={"of": "a"}),
        result(9, messages=[{"role": "user", "content": {"type": "text", "text": "Sum a"}}]),
        *(call(10, "write", path="odd"), result(10, content="not a list")),
    ),
]


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("mock") / "traces.jsonl", EVENTS)


@pytest.fixture(scope="module")
def store(archive: Path) -> Path:
    mt.score([archive], out=archive.parent / "store")
    return archive.parent / "store"


def talk(store: Path, conversation, **options):
    """Return the result of a conversation with a mock server in this process."""
    delays, answer = options.pop("delays", False), options.pop("answer", None)

    async def run():
        made = mock.mock_server(mock.read([store], **options), delays=delays)
        async with Client(made, elicitation_callback=answer) as client:
            return await conversation(client)

    return asyncio.run(run())


def words(answer) -> tuple[str, bool]:
    return answer.content[0].text, answer.is_error


async def error_of(request) -> MCPError:
    with pytest.raises(MCPError) as raised:
        await request
    return raised.value


def test_repeated_calls_get_the_recorded_replies_in_order_and_then_the_last_one(store: Path):
    async def conversation(client):
        arguments = {"lines": 2.0, "path": "a"}  # in another order, and as a float
        return [words(await client.call_tool("read", arguments)) for _ in range(3)]

    assert talk(store, conversation) == [("no such file", True), ("new", False), ("new", False)]


def test_tools_resources_and_prompts_are_served_as_recorded(store: Path):
    async def conversation(client):
        tools = (await client.list_tools()).tools
        read = await client.read_resource("file:///a")
        prompt = await client.get_prompt("sum", {"of": "a"})
        resources = (await client.list_resources()).resources
        info = client.server_info
        assert (info.name, info.version, client.instructions) == ("files", "1.2", "Read first.")
        return tools, read.contents[0].text, prompt.messages[0].content.text, resources

    tools, resource, prompt, resources = talk(store, conversation)
    assert [(tool.name, tool.description) for tool in tools] == [("read", "Reads"), ("write", None)]
    assert (resource, prompt) == ("resource a", "Sum a")
    assert [str(one.uri) for one in resources] == ["file:///a"]  # from the call: nothing was listed


def test_a_recorded_json_rpc_error_is_given_with_code_message_and_data(store: Path):
    error = talk(store, lambda client: error_of(client.call_tool("read", {"path": "b"})))
    assert (error.code, error.message, error.data) == (-32602, "too big", 7)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("read", {"path": "a", "lines": 3}, 'the nearest one is [0-9a-f]{16} with {"lines": 2'),
        ("raed", {"path": "a"}, "no call to tool 'raed' is recorded; did you mean read"),
        ("read", {"path": "c"}, r"left out: they ended as no_response \(--failures replies\)"),
        ("write", {"path": "odd"}, "not a valid result of tools/call: content"),
    ],
)
def test_what_cannot_be_answered_is_an_error_that_says_why(store: Path, tool, arguments, said):
    error = talk(store, lambda client: error_of(client.call_tool(tool, arguments)))
    assert error.code == mock.NOT_RECORDED
    assert re.search(f"^mcptally mock: .*{said}", error.message), error.message


def test_without_failures_only_calls_that_worked_are_answered(store: Path):
    async def conversation(client):
        first = words(await client.call_tool("read", {"path": "a", "lines": 2}))
        return first, await error_of(client.call_tool("read", {"path": "b"}))

    first, error = talk(store, conversation, failures="none")
    assert first == ("new", False)
    assert (error.code, "ended as protocol_error" in error.message) == (mock.NOT_RECORDED, True)


def test_with_all_failures_a_request_without_a_recorded_reply_gets_none(store: Path):
    async def conversation(client):
        unanswered = asyncio.create_task(client.call_tool("read", {"path": "c"}))
        await client.call_tool("write", {"path": "a", "content": "new"})
        answered = unanswered.done()
        unanswered.cancel()
        return answered

    assert talk(store, conversation, failures="all") is False


def test_with_delays_replies_wait_for_the_recorded_time(store: Path, monkeypatch):
    waited = []

    async def note(seconds):
        waited.append(seconds)

    monkeypatch.setattr(mock.anyio, "sleep", note)

    given = {"path": "a", "content": "new"}
    talk(store, lambda client: client.call_tool("write", given), delays=True)
    assert waited == [pytest.approx(0.001)]


@pytest.fixture(scope="module")
def of_fleet(tmp_path_factory) -> Path:
    """The store of a server with subscriptions and completions."""
    store = tmp_path_factory.mktemp("fleet") / "store"
    mt.score([TRANSCRIPTS / "python-2-stdio.jsonl.zst"], out=store)
    return store


def test_a_subscriber_is_told_of_changes_that_followed_a_recorded_call(of_fleet: Path):
    async def conversation(client):
        async with client.listen(resource_subscriptions=["note://1"]) as events:
            await client.call_tool("touch", {})
            return await anext(aiter(events))

    assert talk(of_fleet, conversation).uri == "note://1"


def test_completions_are_given_as_recorded(of_fleet: Path):
    ref, given = types.PromptReference(name="greet"), {"name": "language", "value": "d"}
    found = talk(of_fleet, lambda client: client.complete(ref, given))
    assert found.completion.values == ["de"]


def test_a_call_that_asks_the_user_gets_the_recorded_reply_to_the_answer(of_fleet: Path):
    async def answer(*_):
        return types.ElicitResult(action="accept", content={"city": "Oslo"})

    found = talk(of_fleet, lambda client: client.call_tool("ask", {}), answer=answer)
    assert words(found) == ("the user said accept", False)


MOCK = [sys.executable, "-m", "mcptally", "mock"]


def test_the_command_serves_stdio_from_an_archive(archive: Path):
    async def conversation():
        params = StdioServerParameters(
            command=MOCK[0], args=[*MOCK[1:], str(archive)], env=dict(os.environ)
        )
        async with Client(stdio_client(params)) as client:
            return words(await client.call_tool("write", {"path": "a", "content": "new"}))

    assert asyncio.run(conversation()) == ("written", False)


@contextlib.contextmanager
def over_http(store: Path) -> Iterator[str]:
    """The address of a mock server in its own process."""
    command = [*MOCK, str(store), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        try:
            yield served.stdout.readline().strip()
        finally:
            served.terminate()


def test_the_command_serves_http_and_each_session_begins_with_the_first_reply(store: Path):
    async def conversation(address, mode):
        async with Client(address, mode=mode) as client:
            arguments = {"path": "a", "lines": 2}
            return [words(await client.call_tool("read", arguments))[0] for _ in range(2)]

    with over_http(store) as address:
        for mode in ("legacy", "legacy", "auto"):
            assert asyncio.run(conversation(address, mode)) == ["no such file", "new"]


INSPECTOR = Path(os.environ.get("MCPTALLY_SERVERS", "/nowhere")) / "node_modules/.bin/mcp-inspector"


needs_inspector = pytest.mark.skipif(
    not INSPECTOR.exists(),
    reason="no MCP Inspector: bash .ci/servers.sh FOLDER, MCPTALLY_SERVERS=FOLDER",
)


@pytest.mark.server
@needs_inspector
def test_the_inspector_gets_the_recorded_reply(store: Path):
    method = ("--method", "tools/call", "--tool-name", "write")
    arguments = ("--tool-arg", "path=a", "--tool-arg", "content=new")
    command = [str(INSPECTOR), "--cli", *MOCK, str(store), *method, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": "written"}]
