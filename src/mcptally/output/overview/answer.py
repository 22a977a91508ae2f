"""Computes the content of the overview from a store."""

from typing import Any

from mcptally.analytics import contrasts
from mcptally.analytics.store import retry_if_replaced
from mcptally.output.html import problems
from mcptally.output.html.answers import Asked, counted_calls
from mcptally.output.html.headings import share_that_worked
from mcptally.output.html.text import moment
from mcptally.tables.outcomes import FAILED, UNKNOWN, sql_list
from mcptally.tables.usage_sums import TOOL_CALL

_LIVES = "SELECT min(opened_at), max(ended_at) FROM recordings"
_BY_FAULT = f"""
SELECT coalesce(fault, '{UNKNOWN}'), count(*) FROM calls
WHERE {TOOL_CALL} AND outcome IN {sql_list(FAILED)}
"""
_UNFINISHED = ("cancelled", "input_required", "tasks")


def answer_of(asked: Asked, *, most: int) -> dict[str, Any]:
    """Return the numbers and texts of a store's overview, with up to `most` findings (0: all)."""
    return retry_if_replaced([asked.store], lambda: _answer(asked, most), consistent=True)


def _answer(asked: Asked, most: int) -> dict[str, Any]:
    totals = asked.totals()
    first, last = totals["first_call"], totals["last_call"]
    if first is None:  # if no server started, there are no calls
        first, last = asked.store.sql(_LIVES).fetchall()[0]
    found = asked("priorities")
    counted, values = counted_calls(asked.filters)
    query = f"{_BY_FAULT} AND {counted} GROUP BY ALL ORDER BY ALL"
    by_fault = asked.store.sql(query, params=values).fetchall()
    shown = found.head(most or found.height).to_dicts()
    shared = asked.contrasts(len(shown))
    return {
        **{name: totals[name] for name in ("servers", "calls", "ok", "sessions", "tools")},
        "first": moment(first),
        "last": moment(last),
        "headline": share_that_worked(totals),
        "reviewed": asked.reviewed(),
        "rest": {
            **dict(by_fault),
            "unfinished": sum(totals[name] for name in _UNFINISHED),
            "outcome unknown": totals["unknown"],
        },
        "problems": found.height,
        "findings": [_finding(row, shared) for row in shown],
    }


def _finding(row: dict[str, Any], shared: contrasts.Contrasts) -> dict[str, Any]:
    """Return a finding's lines, and its fields for scripts."""
    lines = [
        f"{problems.subject(row)}: {problems.title(row)}, {problems.number(row)}",
        "; ".join(filter(None, (problems.blame(row), problems.onset(row), problems.share(row)))),
        problems.inputs(row),
        contrasts.of_problem(row, shared),
        f"{row['call_id'] or ''} {problems.message(row) or ''}".strip(),
    ]
    facts = (
        *("kind", "servers", "tools", "fault", "suspected", "certainty", "hidden_certainty"),
        *("affected", "calls", "rate", "rate_low", "rate_high", "sessions", "cause", "call_id"),
    )
    times = ("since", "first_seen", "last_seen")
    return {
        "lines": [line for line in lines if line],
        **{name: row[name] for name in facts},
        **{name: None if row[name] is None else moment(row[name]) for name in times},
        "message": problems.message(row),
    }
