"""Opens stores: DuckDB connections with their tables and questions as views.

SQL may come from an untrusted source, so a connection can read the stores' tables and nothing else.
"""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import duckdb

from mcptally.analytics import views
from mcptally.analytics.answer import Answer, as_answer
from mcptally.analytics.sql_guard import lock
from mcptally.errors import QueryError, near
from mcptally.statistics import sql_functions
from mcptally.store.manifest import LiveFiles, live_files, manifest_version, read_manifest


class Connections:
    """The connections to a store, or to several as one. Threads may share them.

    Attributes:
        paths: folders of the stores.
        memory: memory limit of DuckDB, such as `2GB`; None: four fifths of the machine's memory.
        manifest: content of the first store's `store.json`, without the files of the archive.
        has_payloads: whether arguments and results were kept, in all of several stores.
        exact: whether Arrow data keeps DuckDB's own types, which other programs cannot read.

    Raises:
        StoreError: from the constructor: there is no store, or this version cannot read it.
    """

    def __init__(self, paths: Sequence[Path], memory: str | None) -> None:
        self.paths: Final = tuple(paths)
        self.memory: Final = memory
        self.exact = False
        self._open: Final[dict[frozenset[str], duckdb.DuckDBPyConnection]] = {}
        self._created: Final[dict[frozenset[str], set[str]]] = {}
        self._lock: Final = threading.RLock()
        self._load()

    def _load(self) -> None:
        self._mark = self.mark()
        manifests = [read_manifest(path, archive=False) for path in self.paths]
        self.manifest = manifests[0]
        self.has_payloads = all(manifest.get("payloads") for manifest in manifests)
        self._files = [
            live_files(path.resolve(), manifest)
            for path, manifest in zip(self.paths, manifests, strict=True)
        ]

    def mark(self) -> tuple[tuple[int, int], ...]:
        """A value that changes when a run replaces one of the stores."""
        return tuple(map(manifest_version, self.paths))

    @property
    def files(self) -> Sequence[LiveFiles]:
        """The live files of each store, by table; read again after a run replaced a store."""
        with self._lock:
            if self.mark() != self._mark:
                self._load()
                self._open.clear()
                self._created.clear()
            return self._files

    def get(
        self, filters: frozenset[str] = frozenset(), question: str | None = None
    ) -> duckdb.DuckDBPyConnection:
        """A connection with the tables, and what this question reads, as views.

        There is one per set of filters. It is created on first use, under a lock because threads
        share a store.
        """
        with self._lock:
            files = self.files
            if filters not in self._open:
                connection = views.connect(self.memory)
                with self._reporting_the_version():
                    created = views.create_tables(connection, files, filters)
                if self.exact:
                    connection.execute("SET arrow_lossless_conversion = true")
                lock(connection, self.paths)
                self._open[filters] = connection
                self._created[filters] = created
            if question is not None:
                self.create_questions(views.texts_read_by(question), filters)
            return self._open[filters]

    def answer(
        self,
        query: str,
        question: str,
        params: Any = None,
        filters: Mapping[str, Any] = MappingProxyType({}),
    ) -> Answer:
        """The answer to a question.

        Args:
            query: SQL that has the question's text as a subquery.
            question: the question.
            params: parameters of the query.
            filters: filters that the views read, and their values.

        Raises:
            StoreError: the store lacks a column: an older version wrote it.
            QueryError: DuckDB rejects the query for another reason.
        """
        connection = self.get(frozenset(filters), question)
        with _as_query_errors(connection), self._reporting_the_version():
            return _answer(connection, query, params, filters, alias=question)

    def create_questions(
        self, texts: Mapping[str, str], filters: frozenset[str] = frozenset()
    ) -> None:
        """Create views of those questions that have none yet; each takes 0.01 s.

        The connection with these filters must exist.
        """
        with self._lock, self._reporting_the_version():
            created = self._created[filters]
            new = {name: text for name, text in texts.items() if name not in created}
            views.create_questions(self._open[filters], new)
            created.update(new)

    def _reporting_the_version(self) -> contextlib.AbstractContextManager[None]:
        return views.reporting_the_version(self.paths[0], self.manifest.get("mcptally"))


def answer_of(connection: duckdb.DuckDBPyConnection, query: str, params: Any = None) -> Answer:
    """The answer to a query, on its own cursor.

    Raises:
        QueryError: DuckDB rejects the query.
    """
    with _as_query_errors(connection):
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
def _as_query_errors(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise QueryError(_with_suggestion(error, connection)) from error


_UNKNOWN_COLUMN: Final = re.compile(
    r'Binder Error: (?:Referenced column|Table|Values list).*?(?:column named )?"(?P<name>[^"]*)"'
    r"(?: not found|\s*$)",
    re.MULTILINE,
)


def _with_suggestion(error: duckdb.Error, connection: duckdb.DuckDBPyConnection) -> str:
    """The message of an error; one about an unknown column names the most similar columns."""
    found = _UNKNOWN_COLUMN.search(f"{error}")
    if found is None:
        return f"{error}"
    _, _, candidates = f"{error}".partition("Candidate bindings: ")
    names = re.findall(r'"([^"]*)"', candidates.partition("\n")[0])
    if not names:
        rows = connection.cursor().execute("SELECT DISTINCT column_name FROM duckdb_columns()")
        names = [name for (name,) in rows.fetchall()]
    column = found["name"]
    return f"no column is called {column!r}{near(column, names)}"
