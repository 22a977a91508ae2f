"""Implements an MCP server that answers from a recording, to test clients and agents.

A request gets the recorded reply to the same request: the same tool with the same arguments, the
same resource or the same prompt. If a request was recorded several times, each session gets the
replies in recorded order; the last reply is repeated. Completions also come in the recorded order,
whatever text the client wants to complete, because stores do not contain that text. The `mcp`
library handles the connection (handshake, protocol revision, transport).
"""

import collections
import dataclasses
import difflib
import json
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import uvicorn
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.types.methods import is_input_required
from pydantic import ValidationError

from mcptally.analytics.store import Store, open_store
from mcptally.errors import UsageError, near
from mcptally.output.mock_subscriptions import CHANGES, METHODS, UPDATED, Subscriptions, session_id
from mcptally.output.mock_tasks import EXTENSION, Reply, Tasks
from mcptally.pipeline.run import score

Context = ServerRequestContext[Any, Any]

Failures = Literal["replies", "all", "none"]
"""The recorded failures to reproduce: failures with a reply, all failures (with missing replies),
or none."""

NOT_RECORDED: Final = -32099
"""JSON-RPC error code of replies to requests that the recording cannot answer.

It is in the range for implementations (-32000 to -32099). Recorded errors are unlikely to have this
code, so tests can recognise such replies."""

_SUCCEEDED: Final = frozenset({"ok", "input_required", "task"})
_GAVE_UP: Final = frozenset({"timeout", "cancelled"})
_COMPLETION: Final = "completion/complete"
_NAMED: Final = {"tools/call": "tool", "resources/read": "resource", "prompts/get": "prompt"}
"""Maps methods to the kind of object that requests name, for error messages and columns."""
_LISTED: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""Maps each method to the result's member that contains the listing."""
_LISTING_OF: Final = {
    "tools/call": "tools/list",
    "resources/read": "resources/list",
    "prompts/get": "prompts/list",
}
"""Maps the method of a call to the method that lists the call's possible targets."""
_RESULTS: Final[dict[str, type[types.Result]]] = {
    "tools/call": types.CallToolResult,
    "resources/read": types.ReadResourceResult,
    "prompts/get": types.GetPromptResult,
    _COMPLETION: types.CompleteResult,
    "tools/list": types.ListToolsResult,
    "resources/list": types.ListResourcesResult,
    "resources/templates/list": types.ListResourceTemplatesResult,
    "prompts/list": types.ListPromptsResult,
}
"""Maps each method to the type of its result."""
Asked = Callable[[Any], tuple[str, Any]]
_CALLED: Final[dict[str, tuple[type[types.RequestParams], Asked]]] = {
    "tools/call": (types.CallToolRequestParams, lambda params: (params.name, params.arguments)),
    "resources/read": (types.ReadResourceRequestParams, lambda params: (str(params.uri), None)),
    "prompts/get": (types.GetPromptRequestParams, lambda params: (params.name, params.arguments)),
    _COMPLETION: (types.CompleteRequestParams, lambda _: ("", None)),
}
"""Maps each method to the type of its parameters, and to a function that returns the name and the
arguments in them."""
_ADDED: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Members that revision 2026-07-28 requires, but that recordings of earlier revisions lack.

The library removes them from replies in earlier revisions.
"""
_CANDIDATES: Final = 200
"""Maximum number of recorded calls that are compared to find the nearest call."""
_COMPARED: Final = 2000
"""Maximum number of characters of arguments that are compared to find the nearest call."""
_QUOTED: Final = 300
"""Maximum number of characters of the nearest call's arguments in an error message."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A recorded call."""

    call_id: str
    arguments: str
    """Canonical JSON text."""
    outcome: str
    is_error: bool
    """Whether `response` is a JSON-RPC error object, not a result."""
    response: Any
    """The member `result` or `error`; None if there was no reply or the store lacks it."""
    latency_ms: float | None
    notifications: Sequence[str]
    """Methods of the change notifications that followed the call."""
    task: bool
    """Whether the call started a task."""


_CALLS: Final = f"""
WITH changes AS (
    SELECT recording, "at", method FROM messages
    WHERE dir = 's2c' AND method IN ({", ".join(f"'{name}'" for name in (*CHANGES, UPDATED))})
), followed AS (
    SELECT call_id, list_sort(list_distinct(list(changes.method))) AS notifications
    FROM changes ASOF JOIN (SELECT * FROM calls WHERE dir = 'c2s' AND method = 'tools/call') AS call
    ON changes.recording = call.recording AND changes."at" >= call.requested_at
    GROUP BY call_id
), started AS (
    SELECT DISTINCT attempt_of AS call_id, true AS task FROM calls WHERE method LIKE 'tasks/%'
)
SELECT
    call_id, method, coalesce(tool, prompt, resource_uri) AS name, arguments, outcome,
    error_code IS NOT NULL AS is_error, response, latency_ms, session, server_name, server_version,
    coalesce(notifications, []) AS notifications,
    coalesce(task, false) OR outcome = 'task' AS task
FROM calls LEFT JOIN followed USING (call_id) LEFT JOIN started USING (call_id)
WHERE dir = 'c2s' AND server IS NOT DISTINCT FROM ?
ORDER BY requested_at, recording, seq, "index"
"""


def canonical(arguments: Any) -> str:
    """Return JSON text, the same for equal arguments; `1.0` becomes `1`, null becomes `{}`."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(member) for name, member in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return json.dumps(plain(arguments or {}), sort_keys=True, ensure_ascii=False)


class Recording:
    """The recorded calls and listings of one server, from which requests are answered."""

    def __init__(self, store: Store, server: str | None, *, failures: Failures) -> None:
        """Read a server's calls from a store.

        Args:
            store: the store of the recordings.
            server: label of the server; None if only one server was recorded.
            failures: the recorded failures to reproduce.

        Raises:
            UsageError: no server or several servers were recorded, or no server has this label.
        """
        self.server: Final = _only_server(store, server)
        self._failures: Final = failures
        self._calls: dict[tuple[str, str], dict[str, list[_Call]]] = {}
        self._identity: dict[str, Any] = {}
        self._pages: dict[tuple[str, str], list[Any]] = {}
        self._listings: dict[str, list[Any]] = {}
        self._served: set[str] = set()
        rows = store.sql(_CALLS, params=[self.server])
        for row in rows.pl().iter_rows(named=True):
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        method, name = row["method"], row["name"]
        response = _parsed(row["response"])
        if row["server_name"]:
            self._identity |= {"name": row["server_name"], "version": row["server_version"] or ""}
        if (method in _NAMED and name is not None) or method == _COMPLETION:
            call = _Call(
                row["call_id"],
                canonical(_parsed(row["arguments"])),
                row["outcome"],
                row["is_error"] or row["outcome"] == "protocol_error",
                None if row["outcome"] in _GAVE_UP else response,
                row["latency_ms"],
                row["notifications"],
                row["task"],
            )
            name = name or ""
            by_arguments = self._calls.setdefault((method, name), {})
            by_arguments.setdefault(call.arguments, []).append(call)
        elif method in METHODS:
            self._served.add(method)
        elif row["outcome"] != "ok" or not isinstance(response, dict):
            return
        elif method in _LISTED and isinstance(items := response.get(_LISTED[method]), list):
            pages = self._pages.setdefault((method, row["session"]), [])
            pages += items
            # This is the last page, so the listing is complete.
            if response.get("nextCursor") is None:
                self._listings[method] = self._pages.pop((method, row["session"]))
        elif method in {"initialize", "server/discover"}:
            texts = {"instructions": response, "title": response.get("serverInfo")}
            self._identity |= {
                key: of[key]
                for key, of in texts.items()
                if isinstance(of, dict) and isinstance(of.get(key), str)
            }

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return the recorded server's name and, if known, version, title and instructions."""
        return {"name": self.server or "recorded server", **self._identity}

    def methods(self) -> set[str]:
        """Return the recorded methods, and other methods that belong to the same capabilities."""
        found = {method for method, _ in self._calls} | set(self._listings) | self._served
        if "resources/templates/list" in found:
            found.add("resources/list")
        for called, listed in _LISTING_OF.items():
            if called in found or listed in found:
                found |= {called, listed}
        return found

    def task_tools(self) -> frozenset[str]:
        """Return the tools of which at least one call started a task."""
        return frozenset(
            name
            for (_, name), by_arguments in self._calls.items()
            for calls in by_arguments.values()
            if any(call.task for call in calls)
        )

    def listing(self, method: str) -> list[Any]:
        """Return the last complete listing that was recorded, or the names in recorded calls."""
        if method in self._listings:
            return self._listings[method]
        names = sorted(name for of, name in self._calls if _LISTING_OF.get(of) == method)
        members: dict[str, Any] = {"inputSchema": {"type": "object"}} if "tools" in method else {}
        return [{"name": name, "uri": name, **members} for name in names]

    def replies(self, method: str, name: str, arguments: str) -> Sequence[_Call]:
        """Return the recorded calls that answer a request, in recorded order.

        Raises:
            MCPError: there are no such calls; the message names the nearest recorded call.
        """
        what = _NAMED.get(method, "completion")
        by_arguments = self._calls.get((method, name))
        if by_arguments is None:
            names = [recorded for of, recorded in self._calls if of == method]
            raise _not_recorded(f"no call to {what} {name!r} is recorded{near(name, names)}")
        recorded = by_arguments.get(arguments)
        if recorded is None:
            nearest = _nearest(arguments, by_arguments)
            call = by_arguments[nearest][0]
            raise _not_recorded(
                f"no recorded call to {what} {name!r} has these arguments; the nearest one is "
                f"{call.call_id} with {_cut(nearest)}",
                call,
            )
        usable = [call for call in recorded if self._is_usable(call)]
        if not usable:
            outcomes = ", ".join(sorted({call.outcome for call in recorded}))
            raise _not_recorded(
                f"the recorded calls to {what} {name!r} with these arguments are left out: they "
                f"ended as {outcomes} (--failures {self._failures}), or their replies were not "
                f"recorded as a whole; the first one is {recorded[0].call_id}",
                recorded[0],
            )
        return usable

    def _is_usable(self, call: _Call) -> bool:
        if call.outcome in _SUCCEEDED:
            return call.response is not None
        if self._failures == "none":
            return False
        return call.response is not None or self._failures == "all"


def _only_server(store: Store, server: str | None) -> str | None:
    """Return the label of the server that the mock server imitates."""
    rows = store.sql("SELECT DISTINCT server FROM calls WHERE dir = 'c2s' ORDER BY server")
    labels = [label for (label,) in rows.fetchall()]
    names = [label for label in labels if label is not None]
    if server is not None:
        if server not in names:
            raise UsageError(f"no server is called {server!r}{near(server, names)}")
        return server
    if not labels:
        raise UsageError("no call is recorded, so there is nothing to answer from")
    if len(labels) > 1:
        raise UsageError(
            f"several servers are recorded; choose one with --server: {', '.join(names)}"
        )
    only: str | None = labels[0]
    return only


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):  # the recorder cut the reply, or it is not strict JSON
        return None


def _cut(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def _not_recorded(words: str, nearest: _Call | None = None) -> MCPError:
    data = None if nearest is None else {"nearest": nearest.call_id, "arguments": nearest.arguments}
    return MCPError(NOT_RECORDED, f"mcptally mock: {words}", data)


def _nearest(arguments: str, recorded: Mapping[str, Any]) -> str:
    """Return the recorded arguments with the most equal members.

    If several have equally many, return the most similar text.
    """
    wanted = json.loads(arguments)

    def equal_members(text: str) -> int:
        members = json.loads(text)
        if not isinstance(members, dict) or not isinstance(wanted, dict):
            return 0
        return sum(name in members and members[name] == value for name, value in wanted.items())

    candidates = sorted(recorded, key=equal_members, reverse=True)[:_CANDIDATES]
    matcher = difflib.SequenceMatcher(b=arguments[:_COMPARED], autojunk=False)

    def similarity(text: str) -> tuple[int, float]:
        matcher.set_seq1(text[:_COMPARED])
        return equal_members(text), matcher.quick_ratio()

    return max(candidates, key=similarity)


def read(
    archive: Sequence[str | Path], *, server: str | None = None, failures: Failures = "replies"
) -> Recording:
    """Read a server's recording from transcripts or from a store.

    Args:
        archive: transcript files, folders or patterns, or a single store, which is faster.
        server: label of the server; None if only one server was recorded.
        failures: the recorded failures to reproduce.

    Raises:
        UnreadableError: nothing could be read.
        StoreError: this version cannot read the store.
        UsageError: no server was recorded, or several servers were recorded and `server` selects
            none.
    """
    if len(archive) == 1 and (Path(archive[0]) / "store.json").is_file():
        return Recording(open_store(archive[0]), server, failures=failures)
    with tempfile.TemporaryDirectory(prefix="mcptally-mock-", ignore_cleanup_errors=True) as folder:
        store = Path(folder) / "store"
        score(archive, out=store, servers=[server] if server is not None else ())
        return Recording(open_store(store), server, failures=failures)


def mock_server(recording: Recording, *, delays: bool = False) -> Server[Any]:
    """Return an MCP server that answers from a recording.

    Args:
        recording: the recording to answer from.
        delays: whether to delay each reply by the recorded time.
    """
    given: collections.Counter[tuple[str | None, str, str, str]] = collections.Counter()
    server: Server[Any] = Server(**recording.identity)
    methods = recording.methods()
    subscriptions = Subscriptions(server, methods.intersection(METHODS))

    def choose(ctx: Context, method: str, name: str, arguments: Any) -> _Call:
        asked = canonical(arguments)
        calls = recording.replies(method, name, asked)
        key = (session_id(ctx), method, name, asked)
        call = calls[min(given[key], len(calls) - 1)]
        given[key] += 1
        return call

    def seconds(call: _Call) -> float:
        return (call.latency_ms or 0) / 1000 if delays else 0

    async def reply(ctx: Context, method: str, name: str, arguments: Any) -> dict[str, Any]:
        call = choose(ctx, method, name, arguments)
        if seconds(call):
            await anyio.sleep(seconds(call))
        await subscriptions.send(ctx, call.notifications)
        if call.response is None or (call.outcome == "task"):
            await anyio.sleep_forever()
        if call.is_error:
            raise _recorded_error(call)
        return _checked(method, call.response, f"call {call.call_id}")

    async def reply_of_task(ctx: Context, name: str, arguments: Any) -> Reply:
        call = choose(ctx, "tools/call", name, arguments)
        await subscriptions.send(ctx, call.notifications)
        if call.response is None or call.outcome == "task":
            return 0, None
        if call.is_error:
            return seconds(call), _recorded_error(call)
        _checked("tools/call", call.response, f"call {call.call_id}")
        return seconds(call), call.response

    def caller(method: str, asked: Asked) -> Callable[[Context, Any], Any]:
        async def called(ctx: Context, params: Any) -> dict[str, Any]:
            return await reply(ctx, method, *asked(params))

        return called

    def lister(method: str) -> Callable[[Context, Any], Any]:
        async def listed(_: Context, __: Any) -> dict[str, Any]:
            result = {_LISTED[method]: recording.listing(method)}
            return _checked(method, result, f"listing of {method}")

        return listed

    for method, (params, asked) in _CALLED.items():
        if method in methods:
            server.add_request_handler(method, params, caller(method, asked))
    for method in methods.intersection(_LISTED):
        server.add_request_handler(method, types.PaginatedRequestParams, lister(method))
    if tools := recording.task_tools():
        server.extensions[EXTENSION] = {}
        server.middleware.append(Tasks(tools, reply_of_task))
    return server


def _recorded_error(call: _Call) -> MCPError:
    error = call.response if isinstance(call.response, dict) else {}
    code, message = error.get("code"), error.get("message")
    if not isinstance(code, int) or not isinstance(message, str):
        return _not_recorded(f"the recorded error of call {call.call_id} is malformed", call)
    return MCPError(code, message, error.get("data"))


def _checked(method: str, result: Any, what: str) -> dict[str, Any]:
    """Check a result, and add the members that newer revisions require.

    Raises:
        MCPError: the result is invalid, so the library cannot send it; the message says why.
    """
    completed = {**_ADDED, **result} if isinstance(result, dict) else {}
    model = types.InputRequiredResult if is_input_required(completed) else _RESULTS[method]
    try:
        model.model_validate(completed, by_name=False)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise _not_recorded(
            f"the recorded {what} is not a valid result of {method}: {place}: {fault['msg']}"
        ) from None
    return completed


def run_stdio(server: Server[Any]) -> None:
    """Serve one client on stdin and stdout until the client closes stdin."""

    async def serve() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(serve)


def run_http(server: Server[Any], sockets: Sequence[socket.socket], *, host: str) -> None:
    """Serve Streamable HTTP at the path /mcp until Ctrl-C.

    Args:
        server: the MCP server to run.
        sockets: listening sockets.
        host: the host on which `sockets` listen. On a loopback address, requests with a foreign
            `Host` or `Origin` are rejected.
    """
    application = server.streamable_http_app(host=host)
    config = uvicorn.Config(application, log_level="error", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=list(sockets))
