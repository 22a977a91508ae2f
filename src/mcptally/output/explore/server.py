"""Builds a server's page: its recordings, its problems, its tools, and changes to the tools."""

from typing import Any, Final

import polars as pl

from mcptally.analytics.views import meaning_of_no_rows
from mcptally.errors import QueryError
from mcptally.output.explore import parts
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html import charts
from mcptally.output.html.text import name

_LIVES: Final = """
SELECT recording, opened_at, ended_at, start, start_failure, ready_ms, crash, ended_by, exit_code,
    signal, close_reason, last_words, server_version, tool_calls, noise_lines
FROM recordings WHERE server IS NOT DISTINCT FROM ?
ORDER BY opened_at DESC NULLS LAST LIMIT 500
"""
_CLIENTS: Final = f"""
SELECT client, client_version, count(*) AS calls, count(*) FILTER (outcome = 'ok') AS ok,
    count(*) FILTER (_failed(outcome)) AS failed, median(latency_ms) AS latency_p50_ms,
    count(DISTINCT session) AS sessions
FROM calls WHERE server IS NOT DISTINCT FROM ? AND {parts.TOOL_CALLS}
GROUP BY ALL ORDER BY calls DESC LIMIT 30
"""
_DEFINITIONS: Final = """
SELECT definition, any_value(description) AS description, any_value(input_schema) AS input_schema,
    any_value(output_schema) AS output_schema, any_value(annotations) AS annotations
FROM tools WHERE server IS NOT DISTINCT FROM ? AND tool = ?
GROUP BY definition
"""
PROBLEMS: Final = 5
MOST: Final = 20
"""Maximum number of recordings and of definition changes on the page."""


def page(answers: Answers, links: Links, server: str | None) -> Page:
    """Return a server's page.

    Raises:
        QueryError: the store has no server with this name.
    """
    life = parts.about(answers.ask("servers"), server)
    scores = parts.about(answers.ask("server_scores"), server)
    if life.is_empty() and scores.is_empty():
        raise QueryError(f"no server is called {server!r}")
    row = scores.to_dicts()[0] if scores.height else None
    return Page(
        "server",
        name(server),
        about="server",
        crumbs=[("Servers", f"{links.root}#servers")],
        head={"row": row, "server": server, "range": success_range(row)},
        sections=[
            parts.reviewed(answers, server),
            Section("first", "What to do first", lambda: _first(answers, server)),
            Section("life", "Starts, crashes and last words", lambda: _life(answers, life, server)),
            Section("timeline", "Calls over time", lambda: parts.over_time(answers, server)),
            Section("tools", "Tools", lambda: _tools(answers, server)),
            Section("errors", "Errors", lambda: parts.error_groups(answers, server)),
            Section("clients", "Clients", lambda: _clients(answers, server)),
            Section(
                "drift",
                "Changes of definitions",
                lambda: drift(answers, server),
                meaning_of_no_rows("drift"),
            ),
        ],
    )


def success_range(row: dict[str, Any] | None) -> charts.Range | None:
    """Return the x coordinates of the success rate in a row of scores; None without a rate."""
    if row is None:
        return None
    return charts.rate_range(row["success_rate_low"], row["success_rate"], row["success_rate_high"])


def _first(answers: Answers, server: str | None) -> dict[str, Any] | None:
    found = parts.problem_rows(answers, most=PROBLEMS, server=server)
    return found if found["rows"] else None


def _life(answers: Answers, life: pl.DataFrame, server: str | None) -> dict[str, Any] | None:
    """Return the server's row from the answer to `servers`, and the server's recordings."""
    lives = answers.sql(_LIVES, server).to_dicts()
    if not lives:
        return None
    for row in lives:
        row["kind"] = kind_of_life(row)
    timed = [row for row in lives if row["opened_at"] is not None][::-1]
    first, last = (timed[0]["opened_at"], timed[-1]["opened_at"]) if timed else (None, None)
    marks = [(_mark_x(row["opened_at"], first, last), row["kind"]) for row in timed]
    words = [row for row in lives if row["last_words"]]
    return {
        "about": life.to_dicts()[0] if life.height else None,
        "lives": lives[:MOST],
        "marks": marks,
        "first": first,
        "last": last,
        "words": words[:5],
        "versions": parts.names(lives, "server_version"),
        "server": server,
    }


def _mark_x(at: Any, first: Any, last: Any) -> float:
    """Return the x coordinate of a time between the first and the last."""
    return 500.0 if first == last else round(6 + 988 * (at - first) / (last - first), 1)


def kind_of_life(row: dict[str, Any]) -> str:
    """Classify a recording: `failed` (the server did not start), `crash` or `ok`."""
    if row["start"] in ("failed", "unanswered"):
        return "failed"
    return "crash" if row["crash"] in ("call", "idle", "start") else "ok"


def _tools(answers: Answers, server: str | None) -> list[dict[str, Any]] | None:
    rows = parts.about(answers.ask("tool_scores"), server).to_dicts()
    slow = {
        row["tool"]: row["call_id"]
        for row in parts.about(answers.ask("latency"), server).to_dicts()
    }
    return [
        row | {"range": success_range(row), "slowest": slow.get(row["tool"])} for row in rows
    ] or None


def _clients(answers: Answers, server: str | None) -> dict[str, Any] | None:
    rows = answers.sql(_CLIENTS, server).to_dicts()
    return {"rows": rows, "server": server} if rows else None


def drift(answers: Answers, server: str | None, *tool: str | None) -> list[dict[str, Any]] | None:
    """Return the changes to tool definitions, each with the lines that were changed."""
    rows = parts.about(answers.ask("drift"), server, *tool).head(MOST).to_dicts()
    known: dict[str | None, dict[str, str]] = {}
    for row in rows:
        if row["tool"] not in known:
            found = answers.sql(_DEFINITIONS, server, row["tool"]).to_dicts()
            known[row["tool"]] = {one["definition"]: parts.definition_text(one) for one in found}
        texts = known[row["tool"]]
        row["lines"] = parts.difference(
            texts.get(row["previous"], ""), texts.get(row["definition"], "")
        )
    return rows or None
