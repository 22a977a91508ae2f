"""The original program's own answers, case by case."""

import math

import msgspec
import pytest

from mcptally.seeds import javascript
from mcptally.seeds.inspector import single
from mcptally.seeds.inspector.model import ScenarioResult, ValidationContext
from tests.seeds.cases import FIELDS, lines

CASES = [javascript.parse(line) for line in lines("inspector")]


def assessed(case):
    result = single.validate_response(case, rules="inspector")
    return {"__throws": result.throws} if result.classification is None else result.to_json()


def business(case):
    return single.is_business_error(case, rules="inspector")


def metadata(case):
    found = single.response_metadata(case, rules="inspector")
    return found and found.to_json()


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("validateResponse", assessed),
        ("isBusinessLogicError", business),
        ("extractResponseMetadata", metadata),
    ],
)
def test_every_case_is_answered_as_the_program_did(name, ours):
    wrong = []
    for case in CASES:
        answer, expected = ours(case), case["oracle"][name]
        throws = isinstance(expected, dict) and "__throws" in expected
        if answer != expected and not (throws and answer is None):
            wrong.append(case["id"])
    assert wrong == []


def test_every_factor_confidence_and_threshold_equals_the_programs():
    wrong = []
    for case in CASES:
        program = case["factors"] or {}
        expected = {"mcpCode": True} if program.get("earlyReturn") else program
        ours = single.business_decision(case, rules="inspector").to_json()
        if any(ours.get(name) != expected.get(name) for name in FIELDS):
            wrong.append(case["id"])
    assert wrong == []


def test_overall_confidence_equals_the_programs_to_the_last_digit():
    wrong = []
    for case in map(javascript.parse, lines("overall-confidence")):
        results = msgspec.convert(
            [each | {"isValid": True} for each in case["results"]], list[ScenarioResult]
        )
        if single.overall_confidence(results, rules="inspector") != case["oracle"]:
            wrong.append(case["id"])
    assert wrong == []


def test_scenario_status_summary_and_recommendations_equal_the_programs():
    wrong = []
    for case in map(javascript.parse, lines("scenario-status")):
        results = msgspec.convert(case["scenarios"], list[ScenarioResult])
        ours = single.scenario_status(results, planned=case["totalScenarios"], rules="inspector")
        answer = {
            "overallStatus": ours.status,
            "confidence": ours.confidence,
            "counts": {"executed": ours.executed, "passed": ours.passed, "failed": ours.failed},
            "summary": ours.summary.to_json(),
            "recommendations": list(ours.recommendations),
        }
        if math.isnan(ours.confidence):  # JSON has no NaN
            answer["confidence"] = case["oracle"]["confidence"]
            assert isinstance(answer["confidence"], dict)
        if answer != case["oracle"]:
            wrong.append(case["id"])
    assert wrong == []


def result(**fields):
    about = {"classification": "broken", "confidence": 0, "is_valid": False}
    return ScenarioResult(**about | fields)


@pytest.mark.parametrize(
    ("results", "confidence"),
    [([], 0), ([result(confidence=100, is_valid=True, executed=False)] * 3, 40)],
    ids=["no result", "results that were not executed"],
)
def test_planned_scenarios_of_which_none_was_executed_have_a_confidence(results, confidence):
    status = single.scenario_status(results, planned=3, rules="inspector")
    assert (status.status, status.confidence) == ("untested", confidence)


def test_a_first_happy_path_that_works_and_is_not_valid_needs_valid_ids():
    results = [result(classification="fully_working", category="happy_path")]
    status = single.scenario_status(results, rules="inspector")
    assert status.recommendations[0].startswith("Tool works correctly but requires valid resource")


def test_an_issue_that_the_program_knows_has_a_recommendation():
    results = [result(issues=("Response appears to just echo input",))]
    status = single.scenario_status(results, rules="inspector")
    assert status.recommendations[-1].startswith("Implement actual functionality")


def test_the_document_has_no_summary_and_no_recommendations():
    status = single.scenario_status([result()], rules="document")
    assert (status.summary, status.recommendations, status.failed) == (None, (), 1)


def test_overall_confidence_with_an_unknown_classification_is_nan():
    results = [ScenarioResult("splendid", 100, is_valid=True)]
    assert math.isnan(single.overall_confidence(results, rules="inspector"))
    assert math.isnan(single.overall_confidence(results, rules="document"))


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (None, "null"),
        (True, "in true"),
        ("text", "in text"),
        (7, "in 7"),
        ({"isError": True, "content": [{"type": "text", "text": 5}]}, "substring"),
        ({"isError": True, "content": [{"text": ["x"]}]}, "substring"),
    ],
)
def test_a_result_has_the_exception_that_the_program_throws(response, message):
    result = single.validate_response(
        ValidationContext(tool={"name": "x"}, response=response), rules="inspector"
    )
    assert result.classification is None
    assert message in result.throws
    written = single.validate_response(ValidationContext(tool={"name": "x"}, response=response))
    assert written.classification in ("broken", "error", "fully_working")


def test_a_misspelt_interpretation_is_refused_with_a_suggestion():
    context = ValidationContext(tool={"name": "x"}, response={})
    with pytest.raises(Exception, match="did you mean inspector"):
        single.validate_response(context, rules="inspektor")
