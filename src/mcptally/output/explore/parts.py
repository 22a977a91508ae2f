"""Prepares parts that several pages share: problems, calls over time, error groups and outcomes."""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from mcptally.analytics import contrasts
from mcptally.errors import QueryError
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Crumb, Section
from mcptally.output.html import charts, problems
from mcptally.output.html.headings import onsets
from mcptally.output.html.text import name, shown_lines
from mcptally.redaction.display import indented
from mcptally.tables.outcomes import RESULTS

TOOL_CALLS: Final = "method = 'tools/call' AND dir = 'c2s'"
"""SQL condition for the calls that rates count."""

MOST: Final = 20
"""Maximum number of error groups on a page."""


def reviewed(answers: Answers, server: str | None = None, tool: str | None = None) -> Section:
    """Return a section with the failure rate of a store, server or tool in a reviewed sample."""
    return Section("reviewed", "Reviewed", lambda: answers.reviewed(server, tool))


def crumbs(links: Links, row: Mapping[str, Any]) -> list[Crumb]:
    """Return the links to the server and tool of a call."""
    found = [(name(row["server"]), links.server(row["server"]))]
    if row["tool"] is not None:
        found.append((name(row["tool"]), links.tool(row["server"], row["tool"])))
    return found


def about(frame: pl.DataFrame, server: str | None, *tool: str | None) -> pl.DataFrame:
    """Return the rows of `frame` about a server or, if `tool` is given, about that tool."""
    rows = frame.filter(pl.col("server").eq_missing(pl.lit(server, pl.String)))
    if tool:
        rows = rows.filter(pl.col("tool").eq_missing(pl.lit(tool[0], pl.String)))
    return rows


def problem_rows(answers: Answers, *, most: int, server: str | None = None) -> dict[str, Any]:
    """Return the most important problems of the whole store or of one server."""
    found = answers.ask("priorities")
    if server is not None:
        found = found.filter(pl.col("servers").list.contains(server))
    rows = found.head(most).to_dicts()
    known: contrasts.Contrasts = {}
    with contextlib.suppress(QueryError):  # with millions of calls, the query may exceed a limit
        if tools := contrasts.tools_of(rows):
            known = contrasts.by_group(answers.contrasts(tools).to_dicts())
    for row in rows:
        row.update({key: words(row) for key, words in _WORDS.items()})
        row["contrast"] = contrasts.of_problem(row, known)
    return {"rows": rows, "total": found.height, "ranking": problems.RANKING}


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str | None]]] = {
    "title": problems.title,
    "number": problems.number,
    "blame": problems.blame,
    "onset": problems.onset,
    "evidence": problems.evidence,
    "quote": problems.message,
}
"""Maps names in the templates to what words a problem."""


def over_time(answers: Answers, server: str | None, *tool: str | None) -> dict[str, Any] | None:
    """Return the calls to a server or tool over time, by outcome, and changes in success rates."""
    timeline, changes = (
        about(answers.ask(question), server, *tool).filter(level="tool" if tool else "server")
        for question in ("timeline", "change_points")
    )
    return _over_time(timeline, changes)


def all_over_time(answers: Answers) -> dict[str, Any] | None:
    """Return the number of calls in the whole store over time, by outcome."""
    return _over_time(answers.ask("timeline").filter(level="server"), answers.ask("change_points"))


def _over_time(timeline: pl.DataFrame, changes: pl.DataFrame) -> dict[str, Any] | None:
    if timeline.is_empty() or (chart := charts.over_time(timeline, changes)) is None:
        return None
    kinds = {kind for kind, _ in chart.paths}
    return {
        "chart": chart,
        "onsets": onsets(changes),
        "names": RESULTS,
        "kinds": [kind for kind in RESULTS if kind in kinds],
    }


def error_groups(answers: Answers, server: str | None, *tool: str | None) -> dict[str, Any] | None:
    """Return a server's or tool's error groups, each with its share of the failed calls."""
    frame = about(answers.ask("error_groups"), server, *tool)
    if frame.is_empty():
        return None
    total = int(frame["calls"].sum())
    rows = frame.head(MOST).to_dicts()
    for row in rows:
        row["share"] = row["calls"] / total
        row["width"] = round(150 * row["share"], 1)
    return {"rows": rows, "total": frame.height, "calls": total}


def contrasts_of(
    answers: Answers, server: str | None, tool: str | None, *group: str | None
) -> list[dict[str, Any]]:
    """Return the contrasts for a tool or, given a template and a verdict, for one of its errors."""
    found = about(answers.contrasts([contrasts.tool_key(server, tool)]), server, tool)
    for column, value in zip(("template", "verdict"), group, strict=False):
        found = found.filter(pl.col(column).eq_missing(pl.lit(value, pl.String)))
    return found.to_dicts()


def contrast_bars(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the contrasts that were found, each with its fact in words and its bars."""
    drawn = []
    for row in rows:
        if row["test"] is None:
            continue
        facts = [contrasts.fact(row)]
        if row["and_test"]:
            facts.append(contrasts.fact(row, "and_"))
        bars = charts.contrast_bars(row)
        drawn.append({**row, "fact": " and ".join(facts), "bars": bars})
    return drawn


Line = tuple[str, str]
"""`+`, `-` or a space, and a line of text."""
_LONGEST: Final = 20_000


def difference(before: str, after: str) -> list[Line]:
    """Return the lines that differ between two texts, with three lines of context."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    return [(line[:1], line[1:]) for line in lines if not line.startswith(("---", "+++", "@@"))]


def definition_text(row: Mapping[str, Any]) -> str:
    """Return a tool's definition as readable lines, which `difference` can compare."""
    parts = [row["description"] or ""]
    for part in ("input_schema", "output_schema", "annotations"):
        if row[part]:
            parts += ["", f"{part}:", indented(row[part])]
    return shown_lines("\n".join(parts).strip(), _LONGEST)


def names(rows: Sequence[Mapping[str, Any]], column: str) -> list[str]:
    """Return a column's distinct non-null values, in order."""
    return list(dict.fromkeys(row[column] for row in rows if row[column] is not None))
