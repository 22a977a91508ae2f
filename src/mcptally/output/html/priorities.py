"""Selects the most important problems of a store, at most one per tool.

Changes for the worse since the base store come first. Other problems are ranked by the number of
calls that they affect at least: the lower bound of the 95 % interval times the number of calls,
times a weight by kind (`_WEIGHTS`). Problems with too little data come last.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import polars as pl

from mcptally.output.html.answers import Answers, Compared
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import interval, moment, percent, shown
from mcptally.plural import count

MAX_PRIORITIES: Final = 10
_MAX_PER_KIND: Final = 3
_MAX_WORSE: Final = 6

_WEIGHTS: Final[Mapping[str, float]] = {
    "worse": 1.0,
    "failing": 1.0,
    "change": 1.0,
    "hidden": 0.5,
    "lost": 1.0,
    "never": 0.25,
    "contract": 0.5,
    "retries": 0.25,
    "drift": 0.05,
}
"""Kind of problem → weight of a call that it affects."""

KINDS: Final[Mapping[str, str]] = {
    "worse": "got worse",
    "failing": "tool failures",
    "change": "fails more often",
    "hidden": "hidden errors",
    "lost": "infrastructure failures",
    "never": "never worked",
    "contract": "output schema violations",
    "retries": "failed calls repeated",
    "drift": "breaking definition change",
}
"""Kind of problem → its title on the page."""

_MIN_RATE: Final = 0.01
"""Problems whose rate may be below this are omitted."""


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
    impact: float
    """The lower bound of the number of affected calls, times the weight of the kind."""
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

    Further problems of the same tool are added to the first one as `also`.
    """
    found = [
        *(_worse(answers, answers.compared) if answers.compared else ()),
        *_failing(answers),
        *_changes(answers),
        *_hidden(answers),
        *_lost(answers),
        *_never(answers),
        *_contracts(answers),
        *_retries(answers),
        *_drifts(answers),
    ]
    found.sort(key=lambda one: (one.kind != "worse", not one.has_enough_data, -one.impact))
    chosen: dict[tuple[str | None, str | None], Priority] = {}
    kinds: dict[str, int] = {}
    for problem in found:
        tool = (problem.server, problem.tool)
        if tool in chosen:
            first = chosen[tool]
            if problem.has_enough_data and problem.kind not in {first.kind, "worse"}:
                chosen[tool] = dataclasses.replace(first, also=(*first.also, problem.statement))
        elif len(chosen) < MAX_PRIORITIES and kinds.get(problem.kind, 0) < _limit(problem.kind):
            chosen[tool] = problem
            kinds[problem.kind] = kinds.get(problem.kind, 0) + 1
    return list(chosen.values())


def _limit(kind: str) -> int:
    return _MAX_WORSE if kind == "worse" else _MAX_PER_KIND


def _most_affected(frame: pl.DataFrame, low: str, calls: str) -> Iterable[dict[str, Any]]:
    """The rows that affect the most calls, with the lower bound of this number as `impact`.

    Args:
        frame: one row per tool or server.
        low: the column with the lower bound of the rate.
        calls: the column with the number of calls.
    """
    bad = frame.filter(pl.col(low) >= _MIN_RATE).with_columns(impact=pl.col(low) * pl.col(calls))
    return bad.sort("impact", descending=True).head(3 * MAX_PRIORITIES).to_dicts()


def _is_narrow(row: Mapping[str, Any], rate: str) -> bool:
    """Whether the 95 % interval of a rate is at most 40 percentage points wide."""
    return bool(row[f"{rate}_high"] - row[f"{rate}_low"] <= 0.4)


def _evidence(row: Mapping[str, Any], rate: str, calls: int) -> str:
    """The rate with its interval, and the number of calls and sessions behind it.

    Args:
        row: a row of `tool_scores` or `server_scores`.
        rate: the column of the rate.
        calls: the number of calls behind the rate.
    """
    low, high = row[f"{rate}_low"], row[f"{rate}_high"]
    known = f"{percent(row[rate])}, 95% interval {interval(low, high)}"
    sessions = count(row["sessions"], "session")
    return f"{known}; {count(calls, 'call')} in {sessions}"


def _typical_error(errors: pl.DataFrame, *conditions: pl.Expr) -> tuple[str | None, str | None]:
    """The most common error text under the conditions, and the id of a call with it."""
    found = errors.filter(*conditions).head(1)
    if found.is_empty():
        return None, None
    row = found.row(0, named=True)
    return shown(row["example"], 200), row["call_id"]


def _same_tool(row: Mapping[str, Any]) -> pl.Expr:
    return pl.col("server").eq_missing(row["server"]) & pl.col("tool").eq_missing(row["tool"])


def _failing(answers: Answers) -> Iterator[Priority]:
    frame = answers.tools.filter(pl.col("tool_failures") > 0)
    for row in _most_affected(frame, "failure_rate_low", "calls"):
        failures, calls = row["tool_failures"], row["calls"]
        quote, example = _typical_error(
            answers.errors, _same_tool(row), pl.col("verdict") == "tool_failure"
        )
        yield Priority(
            kind="failing",
            server=row["server"],
            tool=row["tool"],
            statement=f"caused the failure of {count(failures)} of {count(calls, 'call')}; "
            f"{count(row['ok'])} worked",
            evidence=_evidence(row, "failure_rate", calls),
            impact=row["impact"] * _WEIGHTS["failing"],
            has_enough_data=not row["failure_rate_insufficient_data"],
            example=example,
            section="tools",
            where="verdict = 'tool_failure'",
            quote=quote,
        )


def _hidden(answers: Answers) -> Iterator[Priority]:
    frame = answers.tools.filter(pl.col("hidden_errors") > 0)
    examples = answers.hidden
    for row in _most_affected(frame, "hidden_error_rate_low", "calls"):
        quote, example = _typical_error(examples, _same_tool(row))
        yield Priority(
            kind="hidden",
            server=row["server"],
            tool=row["tool"],
            statement=f"reported a failure in {count(row['hidden_errors'])} of "
            f"{count(row['calls'], 'call')} without marking the result as an error",
            evidence=_evidence(row, "hidden_error_rate", row["calls"]),
            impact=row["impact"] * _WEIGHTS["hidden"],
            has_enough_data=_is_narrow(row, "hidden_error_rate"),
            example=example,
            section="hidden",
            where="outcome = 'hidden_error'",
            quote=quote,
        )


def _lost(answers: Answers) -> Iterator[Priority]:
    frame = answers.servers.filter(pl.col("infrastructure") > 0)
    for row in _most_affected(frame, "infrastructure_rate_low", "calls"):
        quote, example = _typical_error(
            answers.errors,
            pl.col("server").eq_missing(row["server"]),
            pl.col("verdict") == "infrastructure",
        )
        yield Priority(
            kind="lost",
            server=row["server"],
            tool=None,
            statement=f"had {count(row['infrastructure'])} of {count(row['calls'], 'call')} fail "
            f"because of the network, a timeout or an upstream service; {count(row['ok'])} worked",
            evidence=_evidence(row, "infrastructure_rate", row["calls"]),
            impact=row["impact"] * _WEIGHTS["lost"],
            has_enough_data=_is_narrow(row, "infrastructure_rate"),
            example=example,
            section="errors",
            where="verdict = 'infrastructure'",
            quote=quote,
        )


def _never(answers: Answers) -> Iterator[Priority]:
    frame = answers.tools.filter(pl.col("ok") == 0, pl.col("success_rate_high") < 1).with_columns(
        lost=1 - pl.col("success_rate_high")
    )
    for row in _most_affected(frame, "lost", "calls"):
        quote, example = _typical_error(answers.errors, _same_tool(row))
        yield Priority(
            kind="never",
            server=row["server"],
            tool=row["tool"],
            statement=f"never worked: 0 of {count(row['calls'], 'call')}; "
            f"{count(row['business'])} refused, {count(row['infrastructure'])} failed because of "
            f"network or upstream, {count(row['tool_failures'])} because of the tool",
            evidence=_evidence(row, "success_rate", row["calls"]),
            impact=row["impact"] * _WEIGHTS["never"],
            has_enough_data=not row["success_rate_insufficient_data"],
            example=example,
            section="tools",
            where="outcome <> 'ok'",
            quote=quote,
        )


def _contracts(answers: Answers) -> Iterator[Priority]:
    broken = (
        answers.violations.filter(
            pl.col("side") == "output", pl.col("state").is_in(["invalid", "missing_output"])
        )
        .group_by("server", "tool", maintain_order=True)
        .agg(
            pl.col("calls").sum().alias("broken"),
            pl.col("example").first(),
            pl.col("call_id").first(),
        )
    )
    frame = answers.tools.join(broken, on=["server", "tool"], nulls_equal=True)
    for row in _most_affected(frame, "invalid_output_rate_low", "ok"):
        yield Priority(
            kind="contract",
            server=row["server"],
            tool=row["tool"],
            statement=f"returned {count(row['broken'], 'result')} that did not match its "
            "output schema",
            evidence=f"{percent(row['invalid_output_rate'])} of the results that could be checked, "
            "95% interval "
            f"{interval(row['invalid_output_rate_low'], row['invalid_output_rate_high'])}",
            impact=row["impact"] * _WEIGHTS["contract"],
            has_enough_data=_is_narrow(row, "invalid_output_rate"),
            example=row["call_id"],
            section="schemas",
            where="output_schema_state IN ('invalid', 'missing_output')",
            quote=shown(row["example"], 200),
        )


def _retries(answers: Answers) -> Iterator[Priority]:
    frame = answers.retries.join(
        answers.tools.select("server", "tool", "sessions", "retry_rate", "^retry_rate_.*$"),
        on=["server", "tool"],
        nulls_equal=True,
    ).filter(pl.col("loops") > 0)
    for row in _most_affected(frame, "retry_rate_low", "calls"):
        yield Priority(
            kind="retries",
            server=row["server"],
            tool=row["tool"],
            statement=f"was called again {count(row['retries'], 'time')} after the same call had "
            f"failed, up to {count(row['longest'], 'time')} in a row; "
            f"{percent(row['recovered_rate'])} of the repeated calls succeeded in the end",
            evidence=f"{percent(row['retry_rate'])} of its calls are repetitions, 95% "
            f"interval {interval(row['retry_rate_low'], row['retry_rate_high'])}; "
            f"failed attempts took {count(row['wasted_tokens'], 'token')}",
            impact=row["impact"] * _WEIGHTS["retries"],
            has_enough_data=_is_narrow(row, "retry_rate"),
            example=row["call_id"],
            section="retries",
            where="attempt_why = 'retry'",
        )


def _drifts(answers: Answers) -> Iterator[Priority]:
    for row in answers.drift.filter(pl.col("drift") == "breaking").to_dicts():
        changes = ", ".join(shown(change, 60) for change in (row["changed"] or [])[:4])
        yield Priority(
            kind="drift",
            server=row["server"],
            tool=row["tool"],
            statement=f"changed its definition on {moment(row['first_seen'])} UTC in a way "
            f"that breaks callers: {changes}",
            evidence=f"tool_failures: {count(row['tool_failures_before'])} of "
            f"{count(row['calls_before'], 'call')} before, {count(row['tool_failures'])} of "
            f"{count(row['calls'], 'call')} after",
            impact=max(1, row["calls"]) * _WEIGHTS["drift"],
            has_enough_data=True,
            example=None,
            section="drift",
            where="",
        )


def _changes(answers: Answers) -> Iterator[Priority]:
    """Tools whose calls fail more often since some time, unless the callers are the cause."""
    lasting = answers.changes.filter(
        pl.col("level") == "tool",
        pl.col("direction") == "worse",
        pl.col("next_change").is_null(),
        pl.col("cause") != "business",
    )
    for row in lasting.to_dicts():
        quote, _ = _typical_error(
            answers.errors, _same_tool(row), pl.col("template").eq_missing(row["template"])
        )
        yield Priority(
            kind="change",
            server=row["server"],
            tool=row["tool"],
            statement=f"succeeds in {percent(row['success_rate_after'])} of its calls since "
            f"{moment(row['changed_at'])} UTC, and in {percent(row['success_rate_before'])} before",
            evidence=f"{count(row['calls_before'], 'call')} in "
            f"{count(row['sessions_before'], 'session')} before, "
            f"{count(row['calls_after'], 'call')} in {count(row['sessions_after'], 'session')} "
            f"since; q = {row['q_value']:.1g}",
            impact=-row["difference"] * row["calls_after"] * _WEIGHTS["change"],
            has_enough_data=True,
            example=row["call_id"],
            section="tools",
            where=f"verdict = '{row['cause']}'",
            quote=quote,
        )


_AFFECTED: Final[Mapping[str, str]] = {
    "confidence": "verdict = 'tool_failure'",
    "failure_rate": "verdict = 'tool_failure'",
    "infrastructure_rate": "verdict = 'infrastructure'",
    "success_rate": "outcome NOT IN ('ok', 'input_required', 'task')",
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
        own = pl.col("verdict") == "tool_failure"
        return _typical_error(answers.errors, _same_tool(row), own)
    if metric == "infrastructure_rate":
        outage = pl.col("verdict") == "infrastructure"
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
    # `compare` sorts by importance; `impact` keeps that order.
    for index, row in enumerate(sorted(rows, key=lambda r: order(r["change"]))):
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
            impact=float(len(rows) - index),
            has_enough_data=True,
            example=example,
            section="compared",
            where=_AFFECTED.get(metric, ""),
            quote=quote,
        )
