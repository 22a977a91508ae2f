"""Formats that contain calls: their data becomes calls, and what they lack is null."""

import json

import polars as pl
import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import Logs, all_records_accounted_for

pytestmark = pytest.mark.slow

LOGS = Logs()


CODE_LOG = [
    {
        "debug": "Starting connection with timeout of 30000ms",
        "timestamp": "2026-03-01T10:00:00.000Z",
    },
    {"debug": "Calling MCP tool: send", "timestamp": "2026-03-01T10:00:01.000Z"},
    {"error": "Server stderr: warming up\nready", "timestamp": "2026-03-01T10:00:01.100Z"},
    {
        "debug": "Tool 'send' completed successfully in 505ms",
        "timestamp": "2026-03-01T10:00:01.506Z",
    },
    {"debug": "Calling MCP tool: send", "timestamp": "2026-03-01T10:00:02.000Z"},
    {
        "debug": "Tool 'send' failed after 0s: no such user: bob",
        "timestamp": "2026-03-01T10:00:02.2Z",
    },
    {"debug": "Calling MCP tool: list", "timestamp": "2026-03-01T10:00:03.000Z"},
    {
        "debug": "Tool 'list' failed after 1s: MCP error -32602: Tool list not found",
        "timestamp": "2026-03-01T10:00:04.000Z",
    },
    {"debug": "Calling MCP tool: wait", "timestamp": "2026-03-01T10:00:05.000Z"},
]


CODE = LOGS.add(
    "mcp-logs-mailer/2026-03-01T10-00-00.jsonl",
    "".join(
        json.dumps({**line, "sessionId": "s0", "cwd": "/srv/demo"}) + "\n" for line in CODE_LOG
    ),
)


def test_claude_code_s_mcp_log_gives_tool_outcome_duration_and_stderr(logs):
    done, found, calls, _ = logs[CODE]
    assert all_records_accounted_for(done)
    assert done.files[0].format == "claude-code"
    assert [e["text"] for e in found if e["event"] == "stderr"] == ["warming up", "ready"]
    assert found[0]["server"] == "mailer"
    calls = calls.sort("requested_at")
    rows = calls.select("tool", "outcome", "error_code", "error_text", "latency_ms").rows()
    assert rows == [
        ("send", "ok", None, None, 505.0),
        ("send", "tool_error", None, "no such user: bob", 200.0),
        ("list", "protocol_error", -32602, "Tool list not found", 1000.0),
        ("wait", "no_response", None, None, None),
    ]
    assert calls.get_column("arguments").null_count() == 4
    assert calls.get_column("response_tokens")[0] is None


def turn(kind: str, at: str, *blocks: dict[str, object], **extra: object) -> str:
    head = {"type": kind, "timestamp": at, "sessionId": "s1", "cwd": "/srv/demo", "uuid": "u"}
    return json.dumps({**head, "message": {"role": kind, "content": list(blocks)}, **extra}) + "\n"


def claude_code_transcript() -> str:
    use = {"type": "tool_use", "id": "toolu_1", "name": "mcp__web__open", "input": {"url": "x"}}
    other = {"type": "tool_use", "id": "toolu_2", "name": "mcp__my_db__run__sql", "input": {}}
    error_reply = {"type": "tool_use", "id": "toolu_3", "name": "mcp__web__close", "input": {}}
    own = {"type": "tool_use", "id": "toolu_4", "name": "Bash", "input": {"command": "ls"}}
    text = [{"type": "text", "text": "Page not found"}]
    no = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    return (
        '{"type":"summary","summary":"x","sessionId":"s1","cwd":"/"}\n'
        + turn("assistant", "2026-03-01T10:00:00.000Z", use, other)
        + turn("assistant", "2026-03-01T10:00:00.100Z", error_reply, own)
        + turn(
            "user",
            "2026-03-01T10:00:02.000Z",
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": text},
        )
        + turn(
            "user",
            "2026-03-01T10:00:03.000Z",
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "3 rows"},
        )
        + turn(
            "user",
            "2026-03-01T10:00:04.000Z",
            {"type": "tool_result", "tool_use_id": "toolu_3", "is_error": True, "content": no},
        )
        + turn("user", "2026-03-01T10:00:05Z", {"type": "tool_result", "tool_use_id": "toolu_4"})
    )


TRANSCRIPT = LOGS.add("session.jsonl", claude_code_transcript())


def test_claude_code_s_transcript_gives_arguments_and_content_of_each_server(logs):
    done, _, calls, _ = logs[TRANSCRIPT]
    assert all_records_accounted_for(done)
    assert done.files[0].tally.notes["calls that the client itself refused: left out"] == 1
    calls = calls.sort("tool")
    rows = calls.select("server", "tool", "arguments", "outcome", "error_text", "latency_ms").rows()
    assert rows == [
        ("web", "open", '{"url":"x"}', "tool_error", "Page not found", 2000.0),
        ("my_db", "run__sql", "{}", "ok", None, 3000.0),
    ]


def codex(at: str, **payload: object) -> str:
    return json.dumps({"timestamp": at, "type": "event_msg", "payload": payload}) + "\n"


def codex_rollout() -> str:
    request = {"server": "files", "tool": "read", "arguments": {"path": "a"}}
    took = {"secs": 1, "nanos": 500_000_000}
    good = {"content": [{"type": "text", "text": "ok"}], "isError": False}
    bad = {"content": [{"type": "text", "text": "no such file"}], "isError": True}
    return (
        '{"timestamp":"2026-03-01T10:00:00Z","type":"session_meta","payload":{"id":"abc"}}\n'
        + codex(
            "2026-03-01T10:00:01Z", type="mcp_tool_call_begin", call_id="c1", invocation=request
        )
        + codex(
            "2026-03-01T10:00:03Z",
            type="mcp_tool_call_end",
            call_id="c1",
            invocation=request,
            duration=took,
            result={"Ok": good},
        )
        + json.dumps(
            {
                "timestamp": "2026-03-01T10:00:05Z",
                "id": "0",
                "msg": {
                    "type": "mcp_tool_call_end",
                    "call_id": "c2",
                    "invocation": request,
                    "duration": took,
                    "result": {"Ok": bad},
                },
            }
        )
        + "\n"
        + codex(
            "2026-03-01T10:00:07Z",
            type="mcp_tool_call_end",
            call_id="c3",
            invocation=request,
            duration=took,
            result={"Err": "tool call error: request timed out"},
        )
        + codex(
            "2026-03-01T10:00:08Z", type="mcp_tool_call_begin", call_id="c4", invocation=request
        )
    )


ROLLOUT = LOGS.add("rollout-x.jsonl", codex_rollout())


def test_codex_rollouts_give_calls_with_their_durations(logs):
    done, _, calls, findings = logs[ROLLOUT]
    assert all_records_accounted_for(done)
    calls = calls.sort("requested_at")
    rows = calls.select("request_id", "outcome", "error_code", "error_text", "latency_ms").rows()
    assert rows == [
        ('"c1"', "ok", None, None, 1500.0),
        ('"c2"', "tool_error", None, "no such file", 1500.0),
        ('"c3"', "protocol_error", None, "tool call error: request timed out", 1500.0),
        ('"c4"', "no_response", None, None, None),
    ]
    assert set(calls.get_column("arguments")) == {'{"path":"a"}'}
    assert calls.get_column("request_bytes").null_count() == 4
    assert set(calls.get_column("session_source")) == {"source"}
    # Such a log has no handshake, so a missing one is not a finding.
    assert findings.filter(pl.col("rule").str.starts_with("protocol.before")).is_empty()


def span(name: str, start: int, end: int, status: object = None, **attributes: object) -> dict:
    values = {
        key.replace("__", "."): {"stringValue": value} if isinstance(value, str) else value
        for key, value in attributes.items()
    }
    return {
        "spanId": f"{start:016x}",
        "name": name,
        "kind": 3,
        "startTimeUnixNano": str(1_790_000_000_000_000_000 + start * 1_000_000),
        "endTimeUnixNano": str(1_790_000_000_000_000_000 + end * 1_000_000),
        "attributes": [{"key": key, "value": value} for key, value in values.items()],
        "status": status or {},
    }


CALL = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "get-weather"}
SPANS = [
    span("a", 1, 5, **CALL, gen_ai__tool__call__arguments='{"city":"Ulm"}')
    | {"kind": "SPAN_KIND_CLIENT"},
    span("b", 2, 9, {"code": 2}, **CALL, error__type="tool_error", mcp__session__id="s"),
    span("c", 3, 4, {"code": 2, "message": "Unknown tool"}, **CALL, error__type="-32602"),
    span("d", 6, 36, {"code": 2}, **CALL, error__type="timeout"),
    span("e", 7, 8, {"code": "STATUS_CODE_ERROR", "message": "boom"}, **CALL, error__type="_OTHER"),
    span("f", 8, 9, mcp__method__name="resources/read", mcp__resource__uri="file:///a"),
    span("g", 9, 10, **CALL, gen_ai__tool__call__result='[{"type":"text","text":"rain"}]'),
    span("h", 9, 12, http__method="GET"),
]


AGENT = {"attributes": [{"key": "service.name", "value": {"stringValue": "agent"}}]}
DOCUMENT = {"resourceSpans": [{"resource": AGENT, "scopeSpans": [{"spans": SPANS}]}]}
OTHER = json.dumps(DOCUMENT, indent=2).replace('"agent"', '"other"')


@pytest.mark.parametrize(
    "log",
    [LOGS.add("traces.json", json.dumps(DOCUMENT)), LOGS.add("traces.json", OTHER)],
    ids=["one line", "printed over many lines"],
)
def test_spans_with_the_mcp_conventions_become_calls(logs, log):
    done, _, calls, _ = logs[log]
    assert all_records_accounted_for(done)
    assert done.files[0].tally.context == {"a span without a call": 1}
    calls = calls.sort("requested_at")
    names = ("outcome", "arguments", "error_code", "error_text", "resource_uri", "latency_ms")
    assert calls.select(names).rows() == [
        ("ok", '{"city":"Ulm"}', None, None, None, 4.0),
        ("tool_error", None, None, None, None, 7.0),
        ("protocol_error", None, -32602, "Unknown tool", None, 1.0),
        ("timeout", None, None, None, None, None),
        ("protocol_error", None, None, "boom", None, 1.0),
        ("ok", None, None, None, "file:///a", 1.0),
        ("ok", None, None, None, None, 1.0),
    ]
    assert calls.get_column("text")[-1] == "rain"


def snooped(seq: int, direction: str, **extra: object) -> str:
    head = {"session_id": "srv-1", "server_label": "demo", "seq": seq, "direction": direction}
    when = f"2026-03-01T10:00:0{seq}.123456789Z"
    return json.dumps({**head, "ts": when, "transport": "stdio", **extra}) + "\n"


ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}
REPLY = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
SNOOPED = LOGS.add(
    "srv-1.jsonl",
    snooped(0, "meta", raw={"command": ["node", "x.js"]})
    + snooped(1, "c2s", raw=ASKED)
    + snooped(2, "stderr", text="listening")
    + snooped(3, "s2c", text="not JSON")
    + snooped(4, "s2c", raw=REPLY)
    + "{broken\n",
)


def test_sessions_of_mcpsnoop_are_read(logs):
    done, found, calls, _ = logs[SNOOPED]
    assert all_records_accounted_for(done)
    assert done.unused_lines == 1
    assert done.files[0].tally.unused["not an event of mcpsnoop"].runs == [[6, 6]]
    assert [e["event"] for e in found] == ["open", "message", "stderr", "raw", "message", "close"]
    assert found[0]["command"] == ["node", "x.js"]
    assert found[1]["ts_ns"] % 1_000_000_000 == 123456789
    assert calls.select("tool", "outcome", "latency_ms").rows() == [("x", "ok", 3000.0)]


def test_a_report_says_where_each_unused_line_is(tmp_path):
    source = tmp_path / "wire.jsonl"
    good = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    source.write_text(good + "oops\n" * 3 + good + '{"a":1}\n' + good)
    done = import_logs(source, tmp_path / "t", format="jsonrpc")
    report = json.loads(done.files[0].report.read_text())
    assert report["records"] == 7
    assert report["used"] == 3
    assert report["unused"] == {
        "neither JSON nor an envelope": {"count": 3, "lines": [[2, 4]]},
        "JSON without a message": {"count": 1, "lines": [[6, 6]]},
    }
