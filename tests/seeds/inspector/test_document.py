"""The seed document's worked examples and statements."""

import json
import math

import pytest

from mcptally.seeds.inspector import document, single
from mcptally.seeds.inspector.model import ScenarioResult, ValidationContext

DELETE_USER = {
    "name": "delete_user",
    "description": "Delete a user by ID",
    "inputSchema": {"type": "object", "properties": {"userId": {"type": "string"}}},
}
LOAD_AUDIO = {
    "name": "load_audio",
    "description": "Load audio file",
    "inputSchema": {"type": "object"},
}


def failed(tool, arguments, text):
    response = {"isError": True, "content": [{"type": "text", "text": text}]}
    return ValidationContext(tool=tool, input=arguments, response=response)


NOT_FOUND = failed(DELETE_USER, {"userId": "test-id"}, "User not found")
FILE = "/nonexistent/file.mp3"
UNDEFINED = "TypeError: Cannot read property 'id' of undefined"
CREDITS = "Insufficient credits to perform this request"


@pytest.mark.parametrize(
    ("context", "business", "confidence"),
    [
        (NOT_FOUND, True, 4 / 6),
        (failed(DELETE_USER, {"userId": "valid-id"}, UNDEFINED), False, 0.0),
        (failed(DELETE_USER, {"userId": "valid-id"}, CREDITS), True, 4 / 6),
        (failed(LOAD_AUDIO, {"path": FILE}, f"File not found: {FILE}"), True, 4 / 6),
    ],
)
def test_the_four_scenarios_come_out_as_stated(context, business, confidence):
    decision = single.business_decision(context)
    assert decision.is_business_error is business
    assert decision.confidence == confidence
    assert decision.threshold == 0.2


def test_scenario_one_counts_66_percent_of_tool_and_pattern_alone():
    decision = single.business_decision(NOT_FOUND)
    assert math.floor(decision.confidence * 100) == 66
    assert (decision.validation_expected, decision.business_pattern) == (True, True)
    others = (decision.mcp_code, decision.http_status, decision.structured_error)
    assert (*others, decision.validates_test_data) == (False, False, False, False)


def test_three_of_six_factors_are_50_percent():
    text = json.dumps({"message": "user 17", "status": 500})
    decision = single.business_decision(failed({"name": "weather"}, {"user_id": 17}, text))
    held = (decision.http_status, decision.structured_error, decision.validates_test_data)
    assert held == (True, True, True)
    assert decision.confidence == 0.5
    assert decision.is_business_error


def test_basic_validation_is_fully_working_with_confidence_100():
    text = json.dumps({"id": "user-123", "name": "Alice", "email": "alice@example.com"})
    result = single.validate_response(
        {
            "tool": {"name": "get_user", "inputSchema": {"type": "object"}},
            "input": {"userId": "user-123"},
            "response": {"isError": False, "content": [{"type": "text", "text": text}]},
        }
    )
    assert (result.classification, result.confidence) == ("fully_working", 100)
    assert result.evidence[0] == "Tool responded successfully with content"
    assert len(result.evidence) > 1


def test_the_metadata_example_comes_out_as_stated_for_a_tool_that_declares_its_output():
    found = single.response_metadata(
        {
            "tool": {"name": "search", "outputSchema": {"required": ["results"]}},
            "input": {"query": "search term"},
            "response": {
                "isError": False,
                "content": [
                    {"type": "text", "text": "Results..."},
                    {"type": "image", "data": "base64..."},
                    {"type": "resource", "uri": "resource://..."},
                ],
                "structuredContent": {"results": []},
            },
        }
    )
    assert found.to_json() == {
        "contentTypes": ["text", "image", "resource"],
        "textBlockCount": 1,
        "imageCount": 1,
        "resourceCount": 1,
        "hasStructuredContent": True,
        "hasMeta": False,
        "outputSchemaValidation": {"hasOutputSchema": True, "isValid": True},
    }


def test_the_overall_confidence_example_is_83_percent():
    results = [
        ScenarioResult("fully_working", 100, is_valid=True),
        ScenarioResult("partially_working", 70, is_valid=True),
        ScenarioResult("fully_working", 100, is_valid=True),
    ]
    assert single.overall_confidence(results) == 83.0
    assert single.overall_confidence(results, rules="inspector") == 83.0


def test_overall_confidence_without_results_is_nan_in_the_document_and_0_in_the_program():
    assert math.isnan(single.overall_confidence([]))
    assert single.overall_confidence([], rules="inspector") == 0


def test_content_types_are_repeated_and_read_from_raw_blocks():
    response = {"content": [{"type": "text", "text": 5}, {"type": "text"}, 7, {"type": "video"}]}
    context = ValidationContext(tool={"name": "x"}, response=response)
    assert single.response_metadata(context).content_types == ("text", "text", "video")
    assert single.response_metadata(context, rules="inspector").content_types == ()


@pytest.mark.parametrize(
    ("schema", "response", "outcome"),
    [
        ({"required": ["a"]}, {"content": [{"type": "text", "text": "x"}]}, None),
        ({"required": ["a"]}, {"content": [{"type": "text", "text": "{}"}]}, False),
        ({"required": ["a"]}, {"content": [{"type": "text", "text": '{"a":1}'}]}, True),
        ({"required": ["a"]}, {"content": [], "structuredContent": {}}, False),
        ({"type": "objekt"}, {"content": [], "structuredContent": {}}, None),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "required": ["a"]},
            {"content": [], "structuredContent": {}},
            False,
        ),
    ],
)
def test_an_output_schema_is_validated_in_its_own_dialect(schema, response, outcome):
    context = ValidationContext(tool={"name": "x", "outputSchema": schema}, response=response)
    found = single.response_metadata(context).output_schema_validation
    assert (found and found.is_valid) is outcome


@pytest.mark.parametrize(
    ("arguments", "text", "references"),
    [
        ({"userId": "u-7"}, "no u-7 here", True),
        ({"userId": "u-7"}, "no u-70 here", False),
        ({"userId": "U-7"}, "NO U-7", True),
        ({"id": 42}, "item 42.", True),
        ({"id": 42}, "item 420", False),
        ({"filter": {"issue_ids": ["a", "b9"]}}, "b9: gone", True),
        ({"name": "b9"}, "b9: gone", False),
        (
            {"name": "550e8400-e29b-41d4-a716-446655440000"},
            "550E8400-e29b-41d4-a716-446655440000 is gone",
            True,
        ),
        ({"id": ""}, "", False),
        ({"id": True}, "true", False),
        ({}, "test id: 5", False),
    ],
)
def test_test_ids_are_the_ids_that_the_request_carried(arguments, text, references):
    assert document.references_ids(text.lower(), document.ids(arguments)) is references


def test_a_validation_expected_tool_counts_beside_any_other_factor_and_not_alone():
    quiet = document.decide("quiet", "get_user", {})
    assert (quiet.validation_expected, quiet.confidence) == (True, 0.0)
    spoken = document.decide("HTTP 500", "get_user", {})
    assert spoken.confidence == 3 / 6
