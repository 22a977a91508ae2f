"""Builds the page for a table, answer or query. Its address determines order, filters and page."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import duckdb
import polars as pl

from mcptally.analytics.views import (
    IN_UTC,
    displayed_columns,
    meaning_of_no_rows,
    question_titles,
)
from mcptally.errors import QueryError, UsageError, near
from mcptally.output.explore.addresses import ANY, NULL, Links
from mcptally.output.explore.answers import ROWS, Answers
from mcptally.output.explore.page import Page, Section
from mcptally.tables.all_tables import TABLES
from mcptally.tables.outcomes import GROUPS, sql_list
from mcptally.tables.values import cell, distinct_names

PAGE_ROWS: Final = 100
"""Number of rows per page."""
CALL_FILTERS: Final = ("server", "tool", "since", "until", "client", "model", "min_calls")
"""Filters for questions, as in `Store.ask`."""
_SHOWN: Final[Mapping[str, str]] = {
    "calls": "requested_at server tool outcome verdict fault latency_ms error_text client session "
    "call_id",
    "messages": "at dir kind method bytes call_id session recording file line",
    "findings": "severity rule message server tool path call_id session recording",
    "recordings": "opened_at server transport start crash ended_by exit_code tool_calls last_words "
    "server_version client recording",
    "tools": "server tool drift first_seen last_seen description tokens definition",
}
"""Maps each table to the columns that its page shows by default."""
_ORDER: Final = {"calls": "-requested_at", "recordings": "-opened_at", "messages": "at"}
"""Maps each table to its default order; questions define their own order."""


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The part of a table or answer that a page shows."""

    source: str
    """Name of a table or question."""
    values: tuple[tuple[str, str], ...]
    """Pairs of a column and a value (as text) that select rows; an empty text means null."""
    filters: tuple[tuple[str, str], ...]
    """The question's filters."""
    sort: str
    """A column, prefixed with `-` for descending order; empty for the answer's own order."""
    page: int
    columns: tuple[str, ...]
    """The columns to show; if empty, the default columns."""

    def state(self, **changes: object) -> dict[str, object]:
        """Return the parameters of this view's address after replacing some of them."""
        found: dict[str, object] = dict(self.filters)
        found |= {f"is.{name}": value or NULL for name, value in self.values}
        found |= {
            "sort": self.sort or None,
            "columns": " ".join(self.columns) or None,
            "page": self.page if self.page > 1 else None,
        }
        return found | changes


def view(source: str, given: Iterable[tuple[str, str]]) -> View:
    """Parse the parameters of an address into a view.

    Raises:
        QueryError: there is no such table or question.
        UsageError: a filter is invalid.
    """
    if source not in sources():
        raise QueryError(f"no table or question is called {source!r}{near(source, sources())}")
    pairs = list(given)
    single = dict(pairs)
    columns = " ".join(value for name, value in pairs if name == "columns")
    fewest = single.get("min_calls") or "0"
    if not (fewest.isdecimal() and len(fewest) < 16):
        raise UsageError(f"min calls: {fewest!r} is not a number of calls")
    number = single.get("page", "1")
    return View(
        source,
        tuple(
            (name.removeprefix("is."), "" if value == NULL else value)
            for name, value in pairs
            if name.startswith("is.")
        ),
        tuple((name, single[name]) for name in CALL_FILTERS if single.get(name)),
        single.get("sort", ""),
        int(number) if number.isdecimal() and len(number) < 9 else 1,
        tuple(dict.fromkeys(columns.split())),
    )


def sources() -> list[str]:
    """Return the names of all tables and questions."""
    return [*(table.name for table in TABLES), *question_titles()]


class Answered:
    """Provides the rows of a view.

    Args:
        answers: the store's answers.
        shown: the view.
    """

    def __init__(self, answers: Answers, shown: View) -> None:
        self._answers: Final = answers
        self.shown: Final = shown
        self._whole: Final = self._asked()
        self.names: Final = self._names()
        if unknown := [
            name
            for name in (*(name for name, _ in shown.values), shown.sort.removeprefix("-"))
            if name and name not in self.names
        ]:
            raise QueryError(
                f"{shown.source} has no column {unknown[0]!r}{near(unknown[0], self.names)}"
            )

    def _asked(self) -> pl.DataFrame | None:
        """Return the whole answer to a question; None for a table, which is read page by page."""
        if self.shown.source not in question_titles():
            return None
        given: dict[str, Any] = dict(self.shown.filters)
        if "min_calls" in given:
            given["min_calls"] = int(given["min_calls"])
        return self._answers.ask(self.shown.source, **given)

    def _names(self) -> list[str]:
        if self._whole is not None:
            return self._whole.columns
        return next(list(table.columns()) for table in TABLES if table.name == self.shown.source)

    @property
    def columns(self) -> list[str]:
        """Return the columns that the page shows."""
        source = self.shown.source
        wanted: Iterable[str] = self.shown.columns
        if not wanted and source in _SHOWN:
            wanted = _SHOWN[source].split()
        elif not wanted:
            wanted = displayed_columns(source)
        return [name for name in wanted if name in self.names] or self.names

    def sql(self, columns: Iterable[str]) -> str:
        """Return a SELECT for all rows of the view that works in any client of the store."""
        listed = ", ".join(map(_quoted, columns))
        conditions = [_condition(name, value) for name, value in self.shown.values]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sort = self.shown.sort or _ORDER.get(self.shown.source, "")
        direction = " DESC" if sort.startswith("-") else ""
        order = f" ORDER BY {_quoted(sort.removeprefix('-'))}{direction} NULLS LAST" if sort else ""
        return f"SELECT {listed} FROM {_quoted(self.shown.source)}{where}{order}"

    def rows(self, columns: Iterable[str], limit: int, offset: int = 0) -> pl.DataFrame:
        """Return a range of the view's rows."""
        return self._run(f"{self.sql(columns)} LIMIT {limit:d} OFFSET {offset:d}")

    def total(self) -> int:
        """Return the total number of the view's rows."""
        counted = self._run(f"SELECT count(*) AS n FROM ({self.sql([self.names[0]])})")
        return int(counted["n"][0])

    def _run(self, query: str) -> pl.DataFrame:
        if self._whole is None:
            return self._answers.sql(query)
        with duckdb.connect() as connection:
            connection.execute(IN_UTC)
            connection.register(self.shown.source, self._whole)
            frame: pl.DataFrame = connection.sql(query).pl()
        return frame


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _condition(name: str, value: str) -> str:
    """Return an SQL condition that compares a column, as text, with a value.

    For the column `outcome`, the value may be a group of outcomes, such as `failed`.
    """
    if value in ("", ANY):
        return f"{_quoted(name)} IS {'NOT ' if value else ''}NULL"
    if name == "outcome" and value in GROUPS:
        return f"outcome IN {sql_list(GROUPS[value])}"
    doubled = value.replace("'", "''")
    return f"{_quoted(name)}::VARCHAR = '{doubled}'"


def page(answers: Answers, links: Links, shown: View) -> Page:
    """Return the page with the rows of a question or table that the view selects."""
    answered = Answered(answers, shown)
    columns = answered.columns
    about = question_titles().get(shown.source, "")
    return Page(
        "table",
        shown.source,
        about="question" if about else "table",
        head={
            "about": about,
            "view": shown,
            "columns": columns,
            "all_columns": answered.names,
            "sources": sources(),
            "filters": dict(shown.filters) if about else None,
            "filter_names": CALL_FILTERS,
            "sql": answered.sql(columns),
            "null": NULL,
            "groups": ("failed", "unanswered", "unfinished") * ("outcome" in answered.names),
        },
        sections=[Section("rows", "Rows", lambda: _rows(answered, links, columns))],
    )


def _rows(answered: Answered, links: Links, columns: list[str]) -> dict[str, Any]:
    shown = answered.shown
    offset = (shown.page - 1) * PAGE_ROWS
    total = answered.total()
    # Links to tools and errors also need these columns.
    more = [
        name for name in ("server", "call_id") if name in answered.names and name not in columns
    ]
    frame = answered.rows([*columns, *more], PAGE_ROWS, offset)
    return {
        "columns": columns,
        "rows": list(cells(links, frame, columns)),
        "view": shown,
        "total": total,
        "noun": "request" if shown.source == "calls" else "row",
        "first": offset + 1,
        "last": offset + frame.height,
        "cut": total >= ROWS,
        "null": NULL,
        "filtered": {name for name, _ in shown.values},
        "empty": "No rows with these filters"
        if shown.values or shown.filters
        else meaning_of_no_rows(shown.source).rstrip("."),
    }


def cells(
    links: Links, frame: pl.DataFrame, columns: Iterable[str]
) -> Iterator[list[dict[str, Any]]]:
    """Yield the cells of each row: text, link, and the value to filter by."""
    for row in frame.to_dicts():
        yield [
            {
                "column": name,
                "text": cell(name, row[name]),
                "link": links.of_value(name, row[name], row),
                "filter": _as_filter(row[name]),
                "kind": _kind(name, row[name]),
            }
            for name in columns
        ]


def _kind(column: str, value: object) -> str:
    """Return a cell's CSS class: `n` (number), `id`, `word`, `text` or `prose` (by length)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "n"
    is_id = column in _IDS or column.endswith("_call")
    if is_id:
        return "id"
    size = len(value) if isinstance(value, str) else 0
    return "word" if size <= _WORD else "prose" if size >= _PROSE else "text"


_IDS: Final = frozenset({"call_id", "session", "recording", "definition"})
_LONGEST: Final = 300
_WORD: Final = 24
"""Maximum length in characters of a value that is kept on one line."""
_PROSE: Final = 60
"""Minimum length in characters of a value that gets a wide column."""


def _as_filter(value: object) -> str | None:
    """Return a value as text for an address; None if rows cannot be selected by it."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if value != ANY and isinstance(value, int | str) and len(str(value)) <= _LONGEST:
        return str(value) or None
    return None


def index_page() -> Page:
    """Return the page that lists all questions and tables."""
    tables = [table.name for table in TABLES]
    return Page("questions", "Questions", head={"titles": question_titles(), "tables": tables})


def sql_page(links: Links, query: str, answer: Callable[[], pl.DataFrame]) -> Page:
    """Return the page with an SQL field and the query's rows."""

    def rows() -> dict[str, Any] | None:
        if not query:
            return None
        frame = answer()
        frame = frame.rename(dict(zip(frame.columns, distinct_names(frame.columns), strict=True)))
        return {
            "columns": frame.columns,
            "rows": list(cells(links, frame.head(SQL_ROWS), frame.columns)),
            "more": frame.height > SQL_ROWS,
        }

    return Page("sql", "SQL", head={"query": query}, sections=[Section("answer", "Rows", rows)])


SQL_ROWS: Final = 500
"""Maximum number of a query's rows on the page."""
