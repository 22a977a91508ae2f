"""The single-call functions, as a test framework calls them."""

import mcp.types
import pytest

from mcptally.errors import UsageError
from mcptally.seeds.inspector import single
from mcptally.seeds.inspector.model import ValidationContext

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


@pytest.mark.parametrize(
    "context", [{"response": {}}, {"tool": "get_user", "response": {}}, ValidationContext(None, {})]
)
@pytest.mark.parametrize(
    "ask", [single.validate_response, single.is_business_error, single.response_metadata]
)
def test_a_context_without_a_tool_definition_is_refused(ask, context):
    with pytest.raises(UsageError, match="needs `tool`, the definition of the tool"):
        ask(context)
