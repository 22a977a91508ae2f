"""The types of the seed document, and what is said about a decision in either reading."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from mcptally.errors import UsageError
from mcptally.wire.nesting import MAX_DEPTH, is_value_too_deep

Rules = Literal["document", "inspector"]
"""Which reading: the seed document as written, or the program it describes, exactly."""

Classification = Literal[
    "fully_working", "partially_working", "connectivity_only", "broken", "error"
]
CLASSIFICATIONS: Final[tuple[str, ...]] = get_args(Classification)

Scenario = Literal["happy_path", "edge_case", "boundary", "error_case"]
SCENARIOS: Final[tuple[str, ...]] = get_args(Scenario)

Status = Literal["fully_working", "partially_working", "connectivity_only", "broken", "untested"]
"""Of a tool over all its scenarios; the document knows no `untested`."""

FACTORS: Final = (
    "mcp_code",
    "business_pattern",
    "http_status",
    "structured_error",
    "validates_test_data",
    "validation_expected",
)
"""The six factors, in the document's order; also the ends of the `…factor_*` columns."""


class _Spelt:
    """A value that can be spelt as the seed document spells it."""

    def to_json(self) -> dict[str, Any]:
        """Members in the document's names; those it leaves out when there is nothing are out."""
        return {
            _camel(field.name): _plain(value)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, field.name)) is not None
        }


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def _plain(value: Any) -> Any:
    if isinstance(value, _Spelt):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


@dataclasses.dataclass(frozen=True)
class ValidationContext:
    """Everything that is needed to judge one response."""

    tool: Any
    """Tool definition: `name`, and `outputSchema` where it has one."""
    response: Any
    """The reply's `result`: parsed JSON, or a model of the MCP SDK."""
    input: Any = dataclasses.field(default_factory=dict)
    """Arguments that were sent."""
    scenario_category: Scenario | None = None

    @classmethod
    def of(cls, given: "ValidationContext | Mapping[str, Any]") -> "ValidationContext":
        """The context in plain JSON; a mapping is one in the seed document's own spelling.

        Tool and response may be models of the MCP SDK: what they leave at None is not there.

        Raises:
            UsageError: there is no tool, what is given as one is no definition, or a value is
                nested deeper than `nesting.MAX_DEPTH`.
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
                raise _too_deep(name)
        if not isinstance(tool, dict):
            raise UsageError(
                "a context needs `tool`, the definition of the tool as an object with a `name` "
                f"(and an `outputSchema`, if it has one), not {tool!r:.60}"
            )
        return dataclasses.replace(given, tool=tool, response=response)


def _as_json(name: str, value: Any) -> Any:
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json", by_alias=True, exclude_none=True)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"`{name}` of the context cannot be turned into JSON: {error}"
            ) from error
    return value


def _too_deep(name: str) -> UsageError:
    return UsageError(
        f"`{name}` of the context is nested deeper than {MAX_DEPTH} levels, the most that is judged"
    )


@dataclasses.dataclass(frozen=True)
class OutputSchemaValidation(_Spelt):
    """How a response stands to the output schema that its tool declares."""

    has_output_schema: bool
    is_valid: bool
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class ResponseMetadata(_Spelt):
    """What a response is made of."""

    content_types: tuple[str, ...] = ()
    text_block_count: int = 0
    image_count: int = 0
    resource_count: int = 0
    has_structured_content: bool = False
    has_meta: bool = False
    output_schema_validation: OutputSchemaValidation | None = None


@dataclasses.dataclass(frozen=True)
class ValidationResult(_Spelt):
    """Whether a response shows a working tool, and why."""

    is_valid: bool | None
    is_error: bool | None
    confidence: float | None
    """0 to 100."""
    classification: Classification | None
    """None where the original program throws; `throws` then says what."""
    issues: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    response_metadata: ResponseMetadata | None = None
    throws: str | None = None


@dataclasses.dataclass(frozen=True)
class BusinessDecision(_Spelt):
    """Whether an error is business logic, and everything that decided it.

    A field is None where the reading never looks: the program returns at once on an MCP code,
    and decides nothing where it throws.
    """

    is_business_error: bool | None
    confidence: float | None = None
    """Share of the possible points, 0 to 1."""
    threshold: float | None = None
    mcp_code: bool | None = None
    business_pattern: bool | None = None
    http_status: bool | None = None
    structured_error: bool | None = None
    validates_test_data: bool | None = None
    validation_expected: bool | None = None
    throws: str | None = None


@dataclasses.dataclass(frozen=True)
class ScenarioResult(_Spelt):
    """One scenario of a tool, as far as the tool's status depends on it."""

    classification: Classification | None
    confidence: float | None
    is_valid: bool
    category: Scenario | None = None
    executed: bool = True
    evidence: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ScenarioStatus(_Spelt):
    """What all scenarios of a tool together say about it."""

    status: Status
    confidence: float
    """0 to 100, NaN where nothing was executed."""
    executed: int
    passed: int
