"""The language model that asked for a call, in logs that name it."""

import json

import pytest

from mcptally.importers.model_of_call import ModelsOfCalls
from tests.importers.imported_logs import SAMPLES, Logs

pytestmark = pytest.mark.slow

LOGS = Logs()
BIG, SMALL = "model-big", "model-small"


def lines(*values: object) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def claude(id_: str, model: str) -> list[object]:
    use = {"type": "tool_use", "id": id_, "name": "mcp__a__t", "input": {}}
    result = {"type": "tool_result", "tool_use_id": id_, "content": "x"}
    return [
        {"type": "assistant", "sessionId": "s", "message": {"model": model, "content": [use]}},
        {"type": "user", "sessionId": "s", "message": {"content": [result]}},
    ]


def codex(id_: str, model: str) -> list[object]:
    end = {"type": "mcp_tool_call_end", "call_id": id_, "result": {"Ok": {"content": []}}}
    called = {**end, "invocation": {"server": "b", "tool": "t", "arguments": {}}}
    return [
        {"type": "turn_context", "payload": {"model": model}},
        {"type": "event_msg", "payload": called},
    ]


def gemini(id_: str, model: str) -> dict[str, object]:
    call = {"id": id_, "name": "mcp_c_t", "args": {}, "status": "success", "result": []}
    return {"id": f"m{id_}", "type": "gemini", "model": model, "toolCalls": [call]}


def opencode(id_: str, model: str) -> dict[str, object]:
    state = {"status": "completed", "input": {}, "output": "x"}
    part = {"type": "tool", "callID": id_, "tool": "d_t", "state": state}
    return {"info": {"role": "assistant", "modelID": model}, "parts": [part]}


def span(id_: str, parent: str | None, **attributes: str) -> dict[str, object]:
    """A span of OTLP; `__` in names stands for a dot."""
    named = [
        {"key": key.replace("__", "."), "value": {"stringValue": value}}
        for key, value in attributes.items()
    ]
    return {"spanId": id_, "parentSpanId": parent, "name": id_, "attributes": named}


def otlp(*spans: dict[str, object]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


TOOL = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "t"}
CHAT = {"gen_ai__operation__name": "chat"}
AGENTS = otlp(
    span("1", "0", **TOOL),
    span("2", "0", **CHAT, gen_ai__request__model=BIG, gen_ai__response__model=f"{BIG}-2026"),
    span("3", "0", gen_ai__operation__name="embeddings", gen_ai__request__model="embedder"),
    span("0", None, gen_ai__operation__name="invoke_agent", gen_ai__request__model=BIG),
    span("5", "4", **TOOL),
    span("6", "4", openinference__span__kind="LLM", llm__model_name=SMALL),
    span("4", "0", gen_ai__operation__name="invoke_agent"),
)
BOTH_BENEATH = otlp(
    span("8", "7", **CHAT, gen_ai__request__model=BIG),
    span("9", "7", **CHAT, gen_ai__request__model=SMALL),
    span("10", "7", **TOOL),
    span("11", "7", **TOOL, gen_ai__response__model=SMALL),
)
AT = {"start_time": "2026-11-22T20:00:00Z", "end_time": "2026-11-22T20:00:01Z"}
LANGSMITH = lines(
    {"id": "r1", "run_type": "tool", "name": "t", "inputs": {}, "trace_id": "x", **AT},
    {"id": "r2", "run_type": "llm", "trace_id": "x", "extra": {"metadata": {"ls_model_name": BIG}}},
    {"id": "r3", "run_type": "tool", "name": "t", "inputs": {}, "trace_id": "y", **AT},
)
LANGFUSE = lines(
    {"id": "o1", "type": "TOOL", "name": "t", "input": {}, "traceId": "x", "startTime": "2026"},
    {"id": "o2", "type": "GENERATION", "model": SMALL, "traceId": "x"},
    {"id": "o3", "type": "EMBEDDING", "model": "embedder", "traceId": "x"},
)
LITELLM_CALL = {"mcp_tool_call_metadata": {"name": "t", "arguments": {}, "mcp_server_name": "l"}}
LITELLM = lines(
    {
        "id": "q1",
        "call_type": "call_mcp_tool",
        "model": "MCP: t",
        "session_id": "x",
        "status": "success",
        "metadata": LITELLM_CALL,
        "response": {"content": []},
    },
    {"id": "q2", "call_type": "acompletion", "model": BIG, "session_id": "x"},
    {"id": "q3", "call_type": "aembedding", "model": "embedder", "session_id": "x"},
)

NAMED = [
    pytest.param(LOGS.add(name, text, format=form), models, id=title)
    for title, form, name, text, models in (
        (
            "claude-code, of the message",
            *("claude-code", "s.jsonl", lines(*claude("1", BIG), *claude("2", SMALL))),
            [BIG, SMALL],
        ),
        (
            "codex, of the turn",
            *("codex", "rollout-s.jsonl", lines(*codex("1", BIG), *codex("2", SMALL))),
            [BIG, SMALL],
        ),
        (
            "gemini-cli, of the message",
            *("gemini-cli", "session-s.jsonl", lines(gemini("1", BIG), gemini("2", SMALL))),
            [BIG, SMALL],
        ),
        (
            "opencode, of the message",
            "opencode",
            "session.json",
            json.dumps({"messages": [opencode("1", BIG), opencode("2", SMALL)]}),
            [BIG, SMALL],
        ),
        ("otlp, beneath the nearest agent", *("otlp", "agents.json", AGENTS, [BIG, SMALL])),
        (
            "otlp, unknown where two models are beneath it, unless the span names one",
            *("otlp", "both.json", BOTH_BENEATH, [SMALL, None]),
        ),
        ("langsmith, of the trace", "langsmith", "runs.jsonl", LANGSMITH, [BIG, None]),
        ("langfuse, of the trace", "langfuse", "observations.jsonl", LANGFUSE, [SMALL]),
        ("litellm, of the session", "litellm", "requests.jsonl", LITELLM, [BIG]),
    )
]
AGENT = LOGS.add("agent.jsonl.gz", SAMPLES / "spans-agent.jsonl.gz", redaction="none")
LONG = LOGS.add("long.jsonl", lines(*claude("1", "x" * 1000)), format="claude-code", server="long")


@pytest.mark.parametrize(("log", "models"), NAMED)
def test_a_call_has_the_model_that_the_log_names_for_it(logs, log, models):
    found = logs[log].calls.get_column("model").to_list()
    assert sorted(found, key=str) == sorted(models, key=str)


def test_calls_in_spans_of_a_real_program_have_their_model(logs):
    calls = logs[AGENT].calls
    found = calls.filter(calls["method"] == "tools/call").get_column("model").to_list()
    assert found == ["function:model:"] * 4


def test_the_name_of_a_model_is_cut_to_200_characters(logs):
    assert logs[LONG].calls["model"].to_list() == ["x" * 200]


def test_spans_in_a_cycle_have_no_model():
    models = ModelsOfCalls()
    models.add("a", "b", None)
    models.add("b", "a", None)
    assert models.of("a") is None
