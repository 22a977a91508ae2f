"""Computes the seed score of one response, for tests and the library.

    import mcptally as mt

    context = mt.ValidationContext(tool=tool, input=arguments, response=result)
    mt.validate_response(context).classification
    mt.is_business_error(context, rules="inspector")

A context may also be a mapping with the document's member names (`tool`, `input`, `response`,
`scenarioCategory`). The argument `rules` selects the interpretation: `"document"` follows the seed
document as written, `"inspector"` reproduces the original program and returns None if it throws.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mcptally.errors import UsageError, near
from mcptally.seeds import javascript
from mcptally.seeds.inspector import document, inspector
from mcptally.seeds.inspector.model import (
    BusinessDecision,
    Interpretation,
    ResponseMetadata,
    ScenarioResult,
    ScenarioStatus,
    ValidationContext,
    ValidationResult,
)
from mcptally.wire.nesting import with_raised_recursion_limit

Context = ValidationContext | Mapping[str, Any]


@with_raised_recursion_limit
def validate_response(context: Context, *, rules: Interpretation = "document") -> ValidationResult:
    """Assess whether a response shows a working tool, and why.

    If the original program throws, `classification` is None and `throws` contains the exception.

    Raises:
        UsageError: `rules` is unknown, the context has no tool, or a value is nested too deeply.
    """
    return _interpretation_module(rules).validate(ValidationContext.of(context))


@with_raised_recursion_limit
def business_decision(context: Context, *, rules: Interpretation = "document") -> BusinessDecision:
    """Decide whether an error is business logic; also return factors, confidence and threshold.

    The response is treated as an error: neither interpretation checks `isError` in this decision.

    Raises:
        UsageError: `rules` is unknown, the context has no tool, or a value is nested too deeply.
    """
    return _interpretation_module(rules).business(ValidationContext.of(context))


def is_business_error(context: Context, *, rules: Interpretation = "document") -> bool | None:
    """Return whether an error is business logic; None if the original program throws.

    Raises:
        UsageError: `rules` is unknown, the context has no tool, or a value is nested too deeply.
    """
    return business_decision(context, rules=rules).is_business_error


@with_raised_recursion_limit
def response_metadata(
    context: Context, *, rules: Interpretation = "document"
) -> ResponseMetadata | None:
    """Count a response's blocks and other members; return None if the original program throws.

    Raises:
        UsageError: `rules` is unknown, the context has no tool, or a value is nested too deeply.
    """
    try:
        return _interpretation_module(rules).metadata(ValidationContext.of(context))
    except javascript.Throws:
        return None


def overall_confidence(
    results: Sequence[ValidationResult | ScenarioResult], *, rules: Interpretation = "document"
) -> float:
    """Return the mean of confidence times class weight, from 0 to 100.

    Without results, the mean is NaN in the document (0/0) and 0 in the program.

    Raises:
        UsageError: `rules` is unknown.
    """
    return _interpretation_module(rules).overall_confidence(results)


def scenario_status(
    results: Sequence[ScenarioResult],
    *,
    planned: int | None = None,
    rules: Interpretation = "document",
) -> ScenarioStatus:
    """Determine the status of a tool over all its scenarios.

    Args:
        results: the scenarios, in the order in which they ran.
        planned: the number of planned scenarios; by default the number of results.
        rules: the interpretation.

    Raises:
        UsageError: `rules` is unknown.
    """
    count = len(results) if planned is None else planned
    return _interpretation_module(rules).scenario_status(results, count)


class _Interpretation(Protocol):
    """The interface that the modules `document` and `inspector` implement."""

    def validate(self, context: ValidationContext) -> ValidationResult: ...
    def business(self, context: ValidationContext) -> BusinessDecision: ...
    def metadata(self, context: ValidationContext) -> ResponseMetadata: ...
    def overall_confidence(self, results: Sequence[ValidationResult | ScenarioResult]) -> float: ...
    def scenario_status(
        self, results: Sequence[ScenarioResult], planned: int
    ) -> ScenarioStatus: ...


def _interpretation_module(interpretation: str) -> _Interpretation:
    modules: dict[str, _Interpretation] = {"document": document, "inspector": inspector}
    if interpretation not in modules:
        raise UsageError(
            f"rules must be 'document' or 'inspector', not {interpretation!r}"
            f"{near(interpretation, modules)}"
        )
    return modules[interpretation]
