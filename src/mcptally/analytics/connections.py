"""Opens DuckDB connections to a store, with the store's tables and all questions as views.

A connection can read only the store's tables, since SQL may come from an untrusted source.
"""

import contextlib
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import duckdb

from mcptally.analytics import views
from mcptally.analytics.answer import Answer, as_answer
from mcptally.analytics.masked_tables import WITHOUT_PAYLOADS, MaskedTables
from mcptally.analytics.sql_guard import lock, sql_problem
from mcptally.errors import QueryError, near
from mcptally.statistics import sql_functions
from mcptally.store.manifest import LiveFiles, live_files, manifest_version, read_manifest
from mcptally.tables.all_tables import TABLES

TABLE_NAMES: Final = frozenset(table.name for table in TABLES)
"""Names of all tables of a store."""
PAYLOAD_TABLES: Final = TABLE_NAMES - WITHOUT_PAYLOADS
"""Names of the tables that contain text from calls."""


class _Opened(NamedTuple):
    connection: duckdb.DuckDBPyConnection
    created: set[str]
    """Names of the questions and macros that exist in the connection as views."""


class Connections:
    """The connections to a store. Threads may share them.

    Attributes:
        path: folder of the store.
        memory: DuckDB's memory limit, such as `2GB`; None means four fifths of the machine's
            memory.
        manifest: content of `store.json` without the list of archive files.
        has_payloads: whether the store contains arguments and results.
        masked: whether the tables are copies without secrets (`masked_tables`), to allow untrusted
            SQL.
        exact: whether Arrow data has DuckDB's own types, which other programs cannot read.

    Raises:
        StoreError: the constructor found no store, or a store that this version cannot read.
    """

    def __init__(self, path: Path, memory: str | None, *, masked: bool = False) -> None:
        self.path: Final = path
        self.masked: Final = masked
        self.memory: Final = memory
        self.exact = False
        self._open: Final[dict[tuple[frozenset[str], frozenset[str]], _Opened]] = {}
        self._lock: Final = threading.RLock()
        self._load()

    def _load(self) -> None:
        self._mark = self.mark()
        self.manifest = read_manifest(self.path, archive=False)
        self.has_payloads = bool(self.manifest.get("payloads"))
        self._files = live_files(self.path.resolve(), self.manifest)
        self._copies = MaskedTables(self.path.resolve(), self._files) if self.masked else None

    def close(self) -> None:
        """Close all connections; the next question opens new ones."""
        with self._lock:
            for connection, _ in self._open.values():
                connection.close()
            self._open.clear()

    def mark(self) -> tuple[int, int]:
        """Return a value that changes when a run replaces the store."""
        return manifest_version(self.path)

    @property
    def folder(self) -> Path:
        """The folder that contains the tables: the store, or the folder of its masked copies."""
        return self.path if self._copies is None else self._copies.folder

    def files(self, tables: Collection[str] = TABLE_NAMES) -> LiveFiles:
        """Return the store's live files by table, reloaded if a run has replaced the store.

        Args:
            tables: the tables to read; masked copies of other tables may not exist yet.
        """
        with self._lock:
            if self.mark() != self._mark:
                self._load()
                self._open.clear()
            if self._copies is None:
                return self._files
            self._copies.write(tables)
            return self._copies.files

    def get(
        self, filters: frozenset[str] = frozenset(), tables: frozenset[str] = TABLE_NAMES
    ) -> duckdb.DuckDBPyConnection:
        """Return a connection with the given tables as views.

        There is one connection for each set of filters and tables, which is created on first use. A
        lock allows threads to share a store.
        """
        return self._opened(filters, tables).connection

    def _opened(self, filters: frozenset[str], tables: frozenset[str]) -> _Opened:
        with self._lock:
            files = self.files(tables)
            key = (filters, tables)
            if key not in self._open:
                self._open[key] = self._connect(files, filters, tables)
            return self._open[key]

    def _connect(
        self, files: LiveFiles, filters: frozenset[str], tables: frozenset[str]
    ) -> _Opened:
        connection = views.connect(self.memory)
        with self.reporting_the_version():
            created = views.create_tables(connection, files, filters, tables)
        if self.exact:
            connection.execute("SET arrow_lossless_conversion = true")
        lock(connection, [self.folder])
        return _Opened(connection, created)

    def get_for(
        self,
        texts: Mapping[str, str],
        filters: frozenset[str] = frozenset(),
        *,
        payloads: bool = True,
        computed: bool = False,
    ) -> duckdb.DuckDBPyConnection:
        """Return a connection with questions, and the tables that they read, as views.

        Args:
            texts: the SQL of the questions and of all that they read, keyed by name.
            filters: the filters that the views apply.
            payloads: whether a query may read a table in `PAYLOAD_TABLES`. Masking these tables
                takes longer than most questions, and many questions do not read the tables.
            computed: whether to create tables with the questions' rows instead of views.
        """
        without_payloads = (
            self.masked and not (payloads or filters) and (filters, TABLE_NAMES) not in self._open
        )
        tables = WITHOUT_PAYLOADS if without_payloads else TABLE_NAMES
        connection, created = self._opened(filters, tables)
        # Create only the views that are missing, because each takes 0.01 s.
        with self._lock, self.reporting_the_version():
            new = {name: text for name, text in texts.items() if name not in created}
            texts = new if filters else views.without_filters(connection, new)
            views.create_questions(connection, texts, computed=computed)
            created.update(new)
        return connection

    def kept(self, question: str) -> Answer:
        """Return the unfiltered answer to a question, computed once for each state of the store.

        Other questions read the kept answer.

        Raises:
            StoreError: the store lacks a column, because an older version wrote it.
            QueryError: DuckDB cannot compute the answer.
        """
        with as_query_errors(self.get()), self.reporting_the_version():
            connection = self.get_for(views.texts_kept(question), computed=True)
            return _answer(connection, f'FROM "{question}"', alias=question)

    def answer(
        self,
        query: str,
        question: str,
        params: Any = None,
        filters: Mapping[str, Any] = MappingProxyType({}),
    ) -> Answer:
        """Return the answer to a question.

        Args:
            query: SQL that contains the question's text as a subquery.
            question: name of the question.
            params: the query's parameters.
            filters: maps the filters that the views apply to their values.

        Raises:
            StoreError: the store lacks a column, because an older version wrote it.
            QueryError: DuckDB rejects the query for another reason.
        """
        payloads = views.reads_any_of(PAYLOAD_TABLES, views.texts_of(question).values())
        texts = views.texts_read_by(question)
        connection = self.get_for(texts, frozenset(filters), payloads=payloads)
        with as_query_errors(connection), self.reporting_the_version():
            return _answer(connection, query, params, filters, alias=question)

    def reporting_the_version(self) -> contextlib.AbstractContextManager[None]:
        """Convert errors about missing columns to an error that names the store's version."""
        return views.reporting_the_version(self.path, self.manifest.get("mcptally"))


def answer_of(connection: duckdb.DuckDBPyConnection, query: str, params: Any = None) -> Answer:
    """Run a query on a new cursor, and return the answer.

    Raises:
        QueryError: DuckDB rejects the query.
    """
    with as_query_errors(connection):
        return _answer(connection, query, params)


def _answer(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    params: Any = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
    *,
    alias: str = "",
) -> Answer:
    cursor = connection.cursor()
    sql_functions.close_at_exit(cursor)
    for name, value in variables.items():
        cursor.execute(f"SET VARIABLE {name} = ?", [value])
    return as_answer(cursor.sql(query, alias=alias, params=params))


@contextlib.contextmanager
def as_query_errors(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Convert DuckDB errors to `QueryError`, adding suggestions for unknown columns."""
    try:
        yield
    except duckdb.Error as error:
        raise QueryError(_with_suggestion(error, connection)) from error


_UNKNOWN_COLUMN: Final = re.compile(
    r"Binder Error: (?:(?P<unqualified>Referenced column)|Table|Values list)"
    r'.*?(?:column named )?"(?P<name>[^"]*)"'
    r"(?: not found|\s*$)",
    re.MULTILINE,
)


def _with_suggestion(error: duckdb.Error, connection: duckdb.DuckDBPyConnection) -> str:
    """Return the message of an error; if a column is unknown, suggest the most similar columns."""
    found = _UNKNOWN_COLUMN.search(f"{error}")
    if found is None:
        return sql_problem(error)
    _, _, candidates = f"{error}".partition("Candidate bindings: ")
    names = re.findall(r'"([^"]*)"', candidates.partition("\n")[0])
    # With an alias (`c.failures`), DuckDB names no candidates of a view and few of a table.
    if not names or not found["unqualified"]:
        rows = connection.cursor().execute("SELECT DISTINCT column_name FROM duckdb_columns()")
        names = [name for (name,) in rows.fetchall()]
    column = found["name"]
    hint = near(column, names) or "; DESCRIBE TABLE lists the columns of a table"
    return f"SQL: no column is called {column!r}{hint}"
