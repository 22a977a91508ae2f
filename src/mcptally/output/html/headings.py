"""The sentences at the top of the page and of its sections: what was found, with numbers."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from mcptally.output.html import sections
from mcptally.output.html.answers import Answers
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import count, interval, percent, shown, span, tokens

RANKING: Final = (
    "Ranked by the calls that each spoils at the very least: the lower bound of the 95% interval "
    "times the calls. What others break, or what only costs time, counts in part; what rests on "
    "too little data comes last."
)


def outcomes(found: Answers) -> dict[str, int]:
    """What became of the calls of tools, in parts that make up the whole."""
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
    """The page's first sentence."""
    failures, judged = found.counts["tool_failures"], found.counts["judged_calls"]
    if not found.counts["calls"]:
        return "No tool was called"
    if not failures:
        return f"None of {count(judged, 'call')} failed because of the tool"
    whose = "the tool" if found.tools.height == 1 else "a tool"
    return f"{count(failures)} of {count(judged, 'call')} failed because of {whose}"


def lede(found: Answers, lines: Commands) -> str:
    """How large a share that is, what hides behind success, and what was recorded."""
    n = found.counts
    if not n["calls"]:
        return f"The store {shown(lines.store)} holds no call of a tool."
    said = []
    if n["judged_calls"]:
        said.append(_rate(found))
    if n["hidden_errors"]:
        said.append(
            f"{count(n['hidden_errors'], 'result')} claimed success and reported a failure."
        )
    servers, tools = found.servers.height, found.tools.height
    said.append(
        f"Recorded: {count(n['calls'], 'call')} of {count(tools, 'tool')} at "
        f"{count(servers, 'server')} in {count(found.sessions, 'session')}, "
        f"{span(found.first_call, found.last_call)}."
    )
    return " ".join(said)


def _rate(found: Answers) -> str:
    if found.servers.height == 1:
        row = found.servers.row(0, named=True)
        known = (
            f"{percent(row['failure_rate'])}, 95% interval "
            f"{interval(row['failure_rate_low'], row['failure_rate_high'])}"
        )
        return f"Too little data to be sure: {known}." if row["insufficient_data"] else f"{known}."
    rate = found.counts["tool_failures"] / found.counts["judged_calls"]
    return f"That is {percent(rate)} of the calls that tools could answer for."


def ranking(found: Answers) -> str:
    """How what is to be looked at first is ranked."""
    return f"What got worse comes first. {RANKING}" if found.compared else RANKING


def nothing(found: Answers) -> str:
    """What is said when there is nothing to look at first."""
    if not found.counts["calls"]:
        return "There is nothing to look at: no call of a tool was recorded."
    known = found.tools.filter(~found.tools["insufficient_data"])
    if known.is_empty():
        return (
            "Nothing stands out, and nothing is sure: for no tool is there enough data to say how "
            "often it fails. Record more sessions."
        )
    worst = known.sort("failure_rate_high", descending=True).row(0, named=True)
    return (
        f"Nothing stands out. Of the {count(known.height, 'tool')} with enough data none "
        f"fails in more than {percent(worst['failure_rate_high'])} of its calls (the upper "
        "bounds of the 95% intervals say so)."
    )


def titles(found: Answers, parts: Mapping[str, Any]) -> dict[str, str]:
    """A sentence over each section that says what it found."""
    failing = found.tools.filter(found.tools["tool_failures"] > 0).height
    enough = found.tools.filter(~found.tools["insufficient_data"]).height
    hidden = found.counts["hidden_errors"]
    broken = {
        side: _total(found.violations.filter(found.violations["side"] == side), "calls")
        for side in ("input", "output")
    }
    failing_servers = found.servers.filter(found.servers["tool_failures"] > 0).height
    changes = parts["changes"]
    return {
        "compared": (
            f"{count(changes.total, 'change')} since the base store"
            if changes and changes.total
            else "No change that these data can show"
        ),
        "tools": f"{_some(failing)} of {count(found.tools.height, 'tool')} failed by "
        f"{'its' if failing <= 1 else 'their'} own fault; for {_some(enough).lower()} there is "
        "enough data to say how often",
        "servers": f"{_some(failing_servers)} of {count(found.servers.height, 'server')} had a "
        "tool that failed",
        "errors": f"{count(_total(found.errors, 'calls'), 'failing call')} said "
        f"{count(found.errors.height, 'different thing')}",
        "hidden": f"{count(hidden, 'result')} claimed success and reported a failure",
        "latency": "How long calls take",
        "retries": f"{count(_total(found.retries, 'retries'), 'call')} repeated one that had "
        "failed",
        "drift": f"{count(parts['drift'].total, 'tool')} changed "
        f"{'its' if parts['drift'].total == 1 else 'their'} definition",
        "context": f"{tokens(_total(found.context, 'total_tokens'))} tokens of context",
        "schemas": f"{count(broken['input'], 'request')} and {count(broken['output'], 'result')} "
        "broke the tool's schema",
        "findings": f"{count(_total(found.findings, 'findings'), 'finding')} about the protocol",
    }


def contents(parts: Mapping[str, Any], *, many: bool) -> list[tuple[str, str, str | None]]:
    """Sections that the page has: id, name, how many rows there are."""
    named = (
        ("first", "Look here first", None),
        ("compared", "Changes", parts["changes"]),
        ("tools", "Tools", parts["tools"]),
        ("servers", "Servers", parts["servers"] if many else None),
        ("errors", "Errors", parts["errors"]),
        ("hidden", "Hidden errors", parts["hidden"]),
        ("latency", "Latency", parts["latency"]),
        ("retries", "Repeated calls", parts["retries"]),
        ("drift", "Drift", parts["drift"]),
        ("context", "Context cost", parts["context"]),
        ("schemas", "Schemas", parts["violations"]),
        ("findings", "Protocol", parts["findings"]),
        ("unsaid", "What these data cannot say", None),
    )
    always = {"first", "tools", "unsaid"}
    return [
        (place, title, None if part is None else count(part.total))
        for place, title, part in named
        if place in always or (part is not None and (part.rows or place == "compared"))
    ]


def quiet(found: Answers) -> str:
    """Changes that are only counted."""
    if found.compared is None:
        return ""
    counted = found.compared.tools["change"].value_counts(name="n").to_dicts()
    quiet = [row for row in counted if row["change"] in sections.QUIET]
    said = ", ".join(
        f"{row['n']:,} {row['change'].replace('_', ' ')}"
        for row in sorted(quiet, key=lambda row: (-row["n"], row["change"]))
    )
    return f"Not shown: {said}." if said else ""


def _some(n: int) -> str:
    return count(n) if n else "None"


def _total(frame: pl.DataFrame, column: str) -> int:
    return int(frame.get_column(column).fill_null(0).sum())


def unused(found: Answers) -> str:
    """What listed tools that nobody called cost."""
    tools = found.unused.height
    if not tools:
        return ""
    cost = _total(found.unused, "listed_tokens")
    return (
        f"{count(tools, 'listed tool')} {'was' if tools == 1 else 'were'} never called; to "
        f"list {'it' if tools == 1 else 'them'} cost {tokens(cost)} tokens."
    )
