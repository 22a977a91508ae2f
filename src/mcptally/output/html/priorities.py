"""Selects the problems at the top of the page.

Changes for the worse since the base store come first, followed by the answer to `priorities`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from mcptally.analytics import contrasts
from mcptally.output.html import problems
from mcptally.output.html.answers import MAX_PRIORITIES, Answers, Compared
from mcptally.output.html.charts import ContrastBar, contrast_bars
from mcptally.output.html.commands import Commands
from mcptally.output.html.sections import Section
from mcptally.output.html.text import name, shown
from mcptally.plural import count
from mcptally.tables.outcomes import FAILED, Verdict, is_verdict, sql_list

_MAX_WORSE: Final = 6

_SECTIONS: Final[Mapping[str, str]] = {
    "unmarked": "hidden",
    "contract": "schemas",
    "drift": "drift",
    **dict.fromkeys(("not_started", "not_connected", "start", "crash", "noise"), "servers"),
}
"""Maps kinds of problem to ids of sections with more information; the default is `errors`."""

_ROWS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "errors": ("error", ("server", "tool", "template", "verdict")),
    "hidden": ("hidden", ("server", "tool", "hidden_rule")),
    "schemas": ("schema", ("server", "tool", "side", "state", "path", "error")),
    "drift": ("drift", ("server", "tool")),
    "servers": ("server", ("server",)),
}
"""Maps section ids to prefixes of row ids and to key columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Priority:
    """A problem with a tool or server, listed at the top of the page."""

    kind: str
    title: str
    subject: str
    """The affected servers and tools."""
    statement: str
    """A sentence about the problem: how often, whose fault, since when."""
    evidence: str
    """The numbers behind the statement."""
    has_enough_data: bool
    example: str | None
    """Id of a call that shows the problem."""
    section: str
    """Id of the section with more information."""
    where: str
    """SQL condition for the affected calls; empty if unknown."""
    named: tuple[str | None, str | None] | None = None
    """The server and tool, unless `where` contains them."""
    quote: str | None = None
    """A typical error text."""
    servers: Sequence[str | None] = ()
    tools: Sequence[str | None] = ()
    template: str | None = None
    """Template of the example's error text."""
    contrast: str | None = None
    """A sentence about what distinguishes failing calls from working calls."""
    bars: Sequence[ContrastBar] = ()
    """The shares of calls that fail, with and without what distinguishes them."""

    def commands(self, commands: Commands) -> tuple[str | None, str | None]:
        """Return the commands that show the example and that list all affected calls."""
        if self.named is not None:
            every = commands.calls(*self.named, self.where, self.example)
        else:
            every = commands.all_calls(self.where) if self.where else None
        return commands.show(self.example), every

    def details(self, parts: Mapping[str, Section | None]) -> tuple[str, list[object] | None]:
        """Return the section with more information, and the key of the row about the problem.

        The key is None if the section has no row about the problem. If the section is empty, the
        function returns the tools' section.
        """
        if self.section not in _ROWS:
            return self.section, None
        prefix, columns = _ROWS[self.section]
        part = parts[self.section]
        rows = [] if part is None else part.rows
        key = next((key for row in rows if (key := self._key(row, columns))), None)
        if key is not None:
            return prefix, key
        return (self.section if rows else "tools"), None

    def _key(self, row: Mapping[str, Any], columns: tuple[str, ...]) -> list[object] | None:
        """Return the key of a row if the row is about this problem; otherwise None."""
        same = (
            row["server"] in self.servers
            and ("tool" not in columns or row["tool"] in self.tools)
            and ("template" not in columns or row["template"] == self.template)
        )
        return [row[column] for column in columns] if same else None


def priorities(answers: Answers) -> list[Priority]:
    """Return the most important problems, most important first.

    Changes for the worse since the base store precede the store's problems.
    """
    worse = _worse(answers, answers.compared) if answers.compared else ()
    first = list(itertools.islice(worse, _MAX_WORSE))
    rows = answers("priorities").head(MAX_PRIORITIES - len(first)).to_dicts()
    shared = answers.asked.contrasts(len(rows))
    return [*first, *(_problem(row, shared) for row in rows)]


def _problem(row: Mapping[str, Any], shared: contrasts.Contrasts) -> Priority:
    """Build a `Priority` from a row of the `priorities` answer."""
    contrast = contrasts.row_of_problem(row, shared)
    return Priority(
        kind=row["kind"],
        title=problems.title(row),
        subject=problems.subject(row),
        statement=problems.statement(row),
        evidence=problems.evidence(row),
        has_enough_data=not row["insufficient_data"],
        example=row["call_id"],
        section=_SECTIONS.get(row["kind"], "errors"),
        where=problems.affected(row),
        quote=problems.message(row),
        servers=row["servers"],
        tools=[*(row["tools"] or ()), *(row["unlisted"] or ())],
        template=row["template"],
        contrast=contrasts.of_problem(row, shared),
        bars=contrast_bars(contrast) if contrast and contrast["test"] else (),
    )


_AFFECTED: Final[Mapping[str, str]] = {
    "confidence": is_verdict(Verdict.TOOL_FAILURE),
    "failure_rate": is_verdict(Verdict.TOOL_FAILURE),
    "infrastructure_rate": is_verdict(Verdict.INFRASTRUCTURE),
    "success_rate": f"outcome IN {sql_list(FAILED)}",
    "hidden_error_rate": "outcome = 'hidden_error'",
    "invalid_output_rate": "output_schema_state IN ('invalid', 'missing_output')",
    "invalid_input_rate": "input_schema_state = 'invalid'",
}
"""Maps each metric to the SQL condition for the calls that it counts."""


_SHOWN_BY: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "confidence": ("error_groups", {"verdict": Verdict.TOOL_FAILURE}),
    "failure_rate": ("error_groups", {"verdict": Verdict.TOOL_FAILURE}),
    "infrastructure_rate": ("error_groups", {"verdict": Verdict.INFRASTRUCTURE}),
    "success_rate": ("error_groups", {}),
    "hidden_error_rate": ("hidden_errors", {}),
    "invalid_output_rate": ("schema_violations", {"side": "output"}),
    "invalid_input_rate": ("schema_violations", {"side": "input"}),
}
"""Maps each metric to the question, and values in its answer, whose first row is an example."""


def _example(
    answers: Answers, row: Mapping[str, Any], metric: str
) -> tuple[str | None, str | None]:
    """Return an error text and the id of a call that show why a metric got worse."""
    question, values = _SHOWN_BY.get(metric, ("latency", {}))
    same_tool = [pl.col(key).eq_missing(row[key]) for key in ("server", "tool")]
    for first in answers(question).filter(*same_tool, **values).head(1).iter_rows(named=True):
        text = None if question == "latency" else shown(first["example"], 200)
        return text, first["call_id"]
    return None, None


def _worse(answers: Answers, compared: Compared) -> Iterator[Priority]:
    order: Callable[[str], int] = ["worse", "vanished"].index
    rows = compared.tools.filter(
        pl.col("change").is_in(["worse", "vanished"]), level="tool"
    ).to_dicts()
    # `compare` sorts by importance; the stable sort by kind of change keeps this order.
    for row in sorted(rows, key=lambda r: order(r["change"])):
        metric = next(iter(row["worse"] or ()), "")
        quote, example = _example(answers, row, metric)
        yield Priority(
            kind="worse",
            title=problems.TITLES["worse"],
            subject=name(row["server"]) + (f": {name(row['tool'])}" if row["tool"] else ""),
            statement=shown(row["words"], 400),
            evidence=f"{count(row['base_calls'], 'call')} in "
            f"{count(row['base_sessions'], 'session')} before, "
            f"{count(row['new_calls'], 'call')} in {count(row['new_sessions'], 'session')} now",
            has_enough_data=True,
            example=example,
            section="compared",
            where=_AFFECTED.get(metric, ""),
            named=(row["server"], row["tool"]),
            quote=quote,
        )
