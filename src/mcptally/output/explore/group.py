"""Builds the page of an error group: failed calls to one tool, with equal messages and verdicts."""

from typing import Any, Final

from mcptally.analytics import contrasts, explanation
from mcptally.errors import QueryError
from mcptally.output.explore import parts
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html.text import shown
from mcptally.tables.outcomes import FAILED, sql_list

_OF: Final = f"""
server IS NOT DISTINCT FROM $1 AND tool IS NOT DISTINCT FROM $2
AND coalesce(tool, method) = $3 AND verdict IS NOT DISTINCT FROM $4
AND coalesce(template, '(no text: ' || outcome || ')') = $5
AND dir = 'c2s' AND outcome IN {sql_list(FAILED)}
"""
_CALL: Final = """
SELECT server, tool, coalesce(tool, method) AS target, verdict, reason, retryable,
    coalesce(template, '(no text: ' || outcome || ')') AS template
FROM calls WHERE call_id = ? AND verdict IS NOT NULL
"""
_TIMES: Final = f"""
SELECT count(*) AS calls, count(DISTINCT session) AS sessions, count(DISTINCT client) AS clients,
    min(requested_at) AS first_seen, max(requested_at) AS last_seen,
    mode(reason) AS reason, mode(retryable) AS retryable
FROM calls WHERE {_OF}
"""
_PROBLEM: Final = "SELECT * FROM affected_calls WHERE call_id = ?"
_TEXTS: Final = f"""
SELECT left(error_text, 400) AS error_text, count(*) AS calls, min(call_id) AS call_id
FROM calls WHERE {_OF} GROUP BY ALL ORDER BY calls DESC LIMIT 10
"""
_WHO: Final = f"""
SELECT client, client_version, model, server_version, count(*) AS calls,
    count(DISTINCT session) AS sessions, min(requested_at) AS first_seen,
    max(requested_at) AS last_seen, max(call_id) AS call_id
FROM calls WHERE {_OF} GROUP BY ALL ORDER BY calls DESC LIMIT 20
"""
_RECENT: Final = f"""
SELECT call_id, requested_at, client, latency_ms, left(arguments, 160) AS arguments, session
FROM calls WHERE {_OF} ORDER BY requested_at DESC NULLS LAST LIMIT 20
"""


def page(answers: Answers, links: Links, call: str) -> Page:
    """Return the page of a call's error group.

    Raises:
        QueryError: there is no such call, or the call did not fail.
    """
    found = answers.sql(_CALL, call).to_dicts()
    if not found:
        raise QueryError(f"no failed call has the id {call!r}")
    row = found[0]
    key = tuple(row[one] for one in ("server", "tool", "target", "verdict", "template"))
    problems = answers.sql(_PROBLEM, call).to_dicts()
    problem = explanation.problem_of(problems[0]) if problems else None
    return Page(
        "group",
        shown(row["template"], 160),
        about="error",
        crumbs=parts.crumbs(links, row),
        head={
            "row": row | answers.sql(_TIMES, *key).row(0, named=True),
            "call": call,
            "problem": problem,
        },
        sections=[
            Section("texts", "Messages", lambda: answers.sql(_TEXTS, *key).to_dicts() or None),
            Section("why", "What these calls share", lambda: _why(answers, row)),
            Section("who", "For whom", lambda: answers.sql(_WHO, *key).to_dicts() or None),
            Section(
                "calls", "The latest calls", lambda: answers.sql(_RECENT, *key).to_dicts() or None
            ),
        ],
    )


def _why(answers: Answers, row: dict[str, Any]) -> dict[str, Any] | None:
    rows = parts.contrasts_of(answers, row["server"], row["tool"], row["template"], row["verdict"])
    if not rows:
        return None
    return {"drawn": parts.contrast_bars(rows), "sentence": contrasts.sentence(rows[0])}
