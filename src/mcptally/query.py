"""DuckDB over a store: tables as views, standing questions from `queries/*.sql`, any SQL.

A question is a SQL file whose first line, a comment, is its title in plain words; a second one,
`-- Shows: a, b`, names the columns that a terminal table shows first.
"""

import contextlib
import functools
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from mcptally import stats
from mcptally import store as store_files
from mcptally.errors import QueryError, near
from mcptally.schema import TABLES

if TYPE_CHECKING:
    from mcptally.compare import Comparison


@functools.cache
def questions() -> Mapping[str, str]:
    """Name of every standing question → what it answers."""
    return {
        name: text.splitlines()[0].removeprefix("-- ")
        for name, text in _texts().items()
        if not name.startswith("_")  # a view that questions share
    }


def shown(question: str) -> list[str]:
    """The columns that a table of this question's answer shows; empty: all."""
    for line in _texts()[question].splitlines()[:2]:
        if line.startswith("-- Shows: "):
            return line.removeprefix("-- Shows: ").split(", ")
    return []


@functools.cache
def _texts() -> Mapping[str, str]:
    folder = resources.files("mcptally").joinpath("queries")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name
    )
    return {f.name.removesuffix(".sql"): f.read_text(encoding="utf-8") for f in files}


def connect() -> duckdb.DuckDBPyConnection:
    """An empty database in memory that knows the functions that the questions use."""
    connection = duckdb.connect()
    # A progress bar would go to stdout, among the results, terminal or not. In a notebook
    # without ipywidgets there is none to switch off, and DuckDB raises.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    stats.register(connection)
    return connection


def create_views(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """The tables of the store at `path` and every question, as views.

    A question that reads another comes after it, whatever their names.
    """
    for table in TABLES:
        pattern = str(path.resolve() / table.name / "**" / "*.parquet").replace("'", "''")
        connection.execute(
            f"CREATE VIEW \"{table.name}\" AS SELECT * FROM read_parquet('{pattern}')"
        )
    waiting = dict(_texts())
    while waiting:
        made = []
        for name, text in waiting.items():
            try:
                connection.execute(f'CREATE VIEW "{name}" AS {text}')
            except duckdb.CatalogException as error:
                missing = error
            else:
                made.append(name)
        if not made:
            raise missing
        waiting = {name: text for name, text in waiting.items() if name not in made}


class Store:
    """An open store. Every answer is a DuckDB relation: `.pl()`, `.df()`, `.to_arrow_table()`."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.manifest: Final = store_files.read_manifest(path)
        self._duckdb = connect()
        create_views(self._duckdb, path)

    def ask(self, question: str) -> duckdb.DuckDBPyRelation:
        """The answer to a standing question.

        Raises:
            QueryError: there is no such question.
        """
        if question not in questions():
            raise QueryError(
                f"no question is called {question!r}{near(question, questions())} "
                f"(there are: {', '.join(questions())})"
            )
        return self.sql(f'SELECT * FROM "{question}"')

    def sql(self, query: str, params: Any = None) -> duckdb.DuckDBPyRelation:
        """The answer to any SQL over the tables and questions, which are views.

        Raises:
            QueryError: DuckDB refuses it.
        """
        try:
            cursor = self._duckdb.cursor()
            stats.close_at_exit(cursor)
            relation = cursor.sql(query, params=params)
        except duckdb.Error as error:
            raise QueryError(f"{error}") from error
        if relation is None:
            raise QueryError("that statement gives no rows; a store answers SELECT only")
        return relation

    def compare(self, other: "Store", **limits: float) -> "Comparison":
        """What changed from this store to `other`; the limits are those of `compare.compare`."""
        from mcptally import compare  # noqa: PLC0415  (it opens stores itself)

        return compare.compare(self, other, **limits)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"


def open_store(path: str | Path) -> Store:
    """Open the store at `path`.

    Raises:
        StoreError: there is no store, or none that this version reads.
    """
    return Store(Path(path))
