"""What to look at first, and why: the surest and costliest troubles of a store, one a tool.

What got worse since the base store comes first. The rest is ranked by the calls that it spoils at
the very least: the lower bound of the 95 % interval times the calls that it is the rate of. What
the tool itself breaks counts whole, what others break or only costs time in part (`_WEIGHTS`). What
rests on too little data comes last and says so.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import polars as pl

from mcptally.output.html.answers import Answers, Compared
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import count, interval, moment, percent, shown

MOST: Final = 10
_MOST_OF_A_KIND: Final = 3
_MOST_WORSE: Final = 6

_WEIGHTS: Final[Mapping[str, float]] = {
    "worse": 1.0,
    "failing": 1.0,
    "alarm": 1.0,
    "hidden": 0.5,
    "lost": 0.25,
    "contract": 0.5,
    "retries": 0.25,
    "drift": 0.05,
}
"""Kind → what a call that it spoils counts."""

KINDS: Final[Mapping[str, str]] = {
    "worse": "got worse",
    "failing": "fails by its own fault",
    "alarm": "fails more than before",
    "hidden": "hides errors",
    "lost": "calls lost on the way",
    "contract": "breaks its output schema",
    "retries": "repeated in vain",
    "drift": "definition changed",
}

_TOO_RARE: Final = 0.01
"""A trouble that may well be rarer than this is nothing to get up for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lead:
    """Something to look at."""

    kind: str
    server: str | None
    tool: str | None
    """None: it is about the whole server."""
    said: str
    """The sentence that goes on from the tool's name."""
    evidence: str
    spoiled: float
    """Calls spoiled at the least, weighed."""
    sure: bool
    example: str | None
    """A call that shows it."""
    section: str
    """Where on the page there is more."""
    where: str
    """SQL: which of the tool's calls show it."""
    quote: str | None = None
    also: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The kind in words."""
        return KINDS[self.kind]

    def commands(self, commands: Commands) -> tuple[str | None, str | None]:
        """What to paste to see an example, and what to see all of the calls."""
        every = commands.calls(self.server, self.tool, self.where, self.example)
        return commands.show(self.example), every


def leads(answers: Answers) -> list[Lead]:
    """What to look at, the first thing first; one lead a tool, with what else is wrong with it."""
    found = [
        *(_worse(answers, answers.compared) if answers.compared else ()),
        *_failing(answers),
        *_alarms(answers),
        *_hidden(answers),
        *_lost(answers),
        *_contracts(answers),
        *_retries(answers),
        *_drifts(answers),
    ]
    found.sort(key=lambda one: (one.kind != "worse", not one.sure, -one.spoiled))
    chosen: dict[tuple[str | None, str | None], Lead] = {}
    kinds: dict[str, int] = {}
    for lead in found:
        about = (lead.server, lead.tool)
        if about in chosen:
            before = chosen[about]
            if lead.sure and lead.kind not in {before.kind, "worse"}:
                chosen[about] = dataclasses.replace(before, also=(*before.also, lead.said))
        elif len(chosen) < MOST and kinds.get(lead.kind, 0) < _most(lead.kind):
            chosen[about] = lead
            kinds[lead.kind] = kinds.get(lead.kind, 0) + 1
    return list(chosen.values())


def _most(kind: str) -> int:
    return _MOST_WORSE if kind == "worse" else _MOST_OF_A_KIND


def _worst(frame: pl.DataFrame, low: str, calls: str) -> Iterable[dict[str, Any]]:
    """The rows whose rate certainly spoils most calls, and those of which too little is known."""
    bad = frame.filter(pl.col(low) >= _TOO_RARE).with_columns(spoiled=pl.col(low) * pl.col(calls))
    return bad.sort("spoiled", descending=True).head(3 * MOST).to_dicts()


def _evidence(row: Mapping[str, Any], rate: str, calls: int, *, worth: float | None = None) -> str:
    low, high = row[f"{rate}_low"], row[f"{rate}_high"]
    known = f"{percent(row[rate])}, 95% interval {interval(low, high)}"
    sessions = count(row["sessions"], "session")
    # Where sessions tell nothing, the calls are worth what they are.
    thin = worth is not None and worth < 0.9 * calls
    weighed = f", worth {count(max(1, worth or 0))} independent" if thin else ""
    return f"{known}; {count(calls, 'call')} in {sessions}{weighed}"


def _said_most(errors: pl.DataFrame, *conditions: pl.Expr) -> tuple[str | None, str | None]:
    """The commonest message of the calls that a condition holds for, and a call that gave it."""
    found = errors.filter(*conditions).head(1)
    if found.is_empty():
        return None, None
    row = found.row(0, named=True)
    return shown(row["example"], 200), row["example_call"]


def _of(row: Mapping[str, Any]) -> pl.Expr:
    return pl.col("server").eq_missing(row["server"]) & pl.col("tool").eq_missing(row["tool"])


def _failing(answers: Answers) -> Iterator[Lead]:
    frame = answers.tools.filter(pl.col("tool_failures") > 0)
    for row in _worst(frame, "failure_rate_low", "judged_calls"):
        failures, judged = row["tool_failures"], row["judged_calls"]
        quote, example = _said_most(answers.errors, _of(row), pl.col("verdict") == "tool_failure")
        yield Lead(
            kind="failing",
            server=row["server"],
            tool=row["tool"],
            said=f"failed by its own fault in {count(failures)} of {count(judged, 'call')} that "
            "it could answer for",
            evidence=_evidence(row, "failure_rate", judged, worth=row["n_eff"]),
            spoiled=row["spoiled"] * _WEIGHTS["failing"],
            sure=not row["insufficient_data"],
            example=example,
            section="tools",
            where="verdict = 'tool_failure'",
            quote=quote,
        )


def _hidden(answers: Answers) -> Iterator[Lead]:
    frame = answers.tools.filter(pl.col("hidden_errors") > 0).with_columns(
        claims=pl.col("ok") + pl.col("hidden_errors")
    )
    examples = answers.hidden
    for row in _worst(frame, "hidden_error_rate_low", "claims"):
        quote, example = _said_most(examples, _of(row))
        yield Lead(
            kind="hidden",
            server=row["server"],
            tool=row["tool"],
            said=f"claimed success and reported a failure in {count(row['hidden_errors'])} of "
            f"{count(row['claims'], 'result')}",
            evidence=_evidence(row, "hidden_error_rate", row["claims"]),
            spoiled=row["spoiled"] * _WEIGHTS["hidden"],
            sure=row["hidden_error_rate_high"] - row["hidden_error_rate_low"] <= 0.4,
            example=example,
            section="hidden",
            where="outcome = 'hidden_error'",
            quote=quote,
        )


def _lost(answers: Answers) -> Iterator[Lead]:
    ended = pl.sum_horizontal(
        *("ok", "hidden_errors", "tool_errors", "protocol_errors", "timeouts", "no_responses")
    )
    frame = answers.servers.filter(pl.col("infrastructure") > 0).with_columns(ended=ended)
    for row in _worst(frame, "infrastructure_rate_low", "ended"):
        quote, example = _said_most(
            answers.errors,
            pl.col("server").eq_missing(row["server"]),
            pl.col("verdict") == "infrastructure",
        )
        yield Lead(
            kind="lost",
            server=row["server"],
            tool=None,
            said=f"lost {count(row['infrastructure'])} of {count(row['ended'], 'call')} to the "
            "network, to time-outs, or to what lies behind it",
            evidence=_evidence(row, "infrastructure_rate", row["ended"]),
            spoiled=row["spoiled"] * _WEIGHTS["lost"],
            sure=row["infrastructure_rate_high"] - row["infrastructure_rate_low"] <= 0.4,
            example=example,
            section="errors",
            where="verdict = 'infrastructure'",
            quote=quote,
        )


def _contracts(answers: Answers) -> Iterator[Lead]:
    broken = (
        answers.violations.filter(
            pl.col("side") == "output", pl.col("state").is_in(["invalid", "missing_output"])
        )
        .group_by("server", "tool", maintain_order=True)
        .agg(
            pl.col("calls").sum().alias("broken"),
            pl.col("example").first(),
            pl.col("example_call").first(),
        )
    )
    frame = answers.tools.join(broken, on=["server", "tool"], nulls_equal=True)
    for row in _worst(frame, "invalid_output_rate_low", "ok"):
        yield Lead(
            kind="contract",
            server=row["server"],
            tool=row["tool"],
            said=f"broke the output schema that it declares in {count(row['broken'], 'result')}",
            evidence=f"{percent(row['invalid_output_rate'])} of the results that could be checked, "
            "95% interval "
            f"{interval(row['invalid_output_rate_low'], row['invalid_output_rate_high'])}",
            spoiled=row["spoiled"] * _WEIGHTS["contract"],
            sure=row["invalid_output_rate_high"] - row["invalid_output_rate_low"] <= 0.4,
            example=row["example_call"],
            section="schemas",
            where="output_schema_state IN ('invalid', 'missing_output')",
            quote=shown(row["example"], 200),
        )


def _retries(answers: Answers) -> Iterator[Lead]:
    frame = answers.retries.join(
        answers.tools.select("server", "tool", "sessions", "retry_rate", "^retry_rate_.*$"),
        on=["server", "tool"],
        nulls_equal=True,
    ).filter(pl.col("loops") > 0)
    for row in _worst(frame, "retry_rate_low", "calls"):
        yield Lead(
            kind="retries",
            server=row["server"],
            tool=row["tool"],
            said=f"was called again {count(row['retries'], 'time')} after the same call had "
            f"failed, up to {count(row['longest'], 'time')} in a row; "
            f"{percent(row['recovered_rate'])} of the calls recovered",
            evidence=f"{percent(row['retry_rate'])} of its calls are such repetitions, 95% "
            f"interval {interval(row['retry_rate_low'], row['retry_rate_high'])}; "
            f"{count(row['wasted_tokens'], 'token')} spent on attempts that failed",
            spoiled=row["spoiled"] * _WEIGHTS["retries"],
            sure=row["retry_rate_high"] - row["retry_rate_low"] <= 0.4,
            example=row["worst_call"],
            section="retries",
            where="attempt_why = 'retry'",
        )


def _drifts(answers: Answers) -> Iterator[Lead]:
    for row in answers.drift.filter(pl.col("drift") == "breaking").to_dicts():
        changes = ", ".join(shown(change, 60) for change in (row["changed"] or [])[:4])
        yield Lead(
            kind="drift",
            server=row["server"],
            tool=row["tool"],
            said=f"changed its definition on {moment(row['first_seen'])} UTC in a way that breaks "
            f"its callers: {changes}",
            evidence=f"{count(row['failures_before'])} of {count(row['calls_before'], 'call')} "
            f"failed by its own fault before, {count(row['failures'])} of {count(row['calls'])} "
            "after",
            spoiled=max(1, row["calls"]) * _WEIGHTS["drift"],
            sure=True,
            example=None,
            section="drift",
            where="",
        )


def _alarms(answers: Answers) -> Iterator[Lead]:
    latest = answers.alarms.sort("start").group_by("server", "tool", maintain_order=True).last()
    for row in latest.to_dicts():
        quote, example = _said_most(answers.errors, _of(row), pl.col("verdict") == "tool_failure")
        extra = max(0.0, row["failure_rate_low"] - row["baseline_rate"])
        yield Lead(
            kind="alarm",
            server=row["server"],
            tool=row["tool"],
            said=f"failed by its own fault in {percent(row['failure_rate'])} of its calls in the "
            f"{row['period']} from {moment(row['start'])} UTC, and in "
            f"{percent(row['baseline_rate'])} before",
            evidence="two of the last three periods are beyond their limit; 95% interval "
            f"{interval(row['failure_rate_low'], row['failure_rate_high'])}; "
            f"{count(row['judged_calls'], 'call')} in {count(row['sessions'], 'session')}",
            spoiled=extra * row["judged_calls"] * _WEIGHTS["alarm"],
            sure=True,
            example=example,
            section="tools",
            where="verdict = 'tool_failure'",
            quote=quote,
        )


_CALLED_FOR: Final[Mapping[str, str]] = {
    "failure_rate": "verdict = 'tool_failure'",
    "error_rate": "outcome NOT IN ('ok', 'input_required', 'task')",
    "hidden_error_rate": "outcome = 'hidden_error'",
    "invalid_output_rate": "output_schema_state IN ('invalid', 'missing_output')",
    "invalid_input_rate": "input_schema_state = 'invalid'",
}


def _shows(answers: Answers, row: Mapping[str, Any], metric: str) -> tuple[str | None, str | None]:
    """What a tool said when a metric got worse, and a call that shows it."""
    if metric in {"failure_rate", "error_rate"}:
        wanted = pl.col("verdict") == "tool_failure" if metric == "failure_rate" else pl.lit(True)  # noqa: FBT003
        return _said_most(answers.errors, _of(row), wanted)
    if metric == "hidden_error_rate":
        return _said_most(answers.hidden, _of(row))
    if metric.startswith("invalid_"):
        side = metric.split("_")[1]
        return _said_most(answers.violations, _of(row), pl.col("side") == side)
    slowest = answers.latency.filter(_of(row)).get_column("slowest_call").to_list()
    return None, slowest[0] if slowest else None


def _worse(answers: Answers, compared: Compared) -> Iterator[Lead]:
    order: Callable[[str], int] = ["worse", "vanished"].index
    rows = compared.tools.filter(
        pl.col("level") == "tool", pl.col("change").is_in(["worse", "vanished"])
    ).to_dicts()
    # They come most pressing first; the count keeps that order.
    for place, row in enumerate(sorted(rows, key=lambda r: order(r["change"]))):
        metric = next(iter(row["worse"] or ()), "")
        quote, example = _shows(answers, row, metric)
        yield Lead(
            kind="worse",
            server=row["server"],
            tool=row["tool"],
            said=shown(row["words"], 400),
            evidence=f"{count(row['base_calls'], 'call')} in "
            f"{count(row['base_sessions'], 'session')} before, "
            f"{count(row['new_calls'], 'call')} in {count(row['new_sessions'], 'session')} now",
            spoiled=float(len(rows) - place),
            sure=True,
            example=example,
            section="compared",
            where=_CALLED_FOR.get(metric, ""),
            quote=quote,
        )
