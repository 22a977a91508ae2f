"""Builds the page that searches names, error messages and arguments."""

from collections.abc import Mapping
from typing import Any, Final

from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html.text import shown

MOST: Final = 25
"""Maximum number of hits of each kind (names, messages, arguments)."""

_NAMES: Final = f"""
SELECT server, tool, calls
FROM (SELECT server, tool, count(*) AS calls FROM calls GROUP BY server, tool)
WHERE contains(lower(concat_ws(' ', server, tool)), lower($1))
ORDER BY contains(lower(coalesce(tool, '')), lower($1)) DESC, tool IS NULL DESC, calls DESC
LIMIT {MOST}
"""
_ERRORS: Final = f"""
SELECT server, tool, template, verdict, count(*) AS calls, min(call_id) AS call_id
FROM calls WHERE verdict IS NOT NULL AND dir = 'c2s'
    AND (contains(lower(error_text), lower($1)) OR contains(lower(template), lower($1)))
GROUP BY ALL ORDER BY calls DESC LIMIT {MOST}
"""
_CALLS: Final = f"""
SELECT server, tool, call_id, requested_at, outcome, verdict, left(arguments, 200) AS arguments
FROM calls WHERE contains(lower(arguments), lower(?))
ORDER BY requested_at DESC NULLS LAST LIMIT {MOST}
"""
_WHO: Final = f"""
SELECT client, session, server, count(*) AS calls FROM calls
WHERE contains(lower(client), lower($1)) OR starts_with(session, $1)
GROUP BY ALL ORDER BY calls DESC LIMIT {MOST}
"""
_ID: Final = "SELECT call_id FROM calls WHERE starts_with(call_id, ?) LIMIT 2"
_SHORTEST: Final = 8
"""Minimum length of a call id's prefix that leads directly to the call's page."""


def call_with_id(answers: Answers, text: str) -> str | None:
    """Return the only call id that starts with `text`.

    Returns None if no call id or several call ids do, or if the text is too short.
    """
    if len(text) < _SHORTEST or not text.isalnum():
        return None
    found = answers.sql(_ID, text)["call_id"].to_list()
    return found[0] if len(found) == 1 else None


def page(answers: Answers, text: str) -> Page:
    """Return the page with the results of a search."""
    queries: Mapping[str, tuple[str, str]] = {
        "names": ("Servers and tools", _NAMES),
        "errors": ("Errors", _ERRORS),
        "arguments": ("Calls with these words in the arguments", _CALLS),
        "who": ("Clients and sessions", _WHO),
    }

    def section(name: str) -> Section:
        title, query = queries[name]

        def answer() -> list[dict[str, Any]] | None:
            return answers.sql(query, text).to_dicts() or None

        return Section(name, title, answer)

    return Page(
        "search",
        f"Search: {shown(text, 80)}",
        head={"text": text},
        sections=[section(name) for name in queries],
    )
