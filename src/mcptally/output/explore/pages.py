"""Renders the pages of `explore`: one call, one session as a conversation, answers and SQL.

Recorded text comes from a masked store, and is cleaned of control characters before the template
escapes it.
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
import pyarrow as pa

from mcptally.analytics import explanation
from mcptally.analytics.store import Store
from mcptally.analytics.views import displayed_columns, question_titles
from mcptally.errors import QueryError
from mcptally.output.html.text import duration, is_printable, name, shown
from mcptally.plural import count
from mcptally.redaction.display import clean_lines, mask_text
from mcptally.tables.values import cell

ROWS: Final = 500
"""The maximum number of rows of an answer on a page."""
CALLS: Final = 200
"""Calls of a session on one page."""
MAX_PAYLOAD: Final = 20_000
"""Characters of a payload on a page; `mcptally show --full` prints all of it."""

FILTERS: Final = ("server", "tool", "since", "until", "client", "model", "min_calls")
"""The filters of a question, as in `Store.ask`."""

_CALL_COLUMNS: Final = frozenset({"call_id", "attempt_of"})


@dataclasses.dataclass(frozen=True, slots=True)
class Links:
    """Addresses of the pages below one root, `/TOKEN/`."""

    root: str

    def call(self, call: str) -> str:
        """The page of a call."""
        return f"{self.root}call/{quote(call, safe='')}"

    def session(self, session: str, page: int = 1) -> str:
        """The page of a session."""
        return f"{self.root}session/{quote(session, safe='')}" + (
            f"?page={page}" if page > 1 else ""
        )

    def question(self, question: str, **filters: str | None) -> str:
        """The answer to a question, with filters."""
        given = {key: value for key, value in filters.items() if value}
        return f"{self.root}question/{quote(question, safe='')}" + (
            f"?{urlencode(given)}" if given else ""
        )

    def sql(self, query: str = "") -> str:
        """The answer to an SQL query."""
        return f"{self.root}sql" + (f"?{urlencode({'query': query})}" if query else "")

    def of_value(self, column: str, value: object) -> str | None:
        """The page that a value of an answer leads to, if it is the id of a call or session."""
        if not isinstance(value, str) or not value or not is_printable(value):
            return None
        if column in _CALL_COLUMNS or column.endswith("_call"):
            return self.call(value)
        return self.session(value) if column == "session" else None


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("mcptally.output.explore"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"questions": question_titles(), "filter_names": FILTERS}
    made.filters |= {"count": count, "duration": duration, "shown": shown, "name": name}
    return made


@functools.cache
def style() -> str:
    """The style sheet of all pages: that of the report, and a few more rules."""
    report = resources.files("mcptally.output.html") / "templates/page.css"
    own = resources.files("mcptally.output.explore") / "templates/explore.css"
    return report.read_text("utf-8") + own.read_text("utf-8")


def _render(page: str, links: Links, title: str, **values: Any) -> str:
    template = _environment().get_template("explore.html")
    return template.render(page=page, links=links, title=title, **values)


def message(links: Links, title: str, text: str) -> str:
    """A page that says what went wrong."""
    return _render("message", links, title, text=clean_lines(mask_text(text)))


def call(store: Store, links: Links, call_id: str) -> str:
    """The page of a call: what was asked, what came back, and the evidence for the verdict.

    Raises:
        QueryError: no call has this id, or several ids begin with it.
    """
    found = store.show(call_id)
    row = found.call
    target = row["tool"] or row["prompt"] or row["resource_uri"]
    return _render(
        "call",
        links,
        f"{row['method']} {shown(target, 90) if target else ''}".rstrip(),
        call=row,
        when=cell("requested_at", row["requested_at"]),
        explanation=clean_lines(explanation.text(found, limit=MAX_PAYLOAD)),
    )


_CONVERSATION: Final = """
SELECT call_id, dir, method, coalesce(tool, prompt, resource_uri) AS target, outcome, verdict,
       requested_at, latency_ms, arguments, response, error_text, file, line
FROM calls WHERE session = ?
ORDER BY requested_at NULLS LAST, recording, seq, "index"
"""

_ANY: Final = "SELECT 1 FROM messages WHERE session = ? LIMIT 1"

_NOTIFICATIONS: Final = """
SELECT dir, method, "at", file, line FROM messages
WHERE session = ? AND kind = 'notification'
ORDER BY "at" NULLS LAST, recording, seq, "index" LIMIT 20000
"""


def session(store: Store, links: Links, session_id: str, page: int) -> str:
    """The page of a session: its calls and notifications in order, `CALLS` calls to a page.

    Raises:
        QueryError: there is no such session.
    """
    about = store.sql(
        "SELECT count(*) AS calls, min(requested_at) AS first, max(requested_at) AS last, "
        "any_value(server) AS server, any_value(client) AS client FROM calls WHERE session = ?",
        params=[session_id],
    ).pl()
    known = about.row(0, named=True)
    if not known["calls"] and not store.sql(_ANY, params=[session_id]).fetchall():
        raise QueryError(f"no session has the id {session_id!r}")
    pages = max(1, -(-known["calls"] // CALLS))
    page = min(max(1, page), pages)
    rows = _rows(
        store.sql(f"{_CONVERSATION} LIMIT {CALLS} OFFSET {(page - 1) * CALLS}", params=[session_id])
    )
    turns = [{"kind": "call", "at": row["requested_at"], **row} for row in rows]
    turns += [
        {"kind": "notification", **row}
        for row in _rows(store.sql(_NOTIFICATIONS, params=[session_id]))
        if _is_on_page(row["at"], turns, page, pages)
    ]
    turns.sort(key=lambda turn: (turn["at"] is None, turn["at"] or 0))  # those without a time last
    for turn in turns:
        turn["after"] = _offset(known["first"], turn["at"])
        for payload in ("arguments", "response"):
            turn[payload] = _payload(turn.get(payload))
    return _render(
        "session",
        links,
        f"Session {shown(session_id, 60)}",
        session=session_id,
        about={key: shown(v) if isinstance(v, str) else v for key, v in known.items()},
        first=cell("first", known["first"]),
        turns=turns,
        number=page,
        pages=pages,
    )


def _is_on_page(at: Any, calls: Sequence[Mapping[str, Any]], page: int, pages: int) -> bool:
    """Whether a notification of this time belongs between the calls of a page."""
    times = [call["at"] for call in calls if call["at"] is not None]
    if at is None or not times:
        return page == pages
    return (page == 1 or at >= times[0]) and (page == pages or at <= times[-1])


def _offset(first: Any, at: Any) -> str:
    """The time since the first call of the session, as in `+1.2 s`."""
    if first is None or at is None:
        return ""
    milliseconds = (at - first).total_seconds() * 1e3
    return f"{'-' if milliseconds < 0 else '+'}{duration(abs(milliseconds))}"


def _payload(text: str | None) -> str | None:
    """JSON text with line breaks, cleaned, and cut to `MAX_PAYLOAD` characters."""
    if text is None:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    cut = len(text) - MAX_PAYLOAD
    kept = clean_lines(text[:MAX_PAYLOAD])
    return f"{kept}\n… and {count(cut, 'more character')}" if cut > 0 else kept


def _rows(relation: Any) -> list[dict[str, Any]]:
    """The rows of an answer."""
    rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()
    return rows


def question(
    links: Links,
    asked: str,
    filters: Mapping[str, str | None],
    answer: Callable[[], pa.Table],
    *,
    all_columns: bool,
) -> str:
    """The page of a predefined question with its filters.

    Args:
        links: the addresses of the pages.
        asked: the name of the question.
        filters: the filters, by name.
        answer: computes the answer; an error of the filters is shown beside them by the caller.
        all_columns: whether to show all columns, not only the most important ones.
    """
    table = answer()
    columns = [name for name in displayed_columns(asked) if name in table.column_names]
    shown_columns = table.column_names if all_columns or not columns else columns
    return _render(
        "question",
        links,
        asked,
        asked=asked,
        about=question_titles()[asked],
        filters=filters,
        all_columns=all_columns,
        **_table(links, table.select(shown_columns)),
    )


def sql(links: Links, query: str, answer: Callable[[], pa.Table] | None, error: str = "") -> str:
    """The page with a field for SQL, and the answer to `query` or the error it caused."""
    table = _table(links, answer()) if answer else {"columns": (), "rows": (), "more": False}
    return _render("sql", links, "SQL", query=query, error=clean_lines(mask_text(error)), **table)


def _table(links: Links, table: pa.Table) -> dict[str, Any]:
    """The columns and the first `ROWS` rows of an answer, as texts with links."""
    names = table.column_names
    values = [column.to_pylist() for column in table.slice(0, ROWS).columns]
    return {
        "columns": names,
        "rows": [
            [
                {
                    "text": cell(name, value),
                    "link": links.of_value(name, value),
                    "number": isinstance(value, int | float) and not isinstance(value, bool),
                }
                for name, value in zip(names, row, strict=True)
            ]
            for row in zip(*values, strict=True)
        ],
        "more": table.num_rows > ROWS,
    }
