"""A server on the Python SDK 2.x. Usage: python_2.py [HTTP PORT]"""

import asyncio
import itertools
import sys
import traceback
from typing import Any, Literal

import uvicorn
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import (
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    Icon,
    InputRequiredResult,
    ListRootsRequest,
    RequestParams,
    ResourceLink,
    Result,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """What the user is asked for."""

    city: str


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class Created(Result):
    model_config = ConfigDict(extra="allow", populate_by_name=True)
    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str = "working"
    ttl_ms: int | None = Field(default=60_000, alias="ttlMs")
    poll_interval_ms: int = Field(default=20, alias="pollIntervalMs")
    created_at: str = Field(default="2026-11-23T00:00:00Z", alias="createdAt")
    last_updated_at: str = Field(default="2026-11-23T00:00:00Z", alias="lastUpdatedAt")


FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which city?",
        "requestedSchema": Answer.model_json_schema(),
    },
}


class Tasks(Extension):
    """The extension for tasks (SEP-2663): each call to a tool named task_* becomes a task."""

    identifier = "io.modelcontextprotocol/tasks"
    numbers = itertools.count(1)

    def __init__(self) -> None:
        self.states: dict[str, dict[str, Any]] = {}
        self.running: set[asyncio.Task[None]] = set()

    def methods(self) -> list[MethodBinding]:
        get = MethodBinding("tasks/get", TaskParams, self.get)
        update = MethodBinding("tasks/update", UpdateParams, self.update)
        return [get, update, MethodBinding("tasks/cancel", TaskParams, self.cancel)]

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        if not params.name.startswith("task_"):
            return await call_next(ctx)
        name = f"task-{next(self.numbers)}"
        self.states[name] = {"status": "working"}
        if params.name == "task_ask":
            self.states[name] = {"status": "input_required", "inputRequests": {"city": FORM}}
            return Created(task_id=name)
        running = asyncio.create_task(self.run(name, call_next, ctx))
        self.running.add(running)
        return Created(task_id=name)

    async def run(self, name: str, call_next: Any, ctx: Any) -> None:
        await asyncio.sleep(0.04)
        try:
            result = await call_next(ctx)
            dumped = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            self.states[name] = {"status": "completed", "result": dumped}
        except MCPError as error:
            body = {"code": error.error.code, "message": error.error.message}
            self.states[name] = {"status": "failed", "error": body}

    async def get(self, _: Any, params: TaskParams) -> dict[str, Any]:
        if params.task_id not in self.states:
            raise MCPError(code=-32602, message=f"Unknown task {params.task_id}")
        task = Created(task_id=params.task_id).model_dump(mode="json", by_alias=True)
        return task | {"resultType": "complete"} | self.states[params.task_id]

    async def update(self, _: Any, params: UpdateParams) -> dict[str, Any]:
        said = f"the user said {params.input_responses['city']['action']}"
        result = {
            "content": [{"type": "text", "text": said}],
            "structuredContent": {"result": said},
        }
        self.states[params.task_id] = {"status": "completed", "result": result}
        return {"resultType": "complete"}

    async def cancel(self, _: Any, params: TaskParams) -> dict[str, Any]:
        self.states[params.task_id] = {"status": "cancelled"}
        return {"resultType": "complete"}


server = MCPServer("fleet-python-2", version="1.0.0", extensions=[Tasks()])


@server.tool(name="work")
@server.tool(name="task_work")
async def work(count: int) -> str:
    return f"done {count} times"


@server.tool(name="crash")
@server.tool(name="task_crash")
async def crash(count: int) -> str:
    try:
        return str({}["items"])
    except KeyError:
        traceback.print_exc()
        raise


@server.tool(name="refuse")
@server.tool(name="task_refuse")
async def refuse(count: int) -> str:
    raise ToolError(f"Invalid count {count}: must be at least 1")


@server.tool(name="task_reject")
async def reject(count: int) -> str:
    raise MCPError(code=-32603, message="connect ECONNREFUSED 10.0.0.7:5432")


@server.tool()
async def task_ask() -> str:
    return "never called"


@server.tool(name="task_hang")
@server.tool(name="hang")
async def hang() -> str:
    await asyncio.sleep(60)
    return "late"


@server.tool()
async def report(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half")
    await ctx.report_progress(2, 2, "all")
    return "reported"


def is_modern(ctx: Context) -> bool:
    return (ctx.protocol_version or "") >= "2026"


@server.tool()
async def ask(ctx: Context) -> str | InputRequiredResult:
    if not is_modern(ctx):
        return f"the user said {(await ctx.elicit('Which city?', Answer)).action}"
    if ctx.input_responses is None:
        form = ElicitRequestFormParams(
            message="Which city?", requested_schema=Answer.model_json_schema()
        )
        return InputRequiredResult(
            input_requests={"city": ElicitRequest(params=form)}, request_state="asked"
        )
    return f"the user said {ctx.input_responses['city'].action}"


@server.tool()
async def sign_in(ctx: Context) -> str | InputRequiredResult:
    url = "https://example.org/sign-in"
    if not is_modern(ctx):
        return f"the user said {(await ctx.elicit_url('Sign in', url, 'e1')).action}"
    if ctx.input_responses is None:
        link = ElicitRequestURLParams(message="Sign in", url=url)
        return InputRequiredResult(input_requests={"link": ElicitRequest(params=link)})
    return f"the user said {ctx.input_responses['link'].action}"


@server.tool()
async def summarise(ctx: Context) -> str | InputRequiredResult:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text="Summarise"))]
    if not is_modern(ctx):
        return str(
            (await ctx.session.create_message(messages=messages, max_tokens=20)).content.text
        )
    if ctx.input_responses is None:
        request = CreateMessageRequest(
            params=CreateMessageRequestParams(messages=messages, max_tokens=20)
        )
        return InputRequiredResult(input_requests={"summary": request, "roots": ListRootsRequest()})
    return str(ctx.input_responses["summary"].content.text)


class Weather(BaseModel):
    degrees: int


@server.tool(icons=[Icon(src="data:image/png;base64,iVBORw0KGgo=", mime_type="image/png")])
async def weather(city: str) -> Weather:
    return Weather(degrees=4)


@server.tool()
async def link() -> list[ResourceLink]:
    return [ResourceLink(type="resource_link", uri="note://1", name="note")]


@server.tool()
async def touch(ctx: Context) -> str:
    await ctx.notify_resource_updated("note://1")
    return "touched"


@server.resource("note://1")
def note() -> str:
    return "a note"


@server.resource("notes://{name}")
def notes(name: str) -> str:
    return f"the note {name}"


@server.prompt()
def greet(language: str) -> str:
    return f"Greet in {language}"


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    return Completion(values=[each for each in ("de", "en") if each.startswith(argument.value)])


if len(sys.argv) > 1:
    uvicorn.run(server.streamable_http_app(), port=int(sys.argv[1]), log_level="error")
else:
    server.run()
