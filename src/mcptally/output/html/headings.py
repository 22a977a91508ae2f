"""Writes the title and summary of the page and the headings of its sections."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from mcptally.output.html import sections
from mcptally.output.html.answers import Answers
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import interval, percent, shown, span, tokens
from mcptally.plural import count

RANKING: Final = (
    "Ranked by the number of affected calls: the lower bound of the 95% interval times the number "
    "of calls. Problems that the tool did not cause, or that only cost time, have a lower weight. "
    "Problems with too little data come last."
)


def outcomes(found: Answers) -> dict[str, int]:
    """The number of tool calls by outcome; each call counts once."""
    n = found.counts
    return {
        "ok": n["ok"],
        "business": n["business"],
        "tool_failure": n["tool_failures"],
        "infrastructure": n["infrastructure"],
        "ambiguous": n["ambiguous"],
        "open": n["cancelled"] + n["input_required"] + n["tasks"],
    }


def headline(found: Answers) -> str:
    """The title of the page: how many calls failed because of a tool."""
    failures, judged = found.counts["tool_failures"], found.counts["judged_calls"]
    if not found.counts["calls"]:
        return "No tool was called"
    if not failures:
        return f"None of {count(judged, 'call')} failed because of the tool"
    whose = "the tool" if found.tools.height == 1 else "a tool"
    return f"{count(failures)} of {count(judged, 'call')} failed because of {whose}"


def summary(found: Answers, commands: Commands) -> str:
    """The sentences below the title: failure rate, hidden errors, and what was recorded."""
    n = found.counts
    if not n["calls"]:
        return f"The store {shown(commands.store)} has no tool calls."
    sentences = []
    if n["judged_calls"]:
        sentences.append(_rate(found))
    if n["hidden_errors"]:
        sentences.append(f"{_hidden_errors(n['hidden_errors'])}.")
    servers, tools = found.servers.height, found.tools.height
    sentences.append(
        f"Recorded: {count(n['calls'], 'call')} of {count(tools, 'tool')} on "
        f"{count(servers, 'server')} in {count(found.sessions, 'session')}, "
        f"{span(found.first_call, found.last_call)}."
    )
    return " ".join(sentences)


def _hidden_errors(n: int) -> str:
    verb = "reports a failure but is" if n == 1 else "report a failure but are"
    return f"{count(n, 'result')} {verb} not marked as an error"


def _rate(found: Answers) -> str:
    if found.servers.height == 1:
        row = found.servers.row(0, named=True)
        known = (
            f"{percent(row['failure_rate'])}, 95% interval "
            f"{interval(row['failure_rate_low'], row['failure_rate_high'])}"
        )
        known = f"Failure rate {known}."
        return (
            f"{known} There is too little data to be sure." if row["insufficient_data"] else known
        )
    rate = found.counts["tool_failures"] / found.counts["judged_calls"]
    return (
        f"That is {percent(rate)} of the judged calls: those that succeeded, were refused for a "
        "valid reason, or failed because of the tool."
    )


def ranking(found: Answers) -> str:
    """How the priorities are ranked."""
    return f"Changes for the worse come first. {RANKING}" if found.compared else RANKING


def no_priorities(found: Answers) -> str:
    """The text that the page shows if there are no priorities."""
    if not found.counts["calls"]:
        return "No tool call was recorded."
    known = found.tools.filter(~found.tools["insufficient_data"])
    if known.is_empty():
        return (
            "No problem was found, but no tool has enough data to tell how often it fails. Record "
            "more sessions."
        )
    worst = known.sort("failure_rate_high", descending=True).row(0, named=True)
    return (
        f"No problem was found. {count(known.height, 'tool')} "
        f"{'has' if known.height == 1 else 'have'} enough data; the failure rate is at most "
        f"{percent(worst['failure_rate_high'])} (the highest upper bound of a 95% interval)."
    )


def titles(found: Answers, parts: Mapping[str, Any]) -> dict[str, str]:
    """The heading of each section, which states its main result."""
    failing = found.tools.filter(found.tools["tool_failures"] > 0).height
    enough = found.tools.filter(~found.tools["insufficient_data"]).height
    violations = {
        side: _total(found.violations.filter(found.violations["side"] == side), "calls")
        for side in ("input", "output")
    }
    failing_servers = found.servers.filter(found.servers["tool_failures"] > 0).height
    changes = parts["changes"]
    return {
        "compared": (
            f"{count(changes.total, 'change')} since the base store"
            if changes and changes.total
            else "No significant change since the base store"
        ),
        "tools": f"{_number(failing)} of {count(found.tools.height, 'tool')} had tool failures; "
        f"{_number(enough).lower()} {'has' if enough == 1 else 'have'} enough data for a reliable "
        "rate",
        "servers": f"{_number(failing_servers)} of {count(found.servers.height, 'server')} had "
        "tool failures",
        "errors": f"{count(_total(found.errors, 'calls'), 'failed call')} with "
        f"{count(found.errors.height, 'different error text')}",
        "hidden": _hidden_errors(found.counts["hidden_errors"]),
        "latency": "Latency of calls",
        "retries": f"{count(_total(found.retries, 'retries'), 'call')} repeated a failed call",
        "drift": f"The definition of {count(parts['drift'].total, 'tool')} changed",
        "context": f"{tokens(_total(found.context, 'total_tokens'))} tokens of context",
        "schemas": f"{count(violations['input'], 'request')} and "
        f"{count(violations['output'], 'result')} did not match the tool's schema",
        "findings": f"{count(_total(found.findings, 'findings'), 'finding')} about the protocol",
    }


def contents(parts: Mapping[str, Any], *, many_servers: bool) -> list[tuple[str, str, str | None]]:
    """The table of contents: id, name and number of rows of each section of the page."""
    named = (
        ("first", "Priorities", None),
        ("compared", "Changes", parts["changes"]),
        ("tools", "Tools", parts["tools"]),
        ("servers", "Servers", parts["servers"] if many_servers else None),
        ("errors", "Errors", parts["errors"]),
        ("hidden", "Hidden errors", parts["hidden"]),
        ("latency", "Latency", parts["latency"]),
        ("retries", "Repeated calls", parts["retries"]),
        ("drift", "Drift", parts["drift"]),
        ("context", "Context cost", parts["context"]),
        ("schemas", "Schemas", parts["violations"]),
        ("findings", "Protocol", parts["findings"]),
        ("caveats", "Limits of the data", None),
    )
    always = {"first", "tools", "caveats"}
    return [
        (section, title, None if part is None else count(part.total))
        for section, title, part in named
        if section in always or (part is not None and (part.rows or section == "compared"))
    ]


def omitted_changes(found: Answers) -> str:
    """The sentence that counts the changes that the page does not list."""
    if found.compared is None:
        return ""
    counted = found.compared.tools["change"].value_counts(name="n").to_dicts()
    omitted = [row for row in counted if row["change"] in sections.OMITTED_CHANGES]
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
    """The sentence that says how many tokens listed tools cost that were never called."""
    tools = found.unused.height
    if not tools:
        return ""
    cost = _total(found.unused, "listed_tokens")
    return (
        f"{count(tools, 'listed tool')} {'was' if tools == 1 else 'were'} never called; listing "
        f"{'it' if tools == 1 else 'them'} cost {tokens(cost)} tokens."
    )
