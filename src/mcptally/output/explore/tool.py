"""Builds a tool's page: why it fails, since when and for which clients, and how long it takes."""

from typing import Any, Final

import polars as pl

from mcptally.output.explore import parts, server
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html import charts
from mcptally.output.html.text import name
from mcptally.redaction.display import indented

_OF_TOOL: Final = f"server IS NOT DISTINCT FROM ? AND tool = ? AND {parts.TOOL_CALLS}"
_OUTCOMES: Final = f"""
SELECT outcome, verdict, count(*) AS calls, max(requested_at) AS last_seen,
    arg_max(call_id, (requested_at, call_id)) AS call_id
FROM calls WHERE {_OF_TOOL}
GROUP BY ALL ORDER BY calls DESC
"""
_LATENCY: Final = f"""
SELECT outcome = 'ok' AS worked, count(*) AS calls, median(latency_ms) AS p50,
    quantile_cont(latency_ms, 0.95) AS p95, max(latency_ms) AS most,
    arg_max(call_id, latency_ms) AS call_id
FROM calls WHERE {_OF_TOOL} AND latency_ms IS NOT NULL AND (outcome = 'ok' OR _failed(outcome))
GROUP BY ALL ORDER BY worked DESC
"""
_BINS: Final = f"""
SELECT outcome = 'ok' AS worked, floor({charts.BINS_PER_OCTAVE} * log2(greatest(latency_ms, 0.001)))::INTEGER AS bin,
    count(*) AS calls
FROM calls WHERE {_OF_TOOL} AND latency_ms IS NOT NULL AND (outcome = 'ok' OR _failed(outcome))
GROUP BY ALL
"""  # noqa: E501  (our own text)
_LATEST: Final = """
SELECT definition, description, input_schema, output_schema, annotations, first_seen, tokens
FROM tools WHERE server IS NOT DISTINCT FROM ? AND tool = ?
ORDER BY last_seen DESC NULLS LAST LIMIT 1
"""
_KNOWN: Final = """
SELECT server, tool FROM tools WHERE server IS NOT DISTINCT FROM $1 AND tool = $2
UNION ALL
(SELECT server, tool FROM calls WHERE server IS NOT DISTINCT FROM $1 AND tool = $2 LIMIT 1)
"""
MOST: Final = 20
"""Maximum number of rows of each table on the page."""


def is_known(answers: Answers, of_server: str | None, tool: str | None) -> bool:
    """Return whether the server listed this tool or calls to it were recorded."""
    return not answers.sql(_KNOWN, of_server, tool).is_empty()


def page(answers: Answers, links: Links, of_server: str | None, tool: str | None) -> Page:
    """Return a tool's page."""
    scores = parts.about(answers.ask("tool_scores"), of_server, tool).to_dicts()
    row = scores[0] if scores else None
    key = (answers, of_server, tool)
    return Page(
        "tool",
        name(tool),
        about="tool",
        crumbs=[(name(of_server), links.server(of_server))],
        head={
            "row": row,
            "server": of_server,
            "tool": tool,
            "range": server.success_range(row),
        },
        sections=[
            parts.reviewed(answers, of_server, tool),
            Section(
                "timeline", "Calls over time", lambda: parts.over_time(answers, of_server, tool)
            ),
            Section("contrasts", "What failing calls share", lambda: _contrasts(*key)),
            Section("errors", "Errors", lambda: parts.error_groups(*key)),
            Section("outcomes", "An example of each outcome", lambda: _outcomes(*key)),
            Section("latency", "Latency of calls that worked and failed", lambda: _latency(*key)),
            Section("repeated", "The same arguments again", lambda: _repeated(*key)),
            Section("definition", "Definition", lambda: _definition(*key)),
            Section(
                "drift",
                "Changes of the definition",
                lambda: server.drift(answers, of_server, tool),
                "No change was recorded.",
            ),
        ],
    )


def _of(question: str, answers: Answers, of_server: str | None, tool: str | None) -> pl.DataFrame:
    return parts.about(answers.ask(question), of_server, tool)


def _contrasts(answers: Answers, of_server: str | None, tool: str | None) -> dict[str, Any] | None:
    rows = parts.contrasts_of(answers, of_server, tool)
    drawn = parts.contrast_bars(rows)
    rest = [row for row in rows if row["test"] is None]
    return {"drawn": drawn[:MOST], "rest": rest[:MOST]} if rows else None


def _outcomes(answers: Answers, of_server: str | None, tool: str | None) -> dict[str, Any] | None:
    rows = answers.sql(_OUTCOMES, of_server, tool).to_dicts()
    return {"rows": rows, "server": of_server, "tool": tool} if rows else None


def _latency(answers: Answers, of_server: str | None, tool: str | None) -> dict[str, Any] | None:
    """Return histograms of the latencies of working and of failing calls, on the same axis."""
    rows = answers.sql(_LATENCY, of_server, tool).to_dicts()
    bins = answers.sql(_BINS, of_server, tool)
    for row in rows:
        own = bins.filter(worked=row["worked"]).select("bin", "calls")
        row["bars"] = charts.histogram(list(own.iter_rows()))
        row["p50_x"], row["p95_x"] = charts.time_x(row["p50"]), charts.time_x(row["p95"])
    return {"rows": rows, "server": of_server, "tool": tool} if rows else None


def _repeated(answers: Answers, of_server: str | None, tool: str | None) -> dict[str, Any] | None:
    found = _of("flaky", answers, of_server, tool)
    if found.is_empty():
        return None
    kinds = ("sometimes_fails", "always_fails")
    of_kind = {kind: found.filter(repeatability=kind).head(MOST).to_dicts() for kind in kinds}
    return {"flaky": of_kind[kinds[0]], "always": of_kind[kinds[1]]}


def _definition(answers: Answers, of_server: str | None, tool: str | None) -> dict[str, Any] | None:
    """Return the tool's latest definition, with suggested changes."""
    latest = answers.sql(_LATEST, of_server, tool).to_dicts()
    if not latest:
        return None
    row = latest[0]
    proposals = _of("schema_advice", answers, of_server, tool).to_dicts()
    for proposal in proposals:
        # Sort the members, so that the comparison shows only real changes.
        schemas = (row["input_schema"] or "", proposal["new_schema"])
        proposal["lines"] = parts.difference(*(indented(each, sort_keys=True) for each in schemas))
    smells = _of("definition_advice", answers, of_server, tool).head(MOST).to_dicts()
    return {
        "row": row,
        "text": parts.definition_text(row),
        "proposals": proposals,
        "smells": smells,
    }
