"""A store that is asked, or several as one: standing questions, and any SQL, within limits.

SQL may come from anybody, an agent too: it can read the store's tables and nothing else.
"""

import contextlib
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import duckdb

from mcptally import stats, views
from mcptally import store as store_files
from mcptally.errors import QueryError, StoreError, UsageError, near
from mcptally.filters import EVIDENCE, Filters, Moment
from mcptally.readonly import SPILL, check_select, lock
from mcptally.views import questions

if TYPE_CHECKING:
    from mcptally.compare import Comparison


_T = TypeVar("_T")
_Key: TypeAlias = tuple[frozenset[str], str | None]


class Store:
    """An open store, or several as one.

    Every answer is a DuckDB relation: `.pl()`, `.df()`, `.to_arrow_table()`, `.fetchall()`. Threads
    may share a store.

    Attributes:
        path: the folder of the store, or of the first of several.
        paths: the folders of all of them.
        manifest: what `store.json` of the first says; when the store is asked again after a run
            replaced it, what it says then.
        memory: what DuckDB may take, such as `2GB`; None: four fifths of the machine's.
    """

    def __init__(self, path: Path, *more: Path, memory: str | None = None) -> None:
        self.path: Final = path
        self.paths: Final = (path, *more)
        self.memory: Final = memory
        self._over: Final[dict[_Key, duckdb.DuckDBPyConnection]] = {}
        self._added: Final[set[str]] = set()
        self._making: Final = threading.RLock()
        self._read()
        self._stoppable: Final[weakref.WeakSet[duckdb.DuckDBPyConnection]] = weakref.WeakSet()

    def _read(self) -> None:
        self._mark = self.mark()
        manifests = [store_files.read_manifest(path) for path in self.paths]
        self.manifest = manifests[0]
        self._files = [
            store_files.live(path.resolve(), manifest)
            for path, manifest in zip(self.paths, manifests, strict=True)
        ]

    def mark(self) -> tuple[tuple[int, int], ...]:
        """What changes when a run replaces one of the stores."""
        return tuple(map(store_files.mark, self.paths))

    @property
    def files(self) -> Sequence[store_files.Files]:
        """The live files of each store, by table; as of now, if a run replaced one."""
        with self._making:
            if self.mark() != self._mark:
                self._read()
                self._over.clear()
                self._added.clear()
            return self._files

    def ask(
        self,
        question: str,
        *,
        server: str | None = None,
        tool: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        client: str | None = None,
        min_calls: int | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """The answer to a standing question.

        Args:
            question: its name; `mcptally query STORE` lists them.
            server: label of a server.
            tool: name of a tool.
            since: count calls made then or later; a date or time, its ISO text, or `7d`, `24h`.
            until: count calls made before then.
            client: count calls of a client of this name.
            min_calls: only rows that rest on so many calls.

        Raises:
            QueryError: there is no such question, server, tool or client.
            UsageError: a filter that cannot be read, or that this question does not take.
        """
        given = Filters(
            server=server,
            tool=tool,
            since=since,
            until=until,
            client=client,
            min_calls=min_calls,
        ).given()
        if question not in questions():
            raise QueryError(
                f"no question is called {question!r}{near(question, questions())} "
                f"(there are: {', '.join(questions())})"
            )
        if not given:
            return self._rows(self._connection(question=question), f'SELECT * FROM "{question}"')
        self._check_names(given)
        plain = self._connection(question=question)
        columns = self._rows(plain, f'SELECT * FROM "{question}"').columns
        if min_calls is not None and "calls" not in columns:
            raise UsageError(
                f"{question} does not count calls, so min_calls (--min-calls) says nothing there"
            )
        conditions = {
            name: condition
            for name, column, condition in (
                ("server", "server", "server = ?"),
                ("tool", "tool", "tool = ?"),
                ("min_calls", "calls", "calls >= ?"),
            )
            if name in given and column in columns
        }
        evidence = {name: given[name] for name in EVIDENCE & given.keys() - conditions.keys()}
        where = " AND ".join(conditions.values()) or "true"
        return self._rows(
            self._connection(frozenset(evidence), question),
            f'SELECT * FROM "{question}" WHERE {where}',
            [given[name] for name in conditions],
            evidence,
        )

    def sql(self, query: str, params: Any = None) -> duckdb.DuckDBPyRelation:
        """The answer to a SELECT over the tables and questions, which are views.

        Raises:
            QueryError: it is no single SELECT, or DuckDB refuses it.
        """
        if _SHOW_TABLES.fullmatch(query):
            query = _TABLES_THERE
        check_select(query)
        connection = self._connection()
        self._add(views.all_texts())
        return self._rows(connection, query, params)

    def _connection(
        self, filters: frozenset[str] = frozenset(), question: str | None = None
    ) -> duckdb.DuckDBPyConnection:
        """The store's tables as views, and this question as one; made when first asked for.

        With a lock, for whoever asks in several threads.
        """
        key = (filters, question if filters else None)
        with self._making:
            files = self.files
            if key not in self._over:
                connection = views.connect(self.memory)
                with self._as_ours():
                    if filters:
                        views.create_views(connection, files, *key)
                    else:
                        views.create_tables(connection, files)
                lock(connection, self.paths)
                self._over[key] = connection
            if question is not None and not filters:
                self._add(views.texts_of(question))
            return self._over[key]

    def _add(self, texts: Mapping[str, str]) -> None:
        """Make views of those of these questions that are none yet: 0.01 s each."""
        with self._making, self._as_ours():
            new = {name: text for name, text in texts.items() if name not in self._added}
            views.create_questions(self._over[frozenset(), None], new)
            self._added.update(new)

    @contextlib.contextmanager
    def _as_ours(self) -> Iterator[None]:
        """Say whose store it is when its tables are not what the views expect."""
        try:
            yield
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            made_by = self.manifest.get("mcptally")
            raise StoreError(
                f"{self.path}: cannot be read as it was made by mcptally {made_by}; rebuild it "
                f"with: mcptally score ARCHIVE -o {self.path} ({_first_line(error)})"
            ) from error

    def _rows(
        self,
        connection: duckdb.DuckDBPyConnection,
        query: str,
        params: Any = None,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> duckdb.DuckDBPyRelation:
        try:
            cursor = connection.cursor()
            stats.close_at_exit(cursor)
            self.stops(cursor)
            for name, value in variables.items():
                cursor.execute(f"SET VARIABLE {name} = ?", [value])
            relation = cursor.sql(query, params=params)
        except duckdb.Error as error:
            raise QueryError(f"{error}") from error
        return relation

    def _check_names(self, given: Mapping[str, Any]) -> None:
        """See that there is a server, tool and client of the names given; offer near ones."""
        for kind in ("server", "tool", "client"):
            if kind not in given:
                continue
            source = "recordings" if kind != "tool" else "tools"
            rows = self._rows(
                self._connection(),
                f"SELECT DISTINCT {kind} FROM (SELECT {kind} FROM calls UNION ALL "
                f"SELECT {kind} FROM {source}) WHERE {kind} IS NOT NULL",
            ).fetchall()
            names = [name for (name,) in rows]
            if given[kind] not in names:
                hint = near(given[kind], names) or _some(kind, names)
                raise QueryError(f"no {kind} is called {given[kind]!r}{hint}")
        if "server" in given and "tool" in given:
            rows = self._rows(
                self._connection(),
                "SELECT DISTINCT server FROM (SELECT server, tool FROM calls UNION ALL "
                "SELECT server, tool FROM tools) WHERE tool = ?",
                [given["tool"]],
            ).fetchall()
            servers = sorted(str(name) for (name,) in rows)
            if given["server"] not in servers:
                raise QueryError(
                    f"server {given['server']!r} has no tool {given['tool']!r}; there is one at "
                    f"{', '.join(servers[:5])}"
                )

    def interrupt(self) -> None:
        """Stop whatever this store is answering, from another thread; it raises there."""
        for connection in list(self._stoppable):
            connection.interrupt()

    def stops(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let `interrupt` stop this connection, too: it works for who asks this store."""
        self._stoppable.add(connection)

    @contextlib.contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Stop what is asked inside when it takes longer; None: let it take its time.

        Raises:
            QueryError: it took too long, or more memory than there may be.
        """
        done = threading.Event()

        def watch(wait: float) -> None:
            # Again and again: an interrupt between two statements stops nothing.
            while not done.wait(wait):
                self.interrupt()
                wait = 0.2

        watcher = threading.Thread(target=watch, args=(seconds,), daemon=True)
        if seconds is not None:
            watcher.start()
        try:
            yield
        except (duckdb.Error, QueryError) as error:
            cause = error.__cause__ if isinstance(error, QueryError) else error
            less = "ask for less: one server, a shorter time, fewer columns"
            if isinstance(cause, duckdb.InterruptException) and seconds is not None:
                raise QueryError(
                    f"it took more than {seconds:g} s and was stopped; {less}"
                ) from error
            if isinstance(cause, duckdb.OutOfMemoryException):
                most = self.memory or "four fifths of this machine's memory"
                raise QueryError(
                    f"it took more than {most} (and {SPILL} of disk) and was stopped; {less}"
                ) from error
            raise
        finally:
            done.set()
            if seconds is not None:
                watcher.join()

    def compare(self, other: "Store", **limits: float) -> "Comparison":
        """What changed from this store to `other`; the limits are those of `compare.compare`."""
        from mcptally import compare  # noqa: PLC0415  (it opens stores itself)

        return compare.compare(self, other, **limits)

    def __repr__(self) -> str:
        return f"Store({', '.join(repr(str(path)) for path in self.paths)})"


_SHOW_TABLES: Final = re.compile(r"\s*SHOW\s+(?:ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE)
_TABLES_THERE: Final = (
    "SELECT view_name AS name FROM duckdb_views() "
    "WHERE NOT internal AND view_name NOT LIKE '\\_%' ESCAPE '\\' ORDER BY name"
)
"""Without the views that only questions read."""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _some(kind: str, names: list[str]) -> str:
    """A half-sentence with the names there are, where they are few enough to read."""
    if not names:
        return f"; no {kind} is named in this store"
    few = ", ".join(sorted(names)[:8])
    return f"; there are: {few}{', …' if len(names) > 8 else ''}"


def steadily(stores: Sequence[Store], work: Callable[[], _T], *, whole: bool = False) -> _T:
    """What `work` gives, which reads these stores; done again if a run replaced one and it failed.

    A run removes the files of the store before it, which may be gone before they were read.

    Args:
        stores: what `work` reads.
        work: it must not write anything before it has read everything.
        whole: whether all that it reads has to be of the same state of the stores.

    Raises:
        StoreError: the stores were replaced each time.
    """
    for _ in range(_TIMES):
        before = [store.mark() for store in stores]
        try:
            found = work()
        except Exception:  # (of DuckDB, or of Arrow when it reads batches)
            if [store.mark() for store in stores] == before:
                raise
        else:
            if not whole or [store.mark() for store in stores] == before:
                return found
    raise StoreError(
        f"{stores[0].path}: was replaced {_TIMES} times while it was read; ask again when no run "
        "writes to it"
    )


_TIMES: Final = 5


def open_store(path: str | Path, *more: str | Path, memory: str | None = None) -> Store:
    """Open the store at `path`, or several stores as one.

    A recording that several of them hold counts once, as the first of them has it.

    Args:
        path: a store.
        more: others.
        memory: what DuckDB may take, such as `2GB`; by default four fifths of the machine's.

    Raises:
        StoreError: there is no store, or none that this version reads.
    """
    return Store(Path(path), *map(Path, more), memory=memory)
