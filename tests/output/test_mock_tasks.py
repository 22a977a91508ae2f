"""Tasks that a mock server starts, in the shapes of both revisions."""

import asyncio
from typing import Any

import anyio
import pytest
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from mcptally.output.mock_tasks import EXTENSION, Reply, Tasks

WORKED = {"content": [{"type": "text", "text": "done"}]}
REPLIES: dict[str, Reply] = {
    "work": (0.0, WORKED),
    "fail": (0.0, MCPError(-32603, "boom")),
    "hang": (0.0, None),
    "later": (60.0, WORKED),
}
OLD, NEW = "2025-11-25", "2026-07-28"
DECLARED = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}}}


async def reply(_: Any, name: str, __: Any) -> Reply:
    return REPLIES[name]


async def asked(tasks: Tasks, version: str, method: str, **params: Any) -> Any:
    context = ServerRequestContext(
        session=None, lifespan_context=None, protocol_version=version, method=method, params=params
    )

    async def passed_on(_: Any) -> Any:
        return "passed on"

    return await tasks(context, passed_on)


async def started(tasks: Tasks, version: str, name: str) -> dict[str, Any]:
    more = {"task": {"ttl": 5000}} if version == OLD else {"_meta": DECLARED}
    return await asked(tasks, version, "tools/call", name=name, arguments={}, **more)


@pytest.mark.parametrize(
    ("name", "status", "end"),
    [
        ("work", "completed", {"result": WORKED}),
        ("fail", "failed", {"error": {"code": -32603, "message": "boom"}}),
        ("hang", "working", {}),
        ("later", "working", {}),
    ],
)
def test_the_state_of_a_task_has_how_it_ended_from_2026_on(
    name: str, status: str, end: dict[str, Any]
) -> None:
    async def talk() -> None:
        tasks = Tasks(frozenset(REPLIES), reply)
        new = await started(tasks, NEW, name)
        assert (new["resultType"], new["status"]) == ("task", "working")
        state = await asked(tasks, NEW, "tasks/get", taskId=new["taskId"])
        assert (state["resultType"], state["status"]) == ("complete", status)
        assert {key: state[key] for key in ("result", "error") if key in state} == end
        old = (await started(tasks, OLD, name))["task"]
        state = await asked(tasks, OLD, "tasks/get", taskId=old["taskId"])
        assert (state["status"], state["ttl"]) == (status, 5000)
        assert not {"result", "error", "resultType"} & set(state)

    asyncio.run(talk())


def test_the_result_of_an_old_task_is_given_when_it_has_ended() -> None:
    async def talk() -> None:
        tasks = Tasks(frozenset(REPLIES), reply)
        names = {each: (await started(tasks, OLD, each))["task"]["taskId"] for each in REPLIES}
        result = await asked(tasks, OLD, "tasks/result", taskId=names["work"])
        assert result["content"] == WORKED["content"]
        with pytest.raises(MCPError, match="boom"):
            await asked(tasks, OLD, "tasks/result", taskId=names["fail"])
        with anyio.move_on_after(0) as waited:
            await asked(tasks, OLD, "tasks/result", taskId=names["hang"])
        assert waited.cancelled_caught

    asyncio.run(talk())


def test_a_cancelled_task_stays_cancelled() -> None:
    async def talk() -> None:
        tasks = Tasks(frozenset(REPLIES), reply)
        name = (await started(tasks, OLD, "hang"))["task"]["taskId"]
        assert (await asked(tasks, OLD, "tasks/cancel", taskId=name))["status"] == "cancelled"
        [task] = (await asked(tasks, OLD, "tasks/list"))["tasks"]
        assert task["status"] == "cancelled"

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("version", "params"),
    [
        (OLD, {"name": "work"}),
        (OLD, {"name": "other", "task": {}}),
        (NEW, {"name": "work", "task": {}}),
        (NEW, {"name": "other", "_meta": DECLARED}),
    ],
)
def test_a_call_is_passed_on_without_a_wish_for_a_task_or_a_recorded_one(
    version: str, params: dict[str, Any]
) -> None:
    tasks = Tasks(frozenset(REPLIES), reply)
    assert asyncio.run(asked(tasks, version, "tools/call", **params)) == "passed on"


def test_an_unknown_task_is_an_error() -> None:
    with pytest.raises(MCPError) as raised:
        asyncio.run(asked(Tasks(frozenset(), reply), OLD, "tasks/get", taskId="t"))
    assert raised.value.code == types.INVALID_PARAMS
