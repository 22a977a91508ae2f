"""Writes the page's title and summary, and the headings of its sections."""

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from mcptally.analytics.compare import OMITTED_CHANGES
from mcptally.output.html.answers import Answers
from mcptally.output.html.commands import Commands
from mcptally.output.html.examples import BUDGET, Calls
from mcptally.output.html.problems import RANKING
from mcptally.output.html.text import interval, percent, shown, span, tokens
from mcptally.plural import count
from mcptally.tables.outcomes import RESULTS
from mcptally.tables.values import NO_EVIDENCE
from mcptally.transcript.unread import Unread


def outcomes(counts: Mapping[str, int]) -> dict[str, int]:
    """Divide the calls by outcome; each call counts once.

    Args:
        counts: sums of the columns of `usage`.
    """
    causes = {
        "ok": counts["ok"],
        "business": counts["business"],
        "tool_failure": counts["tool_failures"],
        "infrastructure": counts["infrastructure"],
        "ambiguous": counts["ambiguous"],
    }
    return {**causes, "open": counts["calls"] - sum(causes.values())}


def share_that_worked(counts: Mapping[str, int]) -> str:
    """Return a sentence, without a full stop, about the share of calls that worked.

    Args:
        counts: `calls`, `ok` and `unknown`; calls with an unknown outcome are excluded.
    """
    calls, ok = counts["calls"] - counts["unknown"], counts["ok"]
    if not calls:
        return "The outcome of no call is known" if counts["calls"] else "No tool was called"
    if ok in (0, calls):
        some = "All" if ok else "None"
        return f"{some} of {count(calls, 'call')} got what they asked for"
    return f"{percent(ok / calls)} of {count(calls, 'call')} got what they asked for"


def reasons(found: Answers) -> str:
    """Return a sentence with the reasons why calls did not work, the most frequent first."""
    n, calls = outcomes(found.counts), found.counts["calls"]
    causes = sorted((cause for cause in RESULTS if n[cause] and cause != "ok"), key=lambda c: -n[c])
    return "; ".join(
        f"{count(n[cause])} ({percent(n[cause] / calls)}) {RESULTS[cause]}" for cause in causes
    )


def summary(found: Answers, commands: Commands, *, whole: bool) -> str:
    """Return the sentences below the title: a single server's rates, the problems, and the data."""
    n = found.counts
    if not n["calls"]:
        return f"The store {shown(commands.store)} has no tool calls."
    sentences: list[str] = []
    if whole and n["servers"] == 1:
        sentences += _rates(found("server_scores").row(0, named=True))
    if found.reviewed:
        sentences.append(f"Calls that {found.reviewed}.")
    if whole and (never := found("tool_scores").filter(_NEVER_WORKED).height):
        sentences.append(
            f"{count(never)} of {count(found('tool_scores').height, 'tool')} never worked."
        )
    if n["hidden_errors"]:
        sentences.append(f"{_hidden_errors(n['hidden_errors'])}.")
    if n["unlisted_calls"]:
        sentences.append(
            f"{count(n['unlisted_calls'], 'call was', 'calls were')} to names that the server does "
            "not list: see the question unlisted_names."
        )
    sentences.append(
        f"Recorded: {count(n['calls'], 'call')} to {count(n['tools'], 'tool')} on "
        f"{count(n['servers'], 'server')} in {count(n['sessions'], 'session')}, "
        f"{span(n['first_call'], n['last_call'])}."
    )
    return " ".join(sentences)


_NEVER_WORKED: Final = (pl.col("ok") == 0) & (pl.col("success_rate") == 0)


def _rates(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences with a server's success rate and confidence, each with its interval."""
    for name, title, unit in (
        ("success_rate", "Success rate", 1),
        ("confidence", "Confidence", 100),
    ):
        if row[name] is None:
            yield f"{title}: {NO_EVIDENCE}."
            continue
        low, high = (row[f"{name}_{end}"] / unit for end in ("low", "high"))
        thin = row[f"{name}_insufficient_data"]
        yield (
            f"{title} {percent(row[name] / unit)}, 95% interval {interval(low, high)}"
            f"{'; too little data to be sure' if thin else ''}."
        )


def _hidden_errors(n: int) -> str:
    said = count(n, "result reports a failure but is", "results report a failure but are")
    return f"{said} not marked as an error"


MAX_ONSETS: Final = 5
"""Maximum number of changes in success rates listed below the chart."""


class Onset(NamedTuple):
    """A change in the success rate of a server or tool: when and by how much it changed."""

    at: datetime.datetime
    server: str | None
    tool: str | None
    """The tool; None means all of the server's tools."""
    direction: str
    words: str
    call_id: str | None


def onsets(changes: pl.DataFrame) -> list[Onset]:
    """Return the largest changes among rows of `change_points`, in chronological order."""
    cost = pl.col("difference").abs() * pl.col("calls_after")
    largest = changes.filter(pl.col("changed_at").is_not_null()).top_k(MAX_ONSETS, by=cost)
    return [
        Onset(
            row["changed_at"],
            row["server"],
            row["tool"],
            row["direction"],
            f"{percent(row['success_rate_before'])} of "
            f"{count(row['calls_before'], 'call')} succeeded before, "
            f"{percent(row['success_rate_after'])} of {count(row['calls_after'])} since",
            row["call_id"],
        )
        for row in largest.sort("changed_at", "server", "tool").to_dicts()
    ]


def ranking(found: Answers) -> str:
    """Return a sentence that explains how priorities are ranked."""
    return f"Changes for the worse come first. {RANKING}" if found.compared else RANKING


def no_priorities(found: Answers, unread: Unread | None) -> str:
    """Return the text that the page shows if there are no priorities."""
    part = " in what could be read" if unread else ""
    if not found.counts["calls"]:
        return f"No tool call was recorded{part}."
    known = found("tool_scores").filter(~found("tool_scores")["confidence_insufficient_data"])
    if known.is_empty():
        return (
            f"No problem was found{part}, but no tool has enough data to tell how often it works. "
            "Record more sessions."
        )
    worst = known.sort("confidence_low").row(0, named=True)
    return (
        f"No problem was found{part}. {count(known.height, 'tool has', 'tools have')} enough data; "
        f"the confidence is at least {percent(worst['confidence_low'] / 100)} (the lowest bound of "
        "a 95% interval)."
    )


def titles(found: Answers, parts: Mapping[str, Any]) -> dict[str, str]:
    """Map each section to its heading, which states the section's main result."""
    tools, servers = found("tool_scores"), found("server_scores")
    never = tools.filter(_NEVER_WORKED).height
    enough = tools.filter(success_rate_insufficient_data=False).height
    violations = {
        side: _total(found("schema_violations").filter(side=side), "calls")
        for side in ("input", "output")
    }
    changes = parts["compared"].total if parts["compared"] else 0
    said = count(changes, "change") if changes else "No significant change"
    return {
        "compared": f"{said} since the base store",
        "tools": f"{_number(never)} of {count(tools.height, 'tool')} never worked; "
        f"{_number(enough).lower()} {'has' if enough == 1 else 'have'} enough data for a reliable "
        "success rate",
        "servers": f"{_number(servers.filter(_NEVER_WORKED).height)} of "
        f"{count(servers.height, 'server')} never worked",
        "errors": f"{count(_total(found('error_groups'), 'calls'), 'failed call')} with "
        f"{count(found('error_groups').height, 'different error text')}",
        "hidden": _hidden_errors(found.counts["hidden_errors"]),
        "latency": "Latency of calls",
        "retries": f"{count(_total(found('retry_loops'), 'retries'), 'call')} repeated a failed "
        "call",
        "drift": f"The definition of {count(parts['drift'].total, 'tool')} changed",
        "context": f"{tokens(_total(found('context_cost'), 'total_tokens'))} tokens of context",
        "schemas": f"{count(violations['input'], 'request')} and "
        f"{count(violations['output'], 'result')} did not match the tool's schema",
        "findings": f"{count(_total(found('finding_counts'), 'findings'), 'finding')} about the "
        "protocol",
    }


def calls(on_page: Calls) -> dict[str, str]:
    """Return title and text of the section with calls; the text says how many were omitted."""
    size = f"{on_page.size / 1e6:.1f} of {BUDGET / 1e6:.0f} MB"
    left_out = (
        f"{count(on_page.omitted, 'further call')} did not fit: their rows have commands only."
        if on_page.omitted
        else "No call of a row was left out."
    )
    missing = (
        f" Of {count(on_page.not_read, 'call')}, only arguments and result are shown: the "
        "transcript was not read, and each says why."
        if on_page.not_read
        else ""
    )
    return {
        "calls": count(len(on_page.by_id), "whole call"),
        "calls_budget": f"They take {size}. {left_out}{missing}",
    }


def rest(found: Answers) -> str:
    """Return a sentence about what a page without tables leaves out."""
    problems = count(found("priorities").height, "problem")
    return (
        f"The commands below list {problems}, and show the tools and servers with their rates and "
        "intervals, all error texts, hidden errors, latencies, repeated calls, changed "
        "definitions, context cost, schema violations and protocol findings, with their calls."
    )


_NAMES: Final = {
    "first": "Priorities",
    "compared": "Changes",
    "tools": "Tools",
    "servers": "Servers",
    "errors": "Errors",
    "hidden": "Hidden errors",
    "latency": "Latency",
    "retries": "Repeated calls",
    "drift": "Drift",
    "context": "Context cost",
    "schemas": "Schemas",
    "findings": "Protocol",
    "calls": "Calls",
    "more": "The whole report",
    "caveats": "Limits of the data",
}
"""Maps the ids of the page's sections to names, in the order of the page."""


def contents(
    parts: Mapping[str, Any], on_page: Calls, *, whole: bool
) -> list[tuple[str, str, str | None]]:
    """Return the table of contents: id, name and number of rows of each section on the page."""
    always = {"first", "tools" if whole else "more", "caveats"}
    if on_page.by_id:
        always.add("calls")
    return [
        (section, title, None if part is None else count(part.total))
        for section, title in _NAMES.items()
        for part in [parts.get(section)]
        if section in always or (part is not None and (part.rows or section == "compared"))
    ]


def omitted_changes(found: Answers) -> str:
    """Return a sentence about how many changes the page does not list."""
    if found.compared is None:
        return ""
    counted = found.compared.tools["change"].value_counts(name="n").to_dicts()
    omitted = [row for row in counted if row["change"] in OMITTED_CHANGES]
    counts = ", ".join(
        f"{count(row['n'])} {row['change'].replace('_', ' ')}"
        for row in sorted(omitted, key=lambda row: (-row["n"], row["change"]))
    )
    return f"Not listed: {counts}." if counts else ""


def _number(n: int) -> str:
    return count(n) if n else "None"


def _total(frame: pl.DataFrame, column: str) -> int:
    return int(frame.get_column(column).fill_null(0).sum())


def unused(found: Answers) -> str:
    """Return a sentence about the tokens spent on listed tools that were never called."""
    tools = found("unused_tools").height
    if not tools:
        return ""
    cost = _total(found("unused_tools"), "listed_tokens")
    return (
        f"{count(tools, 'listed tool')} {'was' if tools == 1 else 'were'} never called; listing "
        f"{'it' if tools == 1 else 'them'} cost {tokens(cost)} tokens."
    )
