"""One self-contained page about a store: what to look at first, and everything behind it.

    answers (the standing questions) → leads, sections, limits → a template → one HTML file

The page loads nothing and runs one script, named by its hash in the page's own policy. Whatever
was recorded reaches it through `words.shown` and the template's escaping.
"""

import base64
import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

import mcptally
from mcptally.analytics.store import Store, open_store, steadily
from mcptally.errors import UsageError
from mcptally.output.html import answers, caveats, charts, commands, headings, priorities, sections
from mcptally.output.html import text as html_text
from mcptally.output.html.answers import Answers
from mcptally.output.whole_file import whole_file
from mcptally.verdict import hidden_errors

_OUTCOMES: Final = {
    "ok": "answered well",
    "business": "rightly refused",
    "tool_failure": "failed because of the tool",
    "infrastructure": "lost on the way",
    "ambiguous": "failed, nobody can tell why",
    "open": "cancelled or still open",
}
_VERDICTS: Final = {
    "tool_failure": "the tool",
    "infrastructure": "network, upstream",
    "ambiguous": "cannot be told",
    "business": "the request",
}
_DRIFTS: Final = {
    "breaking": "breaks callers",
    "unclear": "may break callers",
    "compatible": "compatible",
    "wording": "wording",
    "hints": "hints",
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
) -> str:
    """One self-contained HTML page about a store; gives its text.

    Args:
        store: what the page is about.
        out: the file to write; None: none is written.
        base: a store to compare with: what got worse since.
        server: only of this server.
        tool: only of this tool.
        since: only calls made then or later; as in `Store.ask`.
        until: only calls made before then.
        client: only calls of a client of this name.

    Raises:
        StoreError: there is no store, or none that this version reads.
        QueryError, UsageError: a filter that cannot be, or `out` cannot be written.
    """
    if base is not None and (since or until or client):
        raise UsageError("a comparison is of whole stores; it goes with server and tool only")
    about = store if isinstance(store, Store) else open_store(store)
    other = base if base is None or isinstance(base, Store) else open_store(base)
    filters = {"server": server, "tool": tool, "since": since, "until": until, "client": client}
    found = steadily(
        [about] if other is None else [about, other],
        lambda: answers.ask(about, other, **filters),
        consistent=True,
    )
    lines = commands.Commands(*map(str, about.paths), filters=found.filters)
    page = _render(found, lines)
    if out is not None:
        whole_file(Path(out), lambda file: file.write(page.encode()))
    return page


def _render(found: Answers, lines: commands.Commands) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return _template().render(
        policy=policy,
        style=Markup(style),  # noqa: S704  (our own file)
        script=Markup(script),  # noqa: S704  (our own file)
        version=mcptally.__version__,
        **_context(found, lines),
    )


def _asset(name: str) -> str:
    return (resources.files("mcptally.output.html") / "templates" / name).read_text(
        encoding="utf-8"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mcptally.output.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "count": html_text.count,
        "duration": html_text.duration,
        "interval": html_text.interval,
        "key": html_text.key,
        "moment": html_text.moment,
        "name": html_text.name,
        "percent": html_text.percent,
        "shown": html_text.shown,
        "tokens": html_text.tokens,
    }
    return environment.get_template("page.html")


def _breakable(text: str) -> Markup:
    """A name that may go on in the next line after what joins its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[_\-./:])(?=.)", text))


def _context(found: Answers, lines: commands.Commands) -> dict[str, Any]:
    parts: dict[str, sections.Section | None] = {
        "tools": sections.tools(found, lines),
        "servers": sections.servers(found, lines),
        "errors": sections.errors(found, lines),
        "hidden": sections.hidden(found, lines),
        "latency": sections.latency(found, lines),
        "retries": sections.retries(found, lines),
        "drift": sections.drift(found, lines),
        "context": sections.context(found, lines),
        "violations": sections.violations(found, lines),
        "findings": sections.findings(found, lines),
        "changes": sections.changes(found, found.compared, lines) if found.compared else None,
    }
    many = found.servers.height > 1
    return {
        **parts,
        "headline": headings.headline(found),
        "lede": headings.lede(found, lines),
        "outcomes": charts.stacked(headings.outcomes(found), 1000),
        "outcome_names": _OUTCOMES,
        "verdict_names": _VERDICTS,
        "drift_names": _DRIFTS,
        "leads": priorities.leads(found),
        "ranking": headings.ranking(found),
        "nothing": headings.nothing(found),
        "titles": headings.titles(found, parts),
        "contents": headings.contents(parts, many=many),
        "many_servers": many,
        "server_names": sorted(
            {html_text.name(server) for server in found.tools.get_column("server").unique()}
        ),
        "base": found.compared.base if found.compared else "",
        "quiet": headings.quiet(found),
        "unused": headings.unused(found),
        "unsaid": caveats.unsaid(found),
        "rule_titles": {rule.id: rule.title for rule in hidden_errors.rules()},
        "rate_ticks": [charts.rate_x(tick) for tick in charts.RATE_TICKS],
        "rate_labels": [
            (charts.rate_x(tick), f"{tick:.0%}") for tick in charts.RATE_TICKS if tick != 0.01
        ],
        "times": [(charts.time_x(ms), label) for ms, label in charts.TIMES],
        "first_call": found.first_call,
        "last_call": found.last_call,
        "commands": lines,
        "store": html_text.shown(lines.store),
        "scored_at": str(found.manifest.get("scored_at", ""))[:16].replace("T", " "),
        "scored_by": html_text.shown(str(found.manifest.get("mcptally", "")), 20),
        "rules": html_text.shown(str(found.manifest.get("rules", "")), 40),
    }
