"""Rows of the page's tables: an answer cut to what is worth reading, with its marks and commands.

How much of an answer is shown is bounded, so that the page stays small whatever the store holds;
what is left out is counted, and the question that has it is named.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl
from markupsafe import escape

from mcptally.output.html import charts
from mcptally.output.html.answers import Answers, Compared
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import name, shown

TOOLS: Final = 1000
WEIGHT: Final = 1_800_000
"""Characters that strangers' names may take in the table of tools, escaped; it ends before."""
ROWS: Final = 60
MULTIPLES: Final = 24
QUIET: Final = ("unclear", "unchanged", "too_little_data", "only_in_base", "only_in_new")


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """Rows that are shown, and how many there are."""

    rows: list[dict[str, Any]]
    total: int
    more: str
    """The command that gives all of them."""


def _section(
    frame: pl.DataFrame, limit: int, more: str, rows: Iterable[dict[str, Any]] | None = None
) -> Section:
    given = frame.head(limit).to_dicts() if rows is None else list(rows)
    return Section(given, frame.height, more)


def _present(*commands: str | None) -> list[str]:
    return [command for command in commands if command]


def tools(answers: Answers, commands: Commands) -> Section:
    """Tools by failure rate, the surest failures first."""
    examples = _examples(answers)
    rows: list[dict[str, Any]] = []
    weight = 0
    for row in answers.tools.head(TOOLS).to_dicts():
        about = (row["server"], row["tool"])
        example = examples.get(about)
        where = "verdict = 'tool_failure'" if row["tool_failures"] else ""
        lines = _present(commands.show(example), commands.calls(*about, where, example))
        names = "".join(map(name, about))
        # A name stands in its cell, in what the column is sorted by, and in the commands.
        weight += 2 * len(escape(names)) + sum(len(escape(line)) for line in lines)
        if weight > WEIGHT:
            break
        rows.append(
            row
            | {
                "range": charts.rate(
                    row["failure_rate_low"], row["failure_rate"], row["failure_rate_high"]
                ),
                "commands": lines,
            }
        )
    return _section(answers.tools, TOOLS, commands.ask("tool_scores"), rows)


def servers(answers: Answers, commands: Commands) -> Section:
    """Servers by failure rate."""
    examples: dict[str | None, str] = {}
    for (server, _), call in _examples(answers).items():
        examples.setdefault(server, call)
    rows = []
    for row in answers.servers.head(ROWS * 3).to_dicts():
        example = examples.get(row["server"])
        where = "verdict = 'tool_failure'" if row["tool_failures"] else ""
        rows.append(
            row
            | {
                "range": charts.rate(
                    row["failure_rate_low"], row["failure_rate"], row["failure_rate_high"]
                ),
                "commands": _present(
                    commands.show(example), commands.calls(row["server"], None, where, example)
                ),
            }
        )
    return _section(answers.servers, ROWS * 3, commands.ask("server_scores"), rows)


def _examples(answers: Answers) -> dict[tuple[str | None, str | None], str]:
    """A call of each tool: its commonest failure, its own fault first, or else its slowest."""
    failing = answers.errors.filter(pl.col("verdict") == "tool_failure")
    found: dict[tuple[str | None, str | None], str] = {}
    for frame, column in (
        (failing, "example_call"),
        (answers.errors, "example_call"),
        (answers.latency, "slowest_call"),
    ):
        for server, tool, call in frame.select("server", "tool", column).iter_rows():
            found.setdefault((server, tool), call)
    return found


_URGENCY: Final = {"tool_failure": 0, "infrastructure": 1, "ambiguous": 2, "business": 3}


def errors(answers: Answers, commands: Commands) -> Section:
    """Error groups: of each verdict its commonest, so that refusals do not hide failures."""
    frame = answers.errors.with_row_index("place").with_columns(
        urgency=pl.col("verdict").replace_strict(_URGENCY, default=4),
        within=pl.col("place").rank("ordinal").over("verdict"),
    )
    chosen = frame.sort("within", "urgency").head(ROWS * 2).sort("calls", descending=True)
    rows = []
    for row in chosen.to_dicts():
        example = row["example_call"]
        rows.append(row | {"commands": _present(commands.show(example))})
    return _section(answers.errors, ROWS * 2, commands.ask("error_groups"), rows)


def hidden(answers: Answers, commands: Commands) -> Section:
    """Results that claim success and report a failure."""
    rows = [
        row
        | {
            "commands": _present(
                commands.show(row["example_call"]),
                commands.calls(
                    row["server"], row["tool"], "outcome = 'hidden_error'", row["example_call"]
                ),
            )
        }
        for row in answers.hidden.head(ROWS).to_dicts()
    ]
    return _section(answers.hidden, ROWS, commands.ask("hidden_errors"), rows)


def latency(answers: Answers, commands: Commands) -> Section:
    """Small multiples: how the latencies of the slowest tools that are used spread."""
    ranked = answers.latency.with_columns(
        used=pl.col("calls") >= min(20, max(answers.latency.get_column("calls"), default=0))
    ).sort("used", "p95_ms", descending=True, nulls_last=True)
    shapes: dict[tuple[str | None, str | None], list[tuple[int, int]]] = {}
    wanted = ranked.head(MULTIPLES)
    for row in answers.histogram.join(
        wanted.select("server", "tool"), on=["server", "tool"], how="semi", nulls_equal=True
    ).to_dicts():
        shapes.setdefault((row["server"], row["tool"]), []).append((row["bin"], row["calls"]))
    rows = [
        row
        | {
            "bars": charts.histogram(shapes.get((row["server"], row["tool"]), ())),
            "p50_x": charts.time_x(row["p50_ms"]),
            "p95_x": charts.time_x(row["p95_ms"]),
            "commands": _present(commands.show(row["slowest_call"])),
        }
        for row in wanted.to_dicts()
    ]
    return _section(answers.latency, MULTIPLES, commands.ask("latency"), rows)


def drift(answers: Answers, commands: Commands) -> Section:
    """Tools whose definition changed: when, what, and how calls fared before and after."""
    rows = []
    examples = _examples(answers)
    for of_tool in answers.drift.partition_by("server", "tool", maintain_order=True)[:ROWS]:
        changes = of_tool.to_dicts()
        about = (changes[0]["server"], changes[0]["tool"])
        latest = max(
            changes, key=lambda change: (change["first_seen"] is not None, change["first_seen"])
        )
        rows.append(
            {
                "server": changes[0]["server"],
                "tool": changes[0]["tool"],
                "worst": changes[0]["drift"],
                "times": len(changes),
                "strip": charts.moments(changes, answers.first_call, answers.last_call),
                "latest": latest,
                "changed": sorted(
                    {shown(what, 80) for c in changes for what in c["changed"] or ()}
                )[:6],
                "commands": _present(
                    commands.show(examples.get(about)),
                    commands.calls(*about, "", examples.get(about)),
                ),
            }
        )
    frame = answers.drift.select("server", "tool").unique()
    return _section(frame, ROWS, commands.ask("drift"), rows)


def context(answers: Answers, commands: Commands) -> Section:
    """What tools cost a model's context: the dearest."""
    frame = answers.context.filter(pl.col("total_tokens") > 0)
    dearest = max(frame.get_column("total_tokens"), default=0)
    rows = []
    for row in frame.head(ROWS // 2).to_dicts():
        parts = {"definition": row["listed_tokens"], "results": row["result_tokens"]}
        rows.append(
            row
            | {
                "pieces": charts.stacked(parts, charts.RATE_WIDTH, dearest),
                "commands": _present(commands.show(row["largest_call"])),
            }
        )
    return _section(frame, ROWS // 2, commands.ask("context_cost"), rows)


def violations(answers: Answers, commands: Commands) -> Section:
    """Arguments and results that break the tool's own schema."""
    rows = [
        row | {"commands": _present(commands.show(row["example_call"]))}
        for row in answers.violations.head(ROWS).to_dicts()
    ]
    return _section(answers.violations, ROWS, commands.ask("schema_violations"), rows)


def retries(answers: Answers, commands: Commands) -> Section:
    """Calls made again and again."""
    rows = [
        row | {"commands": _present(commands.show(row["worst_call"]))}
        for row in answers.retries.head(ROWS // 2).to_dicts()
    ]
    return _section(answers.retries, ROWS // 2, commands.ask("retry_loops"), rows)


def findings(answers: Answers, commands: Commands) -> Section:
    """What breaks the protocol, or is odd."""
    rows = [
        row | {"commands": _present(commands.show(row["example"]) if row["calls"] else None)}
        for row in answers.findings.head(ROWS).to_dicts()
    ]
    return _section(answers.findings, ROWS, commands.ask("finding_counts"), rows)


def changes(answers: Answers, compared: Compared, commands: Commands) -> Section:
    """What changed since the base store; what did not is only counted."""
    loud = compared.tools.filter(~pl.col("change").is_in(QUIET))
    rows = []
    examples = _examples(answers)
    for row in loud.head(ROWS * 2).to_dicts():
        example = examples.get((row["server"], row["tool"]))
        rates: Mapping[str, Any] = compared.failure_rates.get((row["server"], row["tool"]), {})
        before, now = rates.get("base"), rates.get("new")
        drawn = None
        if before is not None and now is not None:
            drawn = (charts.rate_x(before), charts.rate_x(now))
        rows.append(
            row
            | {
                "before": before,
                "now": now,
                "drawn": drawn,
                "commands": _present(
                    commands.show(example),
                    commands.calls(row["server"], row["tool"], "", example),
                ),
            }
        )
    return _section(loud, ROWS * 2, commands.compare(compared.base), rows)
