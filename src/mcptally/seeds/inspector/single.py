"""The seed score of one response at a time, in either reading: what a test framework calls.

    import mcptally as mt

    context = mt.ValidationContext(tool=tool, input=arguments, response=result)
    mt.validate_response(context).classification
    mt.is_business_error(context, rules="inspector")

A context may also be a mapping in the seed document's own spelling (`tool`, `input`, `response`,
`scenarioCategory`). `rules="document"` follows the document as written and never throws;
`rules="inspector"` is the original program, exactly, and gives None where that throws.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mcptally.errors import UsageError, near
from mcptally.seeds.inspector import document, inspector, javascript
from mcptally.seeds.inspector.model import (
    BusinessDecision,
    ResponseMetadata,
    Rules,
    ScenarioResult,
    ScenarioStatus,
    ValidationContext,
    ValidationResult,
)
from mcptally.wire.nesting import with_stack_room

Context = ValidationContext | Mapping[str, Any]


@with_stack_room
def validate_response(context: Context, *, rules: Rules = "document") -> ValidationResult:
    """Whether a response shows a working tool, and why.

    Where the original program throws, `classification` is None and `throws` says what.

    Raises:
        UsageError: no such rules, a context without a tool, or a value nested too deep.
    """
    return _reading(rules).validate(ValidationContext.of(context))


@with_stack_room
def business_decision(context: Context, *, rules: Rules = "document") -> BusinessDecision:
    """Whether an error is business logic, with its factors, confidence and threshold.

    Neither reading asks whether the response is an error at all: callers do that.

    Raises:
        UsageError: no such rules, a context without a tool, or a value nested too deep.
    """
    return _reading(rules).business(ValidationContext.of(context))


def is_business_error(context: Context, *, rules: Rules = "document") -> bool | None:
    """Whether an error shows a working tool that refuses; None where the original throws.

    Raises:
        UsageError: no such rules, a context without a tool, or a value nested too deep.
    """
    return business_decision(context, rules=rules).is_business_error


@with_stack_room
def response_metadata(context: Context, *, rules: Rules = "document") -> ResponseMetadata | None:
    """What a response is made of; None where the original throws.

    Raises:
        UsageError: no such rules, a context without a tool, or a value nested too deep.
    """
    try:
        return _reading(rules).metadata(ValidationContext.of(context))
    except javascript.Throws:
        return None


def overall_confidence(
    results: Sequence[ValidationResult | ScenarioResult], *, rules: Rules = "document"
) -> float:
    """Mean of confidence times class weight, 0 to 100.

    Of nothing it is NaN in the document (0/0) and 0 in the program.

    Raises:
        UsageError: no such rules.
    """
    return _reading(rules).overall_confidence(results)


def scenario_status(
    results: Sequence[ScenarioResult], *, planned: int | None = None, rules: Rules = "document"
) -> ScenarioStatus:
    """What all scenarios of a tool say of it.

    Args:
        results: the scenarios, in the order in which they ran.
        planned: how many were to run; as many as there are results, if not given.
        rules: which reading.

    Raises:
        UsageError: no such rules.
    """
    count = len(results) if planned is None else planned
    return _reading(rules).scenario_status(results, count)


class _Reading(Protocol):
    """What both reading modules offer."""

    def validate(self, context: ValidationContext) -> ValidationResult: ...
    def business(self, context: ValidationContext) -> BusinessDecision: ...
    def metadata(self, context: ValidationContext) -> ResponseMetadata: ...
    def overall_confidence(self, results: Sequence[ValidationResult | ScenarioResult]) -> float: ...
    def scenario_status(
        self, results: Sequence[ScenarioResult], planned: int
    ) -> ScenarioStatus: ...


def _reading(rules: str) -> _Reading:
    readings: dict[str, _Reading] = {"document": document, "inspector": inspector}
    if rules not in readings:
        raise UsageError(
            f"rules must be 'document' or 'inspector', not {rules!r}{near(rules, readings)}"
        )
    return readings[rules]
