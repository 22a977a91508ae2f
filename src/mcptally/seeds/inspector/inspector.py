"""Implements the `inspector` interpretation of a response: the original program's exact logic.

`columns` is tested against this module, and uses it for irregular responses. Each heading names a
function of the program, which the functions under the heading reproduce.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from mcptally.seeds import javascript
from mcptally.seeds.inspector import scenario_engine, wording
from mcptally.seeds.inspector.ajv import schemas as ajv
from mcptally.seeds.inspector.model import (
    BusinessDecision,
    OutputSchemaValidation,
    ResponseMetadata,
    Scenario,
    ScenarioResult,
    ValidationContext,
    ValidationResult,
)
from mcptally.seeds.inspector.rows import rule_rows
from mcptally.seeds.javascript import MISSING, Throws

ROWS = rule_rows("inspector")


# --- isBusinessLogicError ---


def business(context: ValidationContext) -> BusinessDecision:
    """Decide, as the original program does, whether a response is a business-logic error."""
    try:
        text = examined_text(context.response)
    except Throws as error:
        return BusinessDecision(None, throws=str(error))
    return decide(text, str(context.tool.get("name", "")))


def examined_text(response: Any) -> str:
    """Return the text that the factors examine, in lower case.

    Raises:
        Throws: the response has no content, or its first text is not a string.
    """
    if response is None:
        raise Throws("TypeError: Cannot read properties of null (reading 'content')")
    content = javascript.member(response, "content")
    block = javascript.first(content)
    text = javascript.member(block, "text")
    if javascript.member(block, "type") == "text" and javascript.truthy(text):
        if not isinstance(text, str):
            raise Throws("TypeError: content[0].text.toLowerCase is not a function")
        return text.lower()
    if content is MISSING:
        raise Throws("TypeError: Cannot read properties of undefined (reading 'toLowerCase')")
    return javascript.stringify(content).lower()


def decide(text: str, tool: str) -> BusinessDecision:
    """Decide, as the original program does, whether a lower-case error text is business logic."""
    if ROWS.holds("mcp_code_named", text) and ROWS.holds("mcp_code", text):
        return BusinessDecision(is_business_error=True, mcp_code=True)
    pattern = ROWS.holds("pattern", text)
    status = ROWS.holds("http_status", text)
    structured = all(ROWS.holds(f"structured_{part}", text) for part in ("what", "kind", "mark"))
    tested = (
        (ROWS.holds("test_word", text) and ROWS.holds("test_complaint", text))
        or ROWS.holds("test_value", text)
        or ROWS.holds("test_shape", text)
    )
    expected = ROWS.holds("tool_keyword", tool.lower())
    confidence = (
        ROWS.weight("pattern") * pattern
        + ROWS.weight("http_status") * status
        + ROWS.weight("structured_what") * structured
        + ROWS.weight("test_word") * tested
        + ROWS.weight("tool_keyword") * expected
    ) / ROWS.value("total")
    threshold = ROWS.threshold_of(
        strong=pattern and ROWS.holds("strong", text),
        high=pattern and ROWS.holds("high_confidence", text),
        expected=expected,
    )
    return BusinessDecision(
        is_business_error=confidence >= threshold,
        confidence=confidence,
        threshold=threshold,
        mcp_code=False,
        business_pattern=pattern,
        http_status=status,
        structured_error=structured,
        validates_test_data=tested,
        validation_expected=expected,
    )


# --- extractResponseMetadata ---


def metadata(context: ValidationContext) -> ResponseMetadata:
    """Describe the content of a response as the original program does.

    Raises:
        Throws: the response is not an object.
    """
    response = context.response
    if response is None:
        raise Throws("TypeError: Cannot read properties of null (reading 'content')")
    if not isinstance(response, dict | list):
        given = response if isinstance(response, str) else javascript.stringify(response)
        raise Throws(
            f"TypeError: Cannot use 'in' operator to search for 'structuredContent' in {given}"
        )
    blocks = accepted_blocks(javascript.member(response, "content"))
    types = [block["type"] for block in blocks]
    validation = _output_schema(context.tool, response, blocks)
    return described(response, types, dict.fromkeys(types), validation)


def described(
    response: Any,
    types: Sequence[str],
    content_types: Iterable[str],
    validation: OutputSchemaValidation | None,
) -> ResponseMetadata:
    """Return the description of a response with blocks of these `types`."""
    return ResponseMetadata(
        content_types=tuple(content_types),
        text_block_count=types.count("text"),
        image_count=types.count("image"),
        resource_count=types.count("resource") + types.count("resource_link"),
        has_structured_content=javascript.member(response, "structuredContent") is not MISSING,
        has_meta=javascript.member(response, "_meta") is not MISSING,
        output_schema_validation=validation,
    )


def accepted_blocks(content: Any) -> list[dict[str, Any]]:
    """Return the content blocks, or an empty list if any of the blocks is invalid."""
    if isinstance(content, list) and all(map(_is_block, content)):
        return content
    return []


def _is_block(block: Any) -> bool:
    kind = javascript.member(block, "type")
    if not isinstance(kind, str):
        return False

    def has_strings(*names: str) -> bool:
        return all(isinstance(javascript.member(block, name), str) for name in names)

    def may_have_strings(*names: str) -> bool:
        return all(name not in block or isinstance(block[name], str) for name in names)

    return (
        (kind == "text" and has_strings("text"))
        or (kind == "image" and has_strings("data", "mimeType"))
        or (kind in ("resource", "resource_link") and may_have_strings("uri", "mimeType"))
        or (kind == "audio" and has_strings("data") and may_have_strings("mimeType"))
        or may_have_strings("text", "data", "mimeType", "uri")
    )


def _output_schema(
    tool: Any, response: Any, blocks: list[dict[str, Any]]
) -> OutputSchemaValidation | None:
    schema = tool.get("outputSchema")
    compiled = ajv.compiled(schema) if javascript.truthy(schema) else None
    if compiled is None:
        return None
    value = javascript.member(response, "structuredContent")
    if value is MISSING:
        value = json_in_text(blocks)
        if value is None:
            return OutputSchemaValidation(
                has_output_schema=True, is_valid=False, error=wording.SCHEMA_NO_JSON
            )
    error = compiled.first_error(value)
    return OutputSchemaValidation(has_output_schema=True, is_valid=error is None, error=error)


def json_in_text(blocks: Sequence[dict[str, Any]]) -> Any:
    """Return the value of the first text block that is entirely JSON, or None."""
    for block in blocks:
        text = block.get("text")
        if block["type"] == "text" and text:
            try:
                return javascript.parse(text)
            except (ValueError, RecursionError):
                continue
    return None


# --- validateResponse ---


def validate(context: ValidationContext) -> ValidationResult:
    """Assess one response as the original program does."""
    try:
        found = metadata(context)
        response = context.response
        content = javascript.member(response, "content")
        if javascript.truthy(javascript.member(response, "isError")):
            return ValidationResult(
                is_valid=True,
                is_error=True,
                confidence=ROWS.confidence("fully_working"),
                classification="fully_working",
                evidence=(wording.RESPONDED_ERROR, wording.ERROR_MESSAGE + _error_text(content)),
                response_metadata=found,
            )
    except Throws as error:
        return ValidationResult(None, None, None, None, throws=str(error))
    return without_error(content, found)


def without_error(content: Any, found: ResponseMetadata) -> ValidationResult:
    """Return the assessment of a response that reports no error, by its content."""
    if not javascript.truthy(content):
        return broken(wording.NO_CONTENT, found)
    if not isinstance(content, list) or not content:
        return broken(wording.EMPTY_CONTENT, found)
    return responded(found)


def _error_text(content: Any) -> str:
    text = javascript.member(javascript.first(content), "text")
    if not javascript.truthy(text):
        return wording.UNKNOWN_ERROR
    if not isinstance(text, str):
        raise Throws("TypeError: errorText.substring is not a function")
    return javascript.cut(text, wording.ERROR_UNITS)


def broken(issue: str, found: ResponseMetadata) -> ValidationResult:
    """Return the assessment of a response without content."""
    return ValidationResult(
        is_valid=False,
        is_error=False,
        confidence=ROWS.confidence("broken"),
        classification="broken",
        issues=(issue,),
        response_metadata=found,
    )


def responded(found: ResponseMetadata) -> ValidationResult:
    """Return the assessment of a response that has content and reports no error."""
    schema = found.output_schema_validation
    if schema is not None and not schema.is_valid:
        return ValidationResult(
            is_valid=True,
            is_error=False,
            confidence=ROWS.confidence("partially_working"),
            classification="partially_working",
            issues=(schema.error or wording.SCHEMA_FAILED,),
            evidence=(*present(found), wording.SCHEMA_BROKEN),
            response_metadata=found,
        )
    return ValidationResult(
        is_valid=True,
        is_error=False,
        confidence=ROWS.confidence("fully_working"),
        classification="fully_working",
        evidence=(*present(found), *([wording.SCHEMA_PASSED] if schema else [])),
        response_metadata=found,
    )


def present(found: ResponseMetadata) -> tuple[str, ...]:
    """Return one sentence for each kind of content that a response has."""
    counted = (
        (wording.TEXT_BLOCKS, found.text_block_count),
        (wording.IMAGES, found.image_count),
        (wording.RESOURCES, found.resource_count),
    )
    return (
        wording.RESPONDED,
        *(sentence.format(count) for sentence, count in counted if count),
        *([wording.STRUCTURED] if found.has_structured_content else []),
        *([wording.META] if found.has_meta else []),
    )


def failed_call(message: str, category: Scenario | None) -> ValidationResult:
    """Return the scenario engine's assessment of a call that threw an exception.

    Args:
        message: the exception's message.
        category: the call's scenario.
    """
    (rejected,) = ROWS.part("rejected")
    issues = (wording.EXECUTION_ERROR + message,)
    if category == "error_case" and wording.TIMEOUT not in message:
        return ValidationResult(
            is_valid=True,
            is_error=True,
            confidence=rejected.value,
            classification="partially_working",
            issues=issues,
            evidence=(wording.REJECTED,),
        )
    return ValidationResult(
        is_valid=False,
        is_error=True,
        confidence=ROWS.confidence("broken"),
        classification="broken",
        issues=issues,
    )


# --- calculateOverallConfidence ---


def overall_confidence(results: Sequence[ValidationResult | ScenarioResult]) -> float:
    """Return the mean of confidence times class weight, from 0 to 100.

    It is 0 without results, and NaN if a classification is unknown.
    """
    return ROWS.mean_confidence(results) if results else 0.0


# --- TestScenarioEngine ---

scenario_status = scenario_engine.scenario_status
