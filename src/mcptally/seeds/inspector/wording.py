"""The original program's sentences for issues, evidence and recommendations."""

from typing import Final

RESPONDED_ERROR: Final = "Tool responded with error (tool is functional)"
ERROR_MESSAGE: Final = "Error message: "
UNKNOWN_ERROR: Final = "Unknown error"
ERROR_UNITS: Final = 100
"""Maximum length, in UTF-16 code units, of an error text that is quoted as evidence."""
NO_CONTENT: Final = "Response has no content"
EMPTY_CONTENT: Final = "Response content is empty or not an array"
RESPONDED: Final = "Tool responded successfully with content"
TEXT_BLOCKS: Final = "Response includes {} text block(s)"
IMAGES: Final = "Response includes {} image(s)"
RESOURCES: Final = "Response includes {} resource(s)"
STRUCTURED: Final = "Response includes structuredContent"
META: Final = "Response includes _meta field"
SCHEMA_BROKEN: Final = "Tool has output schema but response does not conform"
SCHEMA_FAILED: Final = "Output schema validation failed"
SCHEMA_PASSED: Final = "Output schema validation passed"
SCHEMA_NO_JSON: Final = "Tool has output schema but response contains no valid JSON"
EXECUTION_ERROR: Final = "Execution error: "
REJECTED: Final = "Tool properly rejected invalid input with exception"
TIMEOUT: Final = "Timeout"
BUSINESS_LOGIC: Final = "business logic"
"""Phrase that the scenario engine looks for in the evidence, case-sensitively."""

ADVICE_BUSINESS_LOGIC: Final = (
    "✅ Tool properly validates business logic and rejects invalid resources",
    "Note: Test failures are due to synthetic test data, not tool malfunction",
)
ADVICE_VALID_IDS: Final = (
    "Tool works correctly but requires valid resource IDs (test data uses synthetic IDs)"
)
ADVICE_HAPPY_PATH: Final = "Fix basic functionality - happy path scenario is failing"
ADVICE_ERROR_HANDLING: Final = "Improve error handling - tool doesn't properly validate inputs"
ADVICE_EDGE_RULES: Final = (
    "Edge cases properly validate business rules ({} validation checks working)"
)
ADVICE_EDGE_CASES: Final = "Handle edge cases better - {} edge case(s) failed"
ADVICE_BOUNDARIES: Final = "Respect schema boundaries - {} boundary test(s) failed"
ADVICE_ON_ISSUES: Final = {
    "Response appears to just echo input": (
        "Implement actual functionality - tool is just echoing inputs"
    ),
    "Response content is too short to be meaningful": (
        "Return more substantial responses with actual data"
    ),
    "Response doesn't demonstrate clear functionality": (
        "Ensure responses clearly demonstrate the tool's intended purpose"
    ),
}
"""Maps issues to recommendations. No interpretation reports these issues, but callers may."""
ALL_PASSED: Final = (
    "✅ All test categories passed: {}/{} scenarios verified "
    "(happy path, edge cases, boundaries, error handling)"
)
PARTIAL: Final = "⚠️ Partial functionality: {}/{} scenarios passed, {} failed. Issues in: {}"
