"""Makes findings from rules and the rows of a table that break them.

Rules are rows in the TOML files `FILES`. A rule defines the subject and severity of its findings
and the protocol revisions to which it applies; the caller selects the rows of a table that break
the rule. Every finding has a rule: `finding_rule` raises an error for an unknown id.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeVar, get_args

import numpy as np
import polars as pl
import polars.selectors as cs

from mcptally import rules
from mcptally.errors import RuleError, near
from mcptally.tables.arrow import indices
from mcptally.tables.findings import About, Findings, Severity
from mcptally.tables.queries import run_query
from mcptally.toml_files import read_toml

FILES: Final = (
    "archive.toml",
    "protocol.toml",
    "schema.toml",
    "definitions.toml",
    "definitions-smells.toml",
    "leaks.toml",
    "contracts-content.toml",
    "contracts-ui.toml",
    "contracts-validation.toml",
)
"""Names of the files with rules that make findings."""

REVISIONS: Final = tuple(row["name"] for row in read_toml("protocol/revisions.toml")["revisions"])
"""All released revisions of MCP, oldest first."""

EVIDENCE: Final = 500
"""Maximum number of characters in the `message`, and in the `evidence`, of a finding."""


_Frame = TypeVar("_Frame", pl.DataFrame, pl.LazyFrame)


class FindingRule(rules.Rule, frozen=True, kw_only=True):
    """A rule that makes findings. Its examples are conversations (docs/reference/rules.md)."""

    severity: Severity
    """`error` if the source says "must (not)", `warning` if "should (not)", else `info`."""
    about: About
    """The subject of the rule's findings: a file, a message, a call, …"""
    since: str = ""
    """The first revision to which the rule applies; if empty, the rule applies to all revisions,
    including unknown ones."""
    until: str = ""
    """The last revision to which the rule applies; if empty, the rule also applies to all later
    ones."""
    apart_from: tuple[str, ...] = ()
    """Revisions between `since` and `until` to which the rule does not apply."""
    document: str = ""
    """What the seed document requires, if its program behaves differently."""
    program: str = ""
    """What the seed document's program does."""
    matches: tuple[str, ...] = ()
    """Patterns (Rust regex) of a rule about text. The module that applies the rule chooses the
    text."""

    def __post_init__(self) -> None:
        """Check that each field has a value that its column in the table allows."""
        for name, value, allowed in (
            ("severity", self.severity, get_args(Severity)),
            ("about", self.about, get_args(About)),
            ("since", self.since, ("", *REVISIONS)),
            ("until", self.until, ("", *REVISIONS)),
            *(("apart_from", revision, REVISIONS) for revision in self.apart_from),
        ):
            if value not in allowed:
                raise RuleError(
                    f"rule {self.id}: {name} {value!r} is not one of {', '.join(allowed)}"
                    f"{near(value, allowed)}"
                )

    @property
    def revisions(self) -> tuple[str, ...]:
        """Revisions to which the rule applies; empty for all revisions, including unknown ones."""
        if not self.since:
            return ()
        last = REVISIONS.index(self.until or REVISIONS[-1])
        span = REVISIONS[REVISIONS.index(self.since) : last + 1]
        return tuple(revision for revision in span if revision not in self.apart_from)


@functools.cache
def finding_rules() -> Mapping[str, FindingRule]:
    """Load all rules that make findings, keyed by id."""
    return {rule.id: rule for rule in rules.load(FindingRule, *FILES)}


def finding_rule(name: str) -> FindingRule:
    """Return the rule with the id `name`.

    Raises:
        RuleError: no rule has this id.
    """
    rule = finding_rules().get(name)
    if rule is None:
        raise RuleError(f"no rule has the id {name!r}{near(name, finding_rules())}")
    return rule


def make_findings(
    name: str,
    rows: pl.DataFrame | pl.LazyFrame,
    message: str | pl.Expr,
    *,
    evidence: str | pl.Expr | None = None,
    path: str | pl.Expr | None = None,
) -> pl.DataFrame:
    """Return one finding of the rule `name` for each of the given rows.

    Rows with a revision to which the rule does not apply are skipped. `concat_findings` adds the
    columns of `Findings` that `rows` does not have.

    Args:
        name: the rule's id.
        rows: the rows that break the rule, with any columns of `Findings`; also `revision` if the
            rule only applies to some revisions.
        message: the text, or an expression for it.
        evidence: the name of a column, or an expression, with the offending value.
        path: a JSON Pointer, the name of a column of JSON Pointers, or an expression for a JSON
            Pointer.

    Raises:
        RuleError: no rule has this id.
    """
    rule = finding_rule(name)
    if isinstance(rows, pl.DataFrame) and not rows.height:
        return Findings.empty()
    if rule.revisions:
        rows = rows.lazy().filter(_holds_for(rule))
    check = Check(name, pl.lit(value=True), message, evidence, path)
    return _findings(rule, _collected(rows, check), check)


def select_for_findings(rows: _Frame, *more: str) -> _Frame:
    """Drop all columns that neither findings nor `more` need, because filters copy every column."""
    return rows.select(cs.by_name({*Findings.schema(), *more}, require_all=False))


def _collected(rows: pl.DataFrame | pl.LazyFrame, *checks: "Check") -> pl.DataFrame:
    """Run a query, but only for the columns that the checks read."""
    if isinstance(rows, pl.DataFrame):
        return rows
    read = {"revision"}
    for check in checks:
        values = (check.when, check.message, _expression(check.evidence), _pointer(check.path))
        read.update(*(each.meta.root_names() for each in values if isinstance(each, pl.Expr)))
    return select_for_findings(rows, *read).pipe(run_query)


def _holds_for(rule: FindingRule) -> pl.Expr:
    """Return an expression that is true if the rule applies to the revision of a row."""
    return pl.col("revision").is_in(rule.revisions) if rule.revisions else pl.lit(value=True)


def _findings(rule: FindingRule, rows: pl.DataFrame, check: "Check") -> pl.DataFrame:
    """Return one finding of `rule` per row, whatever the row's revision; see `make_findings`."""
    if not rows.height:
        return Findings.empty()
    text = pl.lit(check.message) if isinstance(check.message, str) else check.message
    made = {
        "rule": pl.lit(rule.id),
        "severity": pl.lit(rule.severity),
        "about": pl.lit(rule.about),
        "message": text.str.head(EVIDENCE),
        "path": _pointer(check.path),
        "evidence": _expression(check.evidence).str.head(EVIDENCE),
    }
    others = [name for name in Findings.schema() if name in rows.columns and name not in made]
    return rows.select(*others, **made)


class Check(NamedTuple):
    """A rule's id, the condition under which a row breaks the rule, and what a finding reports."""

    rule: str
    when: pl.Expr
    message: str | pl.Expr
    evidence: str | pl.Expr | None = None
    path: str | pl.Expr | None = None


def run_checks(rows: pl.DataFrame | pl.LazyFrame, *checks: Check) -> Iterator[pl.DataFrame]:
    """Run many checks on the same rows in one pass over their conditions; yield the findings."""
    rows = _collected(rows, *checks)
    if not rows.height:
        return
    rules = [finding_rule(check.rule) for check in checks]
    masks = rows.select(
        (_holds_for(rule) & check.when).fill_null(value=False).alias(str(n))
        for n, (rule, check) in enumerate(zip(rules, checks, strict=True))
    )
    for rule, check, mask in zip(rules, checks, masks.iter_columns(), strict=True):
        if mask.any():
            yield _findings(rule, rows[indices(np.flatnonzero(mask.to_numpy()))], check)


def concat_findings(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Combine the findings of many rules into one table with all columns of `Findings`."""
    rows = [part for part in parts if part.height]
    return Findings.frame(pl.concat(rows, how="diagonal_relaxed")) if rows else Findings.empty()


def require_known_rules(findings: pl.DataFrame) -> pl.DataFrame:
    """Check that the rules of findings are known, and return the findings unchanged.

    Raises:
        RuleError: a finding has an unknown rule.
    """
    for name in findings.get_column(Findings.rule.name).unique():
        finding_rule(name)
    return findings


def _pointer(path: str | pl.Expr | None) -> pl.Expr:
    """Return an expression for a JSON Pointer, a column's name, or an expression."""
    if path is None or (isinstance(path, str) and path.startswith("/")):
        return pl.lit(path, pl.String)
    return _expression(path)


def _expression(value: str | pl.Expr | None) -> pl.Expr:
    """Return an expression for a column's name or an expression; None becomes null."""
    if value is None:
        return pl.lit(None, pl.String)
    return pl.col(value) if isinstance(value, str) else value
