"""Chooses the problems that the page lists at the top, at most one per tool.

Changes for the worse since the base store come first, then the answer to the question `priorities`.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import polars as pl

from mcptally.output.html.answers import Answers, Compared
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import shown
from mcptally.plural import count
from mcptally.tables.outcomes import FAILED, Verdict, is_verdict, sql_list

MAX_PRIORITIES: Final = 10
_MAX_WORSE: Final = 6

KINDS: Final[Mapping[str, str]] = {
    "worse": "got worse",
    "failing": "tool failures",
    "change": "fails more often",
    "hidden": "hidden errors",
    "lost": "infrastructure failures",
    "never": "never worked",
    "contract": "output schema violations",
    "retries": "client repeats failed calls",
    "drift": "breaking definition change",
}
"""Kind of problem → its title on the page."""

_SECTIONS: Final[Mapping[str, str]] = {
    "failing": "tools",
    "change": "tools",
    "hidden": "hidden",
    "lost": "errors",
    "never": "tools",
    "contract": "schemas",
    "retries": "retries",
    "drift": "drift",
}
"""Kind of problem → the id of the section of the page with more information."""


@dataclasses.dataclass(frozen=True, slots=True)
class Priority:
    """A problem of a tool or server that the page lists at the top."""

    kind: str
    server: str | None
    tool: str | None
    """None: the problem concerns the whole server."""
    statement: str
    """The rest of a sentence that begins with the tool's name."""
    evidence: str
    """The numbers behind the statement."""
    has_enough_data: bool
    example: str | None
    """The id of a call that shows the problem."""
    section: str
    """The id of the section of the page with more information."""
    where: str
    """The condition in SQL that selects the affected calls of the tool."""
    quote: str | None = None
    """A typical error text."""
    also: tuple[str, ...] = ()
    """Statements about further problems of the same tool."""

    @property
    def title(self) -> str:
        """The title of the kind."""
        return KINDS[self.kind]

    def commands(self, commands: Commands) -> tuple[str | None, str | None]:
        """The command that shows the example, and the command that lists all affected calls."""
        every = commands.calls(self.server, self.tool, self.where, self.example)
        return commands.show(self.example), every


def priorities(answers: Answers) -> list[Priority]:
    """The most important problems, one per tool, the most important first.

    Other problems of a tool that got worse are added to its first one as `also`.
    """
    chosen: dict[tuple[str | None, str | None], Priority] = {}
    for problem in _worse(answers, answers.compared) if answers.compared else ():
        if len(chosen) < _MAX_WORSE:
            chosen.setdefault((problem.server, problem.tool), problem)
    for row in answers.priorities.to_dicts():
        tool = (row["server"], row["tool"])
        problem = _problem(row)
        if first := chosen.get(tool):
            if problem.has_enough_data:
                also = (*first.also, problem.statement, *problem.also)
                chosen[tool] = dataclasses.replace(first, also=also)
        elif len(chosen) < MAX_PRIORITIES:
            chosen[tool] = problem
    return list(chosen.values())


def _problem(row: Mapping[str, Any]) -> Priority:
    """Convert a row of the question `priorities`."""
    return Priority(
        kind=row["kind"],
        server=row["server"],
        tool=row["tool"],
        statement=shown(row["what"], 400),
        evidence=row["evidence"],
        has_enough_data=not row["insufficient_data"],
        example=row["call_id"],
        section=_SECTIONS[row["kind"]],
        where=row["condition"] or "",
        quote=None if row["message"] is None else shown(row["message"], 200),
        also=tuple(shown(what, 400) for what in row["also"]),
    )


def _typical_error(errors: pl.DataFrame, *conditions: pl.Expr) -> tuple[str | None, str | None]:
    """The most common error text of the groups that meet the conditions, and a call with it."""
    found = errors.filter(*conditions).head(1)
    if found.is_empty():
        return None, None
    row = found.row(0, named=True)
    return shown(row["example"], 200), row["call_id"]


def _same_tool(row: Mapping[str, Any]) -> pl.Expr:
    return pl.col("server").eq_missing(row["server"]) & pl.col("tool").eq_missing(row["tool"])


_AFFECTED: Final[Mapping[str, str]] = {
    "confidence": is_verdict(Verdict.TOOL_FAILURE),
    "failure_rate": is_verdict(Verdict.TOOL_FAILURE),
    "infrastructure_rate": is_verdict(Verdict.INFRASTRUCTURE),
    "success_rate": f"outcome IN {sql_list(FAILED)}",
    "hidden_error_rate": "outcome = 'hidden_error'",
    "invalid_output_rate": "output_schema_state IN ('invalid', 'missing_output')",
    "invalid_input_rate": "input_schema_state = 'invalid'",
}
"""Metric → the condition in SQL that selects the calls that it counts."""


def _example(
    answers: Answers, row: Mapping[str, Any], metric: str
) -> tuple[str | None, str | None]:
    """An error text and the id of a call that show why a metric got worse."""
    if metric in {"confidence", "failure_rate"}:
        own = pl.col("verdict") == Verdict.TOOL_FAILURE
        return _typical_error(answers.errors, _same_tool(row), own)
    if metric == "infrastructure_rate":
        outage = pl.col("verdict") == Verdict.INFRASTRUCTURE
        return _typical_error(answers.errors, _same_tool(row), outage)
    if metric == "success_rate":
        return _typical_error(answers.errors, _same_tool(row))
    if metric == "hidden_error_rate":
        return _typical_error(answers.hidden, _same_tool(row))
    if metric.startswith("invalid_"):
        side = metric.split("_")[1]
        return _typical_error(answers.violations, _same_tool(row), pl.col("side") == side)
    slowest = answers.latency.filter(_same_tool(row)).get_column("call_id").to_list()
    return None, slowest[0] if slowest else None


def _worse(answers: Answers, compared: Compared) -> Iterator[Priority]:
    order: Callable[[str], int] = ["worse", "vanished"].index
    rows = compared.tools.filter(
        pl.col("level") == "tool", pl.col("change").is_in(["worse", "vanished"])
    ).to_dicts()
    # `compare` sorts by importance; sorting by kind of change keeps that order.
    for row in sorted(rows, key=lambda r: order(r["change"])):
        metric = next(iter(row["worse"] or ()), "")
        quote, example = _example(answers, row, metric)
        yield Priority(
            kind="worse",
            server=row["server"],
            tool=row["tool"],
            statement=shown(row["words"], 400),
            evidence=f"{count(row['base_calls'], 'call')} in "
            f"{count(row['base_sessions'], 'session')} before, "
            f"{count(row['new_calls'], 'call')} in {count(row['new_sessions'], 'session')} now",
            has_enough_data=True,
            example=example,
            section="compared",
            where=_AFFECTED.get(metric, ""),
            quote=quote,
        )
