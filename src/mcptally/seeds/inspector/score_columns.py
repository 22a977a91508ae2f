"""The columns of the seed scores: names and types, and the values that they take from a result."""

from typing import Any, Final

import polars as pl

from mcptally.seeds import javascript
from mcptally.seeds.inspector.factors import BUSINESS
from mcptally.seeds.inspector.model import BusinessDecision, ValidationResult
from mcptally.tables.seed_scores import READING_COLUMNS, SeedScores

ROW: Final = "seed_row"
"""Number of a call, by which its scores are joined."""
LIST: Final = pl.List(pl.String)
RESULT: Final = ("classification", "confidence", "is_valid", "is_error", "issues", "evidence")
"""Columns of a result, without the prefix of the reading."""
COLUMNS: Final = pl.Schema({name: SeedScores.schema()[name] for name in READING_COLUMNS})
"""Every column that `add_seed_scores` adds."""


def result_columns(reading: str, result: ValidationResult) -> dict[str, Any]:
    """The columns of a result, by name; `reading` is `seed` or `inspector`."""
    issues = evidence = None
    if result.classification is not None:
        issues = [*map(javascript.printable, result.issues)]
        evidence = [*map(javascript.printable, result.evidence)]
    return {
        f"{reading}_classification": result.classification,
        f"{reading}_confidence": result.confidence,
        f"{reading}_is_valid": result.is_valid,
        f"{reading}_is_error": result.is_error,
        f"{reading}_issues": issues,
        f"{reading}_evidence": evidence,
        f"{reading}_error": result.throws,
    }


def decision_columns(reading: str, decision: BusinessDecision) -> dict[str, Any]:
    """The columns of a business-error decision, by name."""
    return {
        f"{reading}_{end}": getattr(
            decision, {"business_confidence": "confidence"}.get(end, end.removeprefix("factor_"))
        )
        for end in BUSINESS
    }
