"""Logs of agents and of the platforms that observe them."""

import json

import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import SAMPLES, Logs, all_records_accounted_for

pytestmark = pytest.mark.slow

NAMES = ("server", "tool", "arguments", "outcome", "text", "latency_ms")


LOGS = Logs()


SAMPLE = {
    name: LOGS.add(name, SAMPLES / name)
    for name in ("langsmith.jsonl.gz", "langfuse.json.gz", "litellm.jsonl.gz")
}


def test_runs_of_langsmith_give_the_calls_of_tools(imported):
    tally, calls = imported(SAMPLE["langsmith.jsonl.gz"], "langsmith")
    assert tally.notes.total() == 3  # no run says which server ran the tool
    assert calls.select(*NAMES[1:5]).rows() == [
        ("price", '{"item":"tea","count":3}', "ok", '{"item": "tea", "cents": 750}'),
        ("price", '{"item":"tea","count":4}', "ok", '{"item": "tea", "cents": 1000}'),
        ("order", '{"item":"tea","count":30}', "tool_error", "Quantity must be at most 10"),
    ]


def test_observations_of_langfuse_give_the_calls_of_tools(imported):
    tally, calls = imported(SAMPLE["langfuse.json.gz"], "langfuse")
    assert tally.context == {"an observation that is not of a tool": 2}
    assert calls.select(NAMES).rows() == [
        ("langfuse", "price", '{"item":"tea","count":3}', "ok", '{"cents": 750}', 250.0),
        (
            *("langfuse", "order", '{"item":"tea","count":30}', "tool_error"),
            *("Quantity must be at most 10", 250.0),
        ),
    ]


def test_payloads_of_litellm_give_server_tool_and_how_a_call_failed(imported):
    tally, calls = imported(SAMPLE["litellm.jsonl.gz"], "litellm")
    assert tally.context == {"a request that is not a call to an MCP tool": 1}
    assert calls.select("server", "tool", "outcome", "error_text", "latency_ms").rows() == [
        ("orders", "price", "ok", None, 500.0),
        ("orders", "order", "tool_error", "Quantity must be at most 10", 500.0),
        ("orders", "stock", "protocol_error", "connection refused: warehouse:5432", 500.0),
    ]


SPEND_CALL = {"name": "price", "arguments": {"item": "tea"}, "mcp_server_name": "shop"}
SPENT = {
    "request_id": "r1",
    "call_type": "call_mcp_tool",
    "startTime": "2026-11-22T20:00:00+00:00",
    "endTime": "2026-11-22T20:00:02+00:00",
    "metadata": json.dumps({"status": "success", "mcp_tool_call_metadata": SPEND_CALL}),
    "response": json.dumps({"content": [{"type": "text", "text": "750"}], "isError": False}),
}
SPEND = LOGS.add("spend.json", json.dumps([SPENT]))


def test_a_row_of_litellm_s_spend_logs_with_json_texts_is_a_call(imported):
    _, calls = imported(SPEND, "litellm")
    assert calls.select(NAMES).rows() == [("shop", "price", '{"item":"tea"}', "ok", "750", 2000.0)]


def gemini(name, status, response, **extra):
    part = {"functionResponse": {"id": "x", "name": name, "response": response}}
    call = {"id": f"{name}-1", "name": name, "args": {"url": "x"}, "status": status}
    at = {"timestamp": "2026-11-22T20:00:07.000Z"}
    return {**call, **at, "result": [part], **extra}


GEMINI = [
    {"sessionId": "s1", "projectHash": "h", "startTime": "2026-11-22T20:00:00.000Z"},
    {"id": "m1", "timestamp": "2026-11-22T20:00:01.000Z", "type": "user", "content": "go"},
    {
        "id": "m2",
        "timestamp": "2026-11-22T20:00:05.000Z",
        "type": "gemini",
        "toolCalls": [
            gemini("mcp_web_open", "success", {"output": "hello"}),
            gemini("mcp_web_close", "error", {"error": "no such page"}),
            gemini("run", "success", {"output": "1"}, displayName="run (my_db MCP Server)"),
            gemini("read_file", "success", {"output": "text"}),
        ],
    },
]


GEMINI_LINES = "".join(json.dumps(line) + "\n" for line in [*GEMINI, GEMINI[-1]])
GEMINI_DOCUMENT = json.dumps({**GEMINI[0], "messages": GEMINI[1:]}, indent=2)
SESSION = "session-2026-11-22T20-00-s1.jsonl"


@pytest.mark.parametrize(
    ("log", "document"),
    [(LOGS.add(SESSION, GEMINI_LINES), False), (LOGS.add(SESSION, GEMINI_DOCUMENT), True)],
    ids=["lines", "one document"],
)
def test_sessions_of_gemini_cli_give_the_calls_of_mcp_tools(imported, log, document):
    tally, calls = imported(log, "gemini-cli")
    assert tally.notes["calls to built-in tools: left out"] == (1 if document else 2)
    assert calls.sort("server", "tool").select(NAMES).rows() == [
        ("my_db", "run", '{"url":"x"}', "ok", "1", 2000.0),
        ("web", "close", '{"url":"x"}', "tool_error", "no such page", 2000.0),
        ("web", "open", '{"url":"x"}', "ok", "hello", 2000.0),
    ]


def opencode(tool, status, **state):
    times = {"start": 1790000000000, "end": 1790000001500}
    return {
        "id": f"prt_{tool}",
        "sessionID": "ses_1",
        "type": "tool",
        "callID": f"call_{tool}",
        "tool": tool,
        "state": {"status": status, "input": {"url": "x"}, "time": times, **state},
    }


OPENCODE = [
    opencode("web_open", "completed", output="hello"),
    opencode("web_close", "error", error="no such page"),
    opencode("bash", "completed", output="text"),
    opencode("apply_patch", "completed", output="text"),
    {"type": "text", "sessionID": "ses_1", "text": "done"},
]


INFO = {"id": "msg_1", "sessionID": "ses_1", "role": "assistant"}
EXPORTED = {"info": {"id": "ses_1"}, "messages": [{"info": INFO, "parts": OPENCODE}]}
LINES = [{"type": "tool_use", "sessionID": "ses_1", "part": part} for part in OPENCODE]


@pytest.mark.parametrize(
    "log",
    [
        LOGS.add("session.json", "".join(json.dumps(line) + "\n" for line in LINES)),
        LOGS.add("session.json", json.dumps(EXPORTED, indent=2).replace("ses_1", "ses_2")),
    ],
    ids=["run --format json", "export"],
)
def test_sessions_of_opencode_give_the_calls_of_mcp_tools(imported, log):
    tally, calls = imported(log, "opencode")
    assert tally.notes["calls to built-in tools: left out"] == 2
    assert calls.sort("tool").select(NAMES).rows() == [
        ("web", "close", '{"url":"x"}', "tool_error", "no such page", 1500.0),
        ("web", "open", '{"url":"x"}', "ok", "hello", 1500.0),
    ]


@pytest.mark.parametrize("form", ["langsmith", "langfuse", "litellm", "gemini-cli", "opencode"])
def test_damaged_lines_are_counted(tmp_path, form):
    source = tmp_path / "x.jsonl"
    source.write_text('{"torn\n[1]\n"text"\n\n{}\n')
    done = import_logs(source, tmp_path / "t", format=form)
    assert all_records_accounted_for(done)
    assert done.files[0].tally.unused["not a JSON object"].runs == [[1, 3]]


CLAUDE = [
    {
        "type": "assistant",
        "sessionId": "s1",
        "cwd": "/home/me",
        "timestamp": "2026-11-22T20:00:00Z",
        "message": {
            "content": [
                {"type": "tool_use", "id": f"t{n}", "name": name, "input": {"path": "x"}}
                for n, name in enumerate(["Read", "mcp__web__open", "Edit", "Bash"])
            ]
        },
    },
    {
        "type": "user",
        "sessionId": "s1",
        "cwd": "/home/me",
        "timestamp": "2026-11-22T20:00:02Z",
        "message": {
            "content": [
                {"type": "tool_result", "tool_use_id": f"t{n}", "content": text, "is_error": failed}
                for n, (text, failed) in enumerate(
                    [
                        ("text", False),
                        ("hello", False),
                        ("<tool_use_error>File has not been read yet.</tool_use_error>", True),
                        ("The user doesn't want to proceed with this tool use.", True),
                    ]
                )
            ]
        },
    },
]

CODEX = [
    {"type": "session_meta", "payload": {"id": "s1"}},
    *(
        {"type": "response_item", "timestamp": f"2026-11-22T20:00:0{n}Z", "payload": payload}
        for n, payload in enumerate(
            [
                {
                    "type": "function_call",
                    "name": "shell",
                    "arguments": '{"command":["ls"]}',
                    "call_id": "c1",
                },
                {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "output": json.dumps({"output": "no", "metadata": {"exit_code": 2}}),
                },
                {"type": "function_call", "name": "web__open", "arguments": "{}", "call_id": "c2"},
                {"type": "function_call_output", "call_id": "c2", "output": "hello"},
                {
                    "type": "custom_tool_call",
                    "name": "apply_patch",
                    "input": "*** Begin Patch",
                    "call_id": "c3",
                },
                {"type": "custom_tool_call_output", "call_id": "c3", "output": "Done"},
            ]
        )
    ),
]
