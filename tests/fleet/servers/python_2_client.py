"""A client on the Python SDK 2.x. It runs steps and prints what it got for each.

Usage: python_2_client.py MODE STEPS (URL | COMMAND...)
"""

import asyncio
import json
import os
import sys
from typing import Any, Literal

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    Request,
    RequestParams,
    Result,
    Root,
    TextContent,
)
from pydantic import ConfigDict, Field

mode, steps, *where = sys.argv[1:]
choice = {"action": "accept"}
follow = {"how": "get"}


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class Any_(Result):
    model_config = ConfigDict(extra="allow")


class Created(Result):
    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")


async def resolve(created: Created, ctx: Any) -> CallToolResult:
    params = TaskParams(taskId=created.task_id)
    if follow["how"] == "cancel":
        await ctx.session.send_request(CancelTask(params=params), Any_)
        return CallToolResult(content=[])
    while follow["how"] == "get":
        task = await ctx.session.send_request(GetTask(params=params), Any_)
        state = task.model_extra or {}
        if state["status"] == "input_required":
            await asyncio.sleep(0.2)
            answers = {"city": {"action": "accept", "content": {"city": "Oslo"}}}
            update = UpdateParams(taskId=created.task_id, inputResponses=answers)
            await ctx.session.send_request(UpdateTask(params=update), Any_)
            continue
        if state["status"] == "failed":
            raise MCPError(**state["error"])
        if state["status"] != "working":
            return CallToolResult.model_validate(state["result"])
        await asyncio.sleep(0.02)
    return CallToolResult(content=[])


class Tasks(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=resolve)]


async def elicit(context: Any, params: Any) -> ElicitResult:
    content = {"city": "Oslo"} if choice["action"] == "accept" and params.mode == "form" else None
    return ElicitResult(action=choice["action"], content=content)


async def sample(context: Any, params: Any) -> CreateMessageResult:
    text = TextContent(type="text", text="short")
    return CreateMessageResult(role="assistant", content=text, model="fleet")


async def roots(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri="file:///home")])


async def run(client: Client, step: str, *args: Any) -> Any:
    match step:
        case "call":
            return await client.call_tool(*args)
        case "task":
            follow["how"] = args[2]
            return await client.call_tool(*args[:2])
        case "report":

            async def show(progress: float, total: float | None, message: str | None) -> None:
                pass

            return await client.call_tool("report", {}, progress_callback=show)
        case "elicit":
            choice["action"] = args[0]
            return await client.call_tool(args[1], {})
        case "timeout":
            return await client.call_tool(args[0], {}, read_timeout_seconds=args[1])
        case "cancel":
            call = asyncio.create_task(client.call_tool(args[0], {}))
            await asyncio.sleep(args[1])
            call.cancel()
            return await call
        case "complete":
            ref = PromptReference(name="greet")
            return await client.complete(ref, {"name": "language", "value": "d"})
        case "prompt":
            return await client.get_prompt("greet", {"language": "de"})
        case "read":
            return await client.read_resource(args[0])
        case "listen":
            async with client.listen(resource_subscriptions=["note://1"]) as events:
                await client.call_tool("touch", {})
                async for event in events:
                    return event


async def main() -> None:
    target: Any = where[0]
    if not target.startswith("http"):
        target = StdioServerParameters(command=where[0], args=where[1:], env=dict(os.environ))
    async with Client(
        target,
        mode=mode,
        extensions=[Tasks()],
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
    ) as client:
        await client.list_tools()
        for step in json.loads(steps):
            try:
                got = await run(client, *step)
                print(json.dumps({"got": str(got)}))
            except (asyncio.CancelledError, Exception) as error:
                print(json.dumps({"error": str(error)}))


asyncio.run(main())
