"""Formats that contain calls: their data becomes calls, and what they lack is null."""

import json

import polars as pl
import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import WRITTEN, Logs, all_records_accounted_for

pytestmark = pytest.mark.slow

LOGS = Logs()


CODE = LOGS.add("mcp-logs-mailer/2026-03-01T10-00-00.jsonl", WRITTEN / "claude-code-mcp.jsonl")


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


TRANSCRIPT = LOGS.add("session.jsonl", WRITTEN / "claude-code-session.jsonl")


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


ROLLOUT = LOGS.add("rollout-x.jsonl", WRITTEN / "codex-rollout.jsonl")


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


SPANS = json.loads((WRITTEN / "spans.json").read_text())
OTHER = json.dumps(SPANS, indent=2).replace('"agent"', '"other"')


@pytest.mark.parametrize(
    "log",
    [LOGS.add("traces.json", json.dumps(SPANS)), LOGS.add("traces.json", OTHER)],
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


SNOOPED = LOGS.add("srv-1.jsonl", WRITTEN / "mcpsnoop.jsonl")


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
