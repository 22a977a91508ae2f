"""Views over stores: their tables, and every question of `queries/*.sql`.

A question is a SQL file whose first line, a comment, is its title in plain words; a second one,
`-- Shows: a, b`, names the columns that a terminal table shows first. A file whose name begins with
`_` is no question but a part of some; with `-- Of: per` as its second line it is a table that
depends on `per`.
"""

import contextlib
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from importlib import resources

import duckdb

from mcptally.analytics import union
from mcptally.analytics.filters import ORDER, predicates
from mcptally.errors import StoreError, UsageError
from mcptally.seeds.validation_protocol import sql_functions as validation_sql_functions
from mcptally.statistics import sql_functions
from mcptally.tables.usage import Usage


@functools.cache
def questions() -> Mapping[str, str]:
    """Name of every standing question → what it answers."""
    return {
        name: text.splitlines()[0].removeprefix("-- ")
        for name, text in all_texts().items()
        if not name.startswith("_")  # a view that questions share
    }


def shown(question: str) -> list[str]:
    """The columns that a table of this question's answer shows; empty: all."""
    for line in all_texts()[question].splitlines()[:2]:
        if line.startswith("-- Shows: "):
            return line.removeprefix("-- Shows: ").split(", ")
    return []


@functools.cache
def all_texts() -> Mapping[str, str]:
    """Name of every question, and of every part that questions share → its SQL."""
    folder = resources.files("mcptally.analytics").joinpath("queries")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name
    )
    return {f.name.removesuffix(".sql"): f.read_text(encoding="utf-8") for f in files}


def connect(memory: str | None = None) -> duckdb.DuckDBPyConnection:
    """An empty database in memory that knows the functions that the questions use.

    Args:
        memory: what it may take, such as `2GB`; by default four fifths of the machine's.

    Raises:
        UsageError: `memory` is no size.
    """
    connection = duckdb.connect()
    if memory is not None:
        try:
            connection.execute("SET memory_limit = ?", [memory])
        except duckdb.Error:
            raise UsageError(f"memory {memory!r} is no size; write 2GB or 500MB") from None
    # A progress bar would go to stdout, among the results, terminal or not. In a notebook
    # without ipywidgets there is none to switch off, and DuckDB raises.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    sql_functions.register(connection)
    validation_sql_functions.register(connection)
    return connection


def create_views(
    connection: duckdb.DuckDBPyConnection,
    stores: Sequence[union.Files],
    filters: Collection[str] = (),
    question: str | None = None,
) -> None:
    """The tables of stores, as one, and every question, as views.

    Args:
        connection: where to make them.
        stores: the live files of each store, by table.
        filters: names of filters; their values are variables of whatever cursor asks.
        question: the only question that is needed.

    Raises:
        StoreError: a store lacks a table, or one is damaged.
    """
    create_tables(connection, stores, filters)
    texts = dict(all_texts() if question is None else texts_of(question))
    if filters:
        texts |= texts_of("_usage") | {Usage.name: "SELECT * FROM _usage"}
    create_questions(connection, texts)


def create_tables(
    connection: duckdb.DuckDBPyConnection,
    stores: Sequence[union.Files],
    filters: Collection[str] = (),
) -> None:
    """The tables of stores as views, without what filters of these names leave out.

    Raises:
        StoreError: a store lacks a table, or one is damaged.
    """
    tables = union.tables(connection, stores)
    for name in ORDER:
        if filters and name == Usage.name:
            continue  # it sums up all calls: made anew of those that count
        where = " AND ".join(predicates(name, filters)) or "true"
        try:
            connection.execute(
                f'CREATE VIEW "{name}" AS SELECT * FROM {tables[name]} WHERE {where}'
            )
        except duckdb.Error as error:
            place = stores[0][name][0].parent.parent if len(stores) == 1 else "one of the stores"
            raise StoreError(
                f"{place}: its table {name} is damaged: {str(error).splitlines()[0]}; rebuild it "
                "with: mcptally score ARCHIVE -o STORE"
            ) from error


def texts_of(question: str) -> dict[str, str]:
    """A question's text after those of the questions that it may read."""
    text = all_texts()[question]
    named = set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)|\b(_\w+)\(", text))
    own = re.findall(r"\b(\w+) AS (?:NOT )?(?:MATERIALIZED )?\(", text)
    found: dict[str, str] = {}
    for name in sorted({name for pair in named for name in pair} & all_texts().keys() - set(own)):
        found |= texts_of(name)
    return found | {question: text}


def create_questions(connection: duckdb.DuckDBPyConnection, texts: Mapping[str, str]) -> None:
    """Questions as views, all of them.

    Args:
        connection: one that has the tables as views.
        texts: name of each question → its SQL; with those that they read, unless they are there.

    Raises:
        StoreError: one of them reads what is not there.
    """
    if left := _create_those_possible(connection, texts):
        name, error = next(iter(left.items()))
        raise StoreError(f"the question {name} cannot be made: {error}") from error


def _kind(name: str, text: str) -> str:
    """What a file makes: a view, or what depends on what its second line names.

    That is a table after `-- Of: `, and a value after `-- Value of: `.
    """
    about = text.splitlines()[1] if "\n" in text else ""
    if about.startswith("-- Value of: "):
        return f'MACRO "{name}"({about.removeprefix("-- Value of: ")}) AS'
    if about.startswith("-- Of: "):
        # A level that is asked for by name is all that is worked out.
        return f'MACRO "{name}"({about.removeprefix("-- Of: ")}) AS TABLE'
    return f'VIEW "{name}" AS'


def create_plain_questions(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Questions as views where DuckDB knows its own functions only; gives those that need more."""
    return list(_create_those_possible(connection, all_texts()))


def _create_those_possible(
    connection: duckdb.DuckDBPyConnection, texts: Mapping[str, str]
) -> dict[str, duckdb.CatalogException]:
    """Questions as views, one that reads another after it; gives those that lack something."""
    waiting = dict(texts)
    missing: dict[str, duckdb.CatalogException] = {}
    while waiting:
        missing = {}
        for name, text in waiting.items():
            try:
                connection.execute(f"CREATE {_kind(name, text)} {text}")
            except duckdb.CatalogException as error:
                missing[name] = error
        if len(missing) == len(waiting):
            break
        waiting = {name: waiting[name] for name in missing}
    return missing
