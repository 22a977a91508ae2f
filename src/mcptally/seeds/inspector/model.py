"""Declares the seed document's types, which both `document` and `inspector` use."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from mcptally.errors import UsageError
from mcptally.wire.nesting import MAX_DEPTH, is_value_too_deep

Interpretation = Literal["document", "inspector"]
"""`document` follows the seed document as written; `inspector` reproduces the original program."""

Classification = Literal[
    "fully_working", "partially_working", "connectivity_only", "broken", "error"
]

Scenario = Literal["happy_path", "edge_case", "boundary", "error_case"]
SCENARIOS: Final[tuple[str, ...]] = get_args(Scenario)

Status = Literal["fully_working", "partially_working", "connectivity_only", "broken", "untested"]
"""Status of a tool over all its scenarios; only the original program uses `untested`."""

FACTORS: Final = (
    "mcp_code",
    "business_pattern",
    "http_status",
    "structured_error",
    "validates_test_data",
    "validation_expected",
)
"""Names of the six factors, in the document's order. The name of each `…factor_*` column ends with
a factor's name."""


class _JsonObject(msgspec.Struct, frozen=True, rename="camel"):
    """A struct that can be converted to a JSON object whose members have the document's names."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields under their names in the document, except fields that are None."""
        members: dict[str, Any] = _json_value(msgspec.to_builtins(self))
        return members


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items() if item is not None}
    return list(value) if isinstance(value, tuple) else value


class ValidationContext(msgspec.Struct, frozen=True):
    """A response, and the call that it answers."""

    tool: Any
    """The tool's definition: `name`, and `outputSchema` if it has one."""
    response: Any
    """The reply's `result`, as parsed JSON or as a model of the MCP SDK."""
    input: Any = msgspec.field(default_factory=dict)
    """The arguments of the call."""
    scenario_category: Scenario | None = None

    @classmethod
    def of(cls, given: "ValidationContext | Mapping[str, Any]") -> "ValidationContext":
        """Convert a context to plain JSON values.

        Args:
            given: a context, or a mapping with the member names of the document (`tool`, `input`,
                `response`, `scenarioCategory`). Tool and response may be models of the MCP SDK;
                members of a model that are None count as missing.

        Raises:
            UsageError: the tool is missing or not a definition, or a value is nested deeper than
                `nesting.MAX_DEPTH`.
        """
        if not isinstance(given, ValidationContext):
            given = cls(
                tool=given.get("tool"),
                response=given.get("response"),
                input=given.get("input") or {},
                scenario_category=given.get("scenarioCategory"),
            )
        tool, response = _as_json("tool", given.tool), _as_json("response", given.response)
        for name, value in (("tool", tool), ("input", given.input), ("response", response)):
            if is_value_too_deep(value):
                raise UsageError(
                    f"`{name}` of the context is nested deeper than the limit of {MAX_DEPTH} levels"
                )
        if not isinstance(tool, dict):
            raise UsageError(
                "a context needs `tool`, the definition of the tool as an object with a `name` "
                f"(and an `outputSchema`, if it has one), not {tool!r:.60}"
            )
        return msgspec.structs.replace(given, tool=tool, response=response)


def _as_json(name: str, value: Any) -> Any:
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json", by_alias=True, exclude_none=True)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"`{name}` of the context cannot be turned into JSON: {error}"
            ) from error
    return value


class OutputSchemaValidation(_JsonObject, frozen=True):
    """The result of validating a response against the output schema of its tool."""

    has_output_schema: bool
    is_valid: bool
    error: str | None = None


class ResponseMetadata(_JsonObject, frozen=True):
    """How many blocks of each type a response has, and which other members."""

    content_types: tuple[str, ...] = ()
    text_block_count: int = 0
    image_count: int = 0
    resource_count: int = 0
    has_structured_content: bool = False
    has_meta: bool = False
    output_schema_validation: OutputSchemaValidation | None = None


class ValidationResult(_JsonObject, frozen=True):
    """The assessment of whether a response shows that the tool works, with reasons."""

    is_valid: bool | None
    is_error: bool | None
    confidence: float | None
    """A number from 0 to 100."""
    classification: Classification | None
    """None if the original program throws; `throws` then contains the exception."""
    issues: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    response_metadata: ResponseMetadata | None = None
    throws: str | None = None


class BusinessDecision(_JsonObject, frozen=True):
    """The decision on whether an error is business logic, with the factors behind it.

    A factor is None if the interpretation did not evaluate it: the program evaluates no other
    factor if it finds an MCP code, and no factor if it throws.
    """

    is_business_error: bool | None
    confidence: float | None = None
    """Share of the possible points that the error gets, from 0 to 1."""
    threshold: float | None = None
    mcp_code: bool | None = None
    business_pattern: bool | None = None
    http_status: bool | None = None
    structured_error: bool | None = None
    validates_test_data: bool | None = None
    validation_expected: bool | None = None
    throws: str | None = None


class ScenarioResult(_JsonObject, frozen=True):
    """The result of one scenario for a tool."""

    classification: Classification | None
    confidence: float | None
    is_valid: bool
    category: Scenario | None = None
    executed: bool = True
    evidence: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()


class ScenarioSummary(_JsonObject, frozen=True):
    """How many of a tool's executed scenarios succeeded, by category."""

    happy_path_success: bool
    edge_cases_handled: int
    edge_cases_total: int
    boundaries_respected: int
    boundaries_total: int
    error_handling_works: bool


class ScenarioStatus(_JsonObject, frozen=True):
    """The status of a tool over all its scenarios."""

    status: Status
    confidence: float
    """A number from 0 to 100; NaN if the interpretation divides 0 by 0."""
    executed: int
    passed: int
    failed: int
    summary: ScenarioSummary | None = None
    """Summary of the original program; None for the document, which defines no summary."""
    recommendations: tuple[str, ...] = ()
    """Recommendations of the original program; the document defines none."""
