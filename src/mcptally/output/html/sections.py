"""Prepares the rows of the page's tables, with chart coordinates and commands.

The number of rows is limited, so that the page stays small for any store. The page states the
number of omitted rows, and the command that prints all rows.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl
from markupsafe import escape

from mcptally.analytics.compare import OMITTED_CHANGES
from mcptally.output.html import charts
from mcptally.output.html.answers import Answers, Compared
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import name, shown
from mcptally.tables.outcomes import Verdict, is_verdict

MAX_TOOLS: Final = 1000
MAX_TOOL_CHARACTERS: Final = 1_800_000
"""Maximum total length of escaped names and commands in the table of tools; further rows are
omitted."""
MAX_ROWS: Final = 60
MAX_HISTOGRAMS: Final = 24


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A table on the page: the first or most important rows of an answer."""

    rows: list[dict[str, Any]]
    total: int
    """Number of rows in the whole answer."""
    more: str
    """Command that prints all rows."""


NONE: Final[Mapping[str, Section | None]] = {
    name: Section([], 0, "")
    for name in (
        *("tools", "servers", "errors", "hidden", "latency", "drift", "context", "schemas"),
        *("retries", "findings"),
    )
} | {"compared": None}
"""The sections of a page without tables."""


def sections(answers: Answers, commands: Commands) -> dict[str, Section | None]:
    """Return the sections of the page by id.

    Without a base store, the section of changes is None.
    """
    rows = _Rows(answers, commands)
    return {
        "tools": rows.tools(),
        "servers": rows.servers(),
        "errors": rows.errors(),
        "hidden": rows.hidden(),
        "latency": rows.latency(),
        "drift": rows.drift(),
        "context": rows.context(),
        "schemas": rows.first("schema_violations", MAX_ROWS),
        "retries": rows.first("retry_loops", MAX_ROWS // 2),
        "findings": rows.first("finding_counts", MAX_ROWS),
        "compared": rows.changes(answers.compared) if answers.compared else None,
    }


class _Rows:
    """Builds sections and their rows from answers."""

    def __init__(self, answers: Answers, commands: Commands) -> None:
        self.answers = answers
        self.commands = commands

    def section(self, question: str, rows: Iterable[dict[str, Any]]) -> Section:
        """Build a section from `rows`, which are part of the answer to a question."""
        return Section(list(rows), self.answers(question).height, self.commands.ask(question))

    def first(self, question: str, most: int) -> Section:
        """Return the section with the first rows of the answer to a question."""
        rows = self.answers(question).head(most).to_dicts()
        return self.section(question, (self.row(row, row["call_id"]) for row in rows))

    def row(
        self,
        row: Mapping[str, Any],
        example: str | None,
        command: str | None = None,
        **columns: Any,
    ) -> dict[str, Any]:
        """Build a section's row from an answer's row, further columns and commands.

        `tool_ok` and `tool_calls` are the numbers of successful calls and of all calls to the row's
        tool. For a row about a whole server (`level` is `server`), they include the calls to all
        tools of the server.

        Args:
            row: the row of the answer.
            example: the id of an example call.
            command: a command that lists all calls behind the row.
            columns: further columns.
        """
        key = (row.get("level", "tool"), row.get("server"), row.get("tool"))
        ok, calls = self._worked.get(key, (None, None))
        return {
            **row,
            "tool_ok": ok,
            "tool_calls": calls,
            **columns,
            "commands": [each for each in (self.commands.show(example), command) if each],
            "example_call": example,
        }

    @functools.cached_property
    def _worked(self) -> dict[tuple[str, str | None, str | None], tuple[int, int]]:
        """Map (level, server, tool) to the numbers of calls that worked and of all calls."""
        tools, servers = self.answers("tool_scores"), self.answers("server_scores")
        return {
            ("tool", server, tool): (ok, calls)
            for server, tool, ok, calls in tools.select("server", "tool", "ok", "calls").iter_rows()
        } | {
            ("server", server, None): (ok, calls)
            for server, ok, calls in servers.select("server", "ok", "calls").iter_rows()
        }

    @functools.cached_property
    def _examples(self) -> dict[tuple[str | None, str | None], str]:
        """Map (server, tool) to an example call.

        The example is a call with the tool's most common tool failure, or else with its most common
        failure of any kind, or else its slowest call.
        """
        errors = self.answers("error_groups")
        found: dict[tuple[str | None, str | None], str] = {}
        for frame in (errors.filter(verdict="tool_failure"), errors, self.answers("latency")):
            for server, tool, call in frame.select("server", "tool", "call_id").iter_rows():
                found.setdefault((server, tool), call)
        return found

    def _scored(
        self, row: Mapping[str, Any], tool: str | None, example: str | None
    ) -> dict[str, Any]:
        """Build a row of scores, with a command that lists the calls in which the tool failed."""
        where = is_verdict(Verdict.TOOL_FAILURE) if row["tool_failures"] else ""
        ends = (row["success_rate_low"], row["success_rate"], row["success_rate_high"])
        command = self.commands.calls(row["server"], tool, where, example)
        return self.row(row, example, command, range=charts.rate_range(*ends))

    def tools(self) -> Section:
        """Return the tools in the answer's order: those that cost callers most come first."""
        rows: list[dict[str, Any]] = []
        characters = 0
        for row in self.answers("tool_scores").head(MAX_TOOLS).to_dicts():
            tool = (row["server"], row["tool"])
            made = self._scored(row, row["tool"], self._examples.get(tool))
            names = "".join(map(name, tool))
            # A name appears twice, in its cell and as a sort key; the commands may repeat it.
            characters += 2 * len(escape(names)) + sum(len(escape(c)) for c in made["commands"])
            if characters > MAX_TOOL_CHARACTERS:
                break
            rows.append(made)
        return self.section("tool_scores", rows)

    def servers(self) -> Section:
        """Return the servers in the answer's order: those that cost callers most come first."""
        examples: dict[str | None, str] = {}
        for (server, _), call in self._examples.items():
            examples.setdefault(server, call)
        rows = self.answers("server_scores").head(MAX_ROWS * 3).to_dicts()
        return self.section(
            "server_scores",
            (self._scored(row, None, examples.get(row["server"])) for row in rows),
        )

    def errors(self) -> Section:
        """Return the most common error groups per verdict, so rejections do not hide failures."""
        ranked = (
            self.answers("error_groups")
            .with_row_index("index")
            .with_columns(
                urgency=pl.col("verdict").replace_strict(_URGENCY, default=4),
                rank_in_verdict=pl.col("index").rank("ordinal").over("verdict"),
            )
        )
        chosen = ranked.sort("rank_in_verdict", "urgency").head(MAX_ROWS * 2)
        rows = chosen.sort("calls", descending=True).to_dicts()
        return self.section("error_groups", (self.row(row, row["call_id"]) for row in rows))

    def hidden(self) -> Section:
        """Return results that report a failure but are not marked as errors."""
        rows = []
        for row in self.answers("hidden_errors").head(MAX_ROWS).to_dicts():
            server, tool, example = row["server"], row["tool"], row["call_id"]
            command = self.commands.calls(server, tool, "outcome = 'hidden_error'", example)
            rows.append(self.row(row, example, command))
        return self.section("hidden_errors", rows)

    def latency(self) -> Section:
        """Return histograms of the slowest tools; tools with at least 20 calls come first."""
        answer = self.answers("latency")
        ranked = answer.with_columns(
            used=pl.col("calls") >= min(20, max(answer.get_column("calls"), default=0))
        ).sort("used", "latency_p95_ms", descending=True, nulls_last=True)
        bins: dict[tuple[str | None, str | None], list[tuple[int, int]]] = {}
        wanted = ranked.head(MAX_HISTOGRAMS)
        for row in (
            self.answers("latency_histogram")
            .join(
                wanted.select("server", "tool"), on=["server", "tool"], how="semi", nulls_equal=True
            )
            .to_dicts()
        ):
            bins.setdefault((row["server"], row["tool"]), []).append((row["bin"], row["calls"]))
        rows = [
            self.row(
                row,
                row["call_id"],
                bars=charts.histogram(bins.get((row["server"], row["tool"]), ())),
                p50_x=charts.time_x(row["latency_p50_ms"]),
                p95_x=charts.time_x(row["latency_p95_ms"]),
            )
            for row in wanted.to_dicts()
        ]
        return self.section("latency", rows)

    def drift(self) -> Section:
        """Return the changes to tool definitions: when, how, and the failures before and after."""
        counts = self.answers.counts
        by_tool = self.answers("drift").partition_by("server", "tool", maintain_order=True)
        rows = []
        for of_tool in by_tool[:MAX_ROWS]:
            changes = of_tool.to_dicts()
            tool = (changes[0]["server"], changes[0]["tool"])
            example = self._examples.get(tool)
            texts = {shown(what, 80) for change in changes for what in change["changed"] or ()}
            rows.append(
                self.row(
                    {"server": tool[0], "tool": tool[1]},
                    example,
                    self.commands.calls(*tool, "", example),
                    worst=changes[0]["drift"],
                    times=len(changes),
                    timeline=charts.timeline(changes, counts["first_call"], counts["last_call"]),
                    latest=max(
                        changes,
                        key=lambda each: (each["first_seen"] is not None, each["first_seen"]),
                    ),
                    changed=sorted(texts)[:6],
                )
            )
        return Section(rows, len(by_tool), self.commands.ask("drift"))

    def context(self) -> Section:
        """Return the tools that use the most tokens of a model's context."""
        frame = self.answers("context_cost").filter(pl.col("total_tokens") > 0)
        most = max(frame.get_column("total_tokens"), default=0)
        rows = []
        for row in frame.head(MAX_ROWS // 2).to_dicts():
            parts = {"definition": row["listed_tokens"], "results": row["response_tokens_total"]}
            pieces = charts.stacked(parts, charts.RATE_WIDTH, most)
            rows.append(self.row(row, row["call_id"], pieces=pieces))
        return Section(rows, frame.height, self.commands.ask("context_cost"))

    def changes(self, compared: Compared) -> Section:
        """Return the changes since the base store, except those of a kind in `OMITTED_CHANGES`."""
        listed = compared.tools.filter(~pl.col("change").is_in(OMITTED_CHANGES))
        rows = []
        for row in listed.head(MAX_ROWS * 2).to_dicts():
            tool = (row["server"], row["tool"])
            example = self._examples.get(tool)
            rates: Mapping[str, Any] = compared.success_rates.get(tool, {})
            ends = (rates.get("base"), rates.get("new"))
            x = [charts.rate_x(end) for end in ends if end is not None]
            rows.append(
                self.row(
                    row,
                    example,
                    self.commands.calls(*tool, "", example),
                    before=ends[0],
                    now=ends[1],
                    rates_x=x if len(x) == len(ends) else None,
                )
            )
        return Section(rows, listed.height, self.commands.compare(compared.base))


_URGENCY: Final = {"tool_failure": 0, "infrastructure": 1, "ambiguous": 2, "business": 3}
