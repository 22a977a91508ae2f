"""Implements the `document` interpretation of a response: the seed document as written.

`columns` is tested against this module, and uses it for irregular responses. Where the document is
ambiguous, rules/seed.toml and docs/reference/seed-documents.md record the chosen interpretation.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mcptally.jsonschemas.validators import compile_validator
from mcptally.seeds import javascript
from mcptally.seeds.inspector import inspector, wording
from mcptally.seeds.inspector.model import (
    BusinessDecision,
    OutputSchemaValidation,
    ResponseMetadata,
    ScenarioResult,
    ScenarioStatus,
    Status,
    ValidationContext,
    ValidationResult,
)
from mcptally.seeds.inspector.rows import rule_rows
from mcptally.seeds.javascript import MISSING

ROWS = rule_rows("document")
CODES: Final = frozenset(int(row.value or 0) for row in ROWS.part("mcp_code"))

NOT_VALIDATION: Final = "Tool returned an error that is no validation"
NO_RESPONSE: Final = "No response"
CALL_FAILED: Final = "Call failed: "


# --- section 4, isBusinessLogicError ---


def business(context: ValidationContext) -> BusinessDecision:
    """Decide, as the document prescribes, whether a response is a business-logic error."""
    return decide(examined_text(context.response), str(context.tool.get("name", "")), context.input)


def examined_text(response: Any) -> str:
    """Return the text that the factors examine: the first text, or else the content as JSON."""
    content = javascript.member(response, "content")
    block = javascript.first(content)
    text = javascript.member(block, "text")
    if javascript.member(block, "type") == "text" and text and isinstance(text, str):
        return text
    return "" if content is MISSING else javascript.stringify(content)


def decide(
    text: str, tool: str, arguments: Any, *, code: int | None = None, structured: bool = False
) -> BusinessDecision:
    """Decide, as the document prescribes, whether an error with this text is business logic.

    Args:
        text: the error's text.
        tool: the tool's name.
        arguments: the call's arguments.
        code: a JSON-RPC error's code.
        structured: whether the error counts as structured, whatever its text.
    """
    low = text.lower()
    mcp = code in CODES or ROWS.holds("mcp_code", low)
    high = ROWS.holds("high_confidence", low)
    pattern = high or ROWS.holds("pattern", low)
    status = ROWS.holds("http_status", low)
    structured = structured or is_structured_error(text)
    tested = references_ids(low, ids(arguments))
    expected = ROWS.holds("tool_keyword", tool.lower())
    points = (
        ROWS.weight("mcp_code") * mcp
        + ROWS.weight("pattern") * pattern
        + ROWS.weight("http_status") * status
        + ROWS.weight("structured_error") * structured
        + ROWS.weight("test_id_name") * tested
    )
    if expected:
        points = points + ROWS.weight("tool_keyword") if points else ROWS.value("alone")
    confidence = min(1.0, points / ROWS.value("total"))
    strong = ROWS.holds("strong", low)
    threshold = ROWS.threshold_of(strong=strong, high=high, expected=expected)
    return BusinessDecision(
        is_business_error=confidence >= threshold,
        confidence=confidence,
        threshold=threshold,
        mcp_code=mcp,
        business_pattern=pattern,
        http_status=status,
        structured_error=structured,
        validates_test_data=tested,
        validation_expected=expected,
    )


def is_structured_error(text: str) -> bool:
    """Return whether the text is a JSON object with a member whose name indicates an error."""
    if not text.lstrip(" \t\r\n").startswith("{"):
        return False
    try:
        value = javascript.parse(text)
    except (ValueError, RecursionError):
        return False
    return not {str(name).lower() for name in value}.isdisjoint(ROWS.members("structured_error"))


def ids(arguments: Any) -> tuple[str, ...]:
    """Return the ids in a call's arguments, in lower case."""
    return tuple(dict.fromkeys(_ids(arguments, named=False)))


def _ids(value: Any, *, named: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _ids(item, named=ROWS.holds("test_id_name", str(name)))
    elif isinstance(value, list):
        for item in value:
            yield from _ids(item, named=named)
    elif isinstance(value, str):
        low = value.strip().lower()
        if low and (named or ROWS.holds("test_id_value", low)):
            yield low
    elif named and isinstance(value, int | float) and not isinstance(value, bool):
        yield javascript.number(value)


def references_ids(text: str, carried: Sequence[str]) -> bool:
    """Return whether `text`, in lower case, contains one of the ids `carried` as a whole word."""
    return any(
        each in text and re.search(f"(?<![0-9a-z]){re.escape(each)}(?![0-9a-z])", text)
        for each in carried
    )


# --- section 5, extractResponseMetadata ---


def metadata(context: ValidationContext) -> ResponseMetadata:
    """Describe the content of a response; any object in `content` counts as a block."""
    response = context.response
    content = javascript.member(response, "content")
    blocks = (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )
    types = [kind for block in blocks if isinstance(kind := block.get("type"), str)]
    typed = [block for block in blocks if "type" in block]
    validation = output_schema(context.tool.get("outputSchema"), response, typed)
    return inspector.described(response, types, types, validation)


def output_schema(
    schema: Any, response: Any, blocks: Sequence[dict[str, Any]]
) -> OutputSchemaValidation | None:
    """Validate a response against the tool's output schema.

    Returns None if the tool has no schema, or the response has no value to validate.
    """
    if schema is None:
        return None
    value = javascript.member(response, "structuredContent")
    if value is MISSING:
        strings = [block for block in blocks if isinstance(block.get("text"), str)]
        value = inspector.json_in_text(strings)
        if value is None:
            return None
    return validate_output(schema, value)


def validate_output(schema: Any, value: Any) -> OutputSchemaValidation | None:
    """Validate a value against a schema in its dialect; return None if the schema is unusable."""
    try:
        judge = compile_validator(json.dumps(schema))
    except (ValueError, RecursionError):
        return None
    if isinstance(judge, str):
        return None
    state, message, path = judge(javascript.judgeable(value))
    if state == "valid":
        return OutputSchemaValidation(has_output_schema=True, is_valid=True)
    if state != "invalid":
        return None
    error = f"{path}: {message}" if path else message
    return OutputSchemaValidation(has_output_schema=True, is_valid=False, error=error)


# --- section 3, validateResponse ---


def validate(context: ValidationContext) -> ValidationResult:
    """Assess one response as the document prescribes."""
    found = metadata(context)
    content = javascript.member(context.response, "content")
    if javascript.truthy(javascript.member(context.response, "isError")):
        text = javascript.member(javascript.first(content), "text")
        return _error_result(business(context), text if isinstance(text, str) else "", found)
    return inspector.without_error(content, found)


def _error_result(
    decision: BusinessDecision, text: str, found: ResponseMetadata | None
) -> ValidationResult:
    message = wording.ERROR_MESSAGE + javascript.cut(
        text or wording.UNKNOWN_ERROR, wording.ERROR_UNITS
    )
    if decision.is_business_error:
        return ValidationResult(
            is_valid=True,
            is_error=True,
            confidence=ROWS.confidence("fully_working"),
            classification="fully_working",
            evidence=(wording.RESPONDED_ERROR, message),
            response_metadata=found,
        )
    return ValidationResult(
        is_valid=False,
        is_error=True,
        confidence=100 * (decision.confidence or 0.0),
        classification="error",
        issues=(NOT_VALIDATION,),
        evidence=(message,),
        response_metadata=found,
    )


def unanswered() -> ValidationResult:
    """Return the document's assessment of an unanswered call: a connection issue."""
    return ValidationResult(
        is_valid=False,
        is_error=True,
        confidence=ROWS.confidence("broken"),
        classification="broken",
        issues=(NO_RESPONSE,),
    )


# --- sections 6 and 7, confidence and status; `_seed_rollup.sql` computes the health ---


def overall_confidence(results: Sequence[ValidationResult | ScenarioResult]) -> float:
    """Return the mean of confidence times class weight, from 0 to 100; NaN without results."""
    return ROWS.mean_confidence(results) if results else math.nan


def scenario_status(results: Sequence[ScenarioResult], planned: int) -> ScenarioStatus:
    """Determine a tool's status, as the document prescribes, from the results of its scenarios."""
    executed = sum(result.executed for result in results)
    passed = sum(result.executed and result.is_valid for result in results)
    return ScenarioStatus(
        status=_status(planned, executed, passed),
        confidence=overall_confidence(results),
        executed=executed,
        passed=passed,
        failed=executed - passed,
    )


def _status(planned: int, executed: int, passed: int) -> Status:
    if passed == planned:
        return "fully_working"
    _, partly, _, _ = ROWS.part("status")
    if passed > planned * (partly.value or 0):
        return "partially_working"
    return "connectivity_only" if executed > 0 else "broken"
