"""The language model that asked for a call, in logs that name it."""

import pytest

from mcptally.importers.model_of_call import ModelsOfCalls
from tests.importers.imported_logs import SAMPLES, WRITTEN, Logs

pytestmark = pytest.mark.slow

LOGS = Logs()
BIG, SMALL = "model-big", "model-small"


def add(name: str, form: str, written: str, models: list[str | None], title: str) -> object:
    return pytest.param(LOGS.add(name, WRITTEN / written, format=form), models, id=title)


NAMED = [
    add("s.jsonl", "claude-code", "models-claude-code.jsonl", [BIG, SMALL], "of the message"),
    add("rollout-s.jsonl", "codex", "models-codex.jsonl", [BIG, SMALL], "of the turn"),
    add("session-s.jsonl", "gemini-cli", "models-gemini-cli.jsonl", [BIG, SMALL], "of a message"),
    add("session.json", "opencode", "models-opencode.json", [BIG, SMALL], "of an exported message"),
    add("agents.json", "otlp", "models-agents-spans.json", [BIG, SMALL], "of the nearest agent"),
    # Two models are beneath the agent: only a span that names one has a model.
    add("both.json", "otlp", "models-two-spans.json", [SMALL, None], "of the span"),
    add("runs.jsonl", "langsmith", "models-langsmith.jsonl", [BIG, None], "of the trace"),
    add("observations.jsonl", "langfuse", "models-langfuse.jsonl", [SMALL], "of the trace's call"),
    add("requests.jsonl", "litellm", "models-litellm.jsonl", [BIG], "of the session"),
]
AGENT = LOGS.add("agent.jsonl.gz", SAMPLES / "spans-agent.jsonl.gz", redaction="none")
LONG_NAMED = (WRITTEN / "models-claude-code.jsonl").read_text().replace(BIG, "x" * 1000)
LONG = LOGS.add("long.jsonl", LONG_NAMED, format="claude-code", server="long")


@pytest.mark.parametrize(("log", "models"), NAMED)
def test_a_call_has_the_model_that_the_log_names_for_it(logs, log, models):
    found = logs[log].calls.get_column("model").to_list()
    assert sorted(found, key=str) == sorted(models, key=str)


def test_calls_in_spans_of_a_real_program_have_their_model(logs):
    calls = logs[AGENT].calls
    found = calls.filter(calls["method"] == "tools/call").get_column("model").to_list()
    assert found == ["function:model:"] * 4


def test_the_name_of_a_model_is_cut_to_200_characters(logs):
    assert set(logs[LONG].calls["model"]) == {"x" * 200, SMALL}


def test_spans_in_a_cycle_have_no_model():
    models = ModelsOfCalls()
    models.add("a", "b", None)
    models.add("b", "a", None)
    assert models.of("a") is None
