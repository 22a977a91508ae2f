"""Logs of gateways, and of Cursor."""

import json

import pytest

from tests.importers.imported_logs import SAMPLES, Logs

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


ACCESS = [  # lines of agentgateway (text, and JSON of an older version), and of Envoy AI Gateway
    ("2026-07-12T20:28:00.857219Z\tinfo\trequest gateway=g listener=http route=ns/r "
    "src.addr=127.0.0.1:56158 http.method=POST http.path=/mcp http.status=200 protocol=mcp "
    "mcp.method.name=tools/call mcp.target=web mcp.resource.type=tool gen_ai.tool.name=open "
    "mcp.target=other "
    "mcp.session.id=ck5H== duration=69ms"),
    ("[pod/gw-1] 2026-07-12T20:28:02.857Z info request route=ns/r http.status=200 protocol=mcp "
    'mcp.method.name=tools/call mcp.target=web gen_ai.tool.name=close mcp.error.code=-32602 '
    'mcp.error.message="no such tab: \\"1\\" mcp.target=x" duration=1.5s'),
    ('{"level":"info","time":"2026-07-12T20:28:03Z","scope":"request","http.status":500,'
    '"mcp.method":"tools/call","mcp.target":"web","mcp.resource":"tool",'
    '"mcp.resource.name":"fetch","error":"connection reset","duration":"476ms"}'),
    ('{"start_time":"2026-07-12T20:28:04.000Z","duration":653,"response_code":200,'
    '"mcp.method.name":"tools/call","mcp.tool.name":"find","mcp.provider.name":"docs",'
    '"jsonrpc.request.id":"3","mcp.session.id":"s1","gen_ai.request.model":null}'),
    ('{"start_time":"2026-07-12T20:28:05.000Z","duration":"7","response_code":0,'
    '"mcp.method.name":"tools/call","mcp.tool.name":"find","mcp.provider.name":"docs"}'),
    '{"start_time":"2026-07-12T20:28:06.000Z","duration":2,"mcp.method.name":null}',
    "2026-07-12T20:28:07.857219Z\tinfo\trequest route=ns/llm http.status=200 protocol=llm",
    "2026-07-12T20:28:08.857219Z\tinfo\tproxy::gateway\tstarted bind",
    "panicked",
]  # fmt: skip
ACCESS_LOG = log("gateway.log", "".join(line + "\n" for line in ACCESS))


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


CURSOR = """\
2026-02-04 18:00:27.000 [info] Handling CallTool action for tool 'open' with toolCallId: call_1
fc_0849
2026-02-04 18:00:27.000 [info] Calling tool 'open' with toolCallId: call_1
fc_0849
2026-02-04 18:00:27.100 [error] [02/04/26 18:00:27] INFO  Processing request
2026-02-04 18:00:28.000 [info] Successfully called tool 'open'
2026-02-04 18:00:29.000 [info] web: Calling tool 'close'
2026-02-04 18:00:29.500 [error] web: Error calling tool 'close': MCP error -32000: Connection closed
2026-02-04 18:00:30.000 [info] Calling tool 'open' with toolCallId: call_2
2026-02-04 18:00:31.000 [info] Calling tool 'open' with toolCallId: call_3
2026-02-04 18:00:33.000 [error] Error calling tool 'open': MCP error -32001: Request timed out
2026-02-04 18:00:34.000 [info] Successfully called tool 'find'
"""
CURSOR_LOG = log("MCP user-docs.log", CURSOR)


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


def span(name, side, *, failed=False, **attributes):
    values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    start = 1790000000000000000
    return {
        "spanId": name,
        "name": name,
        "kind": side,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 10**9),
        "attributes": values,
        "status": {"code": 2, "message": "Tool execution failed"} if failed else {},
    }


DOCKER = {"mcp.tool.name": "find", "mcp.server.name": "hub"}
AGENT = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "open", "mcp.target": "web"}
ENVOY = {"mcp.method.name": "tools/call", "mcp.tool.name": "get", "mcp.transport": "http"}
SPANS = [
    span("mcp.tool.call", 3, failed=True, **DOCKER),
    span("POST /*", 2, **AGENT, **{"mcp.error.code": "-32602"}),
    span("CallTool", 1, failed=True, **ENVOY),
]
GATEWAY_SPANS = log(
    "spans.json", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": SPANS}]}]})
)


def test_spans_of_docker_agentgateway_and_envoy_have_the_server_and_the_failure(imported):
    _, calls = imported(GATEWAY_SPANS, "otlp")
    rows = calls.sort("tool").select("server", "tool", "outcome", "error_code").rows()
    assert rows == [
        ("hub", "find", "protocol_error", None),
        ("spans", "get", "protocol_error", None),
        ("web", "open", "protocol_error", -32602),
    ]
