"""Prepares the rows of the page's tables, with chart coordinates and commands.

The number of rows is limited, so that the page stays small for any store. The page states how many
rows were omitted, and which command prints all of them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
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
    """The rows of an answer that the page shows."""

    rows: list[dict[str, Any]]
    total: int
    """Number of rows in the whole answer."""
    more: str
    """Command that prints all rows."""


def _present(*commands: str | None) -> list[str]:
    return [command for command in commands if command]


def _ids(first: str | None, more: Sequence[str] = ()) -> list[str]:
    """Return the distinct call ids of a row's examples, with the answer's own example first."""
    return list(dict.fromkeys(call for call in (first, *more) if call is not None))


def _worked(answers: Answers) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that maps a row to the numbers of successful and of all calls to its tool.

    The numbers have the keys `tool_ok` and `tool_calls`. For a row about a whole server (`level` is
    `server`), calls to all of its tools are counted.
    """
    counts = ("ok", "calls")
    named = {
        ("tool", server, tool): numbers
        for server, tool, *numbers in answers.tools.select("server", "tool", *counts).iter_rows()
    } | {
        ("server", server, None): numbers
        for server, *numbers in answers.servers.select("server", *counts).iter_rows()
    }
    known = {key: {"tool_ok": ok, "tool_calls": calls} for key, (ok, calls) in named.items()}
    none = {"tool_ok": None, "tool_calls": None}
    return lambda row: known.get((row.get("level", "tool"), row["server"], row["tool"]), none)


def _with_example(row: Mapping[str, Any], commands: Commands) -> dict[str, Any]:
    """Return a row's example call, and the command that shows this call."""
    return {
        "commands": _present(commands.show(row["call_id"])),
        "examples": _ids(row["call_id"]),
    }


def tools(answers: Answers, commands: Commands) -> Section:
    """Return the tools in the answer's order: most costly for callers first."""
    examples = _examples(answers)
    rows: list[dict[str, Any]] = []
    characters = 0
    for row in answers.tools.head(MAX_TOOLS).to_dicts():
        tool = (row["server"], row["tool"])
        example = examples.get(tool)
        where = is_verdict(Verdict.TOOL_FAILURE) if row["tool_failures"] else ""
        lines = _present(commands.show(example), commands.calls(*tool, where, example))
        names = "".join(map(name, tool))
        # A name appears in its cell and as a sort key; the commands may repeat it.
        characters += 2 * len(escape(names)) + sum(len(escape(line)) for line in lines)
        if characters > MAX_TOOL_CHARACTERS:
            break
        rows.append(
            row | {"range": _success_range(row), "commands": lines, "examples": _ids(example)}
        )
    return Section(rows, answers.tools.height, commands.ask("tool_scores"))


def _success_range(row: Mapping[str, Any]) -> charts.Range | None:
    return charts.rate_range(row["success_rate_low"], row["success_rate"], row["success_rate_high"])


def servers(answers: Answers, commands: Commands) -> Section:
    """Return the servers in the answer's order: most costly for callers first."""
    examples: dict[str | None, str] = {}
    for (server, _), call in _examples(answers).items():
        examples.setdefault(server, call)
    rows = []
    for row in answers.servers.head(MAX_ROWS * 3).to_dicts():
        example = examples.get(row["server"])
        where = is_verdict(Verdict.TOOL_FAILURE) if row["tool_failures"] else ""
        lines = _present(
            commands.show(example), commands.calls(row["server"], None, where, example)
        )
        rows.append(
            row | {"range": _success_range(row), "commands": lines, "examples": _ids(example)}
        )
    return Section(rows, answers.servers.height, commands.ask("server_scores"))


def _examples(answers: Answers) -> dict[tuple[str | None, str | None], str]:
    """Return an example call for each tool.

    The example is from the tool's most common tool failure, or else its most common failure of any
    kind, or else its slowest call.
    """
    failing = answers.errors.filter(verdict="tool_failure")
    found: dict[tuple[str | None, str | None], str] = {}
    for frame, column in (
        (failing, "call_id"),
        (answers.errors, "call_id"),
        (answers.latency, "call_id"),
    ):
        for server, tool, call in frame.select("server", "tool", column).iter_rows():
            found.setdefault((server, tool), call)
    return found


_URGENCY: Final = {"tool_failure": 0, "infrastructure": 1, "ambiguous": 2, "business": 3}


def errors(answers: Answers, commands: Commands) -> Section:
    """Return the most common error groups per verdict, so that rejections do not hide failures."""
    ranked = answers.errors.with_row_index("index").with_columns(
        urgency=pl.col("verdict").replace_strict(_URGENCY, default=4),
        rank_in_verdict=pl.col("index").rank("ordinal").over("verdict"),
    )
    chosen = ranked.sort("rank_in_verdict", "urgency").head(MAX_ROWS * 2)
    worked = _worked(answers)
    rows = [
        row
        | worked(row)
        | {
            "commands": _present(commands.show(row["call_id"])),
            "examples": _ids(
                row["call_id"],
                answers.more.errors.get(
                    (row["server"], row["tool"], row["template"], row["verdict"]), ()
                ),
            ),
        }
        for row in chosen.sort("calls", descending=True).to_dicts()
    ]
    return Section(rows, answers.errors.height, commands.ask("error_groups"))


def hidden(answers: Answers, commands: Commands) -> Section:
    """Return results that report a failure but are not marked as errors."""
    worked = _worked(answers)
    rows = [
        row
        | worked(row)
        | {
            "commands": _present(
                commands.show(row["call_id"]),
                commands.calls(
                    row["server"], row["tool"], "outcome = 'hidden_error'", row["call_id"]
                ),
            ),
            "examples": _ids(
                row["call_id"],
                answers.more.hidden.get((row["server"], row["tool"], row["hidden_rule"]), ()),
            ),
        }
        for row in answers.hidden.head(MAX_ROWS).to_dicts()
    ]
    return Section(rows, answers.hidden.height, commands.ask("hidden_errors"))


def latency(answers: Answers, commands: Commands) -> Section:
    """Return latency histograms of the slowest tools; tools with at least 20 calls come first."""
    ranked = answers.latency.with_columns(
        used=pl.col("calls") >= min(20, max(answers.latency.get_column("calls"), default=0))
    ).sort("used", "latency_p95_ms", descending=True, nulls_last=True)
    bins: dict[tuple[str | None, str | None], list[tuple[int, int]]] = {}
    wanted = ranked.head(MAX_HISTOGRAMS)
    for row in answers.histogram.join(
        wanted.select("server", "tool"), on=["server", "tool"], how="semi", nulls_equal=True
    ).to_dicts():
        bins.setdefault((row["server"], row["tool"]), []).append((row["bin"], row["calls"]))
    worked = _worked(answers)
    rows = [
        row
        | worked(row)
        | {
            "bars": charts.histogram(bins.get((row["server"], row["tool"]), ())),
            "p50_x": charts.time_x(row["latency_p50_ms"]),
            "p95_x": charts.time_x(row["latency_p95_ms"]),
            "commands": _present(commands.show(row["call_id"])),
            "examples": _ids(
                row["call_id"], answers.more.slow.get((row["server"], row["tool"]), ())
            ),
        }
        for row in wanted.to_dicts()
    ]
    return Section(rows, answers.latency.height, commands.ask("latency"))


def drift(answers: Answers, commands: Commands) -> Section:
    """Return the tools whose definitions changed: when, how, and failures before and after."""
    rows = []
    examples = _examples(answers)
    worked = _worked(answers)
    for of_tool in answers.drift.partition_by("server", "tool", maintain_order=True)[:MAX_ROWS]:
        changes = of_tool.to_dicts()
        tool = (changes[0]["server"], changes[0]["tool"])
        latest = max(
            changes, key=lambda change: (change["first_seen"] is not None, change["first_seen"])
        )
        rows.append(
            worked(changes[0])
            | {
                "server": changes[0]["server"],
                "tool": changes[0]["tool"],
                "worst": changes[0]["drift"],
                "times": len(changes),
                "timeline": charts.timeline(changes, answers.first_call, answers.last_call),
                "latest": latest,
                "changed": sorted(
                    {shown(what, 80) for c in changes for what in c["changed"] or ()}
                )[:6],
                "commands": _present(
                    commands.show(examples.get(tool)),
                    commands.calls(*tool, "", examples.get(tool)),
                ),
                "examples": _ids(examples.get(tool)),
            }
        )
    total = answers.drift.select("server", "tool").unique().height
    return Section(rows, total, commands.ask("drift"))


def context(answers: Answers, commands: Commands) -> Section:
    """Return the tools that use the most tokens of a model's context."""
    frame = answers.context.filter(pl.col("total_tokens") > 0)
    worked = _worked(answers)
    most = max(frame.get_column("total_tokens"), default=0)
    rows = []
    for row in frame.head(MAX_ROWS // 2).to_dicts():
        parts = {"definition": row["listed_tokens"], "results": row["response_tokens_total"]}
        rows.append(
            row
            | worked(row)
            | {
                "pieces": charts.stacked(parts, charts.RATE_WIDTH, most),
                "commands": _present(commands.show(row["call_id"])),
                "examples": _ids(row["call_id"]),
            }
        )
    return Section(rows, frame.height, commands.ask("context_cost"))


def violations(answers: Answers, commands: Commands) -> Section:
    """Return arguments and results that do not match the tools' schemas."""
    worked = _worked(answers)
    rows = [
        row | worked(row) | _with_example(row, commands)
        for row in answers.violations.head(MAX_ROWS).to_dicts()
    ]
    return Section(rows, answers.violations.height, commands.ask("schema_violations"))


def retries(answers: Answers, commands: Commands) -> Section:
    """Return the tools whose failed calls were repeated."""
    worked = _worked(answers)
    rows = [
        row | worked(row) | _with_example(row, commands)
        for row in answers.retries.head(MAX_ROWS // 2).to_dicts()
    ]
    return Section(rows, answers.retries.height, commands.ask("retry_loops"))


def findings(answers: Answers, commands: Commands) -> Section:
    """Return protocol violations and other findings, by rule."""
    rows = [
        row | _with_example(row, commands) for row in answers.findings.head(MAX_ROWS).to_dicts()
    ]
    return Section(rows, answers.findings.height, commands.ask("finding_counts"))


def changes(answers: Answers, compared: Compared, commands: Commands) -> Section:
    """Return the changes since the base store, without the kinds in `OMITTED_CHANGES`."""
    listed = compared.tools.filter(~pl.col("change").is_in(OMITTED_CHANGES))
    rows = []
    examples = _examples(answers)
    worked = _worked(answers)
    for row in listed.head(MAX_ROWS * 2).to_dicts():
        example = examples.get((row["server"], row["tool"]))
        rates: Mapping[str, Any] = compared.success_rates.get((row["server"], row["tool"]), {})
        before, now = rates.get("base"), rates.get("new")
        rates_x = None
        if before is not None and now is not None:
            rates_x = (charts.rate_x(before), charts.rate_x(now))
        rows.append(
            row
            | worked(row)
            | {
                "before": before,
                "now": now,
                "rates_x": rates_x,
                "commands": _present(
                    commands.show(example),
                    commands.calls(row["server"], row["tool"], "", example),
                ),
                "examples": _ids(example),
            }
        )
    return Section(rows, listed.height, commands.compare(compared.base))
