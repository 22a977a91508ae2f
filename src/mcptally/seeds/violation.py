"""Declares violations (values that break a contract) and turns them into findings."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from mcptally.jsonschemas import walk
from mcptally.rules import findings as rule_findings
from mcptally.tables.findings import Findings

_CALL_COLUMNS: Final = frozenset({*Findings.schema().names(), "revision"})
"""The columns of a call that are copied to its findings."""


class Violation(NamedTuple):
    """A place in a value that breaks a contract."""

    path: str
    """JSON Pointer into the value."""
    message: str
    code: str = ""
    """The id of the violated rule, or the message of the original program."""
    evidence: str | None = None


def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer (RFC 6901) made of these parts."""
    return walk.pointer(parts)


def text_pointer(block: int) -> str:
    """Return the JSON Pointer to the text of content block number `block` in a tool result."""
    return pointer("content", block, "text")


def findings(
    calls: pl.DataFrame, violations: Iterable[tuple[int, Violation]]
) -> list[pl.DataFrame]:
    """Return findings for violations.

    Args:
        calls: the calls that the findings are about.
        violations: pairs of a row number in `calls` and a violation whose `code` is a rule id.
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
    # Select these few columns first, so that lists are not copied for each violation.
    about = calls.select(pl.col(name) for name in calls.columns if name in _CALL_COLUMNS)
    return about[rows.get_column("row")].hstack(rows.drop("row"))
