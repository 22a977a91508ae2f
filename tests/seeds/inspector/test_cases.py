"""The original program's own answers, case by case."""

import math

import pytest

from mcptally.seeds import javascript
from mcptally.seeds.inspector import single
from mcptally.seeds.inspector.model import ScenarioResult, ValidationContext
from tests.seeds.cases import lines

FACTORS = {
    "mcpCode": "mcp_code",
    "businessPattern": "business_pattern",
    "httpStatus": "http_status",
    "structuredError": "structured_error",
    "validatesTestData": "validates_test_data",
    "validationExpected": "validation_expected",
    "confidence": "confidence",
    "threshold": "threshold",
}


def parsed(name):
    return [javascript.parse(line) for line in lines(name)]


def same(ours, theirs):
    if isinstance(theirs, dict) and "__throws" in theirs:
        return ours is None
    return ours == theirs


def test_validate_response_answers_every_case_as_the_program_did():
    wrong = []
    for case in parsed("inspector"):
        result = single.validate_response(case, rules="inspector")
        oracle = case["oracle"]["validateResponse"]
        if "__throws" in oracle:
            if result.classification is not None or result.throws != oracle["__throws"]:
                wrong.append(case["id"])
        elif result.to_json() != oracle:
            wrong.append(case["id"])
    assert wrong == []


def test_is_business_error_answers_every_case_as_the_program_did():
    wrong = [
        case["id"]
        for case in parsed("inspector")
        if not same(
            single.is_business_error(case, rules="inspector"),
            case["oracle"]["isBusinessLogicError"],
        )
    ]
    assert wrong == []


def test_every_factor_confidence_and_threshold_equals_the_programs():
    wrong = []
    for case in parsed("inspector"):
        factors = case["factors"]
        decision = single.business_decision(case, rules="inspector")
        if factors is None:
            expected = {}
        elif factors["earlyReturn"]:
            expected = {"mcpCode": True}
        else:
            expected = {name: factors[name] for name in FACTORS}
        ours = {name: getattr(decision, attribute) for name, attribute in FACTORS.items()}
        if {name: value for name, value in ours.items() if value is not None} != expected:
            wrong.append(case["id"])
    assert wrong == []


def test_response_metadata_answers_every_case_as_the_program_did():
    wrong = []
    for case in parsed("inspector"):
        found = single.response_metadata(case, rules="inspector")
        if not same(
            None if found is None else found.to_json(), case["oracle"]["extractResponseMetadata"]
        ):
            wrong.append(case["id"])
    assert wrong == []


def test_overall_confidence_equals_the_programs_to_the_last_digit():
    wrong = []
    for case in parsed("overall-confidence"):
        results = [
            ScenarioResult(each["classification"], each["confidence"], is_valid=True)
            for each in case["results"]
        ]
        if single.overall_confidence(results, rules="inspector") != case["oracle"]:
            wrong.append(case["id"])
    assert wrong == []


def test_scenario_status_summary_and_recommendations_equal_the_programs():
    wrong = []
    for case in parsed("scenario-status"):
        results = [
            ScenarioResult(
                classification=each["classification"],
                confidence=each["confidence"],
                is_valid=each["isValid"],
                category=each["category"],
                executed=each["executed"],
                evidence=tuple(each["evidence"]),
            )
            for each in case["scenarios"]
        ]
        ours = single.scenario_status(results, planned=case["totalScenarios"], rules="inspector")
        oracle = case["oracle"]
        confidence = oracle["confidence"]
        agrees = (
            math.isnan(ours.confidence)
            if isinstance(confidence, dict)
            else ours.confidence == confidence
        )
        rest = {
            "overallStatus": ours.status,
            "counts": {"executed": ours.executed, "passed": ours.passed, "failed": ours.failed},
            "summary": ours.summary.to_json(),
            "recommendations": list(ours.recommendations),
        }
        if not agrees or any(oracle[name] != value for name, value in rest.items()):
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
