"""The original program, one response at a time: `inspector_*` in plain Python.

This is the reference that the columns are tested against, and what odd responses go through.
Facts: ../shared/facts/inspector-rules.md, sections 2, 5, 6, 7 and 8; sections are cited below.
"""

from collections.abc import Sequence
from typing import Any

from mcptally.seeds.inspector import ajv, javascript, wording
from mcptally.seeds.inspector.javascript import MISSING, Throws
from mcptally.seeds.inspector.model import (
    BusinessDecision,
    OutputSchemaValidation,
    ResponseMetadata,
    Scenario,
    ScenarioResult,
    ScenarioStatus,
    Status,
    ValidationContext,
    ValidationResult,
)
from mcptally.seeds.inspector.rows import rows

ROWS = rows("inspector")


# ------------------------------------------------------------------ isBusinessLogicError (2)


def business(context: ValidationContext) -> BusinessDecision:
    """Whether the program calls the response business logic, and every factor of it."""
    try:
        text = examined_text(context.response)
    except Throws as error:
        return BusinessDecision(None, throws=str(error))
    return decide(text, str(context.tool.get("name", "")))


def examined_text(response: Any) -> str:
    """The text that the factors look at, in lower case.

    Raises:
        Throws: the response has no content, or its first text is no string.
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
    """The decision on an examined text, which is in lower case."""
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
    if pattern and ROWS.holds("strong", text):
        threshold = ROWS.threshold("strong")
    elif pattern and ROWS.holds("high_confidence", text):
        threshold = ROWS.threshold("high_confidence")
    elif expected:
        threshold = ROWS.threshold("tool_keyword")
    else:
        threshold = ROWS.threshold("threshold")
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


# -------------------------------------------------------------- extractResponseMetadata (5)


def metadata(context: ValidationContext) -> ResponseMetadata:
    """What the program counts in a response.

    Raises:
        Throws: the response is no object.
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
    return ResponseMetadata(
        content_types=tuple(dict.fromkeys(types)),
        text_block_count=types.count("text"),
        image_count=types.count("image"),
        resource_count=types.count("resource") + types.count("resource_link"),
        has_structured_content=javascript.member(response, "structuredContent") is not MISSING,
        has_meta=javascript.member(response, "_meta") is not MISSING,
        output_schema_validation=_output_schema(context.tool, response, blocks),
    )


def accepted_blocks(content: Any) -> list[dict[str, Any]]:
    """The content blocks; none at all where a single one is not a block."""
    if isinstance(content, list) and all(map(_accepted, content)):
        return content
    return []


def _accepted(block: Any) -> bool:
    kind = javascript.member(block, "type")
    if not isinstance(kind, str):
        return False

    def text(*names: str) -> bool:
        return all(isinstance(javascript.member(block, name), str) for name in names)

    def optional(*names: str) -> bool:
        return all(name not in block or isinstance(block[name], str) for name in names)

    return (
        (kind == "text" and text("text"))
        or (kind == "image" and text("data", "mimeType"))
        or (kind in ("resource", "resource_link") and optional("uri", "mimeType"))
        or (kind == "audio" and text("data") and optional("mimeType"))
        or optional("text", "data", "mimeType", "uri")
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
    """The value of the first text block that is JSON as a whole; None where there is none."""
    for block in blocks:
        text = block.get("text")
        if block["type"] == "text" and text:
            try:
                return javascript.parse(text)
            except (ValueError, RecursionError):
                continue
    return None


# -------------------------------------------------------------------- validateResponse (6)


def validate(context: ValidationContext) -> ValidationResult:
    """What the program says of one response."""
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
    """The result of a response that holds nothing."""
    return ValidationResult(
        is_valid=False,
        is_error=False,
        confidence=ROWS.confidence("broken"),
        classification="broken",
        issues=(issue,),
        response_metadata=found,
    )


def responded(found: ResponseMetadata) -> ValidationResult:
    """The result of a response that has content and reports no error."""
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
    """Evidence of what a response holds."""
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
    """What the scenario engine says of a call that threw instead of answering (8)."""
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


# ----------------------------------------- calculateOverallConfidence (7), TestScenarioEngine (8)


def overall_confidence(results: Sequence[ValidationResult | ScenarioResult]) -> float:
    """Mean of confidence times class weight, 0 to 100; 0 of nothing, NaN with an unknown class."""
    return ROWS.mean_confidence(results) if results else 0.0


def scenario_status(results: Sequence[ScenarioResult], planned: int) -> ScenarioStatus:
    """What the scenario engine says of a tool, of which `planned` scenarios were to run."""
    run = [result for result in results if result.executed]
    passed = sum(result.is_valid for result in run)
    happy = any(result.is_valid and result.category == "happy_path" for result in run)
    handled = any(result.is_valid and result.category == "error_case" for result in run)
    business_logic = sum(
        result.classification == "fully_working"
        and any(wording.BUSINESS_LOGIC in sentence for sentence in result.evidence)
        for result in results
    )
    first_happy = next((r for r in results if r.category == "happy_path"), None)
    works = happy or (first_happy is not None and first_happy.classification == "fully_working")
    return ScenarioStatus(
        status=_status(len(run), passed, business_logic, handled=handled, works=works),
        confidence=_confidence(results, planned, len(run), passed, happy=happy, handled=handled),
        executed=len(run),
        passed=passed,
    )


def _status(
    executed: int, passed: int, business_logic: int, *, handled: bool, works: bool
) -> Status:
    if not executed:
        return "untested"
    fully, mostly, partly, barely, _ = (row.value or 0.0 for row in ROWS.part("status"))
    rate = min(1.0, (passed + business_logic) / executed)
    if handled and rate >= fully:
        return "fully_working"
    if (handled and (rate >= mostly or business_logic)) or rate >= partly:
        return "partially_working"
    if rate >= barely or works or business_logic:
        return "connectivity_only"
    return "broken"


def _confidence(
    results: Sequence[ScenarioResult],
    planned: int,
    executed: int,
    passed: int,
    *,
    happy: bool,
    handled: bool,
) -> float:
    share = javascript.divided(passed, executed)
    confidence = javascript.divided(executed, planned) * 100 * share
    if happy:
        confidence = javascript.at_most(100, confidence + 10)
    if handled:
        confidence = javascript.at_most(100, confidence + 5)
    if executed < 3:
        confidence *= 0.7
    mean = javascript.divided(sum(r.confidence or 0 for r in results), len(results))
    return javascript.rounded(confidence * 0.6 + mean * 0.4)
