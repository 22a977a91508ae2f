"""Declares the columns of the seed scores, and fills them from results and decisions."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import polars as pl

from mcptally.seeds import javascript
from mcptally.seeds.inspector.factors import BUSINESS
from mcptally.seeds.inspector.model import BusinessDecision, ValidationResult
from mcptally.tables.queries import run_query
from mcptally.tables.seed_scores import INTERPRETATION_COLUMNS, SeedScores

ROW: Final = "seed_row"
"""Name of the column with a call's row number, by which its scores are joined."""
LIST: Final = pl.List(pl.String)
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


def score_distinct(
    rows: pl.DataFrame, score: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> pl.DataFrame:
    """Return `ROW` and the scores of each row; rows that otherwise are equal are scored once.

    Args:
        rows: `ROW` and the facts from which a reply is scored; at least one row.
        score: maps the facts of a row to values of columns of `COLUMNS`.
    """
    facts = rows.drop(ROW).columns
    distinct = rows[facts].unique()
    scored = [score(row) for row in distinct.iter_rows(named=True)]
    found = pl.DataFrame(
        {
            name: pl.Series([values[name] for values in scored], dtype=COLUMNS[name])
            for name in scored[0]
        }
    )
    table = distinct.hstack(found).lazy()
    return (
        rows.lazy().join(table, on=facts, how="left", nulls_equal=True).drop(facts).pipe(run_query)
    )
