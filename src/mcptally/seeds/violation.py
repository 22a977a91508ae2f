"""Declares violations (places in a value that break a contract), and converts them to findings."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from mcptally.jsonschemas import walk
from mcptally.rules import findings as rule_findings
from mcptally.tables.findings import Findings

_CALL_COLUMNS: Final = frozenset({*Findings.schema().names(), "revision"})
"""The columns of a call that are copied to findings about the call."""


class Violation(NamedTuple):
    """A violation of a contract, at a place in a value."""

    path: str
    """JSON Pointer to the place."""
    message: str
    code: str = ""
    """The id of the violated rule, or the message that the original program gives."""
    evidence: str | None = None


def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer (RFC 6901) that consists of these member names and indices."""
    return walk.pointer(parts)


def text_pointer(block: int) -> str:
    """Return the JSON Pointer to the text of the content block at position `block` of a result."""
    return pointer("content", block, "text")


def findings(
    calls: pl.DataFrame, violations: Iterable[tuple[int, Violation]]
) -> list[pl.DataFrame]:
    """Convert violations to findings about calls.

    Args:
        calls: the calls that violate contracts.
        violations: pairs of a row index in `calls` and a violation whose `code` is a rule id.
    """
    by_rule: dict[str, list[tuple[int, str, str, str | None]]] = {}
    for row, violation in violations:
        values = (row, violation.path, violation.message, violation.evidence)
        by_rule.setdefault(violation.code, []).append(values)
    return [
        rule_findings.make_findings(
            rule,
            _with_calls(calls, values),
            pl.col("violation_message"),
            path=pl.col("violation_path"),
            evidence="violation_evidence",
        )
        for rule, values in by_rule.items()
    ]


def _with_calls(calls: pl.DataFrame, values: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {
        "row": pl.UInt32,
        "violation_path": pl.String,
        "violation_message": pl.String,
        "violation_evidence": pl.String,
    }
    rows = pl.DataFrame(values, schema=schema, orient="row")
    # Select these few columns first, so that columns of lists are not copied for each violation.
    about = calls.select(pl.col(name) for name in calls.columns if name in _CALL_COLUMNS)
    return about[rows.get_column("row")].hstack(rows.drop("row"))
