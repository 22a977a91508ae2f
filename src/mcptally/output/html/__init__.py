"""Renders the HTML report: a self-contained page about a store, with priorities and tables.

    answers → headings, priorities, sections, caveats → templates/page.html → one HTML file

May import the same folders as `output`, and the modules of `output` itself.

The page loads nothing. Its Content-Security-Policy allows one style sheet and one script, by their
hashes. All recorded text passes through `text.shown` and the template's escaping.
"""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

import mcptally
from mcptally.analytics.store import Store, open_store, retry_if_replaced
from mcptally.errors import UsageError
from mcptally.output.html import (
    answers,
    caveats,
    charts,
    commands,
    examples,
    headings,
    priorities,
    sections,
)
from mcptally.output.html import text as html_text
from mcptally.output.html.answers import Answers, Asked
from mcptally.output.whole_file import whole_file
from mcptally.plural import count
from mcptally.tables.outcomes import RESULTS, Verdict
from mcptally.tables.values import NEVER_WORKED, NO_EVIDENCE, cell_of
from mcptally.transcript.unread import in_words
from mcptally.verdict import hidden_errors

_VERDICTS: Final = {verdict: verdict.replace("_", " ") for verdict in Verdict}
_DRIFTS: Final = {
    "breaking": "breaks callers",
    "unclear": "may break callers",
    "compatible": "compatible",
    "wording": "texts only",
    "hints": "annotations and the like",
}


def report(
    store: Store | str | Path,
    out: str | Path | None = None,
    *,
    base: Store | str | Path | None = None,
    server: str | None = None,
    tool: str | None = None,
    since: str | None = None,
    until: str | None = None,
    client: str | None = None,
    model: str | None = None,
) -> str:
    """Create a self-contained HTML page about a store; return its text.

    Args:
        store: the store to report on, or its path.
        out: the file to write; None to write no file.
        base: an earlier store; the page then starts with the changes since that store.
        server: only this server.
        tool: only this tool.
        since: only calls made at or after this time; see `Store.ask`.
        until: only calls made before this time.
        client: only calls by the client with this name.
        model: only calls requested by this language model.

    Raises:
        StoreError: there is no store, or this version cannot read it.
        QueryError, UsageError: a filter is invalid, or `out` cannot be written.
    """
    if base is not None and (since or until or client or model):
        raise UsageError(
            "stores are compared as a whole: since, until, client and model cannot be used with "
            "base; server and tool can"
        )
    filters = {
        "server": server,
        "tool": tool,
        "since": since,
        "until": until,
        "client": client,
        "model": model,
    }
    opened = store if isinstance(store, Store) else open_store(store)
    page = page_text(Asked(opened, filters), base=base)
    if out is not None:
        write_page(page, Path(out))
    return page


def write_page(page: str, out: Path) -> None:
    """Write a page to a file, which is replaced atomically."""
    whole_file(out, lambda file: file.write(page.encode()))


def page_text(
    asked: Asked,
    *,
    base: Store | str | Path | None = None,
    whole: bool = True,
) -> str:
    """Return the page's text; see `report`.

    Args:
        asked: answers questions about the store.
        base: an earlier store.
        whole: whether to include the tables of tools, errors and so on, with their calls.
    """
    opened = asked.store
    opened_base = base if base is None or isinstance(base, Store) else open_store(base)

    def context() -> dict[str, Any]:
        found = answers.ask(asked, opened_base)
        command_lines = commands.Commands(str(opened.path), filters=asked.filters)
        return _context(opened, found, command_lines, whole=whole)

    variables = retry_if_replaced(
        [opened] if opened_base is None else [opened, opened_base], context, consistent=True
    )
    return _render(variables)


def _render(variables: Mapping[str, Any]) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    # The policy allows only the page's own style and script.
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    )
    return _template().render(
        policy=policy,
        style=Markup(style),  # noqa: S704  (our own file)
        script=Markup(script),  # noqa: S704  (our own file)
        version=mcptally.__version__,
        **variables,
    )


def _asset(name: str) -> str:
    return (resources.files("mcptally.output.html") / "templates" / name).read_text(
        encoding="utf-8"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@functools.cache  # keep the template, because compiling it takes longer than rendering
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mcptally.output.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= template_filters()
    environment.globals |= template_axes()
    return environment.get_template("page.html")


def template_filters() -> dict[str, Callable[..., object]]:
    """Return the template filters that `parts.html` needs."""
    return {
        "anchor": _anchor,
        "breakable": _breakable,
        "cell_of": _cell_of,
        "count": count,
        "duration": html_text.duration,
        "interval": html_text.interval,
        "sort_key": html_text.sort_key,
        "moment": html_text.moment,
        "name": html_text.name,
        "percent": html_text.percent,
        "shown": html_text.shown,
        "tokens": html_text.tokens,
    }


def template_axes() -> dict[str, object]:
    """Return the template variables for the axes of charts that `parts.html` draws."""
    return {
        "rate_ticks": [charts.rate_x(tick) for tick in charts.RATE_TICKS],
        "rate_labels": [(charts.rate_x(tick), f"{tick:.0%}") for tick in (0.0, 0.5, 1.0)],
        "times": [(charts.time_x(ms), label) for ms, label in charts.TIMES],
    }


def _breakable(text: str) -> Markup:
    """Return a name in which lines may break after each `_`, `-`, `.`, `/` and `:`."""
    return Markup("<wbr>").join(re.split(r"(?<=[_\-./:])(?=.)", text))


def _anchor(key: Iterable[object], section: str) -> str:
    """Return a row's HTML id: the section's name and a digest of the row's key."""
    digest = hashlib.sha256(json.dumps([section, *key], default=str).encode()).hexdigest()
    return f"{section}-{digest[:10]}"


def _cell_of(row: Mapping[str, Any], name: str) -> str:
    """Format a rate or confidence from a row of scores as text: in percent, or in words."""
    text, value = cell_of(name, row), row[name]
    if text in (NO_EVIDENCE, NEVER_WORKED):
        return text
    whole = 100 if name.startswith("confidence") else 1
    return html_text.percent(None if value is None else value / whole)


_BY_IMPORTANCE: Final = (
    *("errors", "hidden", "latency", "compared", "schemas", "retries", "findings", "servers"),
    *("context", "drift", "tools"),
)
"""Sections, those first whose calls take precedence."""


def _context(
    store: Store, found: Answers, command_lines: commands.Commands, *, whole: bool
) -> dict[str, Any]:
    """Return the variables for the template."""
    parts = sections.sections(found, command_lines) if whole else sections.NONE
    many_servers = found.counts["servers"] > 1
    shown = parts if many_servers else {**parts, "servers": None}
    problems = priorities.priorities(found)
    wanted = [problem.example for problem in problems]
    for name in _BY_IMPORTANCE:
        if (part := parts[name]) is not None:
            wanted += [row["example_call"] for row in part.rows]
    causes = found("priorities").drop_nulls(["cause", "call_id"]).to_dicts()
    of_example = {} if found.asked.filters else {row["call_id"]: row for row in causes}
    calls = examples.load(store, list(dict.fromkeys(filter(None, wanted))), of_example)
    shown_first: dict[str | None, int] = {}
    for number, problem in enumerate(problems):
        if problem.example in calls.by_id:
            shown_first.setdefault(problem.example, number)
    manifest = store.manifest
    variables: dict[str, Any] = {
        "whole": whole,
        "calls_shown": calls,
        "shown_first": shown_first,
        "over_time": charts.over_time(found.asked.periods(), found("change_points")),
        "onsets": headings.onsets(found("change_points")),
        "headline": headings.share_that_worked(found.counts),
        "reasons": headings.reasons(found),
        "summary": headings.summary(found, command_lines, whole=whole),
        "outcomes": charts.stacked(headings.outcomes(found.counts), 1000),
        "outcome_names": RESULTS,
        "priorities": problems,
        "ranking": headings.ranking(found),
        "no_priorities": "" if problems else headings.no_priorities(found, store.unread),
        "unread": in_words(store.unread),
        "titles": headings.calls(calls),
        "contents": headings.contents(shown, calls, whole=whole),
        "many_servers": many_servers,
        "rest": headings.rest(found),
        "caveats": caveats.caveats(found, whole=whole),
        "commands": command_lines,
        "store": html_text.shown(command_lines.store),
        "scored_at": str(manifest.get("scored_at", ""))[:16].replace("T", " "),
        "scored_by": html_text.shown(str(manifest.get("mcptally", "")), 20),
        "rules": html_text.shown(str(manifest.get("rules", "")), 40),
    }
    if whole:
        variables["titles"] |= headings.titles(found, parts)
        variables |= parts
        variables |= {
            "verdict_names": _VERDICTS,
            "drift_names": _DRIFTS,
            "details": [
                section if key is None else _anchor(key, section)
                for section, key in (problem.details(shown) for problem in problems)
            ],
            "server_names": sorted(set(map(html_text.name, found("tool_scores")["server"]))),
            "base": found.compared.base if found.compared else "",
            "omitted_changes": headings.omitted_changes(found),
            "unused": headings.unused(found),
            "rule_titles": {rule.id: rule.title for rule in hidden_errors.hidden_error_rules()},
            "first_call": found.counts["first_call"],
            "last_call": found.counts["last_call"],
        }
    return variables
