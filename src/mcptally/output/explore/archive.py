"""Computes the first page: the share of calls that worked, the top problems, and all servers."""

from collections.abc import Callable
from typing import Any, Final

from mcptally.output.explore import parts
from mcptally.output.explore.answers import Answers
from mcptally.output.html import charts
from mcptally.output.html.headings import outcomes, share_that_worked
from mcptally.output.html.text import shown, span
from mcptally.plural import count
from mcptally.tables.outcomes import RESULTS
from mcptally.transcript.unread import in_words

_COUNTS: Final = (
    *("calls", "ok", "business", "tool_failures", "infrastructure", "ambiguous", "unknown"),
)
_SUMS: Final = ", ".join(f"coalesce(sum({name}), 0)::BIGINT AS {name}" for name in _COUNTS)

_SERVERS: Final = f"""
WITH used AS (
    SELECT server, {_SUMS}, count(DISTINCT tool) AS names,
        count(DISTINCT session) AS sessions, min(first_call) AS first_call,
        max(last_call) AS last_call
    FROM usage
    GROUP BY server
),
lives AS (
    SELECT server, count(*) AS recordings,
        count(*) FILTER (start IN ('failed', 'unanswered')) AS failed_starts,
        count(*) FILTER (start IS NOT NULL) AS starts,
        count(*) FILTER (crash IN ('call', 'idle')) AS crashes
    FROM recordings
    GROUP BY server
)
SELECT * FROM used FULL JOIN lives USING (server)
ORDER BY coalesce(calls - ok, 0) DESC, failed_starts DESC, server
"""
MOST: Final = 10
"""Maximum number of problems on the page."""


def sections(answers: Answers) -> dict[str, Callable[[], Any]]:
    """Map the names of the page's sections to functions that return their content."""
    return {
        "outcomes": lambda: _outcomes(answers),
        "servers": lambda: answers.light(_SERVERS).to_dicts() or None,
        "reviewed": parts.reviewed(answers).answer,
        "timeline": lambda: parts.all_over_time(answers),
        "problems": lambda: parts.problem_rows(answers, most=MOST),
    }


def _outcomes(answers: Answers) -> dict[str, Any]:
    rows = answers.light(_SERVERS).to_dicts()
    sums = {name: sum(row[name] or 0 for row in rows) for name in _COUNTS}
    return {
        "share": share_that_worked(sums),
        "pieces": charts.stacked(outcomes(sums), 1000),
        "names": RESULTS,
        "unread": in_words(answers.recorded.unread),
        "summary": f"{count(sums['calls'], 'call')} to tools of {count(len(rows), 'server')}, "
        + span(
            min((row["first_call"] for row in rows if row["first_call"]), default=None),
            max((row["last_call"] for row in rows if row["last_call"]), default=None),
        ),
        "store": shown(str(answers.recorded.path), 300),
    }
