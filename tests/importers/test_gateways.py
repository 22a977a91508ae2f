"""Logs of gateways, and of Cursor."""

import pytest

from tests.importers.imported_logs import SAMPLES, WRITTEN, Logs

pytestmark = pytest.mark.slow

LOGS = Logs()


def log(name, source):
    return LOGS.add(name, source, timezone="UTC")


FORGE = [
    *[("price", "ok"), ("order", "ok"), ("order", "tool_error"), ("order", "tool_error")],
    *[("stock", "ok"), ("stock", "tool_error"), ("stock", "ok"), ("order", "tool_error")],
    *[("price", "ok"), ("price", "protocol_error")],
]
"""Ten calls through ContextForge; before the last one, the server was stopped."""


CONTEXTFORGE_SPANS = log("spans.jsonl.gz", SAMPLES / "spans-contextforge.jsonl.gz")


def test_a_call_in_three_spans_of_contextforge_is_one_call(imported):
    tally, calls = imported(CONTEXTFORGE_SPANS, "otlp")
    assert tally.context["also in another span of the same call"] == 18
    assert set(calls["server"]) == {"localhost:9111"}
    assert calls.select("tool", "outcome").rows() == FORGE
    # The duration is that of `mcp.client.call`, not of the request or the response within it.
    assert calls["latency_ms"].round(1)[0] == 68.1


ACCESS_LOG = log("gateway.log", WRITTEN / "gateway-access.txt")


def test_access_logs_give_server_tool_http_failures_and_times(imported):
    tally, calls = imported(ACCESS_LOG, "access-log")
    assert tally.used == 5
    assert tally.context == {"a request without an MCP method": 2, "a message of the gateway": 1}
    assert tally.unused["neither a request nor a message of the gateway"].runs == [[9, 9]]
    assert tally.notes["a reply: whether it is an error is not recorded"] == 2
    names = ("server", "tool", "outcome", "error_code", "error_text", "latency_ms")
    assert calls.select(names).rows() == [
        ("web", "open", "unknown", None, None, 69.0),
        ("web", "close", "protocol_error", -32602, 'no such tab: "1" mcp.target=x', 1500.0),
        ("web", "fetch", "protocol_error", None, "connection reset", 476.0),
        ("docs", "find", "unknown", None, None, 653.0),
        ("docs", "find", "no_response", None, None, None),
    ]
    assert calls["arguments"].null_count() == calls["response_bytes"].null_count() == 5


CURSOR_LOG = log("MCP user-docs.log", WRITTEN / "cursor.txt")


def test_a_log_of_cursor_gives_tool_failure_and_times(imported):
    tally, calls = imported(CURSOR_LOG, "cursor")
    assert tally.unused["the end of a call that did not begin in this file"].runs == [[12, 12]]
    assert tally.notes == {
        "calls to one tool at the same time: replies taken in order": 1,
        "a reply: whether it is an error is not recorded": 1,
    }
    names = ("server", "tool", "outcome", "error_code", "error_text", "latency_ms")
    assert calls.select(names).rows() == [
        ("docs", "open", "unknown", None, None, 1000.0),
        ("web", "close", "protocol_error", -32000, "Connection closed", 500.0),
        ("docs", "open", "timeout", None, None, None),
        ("docs", "open", "no_response", None, None, None),
    ]


GATEWAY_SPANS = log("spans.json", WRITTEN / "gateway-spans.json")


def test_spans_of_docker_agentgateway_and_envoy_have_the_server_and_the_failure(imported):
    _, calls = imported(GATEWAY_SPANS, "otlp")
    rows = calls.sort("tool").select("server", "tool", "outcome", "error_code").rows()
    assert rows == [
        ("hub", "find", "protocol_error", None),
        ("spans", "get", "protocol_error", None),
        ("web", "open", "protocol_error", -32602),
    ]
