"""Answers predefined questions about a store, with filters applied."""

from collections.abc import Mapping
from typing import Any, Final

from mcptally.analytics import views
from mcptally.analytics.answer import Answer
from mcptally.analytics.connections import Connections, answer_of
from mcptally.analytics.filters import CALL_FILTERS, COMPARED, Filters
from mcptally.analytics.views import question_titles
from mcptally.errors import QueryError, UsageError, near
from mcptally.tables.usage import Usage

_TABLES_WITH_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "server": ("calls", "recordings"),
    "tool": ("calls", "tools"),
    "client": ("calls", "recordings"),
    "model": ("calls",),
}
"""Maps each filter to the tables in which its valid values occur."""

_OF_TOOLS: Final = frozenset({"contrasts"})
"""Questions that compute a tool's rows only from calls to this tool. For these questions, the
filters `server` and `tool` select calls, which is faster than selecting rows from the answer about
all tools."""


def answer(connections: Connections, question: str, filters: Filters) -> Answer:
    """Answer a question about a store; `Store.ask` explains the filters.

    Raises:
        QueryError: there is no such question, server, tool, client or model.
        UsageError: a filter cannot be parsed, or the question does not support it.
    """
    given = filters.given()
    if question not in question_titles():
        raise QueryError(
            f"no question is called {question!r}{near(question, question_titles())}"
            f"; there are: {', '.join(question_titles())}"
        )
    # Don't create a view for the question itself, because DuckDB would bind its SQL twice.
    source = f'({views.all_texts()[question]}\n) AS "{question}"'
    if not given:
        return connections.answer(f"SELECT * FROM {source}", question)
    _check_names(connections, given)
    of_rows = given.keys() - (CALL_FILTERS if question in _OF_TOOLS else ())
    columns = connections.answer(f"SELECT * FROM {source}", question).columns if of_rows else ()
    if filters.min_calls is not None and "calls" not in columns:
        raise UsageError(
            f"{question} does not count calls, so min_calls (--min-calls) does not apply"
        )
    conditions = {
        name: condition
        for name, column, condition in (
            ("server", "server", "server = ?"),
            ("tool", "tool", "tool = ?"),
            *((name, name, f"{name} = ?") for name in COMPARED.get(question, ())),
            ("min_calls", "calls", "calls >= ?"),
        )
        if name in of_rows and column in columns
    }
    call_filters = {name: given[name] for name in CALL_FILTERS & given.keys() - conditions.keys()}
    where = " AND ".join(conditions.values()) or "true"
    # Without this, DuckDB computes `usage` from the selected calls wherever a question reads it.
    reads_usage = views.reads_any_of([Usage.name], views.texts_of(question).values())
    once = "WITH usage AS MATERIALIZED (FROM _usage) " if call_filters and reads_usage else ""
    return connections.answer(
        f"{once}SELECT * FROM {source} WHERE {where}",
        question,
        [given[name] for name in conditions],
        call_filters,
    )


def _check_names(connections: Connections, given: Mapping[str, Any]) -> None:
    """Raise an error for an unknown server, tool, client or model that suggests similar names."""
    for kind, sources in _TABLES_WITH_NAMES.items():
        if kind not in given:
            continue
        names_in = " UNION ALL ".join(f"SELECT {kind} FROM {table}" for table in sources)
        rows = answer_of(
            connections.get(),
            f"SELECT DISTINCT {kind} FROM ({names_in}) WHERE {kind} IS NOT NULL",
        ).fetchall()
        names = [name for (name,) in rows]
        if given[kind] not in names:
            hint = near(given[kind], names) or _list_of_names(kind, names)
            raise QueryError(f"no {kind} is called {given[kind]!r}{hint}")
    if "server" in given and "tool" in given:
        rows = answer_of(
            connections.get(),
            "SELECT DISTINCT server FROM (SELECT server, tool FROM calls UNION ALL "
            "SELECT server, tool FROM tools) WHERE tool = ?",
            [given["tool"]],
        ).fetchall()
        servers = sorted(str(name) for (name,) in rows)
        if given["server"] not in servers:
            raise QueryError(
                f"server {given['server']!r} has no tool {given['tool']!r}; it belongs to "
                f"{', '.join(servers[:5])}"
            )


def _list_of_names(kind: str, names: list[str]) -> str:
    """Return the end of an error message: up to eight names that the store contains."""
    if not names:
        return f"; no {kind} is named in this store"
    few = ", ".join(sorted(names)[:8])
    return f"; there are: {few}{', …' if len(names) > 8 else ''}"
