"""Sums per tool and server: the SQL agrees with the reference."""

import json
import math
from typing import get_args

import msgspec
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mcptally.seeds.inspector import document, inspector
from mcptally.seeds.inspector.model import SCENARIOS, Classification, ScenarioResult
from mcptally.tables.seed_scores import SeedScores
from tests.seeds.cases import lines
from tests.seeds.inspector import rollup


def summed(tools):
    """Return the row of each tool, given as a list of results and a number of planned scenarios."""
    rows = []
    for tool, (results, planned) in tools.items():
        for place, result in enumerate(results):
            row = {"server": tool, "tool": tool, "seq": place}
            row |= {"planned_scenario": result.category}
            row |= {"inspector_evidence": list(result.evidence)}
            for interpretation in ("seed", "inspector"):
                row[f"{interpretation}_classification"] = result.classification
                row[f"{interpretation}_confidence"] = result.confidence
                row[f"{interpretation}_executed"] = result.executed
                row[f"{interpretation}_is_valid"] = result.is_valid
            rows.append(row)
        missing = {"server": tool, "tool": tool, "seq": 10**6, "planned_scenario": "edge_case"}
        missing |= {"seed_executed": False, "inspector_executed": False}
        rows += [missing] * (planned - len(results))
    return {row["tool"]: row for row in rollup.rollup_of_results(rows).iter_rows(named=True)}


def test_the_sql_gives_the_programs_status_and_confidence_on_every_case():
    known = {case["id"]: case for case in map(json.loads, lines("scenario-status"))}
    results = {n: msgspec.convert(c["scenarios"], list[ScenarioResult]) for n, c in known.items()}
    tools = {n: (found, known[n]["totalScenarios"]) for n, found in results.items() if found}
    wrong = []
    for name, row in summed(tools).items():
        counts = {each: row[f"inspector_{each}"] for each in ("executed", "passed")}
        status, confidence = row["inspector_scenario_status"], row["inspector_scenario_confidence"]
        oracle = known[name]["oracle"]
        if (status, confidence, oracle["counts"] | counts) != (
            oracle["overallStatus"],
            oracle["confidence"],
            oracle["counts"],
        ):
            wrong.append(name)
    assert wrong == []
    assert len(tools) > 100


RESULT = st.builds(
    ScenarioResult,
    classification=st.sampled_from(get_args(Classification)),
    confidence=st.sampled_from([0, 20, 30, 50.0, 70, 80, 100]),
    is_valid=st.booleans(),
    category=st.sampled_from(SCENARIOS),
    executed=st.booleans(),
    evidence=st.sampled_from([(), ("ok",), ("Detected business logic", "x"), ("Business Logic",)]),
)


def test_a_tool_whose_calls_were_all_cancelled_has_no_confidence():
    row = rollup.rollup(calls([CANCELLED] * 3)).row(0, named=True)
    assert row["inspector_scenario_status"] == "untested"
    assert row["inspector_scenario_confidence"] == 0


@pytest.mark.slow
@settings(
    max_examples=4 * settings.default.max_examples // 5,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
@given(st.lists(st.tuples(st.lists(RESULT, min_size=1, max_size=9), st.integers(0, 3)), min_size=1))
def test_the_sql_agrees_with_both_interpretations(drawn):
    tools = {
        f"t{i}": (results, len(results) + missing) for i, (results, missing) in enumerate(drawn)
    }
    rows = summed(tools)
    for name, (results, planned) in tools.items():
        row = rows[name]
        program = inspector.scenario_status(results, planned)
        assert row["inspector_scenario_status"] == program.status
        assert row["inspector_scenario_confidence"] == program.confidence
        written = document.scenario_status(results, planned)
        assert row["seed_scenario_status"] == written.status
        for interpretation, module in (("seed", document), ("inspector", inspector)):
            overall = module.overall_confidence(results)
            assert math.isclose(row[f"{interpretation}_overall_confidence"], overall, abs_tol=1e-9)
        executed = sum(result.executed for result in results)
        passed = sum(result.executed and result.is_valid for result in results)
        assert row["health"] == rollup.health(executed, passed, 0)


def calls(rows):
    about = {"server": "s", "tool": "t", "dir": "c2s"}
    filled = [about | {"seq": place} | row for place, row in enumerate(rows)]
    return pl.DataFrame(filled, schema=SeedScores.schema())


GOOD = {
    "seed_classification": "fully_working", "seed_confidence": 100.0, "seed_is_valid": True,
    "seed_is_error": False, "inspector_classification": "fully_working",
    "inspector_confidence": 100.0, "inspector_is_valid": True, "inspector_evidence": ["ok"],
}  # fmt: skip
BUSINESS = GOOD | {"seed_is_error": True, "seed_is_business_error": True}
CRASH = {
    "seed_classification": "error", "seed_confidence": 0.0, "seed_is_valid": False,
    "seed_is_error": True, "seed_is_business_error": False,
    "inspector_classification": "fully_working", "inspector_confidence": 100.0,
    "inspector_is_valid": True, "inspector_evidence": ["x"],
}  # fmt: skip
THROWS = GOOD | {
    "inspector_classification": None, "inspector_confidence": None, "inspector_is_valid": None,
    "inspector_evidence": None, "inspector_error": "TypeError",
}  # fmt: skip
CANCELLED: dict[str, object] = {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "health", "status"),
    [
        ([GOOD] * 3, "functional", "fully_working"),
        ([GOOD] * 2, "not enough data", "fully_working"),
        ([GOOD, GOOD, BUSINESS], "functional but returns validation errors", "fully_working"),
        ([GOOD, GOOD, CRASH], "functional", "partially_working"),
        ([GOOD, CRASH, CRASH], "broken and crashes", "connectivity_only"),
        ([CANCELLED] * 3, "not enough data", "broken"),
        ([GOOD, GOOD, GOOD, CANCELLED], "functional", "partially_working"),
    ],
)
def test_health_and_status_of_calls(rows, health, status):
    tool = rollup.rollup(calls(rows)).row(0, named=True)
    assert (tool["health"], tool["seed_scenario_status"]) == (health, status)
    assert tool["calls"] == len(rows)


def test_a_call_that_the_program_throws_on_is_executed_and_broken():
    row = rollup.rollup(calls([THROWS, GOOD])).row(0, named=True)
    assert (row["inspector_executed"], row["inspector_passed"]) == (2, 1)
    assert row["inspector_overall_confidence"] == 50


def test_the_row_of_a_server_sums_the_calls_of_its_tools():
    rows = calls([GOOD, CRASH | {"tool": "other"}])
    assert rollup.rollup(rows)["tool"].to_list() == ["other", "t"]
    server = rollup.rollup(rows, "server").row(0, named=True)
    assert server["seed_overall_confidence"] == 50


def test_the_interval_of_a_mean_takes_sessions_as_clusters():
    """Of 100 calls, 99 in one session score 100, and 1 in another 0: deviations 99 and -99."""
    rows = [GOOD | {"session": "a"}] * 99 + [CRASH | {"session": "b"}]
    row = rollup.rollup(calls(rows)).row(0, named=True)
    assert row["seed_overall_confidence"] == 99
    error = math.sqrt(2 / 1 * 2 * 99**2) / 100
    assert row["seed_overall_confidence_low"] == pytest.approx(99 - 12.7062 * error, abs=1e-3)
    assert row["seed_overall_confidence_high"] == 100
