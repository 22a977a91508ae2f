"""Logs of agents and of the platforms that observe them."""

import json

import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import SAMPLES, WRITTEN, Logs, all_records_accounted_for

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


SPEND = LOGS.add("spend.json", WRITTEN / "litellm-spend.json")


def test_a_row_of_litellm_s_spend_logs_with_json_texts_is_a_call(imported):
    _, calls = imported(SPEND, "litellm")
    assert calls.select(NAMES).rows() == [("shop", "price", '{"item":"tea"}', "ok", "750", 2000.0)]


GEMINI_LINES = (WRITTEN / "gemini-cli.jsonl").read_text()
HEAD, *MESSAGES = map(json.loads, GEMINI_LINES.splitlines()[:3])
GEMINI_DOCUMENT = json.dumps({**HEAD, "messages": MESSAGES}, indent=2)
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


@pytest.mark.parametrize("form", ["langsmith", "langfuse", "litellm", "gemini-cli", "opencode"])
def test_damaged_lines_are_counted(tmp_path, form):
    source = tmp_path / "x.jsonl"
    source.write_text('{"torn\n[1]\n"text"\n\n{}\n')
    done = import_logs(source, tmp_path / "t", format=form)
    assert all_records_accounted_for(done)
    assert done.files[0].tally.unused["not a JSON object"].runs == [[1, 3]]
