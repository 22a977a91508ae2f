"""Table of the formats that can be imported: reader, title, and what the format lacks."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

from mcptally.importers.formats import (
    access_log,
    claude_code,
    claude_desktop,
    codex,
    contextforge,
    cursor,
    gemini_cli,
    har,
    inspect_ai,
    jsonrpc_lines,
    langfuse,
    langsmith,
    litellm,
    mcphawk,
    mcpsnoop,
    opencode,
    otlp,
    phoenix,
    sentry,
    vscode,
)
from mcptally.importers.items import Item
from mcptally.importers.source import Source

Fidelity = Literal["frames", "calls", "truncated"]
"""What a format contains: `frames`: messages. `truncated`: messages, long ones cut. `calls`:
records of calls, from which request and reply are built."""


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """A log format of another program."""

    name: str
    title: str
    read: Callable[[Source], Iterator[Item]]
    faithful: Fidelity
    missing: tuple[str, ...] = ()
    """What such a log does not contain; it is null in the transcript and in the tables."""
    chronological: bool = True
    """Whether the records are in the order in which the events happened."""
    restarts: bool = True
    """Whether an `initialize` starts a new recording, because the log has no session ids."""
    names: tuple[str, ...] = ()
    """Patterns of file names in a folder."""
    has_built_in: bool = False
    """Whether the format also has the calls of an agent's built-in tools."""
    cut: bytes | None = None
    """Text in files whose long messages were cut: such a file is `truncated`."""


_CALLS: Final = ("frames", "bytes", "all messages but calls", "request ids of the wire")

FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        Format(
            "claude-desktop",
            "Claude Desktop: mcp-server-NAME.log, mcp.log",
            claude_desktop.read,
            "frames",
            ("bytes",),
            names=("mcp-server-*.log", "mcp.log", "mcp[0-9].log"),
            cut=claude_desktop.CUT,
        ),
        Format(
            "claude-code",
            "Claude Code: MCP logs and transcripts",
            claude_code.read,
            "calls",
            (*_CALLS, "content of successes (MCP logs)", "arguments (MCP logs)"),
            chronological=False,
            names=("*.jsonl",),
            has_built_in=True,
        ),
        Format(
            "codex",
            "Codex: rollouts, and the output of codex exec --json",
            codex.read,
            "calls",
            _CALLS,
            chronological=False,
            names=("*.jsonl",),
            has_built_in=True,
        ),
        Format(
            "vscode",
            "VS Code: output of an MCP server",
            vscode.read,
            "frames",
            ("bytes",),
            names=("*.log", "*.txt"),
        ),
        Format(
            "cursor",
            "Cursor: log of an MCP server",
            cursor.read,
            "calls",
            (*_CALLS, "arguments and content", "whether a result is an error"),
            names=("MCP*.log", "Cursor MCP.log"),
        ),
        Format(
            "har",
            "HAR 1.2, from a browser or a proxy",
            har.read,
            "frames",
            ("time of each event of a stream",),
            chronological=False,
            restarts=False,
            names=("*.har",),
        ),
        Format(
            "otlp",
            "OTLP JSON: spans of MCP clients and servers, and of agents' tools",
            otlp.read,
            "calls",
            (*_CALLS, "arguments and content, unless recorded"),
            chronological=False,
            names=("*.json", "*.jsonl"),
        ),
        Format(
            "sentry",
            "Sentry: envelopes and events with spans of MCP servers",
            sentry.read,
            "calls",
            (*_CALLS, "arguments and content, unless recorded", "whether a result is an error"),
            chronological=False,
            names=("*.json", "*.jsonl", "*.envelope"),
        ),
        Format(
            "phoenix",
            "Phoenix: spans from its REST API",
            phoenix.read,
            "calls",
            (*_CALLS, "server"),
            chronological=False,
            names=("*.json", "*.jsonl"),
        ),
        Format(
            "langsmith",
            "LangSmith: runs of tools",
            langsmith.read,
            "calls",
            (*_CALLS, "server"),
            chronological=False,
            names=("*.json", "*.jsonl"),
        ),
        Format(
            "langfuse",
            "Langfuse: observations of tools",
            langfuse.read,
            "calls",
            (*_CALLS, "server"),
            chronological=False,
            names=("*.json", "*.jsonl"),
        ),
        Format(
            "litellm",
            "LiteLLM: calls of its MCP gateway",
            litellm.read,
            "calls",
            _CALLS,
            chronological=False,
            names=("*.json", "*.jsonl"),
        ),
        Format(
            "access-log",
            "agentgateway and Envoy AI Gateway: access logs",
            access_log.read,
            "calls",
            ("frames", "bytes", "arguments and content", "whether a result is an error"),
            chronological=False,
            names=("*.log", "*.txt", "*.json", "*.jsonl"),
        ),
        Format(
            "contextforge",
            "ContextForge: JSON log file",
            contextforge.read,
            "calls",
            (*_CALLS, "arguments and content"),
            chronological=False,
            names=("*.log", "*.jsonl"),
        ),
        Format(
            "inspect-ai",
            "Inspect AI: logs (.eval and JSON)",
            inspect_ai.read,
            "calls",
            (*_CALLS, "server"),
            chronological=False,
            names=("*.json", "*.eval"),
        ),
        Format(
            "gemini-cli",
            "Gemini CLI: sessions",
            gemini_cli.read,
            "calls",
            _CALLS,
            chronological=False,
            names=("session-*.json", "*.jsonl"),
            has_built_in=True,
        ),
        Format(
            "opencode",
            "opencode: opencode.db, exported sessions, the output of opencode run --format json",
            opencode.read,
            "calls",
            _CALLS,
            chronological=False,
            names=("*.json", "*.jsonl", "*.db"),
            has_built_in=True,
        ),
        Format(
            "mcpsnoop",
            "mcpsnoop: session logs",
            mcpsnoop.read,
            "frames",
            ("bytes",),
            names=("*.jsonl",),
        ),
        Format(
            "mcphawk",
            "mcphawk 1.0: mcphawk.db",
            mcphawk.read,
            "frames",
            ("HTTP statuses",),
            restarts=False,
            names=("*.db", "*.sqlite", "*.sqlite3"),
        ),
        Format(
            "jsonrpc",
            "JSON-RPC messages, one per line, bare or in an envelope",
            jsonrpc_lines.read,
            "frames",
            names=("*.jsonl", "*.ndjson", "*.log"),
        ),
    )
}
