"""Rules and rows to findings: a finding is made from a rule's row, and from nothing else.

The rows are those of `FILES`. A row says what a finding is about, how bad it is and for which
revisions of the protocol it holds; the module that knows the columns says which rows of a frame
break it. An id without a row is an error of ours.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, get_args

import polars as pl

from mcptally import rules
from mcptally.errors import RuleError, near
from mcptally.tables.findings import About, Findings, Severity

FILES: Final = (
    "archive.toml",
    "protocol.toml",
    "schema.toml",
    "definitions.toml",
    "leaks.toml",
    "contracts-content.toml",
    "contracts-ui.toml",
    "contracts-validation.toml",
)
"""The rule files whose rules make findings."""

REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Every released revision of MCP, oldest first."""

EVIDENCE: Final = 500
"""Characters kept of an offending value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FindingRule(rules.Rule):
    """A rule that makes findings. Its examples are conversations: docs/reference/rules.md."""

    severity: Severity
    """`error`: the source says must (not); `warning`: should (not); `info`: good to know."""
    about: About
    revisions: tuple[str, ...] = ()
    """Revisions that the rule holds for; none given: every one, and unknown ones too."""
    document: str = ""
    """How the seed document reads, where its program does otherwise."""
    program: str = ""
    """What the program behind that document does."""
    matches: tuple[str, ...] = ()
    """Patterns (Rust regex) of a rule about texts; what they are matched with, the module says."""

    def __post_init__(self) -> None:
        """Refuse values that no column knows."""
        for name, value, allowed in (
            ("severity", self.severity, get_args(Severity)),
            ("about", self.about, get_args(About)),
            *(("revisions", revision, REVISIONS) for revision in self.revisions),
        ):
            if value not in allowed:
                raise RuleError(
                    f"rule {self.id}: {name} {value!r} is not one of {', '.join(allowed)}"
                    f"{near(value, allowed)}"
                )


@functools.cache
def finding_rules() -> Mapping[str, FindingRule]:
    """Every rule that makes findings, by id."""
    return {rule.id: rule for rule in rules.load(FindingRule, *FILES)}


def rule_of(name: str) -> FindingRule:
    """The rule of an id.

    Raises:
        RuleError: no row has this id.
    """
    rule = finding_rules().get(name)
    if rule is None:
        raise RuleError(f"no rule has the id {name!r}{near(name, finding_rules())}")
    return rule


def findings_of(
    name: str,
    rows: pl.DataFrame,
    message: str | pl.Expr,
    *,
    evidence: str | pl.Expr | None = None,
    path: str | pl.Expr | None = None,
) -> pl.DataFrame:
    """Findings of the rule `name`, one for each of `rows` that is of a revision it holds for.

    `rows` gives the columns of `Findings` that it has, and `revision` where the rule asks for it.
    """
    rule = rule_of(name)
    if rule.revisions:
        rows = rows.filter(pl.col("revision").is_in(rule.revisions))
    if not rows.height:
        return pl.DataFrame(schema=Findings.schema())
    return Findings.frame(
        rows.with_columns(
            rule=pl.lit(rule.id),
            severity=pl.lit(rule.severity),
            about=pl.lit(rule.about),
            message=(pl.lit(message) if isinstance(message, str) else message).str.head(EVIDENCE),
            path=_place(path),
            evidence=_column(evidence).str.head(EVIDENCE),
        )
    )


class Check(NamedTuple):
    """A rule and the rows that break it."""

    rule: str
    when: pl.Expr
    message: str | pl.Expr
    evidence: str | pl.Expr | None = None
    path: str | pl.Expr | None = None


def found_where(rows: pl.DataFrame, *checks: Check) -> Iterator[pl.DataFrame]:
    """Findings of many rules about the same rows: all conditions in one pass."""
    masks = rows.select(
        check.when.fill_null(value=False).alias(str(n)) for n, check in enumerate(checks)
    )
    for check, mask in zip(checks, masks.iter_columns(), strict=True):
        if mask.any():
            yield findings_of(
                check.rule,
                rows.filter(mask),
                check.message,
                evidence=check.evidence,
                path=check.path,
            )


def together(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Findings of many rules as one frame."""
    rows = [part for part in parts if part.height]
    findings: pl.DataFrame = pl.concat(rows) if rows else pl.DataFrame(schema=Findings.schema())
    return findings


def require_rules(findings: pl.DataFrame) -> pl.DataFrame:
    """`findings`, once it is sure that each has a rule.

    Raises:
        RuleError: a finding names a rule that has no row.
    """
    for name in findings.get_column("rule").unique():
        rule_of(name)
    return findings


def _place(path: str | pl.Expr | None) -> pl.Expr:
    """A JSON Pointer, or the column that holds it."""
    if path is None or (isinstance(path, str) and path.startswith("/")):
        return pl.lit(path, pl.String)
    return _column(path)


def _column(value: str | pl.Expr | None) -> pl.Expr:
    if value is None:
        return pl.lit(None, pl.String)
    return pl.col(value) if isinstance(value, str) else value
