"""Declares the columns of the seed scores, and fills them from a result."""

from typing import Any, Final

import polars as pl

from mcptally.seeds import javascript
from mcptally.seeds.inspector.factors import BUSINESS
from mcptally.seeds.inspector.model import BusinessDecision, ValidationResult
from mcptally.tables.seed_scores import INTERPRETATION_COLUMNS, SeedScores

ROW: Final = "seed_row"
"""Number of a call, used to join its scores."""
LIST: Final = pl.List(pl.String)
RESULT: Final = ("classification", "confidence", "is_valid", "is_error", "issues", "evidence")
"""Columns of a result, without the interpretation's prefix."""
COLUMNS: Final = pl.Schema({name: SeedScores.schema()[name] for name in INTERPRETATION_COLUMNS})
"""All columns that `add_seed_scores` adds."""


def result_columns(interpretation: str, result: ValidationResult) -> dict[str, Any]:
    """Return the columns of a result, by name; `interpretation` is `seed` or `inspector`."""
    issues = evidence = None
    if result.classification is not None:
        issues = [*map(javascript.printable, result.issues)]
        evidence = [*map(javascript.printable, result.evidence)]
    return {
        f"{interpretation}_classification": result.classification,
        f"{interpretation}_confidence": result.confidence,
        f"{interpretation}_is_valid": result.is_valid,
        f"{interpretation}_is_error": result.is_error,
        f"{interpretation}_issues": issues,
        f"{interpretation}_evidence": evidence,
        f"{interpretation}_error": result.throws,
    }


def decision_columns(interpretation: str, decision: BusinessDecision) -> dict[str, Any]:
    """Return the columns of a business-error decision, by name."""
    return {
        f"{interpretation}_{end}": getattr(
            decision, {"business_confidence": "confidence"}.get(end, end.removeprefix("factor_"))
        )
        for end in BUSINESS
    }
