"""Determines which call a span describes, according to several conventions.

| convention | a call is a span with |
|---|---|
| OpenTelemetry MCP | `mcp.method.name`, or `mcp.tool.name` (Sentry, Docker, ContextForge) |
| OpenTelemetry GenAI | `gen_ai.operation.name` = `execute_tool` |
| OpenInference | `openinference.span.kind` = `TOOL` |
| Traceloop | `traceloop.span.kind` = `tool`, or a name such as `tools/list.mcp` |

The last three conventions describe an agent's actions. They do not record whether an MCP server ran
the tool, or which server.
"""

import re
from typing import Any, Final, Literal

import msgspec

from mcptally.importers.values import parsed, text_of, unwrapped

_TRACELOOP_METHOD: Final = re.compile(r"(?P<method>[a-z]+(?:/[a-z_]+)*)\.mcp\Z")
_MODELS: Final = ("gen_ai.request.model", "llm.model_name", "gen_ai.response.model")
_NAME: Final = re.compile(r"\b(?:tools/call|prompts/get) (?P<name>\S+)\Z")
"""Matches the name of the tool or prompt at the end of a span's name."""
_ARGUMENT: Final = "mcp.request.argument."
_PARTS: Final = frozenset({"mcp.client.request", "mcp.client.response"})
"""Names of spans that ContextForge nests within a call's span."""

SENTRY: Final = "sentry"
ACCESS_LOG: Final = "access-log"
_SILENT: Final = frozenset({(SENTRY, "server"), (ACCESS_LOG, None), ("mcp-python-sdk", "client")})
"""(Library, side) of spans that do not record whether a result is an error, although the MCP
conventions require it."""

OWN_OUTCOME: Final = "mcptally.outcome"
"""Attribute of our own spans that contains the outcome."""

ERROR_STATUSES: Final = (2, "2", "STATUS_CODE_ERROR", "ERROR")
"""Spellings of the status code of failed spans."""

Rank = Literal[0, 1, 2]
"""The program that wrote a span: the agent (0), the MCP client (1) or the server (2). Of nested
spans about the same call, the span with the highest rank takes precedence; the other spans add
missing facts."""


class Span(msgspec.Struct):
    """A span from any source."""

    line: int
    id: str
    parent: str | None
    name: str
    start: int | None
    end: int | None
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope: str | None = None
    """Library that wrote the span."""
    side: Literal["client", "server"] | None = None
    failed: bool = False
    message: str | None = None
    """Error text."""


class SpanCall(msgspec.Struct):
    """The facts that a span records about a call; missing facts are None."""

    method: str
    rank: Rank
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    is_error: bool | None = None
    """Whether the tool reported an error; None if the span does not record this."""
    session: Any = None
    request: Any = None
    label: str | None = None
    is_part: bool = False
    """Whether the span covers only a part of the call; its times are then not used."""
    reports_errors: bool = False
    """Whether a span without an error proves that the tool reported no error."""


def call_of(span: Span) -> SpanCall | None:
    """Return the call that a span describes according to the first convention that applies."""
    for convention in (_mcp, _gen_ai, _openinference, _traceloop):
        if call := convention(span, span.attributes):
            return call
    return None


def _mcp(span: Span, attributes: dict[str, Any]) -> SpanCall | None:
    """Apply OpenTelemetry's MCP conventions, and the variants of Sentry and gateways."""
    method = attributes.get("mcp.method.name")
    other_name = text_of(attributes.get("mcp.tool.name"))
    if not isinstance(method, str):
        if other_name is None:
            return None
        method = "tools/call"
    named = attributes.get("gen_ai.tool.name")
    tool = named if isinstance(named, str) else other_name
    prompt = text_of(attributes.get("gen_ai.prompt.name")) or text_of(
        attributes.get("mcp.prompt.name")
    )
    arguments = attributes.get("gen_ai.tool.call.arguments")
    if method == "tools/call" and arguments is None:
        given = {
            key.removeprefix(_ARGUMENT): parsed(value)
            for key, value in attributes.items()
            if key.startswith(_ARGUMENT)
        }
        arguments = given or None
    flag = attributes.get("mcp.tool.result.is_error")
    error = attributes.get("error.type")
    is_error = flag if isinstance(flag, bool) else True if error == "tool_error" else None
    if attributes.get("upstream.response.success") is False:  # ContextForge
        is_error = True
    reports_errors = "upstream.response.success" in attributes or not (
        "mcp.method.name" not in attributes  # Docker
        or "mcp.target" in attributes  # agentgateway
        or (span.scope, span.side) in _SILENT
        or attributes.get(OWN_OUTCOME) == "unknown"
    )
    name = prompt if tool is None else tool
    if name is None and (ending := _NAME.search(span.name)):
        name = ending["name"]
    return SpanCall(
        method,
        2 if span.side == "server" else 1,
        name,
        arguments,
        _result(method, attributes),
        is_error,
        attributes.get("mcp.session.id"),
        attributes.get("jsonrpc.request.id", attributes.get("mcp.request.id")),
        text_of(attributes.get("mcp.server.name"))
        or text_of(attributes.get("mcp.target"))  # agentgateway
        or text_of(span.resource.get("mcptally.server")),
        span.name in _PARTS,
        reports_errors=reports_errors,
    )


def _result(method: str, attributes: dict[str, Any]) -> Any:
    if method == "tools/list" and isinstance(
        tools := parsed(attributes.get("gen_ai.tool.definitions")), list
    ):
        return {"tools": tools}
    return attributes.get("gen_ai.tool.call.result", attributes.get("mcp.tool.result.content"))


def _gen_ai(span: Span, attributes: dict[str, Any]) -> SpanCall | None:
    """Apply OpenTelemetry's GenAI conventions for tools that an agent executed."""
    if attributes.get("gen_ai.operation.name") != "execute_tool":
        return None
    return SpanCall(
        "tools/call",
        0,
        text_of(attributes.get("gen_ai.tool.name")) or span.name.removeprefix("execute_tool "),
        attributes.get("gen_ai.tool.call.arguments", attributes.get("gen_ai.tool.input")),
        attributes.get("gen_ai.tool.call.result", attributes.get("gen_ai.tool.output")),
        span.failed or None,
        attributes.get("gen_ai.conversation.id"),
        attributes.get("gen_ai.tool.call.id"),
    )


def _openinference(span: Span, attributes: dict[str, Any]) -> SpanCall | None:
    """Apply OpenInference's conventions (Phoenix, Arize)."""
    if str(attributes.get("openinference.span.kind")).upper() != "TOOL":
        return None
    arguments = parsed(attributes.get("input.value"))
    if not isinstance(arguments, dict):
        parameters = parsed(attributes.get("tool.parameters"))
        arguments = parameters if isinstance(parameters, dict) else arguments
    result, is_error = unwrapped(attributes.get("output.value"))
    return SpanCall(
        "tools/call",
        0,
        text_of(attributes.get("tool.name")) or span.name,
        arguments,
        result,
        span.failed or is_error or None,
        attributes.get("session.id"),
        attributes.get("tool_call.id", attributes.get("tool.id")),
    )


def _traceloop(span: Span, attributes: dict[str, Any]) -> SpanCall | None:
    """Apply Traceloop's conventions (OpenLLMetry)."""
    server = text_of(attributes.get("traceloop.workflow.name"))
    if attributes.get("traceloop.span.kind") == "tool":
        given = parsed(attributes.get("traceloop.entity.input"))
        arguments = given.get("arguments", given) if isinstance(given, dict) else given
        of_client: Rank = 1 if isinstance(given, dict) and "tool_name" in given else 0
        output = attributes.get("traceloop.entity.output")
        wrapper = parsed(output)
        if (
            isinstance(wrapper, dict)
            and "result" in wrapper
            and wrapper.keys() <= {"result", "is_error"}
        ):
            output = wrapper["result"]
        return SpanCall(
            "tools/call",
            of_client,
            text_of(attributes.get("traceloop.entity.name")) or span.name.removesuffix(".tool"),
            arguments,
            output,
            span.failed or None,
            request=None,
            label=server,
        )
    match = _TRACELOOP_METHOD.match(span.name)
    return SpanCall(match["method"], 1, label=server) if match else None


def model_of(attributes: dict[str, Any]) -> str | None:
    """Return the language model that a span names in an attribute of any convention."""
    if attributes.get("gen_ai.operation.name") == "embeddings":
        return None
    return next(filter(None, (text_of(attributes.get(name)) for name in _MODELS)), None)
