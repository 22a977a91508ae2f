"""Envelopes and UI test runs, in both interpretations."""

# ruff: noqa: E501  (tables of cases, one a line)
import json
import re
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.seeds.ui_probe import envelopes, test_runs, tool_data
from tests import transcripts as t
from tests.seeds.cases import cases

DOCUMENT = Path(__file__).parents[1] / "documents" / "ui-probe-response-structure.md"


@pytest.mark.parametrize("case", cases("ui-test-run"))
def test_a_run_has_the_issues_that_the_program_finds(case):
    issues = test_runs.program(case["run"])
    assert case["oracle"] == {
        "schemaValid": not issues,
        "issues": [{"path": ".".join(map(str, i.path)), "code": i.code} for i in issues],
        "determinedResult": test_runs.determined(case["run"]),
    }


def example() -> dict:
    return json.loads(re.findall(r"```json\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)[-1])


def test_the_documents_own_example_contradicts_itself():
    run = example()
    assert test_runs.program(run) == []
    assert test_runs.document(run) == []
    assert test_runs.determined(run) == "failed"
    assert run["result"] in test_runs.allowed(run)
    assert [(b.code, b.path) for b in test_runs.violations(run, "")] == [
        ("ui_probe.run_result", "/result"),
        ("ui_probe.run_metrics", "/metrics/consoleErrors"),
    ]


RUN = {
    "runId": "r",
    "target": {"url": "u", "viewport": "v", "userAgent": "a"},
    "flow": [],
    "findings": {"forms": [], "accessibility": {"axeViolations": 0, "details": []}},
    "errors": [],
    "result": "passed",
    "metrics": {"totalTimeMs": 1, "steps": 0, "networkErrors": 0, "consoleErrors": 0},
}


@pytest.mark.parametrize(
    ("change", "program", "document"),
    [
        ({}, 0, 0),
        ({"errors": [{"type": "accessibility", "message": "m", "code": "E", "timestamp": "t"}]}, 0, 1),
        ({"findings": {"forms": []}}, 0, 1),
        ({"findings": {"forms": [{"name": "f", "fields": []}], "accessibility": {}}}, 3, 0),
        ({"flow": [{"stepId": "s", "action": "fill", "inferredIntent": "i", "outcome": "success", "latencyMs": 1, "timestamp": "t"}]}, 0, 1),
        ({"flow": {}}, 1, 1),
        ({"result": "ok"}, 1, 1),
        ({"result": 5}, 1, 1),
        ({"metrics": {"totalTimeMs": True, "steps": 0, "networkErrors": 0}}, 2, 2),
    ],
)  # fmt: skip
def test_the_two_interpretations_of_a_run_differ_where_they_are_known_to(change, program, document):
    run = RUN | change
    assert (len(test_runs.program(run)), len(test_runs.document(run))) == (program, document)


def seed_answers() -> dict[str, dict]:
    parts = re.findall(r"#### (\w+)\n.*?```json\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    strict = ((tool, re.sub(r"\s+//.*", "", text).replace("[...]", "[]")) for tool, text in parts)
    return {tool: json.loads(text) for tool, text in strict}


def test_the_documents_examples_conform_to_the_document():
    answers = seed_answers()
    assert set(answers) == set(tool_data.TOOLS)
    for tool, answer in answers.items():
        assert list(envelopes.violations(answer, is_error=None)) == []
        assert tool_data.issues(tool, answer["data"]) == []
        assert list(tool_data.violations(tool, answer["data"], "/data")) == []


@pytest.mark.slow
def test_runs_become_tables_and_low_confidence_forms_become_findings(tmp_path):
    run = RUN | {
        "flow": [{"stepId": "s", "action": "click", "inferredIntent": "i", "outcome": "fail", "latencyMs": 3.5, "timestamp": "2025-01-01T00:00:00Z"}],
        "findings": {"forms": [], "accessibility": {"axeViolations": 2, "details": []}},
        "errors": [{"type": "timeout", "message": "m", "code": "E_OWN", "timestamp": "2025-01-01T00:00:00Z"}],
        "metrics": RUN["metrics"] | {"steps": 1},
    }  # fmt: skip
    infer = {"success": True, "data": {"formSchema": {"name": "a"}, "confidence": 0.4}}
    sent = {"success": True, "data": run}
    messages = t.exchange(
        *(t.call(1, "infer_form"), t.text(1, json.dumps(infer))),
        *(t.call(2, "fill_and_submit", formSchema={"name": "a"}), t.text(2, json.dumps(sent))),
    )
    mt.score([t.write(tmp_path / "a.jsonl", [t.opened(), *messages])], out=tmp_path / "store")
    store = mt.open_store(tmp_path / "store")
    assert store.sql("SELECT run_id, result, result_determined, axe_violations FROM ui_runs").fetchall() == [
        ("r", "passed", "failed", 2)
    ]  # fmt: skip
    assert store.sql("SELECT position, outcome, latency_ms FROM ui_steps").fetchall() == [
        (0, "fail", 3.5)
    ]
    assert store.sql("SELECT code, code_known FROM ui_errors").fetchall() == [("E_OWN", False)]
    rules = store.sql("SELECT rule FROM findings WHERE rule LIKE 'ui_probe.%'").pl()
    assert set(rules.get_column("rule")) == {
        "ui_probe.run_result",
        "ui_probe.run_code",
        "ui_probe.run_step",
        "ui_probe.unsure_form",
    }
