"""Declares the columns of the seed scores, and fills them from results and decisions."""

from typing import Any, Final

import polars as pl

from mcptally.seeds import javascript
from mcptally.seeds.inspector.factors import BUSINESS
from mcptally.seeds.inspector.model import BusinessDecision, ValidationResult
from mcptally.tables.seed_scores import INTERPRETATION_COLUMNS, SeedScores

ROW: Final = "seed_row"
"""Name of the column with a call's row number, by which its scores are joined."""
LIST: Final = pl.List(pl.String)
RESULT: Final = ("classification", "confidence", "is_valid", "is_error", "issues", "evidence")
"""Columns of a `ValidationResult`, without the interpretation's prefix."""
COLUMNS: Final = pl.Schema({name: SeedScores.schema()[name] for name in INTERPRETATION_COLUMNS})
"""All columns that `add_seed_scores` adds."""


def result_columns(interpretation: str, result: ValidationResult) -> dict[str, Any]:
    """Map column names to the values of a result.

    Args:
        interpretation: the prefix of the names: `seed` or `inspector`.
        result: the result.
    """
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
    """Map column names to the values of a business-error decision.

    Args:
        interpretation: the prefix of the names: `seed` or `inspector`.
        decision: the decision.
    """
    return {
        f"{interpretation}_{end}": getattr(
            decision, {"business_confidence": "confidence"}.get(end, end.removeprefix("factor_"))
        )
        for end in BUSINESS
    }
