"""The single-call functions, as a test framework calls them."""

import mcp.types
import pytest

from mcptally.errors import UsageError
from mcptally.seeds.inspector import single
from mcptally.seeds.inspector.model import ScenarioResult, ValidationContext

TOOL = mcp.types.Tool(
    name="get_user",
    input_schema={"type": "object"},
    output_schema={"type": "object", "required": ["id"]},
)


@pytest.mark.parametrize("rules", ["document", "inspector"])
def test_models_of_the_sdk_are_accepted(rules):
    result = mcp.types.CallToolResult(
        content=[mcp.types.TextContent(type="text", text="7")], structured_content={"id": 7}
    )
    context = ValidationContext(tool=TOOL, input={"id": 7}, response=result)
    judged = single.validate_response(context, rules=rules)
    assert judged.classification == "fully_working"
    assert judged.response_metadata.output_schema_validation.is_valid
    assert not judged.response_metadata.has_meta
    assert not judged.is_error


@pytest.mark.parametrize("rules", ["document", "inspector"])
def test_a_mapping_with_the_documents_names_is_a_context(rules):
    given = {
        "tool": {"name": "get_user"},
        "input": {"id": 7},
        "response": {"isError": True, "content": [{"type": "text", "text": "user 7 not found"}]},
        "scenarioCategory": "error_case",
    }
    context = ValidationContext(
        tool=given["tool"], input=given["input"], response=given["response"]
    )
    assert single.is_business_error(given, rules=rules) is True
    assert single.validate_response(given, rules=rules) == single.validate_response(
        context, rules=rules
    )


def test_to_json_uses_the_documents_names():
    context = ValidationContext(
        tool={"name": "x"}, response={"content": [{"type": "text", "text": "y"}]}
    )
    assert single.validate_response(context).to_json() == {
        "isValid": True,
        "isError": False,
        "confidence": 100,
        "classification": "fully_working",
        "issues": [],
        "evidence": [
            "Tool responded successfully with content",
            "Response includes 1 text block(s)",
        ],
        "responseMetadata": {
            "contentTypes": ["text"],
            "textBlockCount": 1,
            "imageCount": 0,
            "resourceCount": 0,
            "hasStructuredContent": False,
            "hasMeta": False,
        },
    }


def test_scenarios_of_a_tool_in_both_interpretations():
    results = [
        ScenarioResult("fully_working", 100, is_valid=True, category="happy_path"),
        ScenarioResult("broken", 0, is_valid=False, category="edge_case"),
    ]
    assert single.scenario_status(results).status == "connectivity_only"
    assert single.scenario_status(results, rules="inspector").status == "partially_working"
    assert single.scenario_status(results, planned=4, rules="inspector").confidence < 50


@pytest.mark.parametrize(
    "context", [{"response": {}}, {"tool": "get_user", "response": {}}, ValidationContext(None, {})]
)
@pytest.mark.parametrize(
    "ask", [single.validate_response, single.is_business_error, single.response_metadata]
)
def test_a_context_without_a_tool_definition_is_refused(ask, context):
    with pytest.raises(UsageError, match="needs `tool`, the definition of the tool"):
        ask(context)
