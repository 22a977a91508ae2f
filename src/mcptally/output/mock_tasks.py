"""Starts tasks for calls to the mock server, and reports their states."""

import datetime
import math
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import msgspec
from mcp import types
from mcp.server.context import CallNext, ServerRequestContext
from mcp.shared.exceptions import MCPError

from mcptally.protocol.revisions import STATELESS

Context = ServerRequestContext[Any, Any]
Reply = tuple[float, dict[str, Any] | MCPError | None]
"""Seconds until the reply, and the result or error, which is None if the call never ended."""

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_RELATED: Final = "io.modelcontextprotocol/related-task"
_CAPABILITY: Final[dict[str, Any]] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""Capability that servers declare in revision 2025-11-25."""
_POLL_MS: Final = 20
"""Polling interval that clients are told to use, in milliseconds."""


class _Task(msgspec.Struct):
    """A task that a client started."""

    name: str
    created: str
    ready: float
    """Time on anyio's clock at which the task ends."""
    reply: dict[str, Any] | MCPError | None
    ttl: int | None
    """Milliseconds for which the client wants the task to be retained."""
    cancelled: bool = False

    def status(self) -> str:
        """Return `working`, `completed`, `failed` or `cancelled`."""
        if self.cancelled:
            return "cancelled"
        if self.reply is None or anyio.current_time() < self.ready:
            return "working"
        return "failed" if isinstance(self.reply, MCPError) else "completed"


class Tasks:
    """Server middleware that answers `tools/call` with tasks, and requests about tasks.

    The `mcp` library has no types for tasks in either revision, but lets middleware define the
    replies.
    """

    def __init__(
        self, tools: frozenset[str], reply: Callable[[Context, str, Any], Awaitable[Reply]]
    ) -> None:
        """Store the tools whose calls were recorded as tasks, and the function that replies."""
        self._tools: Final = tools
        self._reply: Final = reply
        self._tasks: Final[dict[str, _Task]] = {}

    async def __call__(self, ctx: Context, call_next: CallNext) -> Any:
        """Answer a request with or about a task, or pass the request on to the server."""
        params = dict(ctx.params or {})
        if ctx.method == "tools/call" and self._is_for_task(ctx, params):
            return await self._start(ctx, params)
        if ctx.method.startswith("tasks/"):
            return await self._about(ctx, params)
        result = await call_next(ctx)
        if ctx.method == "initialize" and self._tools and isinstance(result, dict):
            result = {**result, "capabilities": {**result["capabilities"], "tasks": _CAPABILITY}}
        return result

    def _is_for_task(self, ctx: Context, params: dict[str, Any]) -> bool:
        if params.get("name") not in self._tools:
            return False
        if ctx.protocol_version not in STATELESS:
            return "task" in params
        capabilities = (params.get("_meta") or {}).get(_CAPABILITIES) or {}
        return EXTENSION in (capabilities.get("extensions") or {})

    async def _start(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        seconds, reply = await self._reply(ctx, params["name"], params.get("arguments"))
        created = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        ready = anyio.current_time() + seconds if reply is not None else math.inf
        ttl = (params.get("task") or {}).get("ttl")
        task = _Task(secrets.token_hex(16), created, ready, reply, ttl)
        self._tasks[task.name] = task
        if ctx.protocol_version not in STATELESS:
            return {"task": _state(ctx, task, "working")}
        return {"resultType": "task", **_state(ctx, task, "working")}

    async def _about(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        if ctx.method == "tasks/list":
            return {"tasks": [_state(ctx, task) for task in self._tasks.values()]}
        task = self._tasks.get(str(params.get("taskId")))
        if task is None:
            raise MCPError(types.INVALID_PARAMS, "mcptally mock: this server started no such task")
        modern = ctx.protocol_version in STATELESS
        match ctx.method:
            case "tasks/get":
                ended = {"resultType": "complete", **_end(task)} if modern else {}
                return _state(ctx, task) | ended
            case "tasks/result":
                return await _result(task)
            case "tasks/cancel":
                task.cancelled = True
                return {"resultType": "complete"} if modern else _state(ctx, task)
            case "tasks/update":
                return {"resultType": "complete"}
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)


def _state(ctx: Context, task: _Task, status: str | None = None) -> dict[str, Any]:
    """Return a task's state with the members that the client's protocol revision defines."""
    suffix = "Ms" if ctx.protocol_version in STATELESS else ""
    return {
        "taskId": task.name,
        "status": status or task.status(),
        "createdAt": task.created,
        "lastUpdatedAt": task.created,
        f"ttl{suffix}": task.ttl,
        f"pollInterval{suffix}": _POLL_MS,
    }


def _end(task: _Task) -> dict[str, Any]:
    """Return a task's result or error, as `tasks/get` does in 2026-07-28."""
    if task.status() not in {"completed", "failed"}:
        return {}
    if isinstance(task.reply, MCPError):
        return {"error": task.reply.error.model_dump(mode="json", exclude_none=True)}
    return {"result": task.reply}


async def _result(task: _Task) -> dict[str, Any]:
    """Wait for a task's end and return the result, as `tasks/result` does in 2025-11-25."""
    if task.cancelled:
        raise MCPError(types.INVALID_PARAMS, "mcptally mock: the task was cancelled")
    await anyio.sleep(max(0.0, task.ready - anyio.current_time()))
    if isinstance(task.reply, MCPError):
        raise task.reply
    result = task.reply or {}
    return {**result, "_meta": {**(result.get("_meta") or {}), _RELATED: {"taskId": task.name}}}
