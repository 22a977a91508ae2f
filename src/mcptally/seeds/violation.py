"""A breach: one place in one value that breaks a contract; what every contract answers with."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from mcptally.jsonschemas import walk
from mcptally.rules import findings as rule_findings
from mcptally.tables.findings import Findings

_ABOUT: Final = frozenset({*Findings.schema().names(), "revision"})
"""What a finding says of the call that it is about."""


class Violation(NamedTuple):
    """What is wrong, and where in the value."""

    path: str
    """JSON Pointer into the value."""
    message: str
    code: str = ""
    """The words of the original program, or the id of the rule that it breaks."""
    evidence: str | None = None


def pointer(*parts: str | int) -> str:
    """A JSON Pointer (RFC 6901) of its parts."""
    return walk.pointer(parts)


def findings(calls: pl.DataFrame, breaches: Iterable[tuple[int, Violation]]) -> list[pl.DataFrame]:
    """Findings of breaches, each with the row of `calls` that it is about; `code` is the rule."""
    by_rule: dict[str, list[tuple[int, str, str, str | None]]] = {}
    for row, breach in breaches:
        told = (row, breach.path, breach.message, breach.evidence)
        by_rule.setdefault(breach.code, []).append(told)
    return [
        rule_findings.findings_of(
            rule,
            _about(calls, told),
            pl.col("said"),
            path=pl.col("place"),
            evidence="shown",
        )
        for rule, told in by_rule.items()
    ]


def _about(calls: pl.DataFrame, told: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {"row": pl.UInt32, "place": pl.String, "said": pl.String, "shown": pl.String}
    rows = pl.DataFrame(told, schema=schema, orient="row")
    # No column more: lists of a call's content, taken once for each breach, grow by their product.
    about = calls.select(pl.col(name) for name in calls.columns if name in _ABOUT)
    return about[rows.get_column("row")].hstack(rows.drop("row"))
