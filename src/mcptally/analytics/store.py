"""A store that is asked, or several as one: predefined questions, and any SQL, within limits.

SQL may come from anybody, an agent too: it can read the store's tables and nothing else.
"""

import contextlib
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from mcptally.analytics import views
from mcptally.analytics.child_process import Limited, hold_memory
from mcptally.analytics.filters import EVIDENCE, Filters, Moment
from mcptally.analytics.sql_guard import SPILL, check_select, lock
from mcptally.analytics.views import questions
from mcptally.errors import QueryError, StoreError, UsageError, near
from mcptally.statistics import sql_functions
from mcptally.store import files as store_files

if TYPE_CHECKING:
    from mcptally.analytics.compare import Comparison


_T = TypeVar("_T")
_Key: TypeAlias = tuple[frozenset[str], str | None]


class Store:
    """An open store, or several as one.

    Every answer is a DuckDB relation: `.pl()`, `.to_arrow_table()`, `.fetchall()`, and `.df()` with
    the extra `mcptally[pandas]`. Threads may share a store.

    With a limit (`memory`, or inside `within`) an answer is made at once, in a child process that
    is killed at its limit, and the relation reads the finished rows.

    Attributes:
        path: the folder of the store, or of the first of several.
        paths: the folders of all of them.
        manifest: what `store.json` of the first says; when the store is asked again after a run
            replaced it, what it says then.
        memory: what DuckDB may take, such as `2GB`; None: four fifths of the machine's.
    """

    _exact: bool = False
    """Whether Arrow gets DuckDB's own types, which other programs do not know."""

    def __init__(self, path: Path, *more: Path, memory: str | None = None) -> None:
        self.path: Final = path
        self.paths: Final = (path, *more)
        self.memory: Final = memory
        self._over: Final[dict[_Key, duckdb.DuckDBPyConnection]] = {}
        self._added: Final[set[str]] = set()
        self._making: Final = threading.RLock()
        self._child: Limited | None = None
        self._limits: Final[list[tuple[float, int]]] = []
        self._read()

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
        """The answer to a predefined question.

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
        if self._is_limited:
            return self._in_child(
                "ask",
                question,
                server=server,
                tool=tool,
                since=since,
                until=until,
                client=client,
                min_calls=min_calls,
            )
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
            QueryError: it is no single SELECT, DuckDB refuses it, or it is beyond a limit.
        """
        if self._is_limited:
            return self._in_child("sql", query, params)
        if _SHOW_TABLES.fullmatch(query):
            query = _TABLES_THERE
        connection = self._connection()
        check_select(connection, query)
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
                if self._exact:
                    connection.execute("SET arrow_lossless_conversion = true")
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
            sql_functions.close_at_exit(cursor)
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

    @contextlib.contextmanager
    def within(self, seconds: float | None, *, rows: int = 0) -> Iterator[None]:
        """Stop each answer that is asked for inside and takes longer.

        Args:
            seconds: how long an answer may take; None: as long as it takes.
            rows: how many of its rows are made where there is a limit; 0: all.

        Raises:
            QueryError: it took too long, or more memory than there may be.
        """
        limit = (math.inf if seconds is None else seconds, rows)
        self._limits.append(limit)
        try:
            yield
        finally:
            self._limits.remove(limit)

    @property
    def _is_limited(self) -> bool:
        """Whether answers are made in a child process."""
        timed = any(math.isfinite(seconds) for seconds, _ in self._limits)
        return timed or self.memory is not None

    def _in_child(self, name: str, *args: Any, **kwargs: Any) -> duckdb.DuckDBPyRelation:
        """The answer of one of this store's methods, made in a child process."""
        with self._making:
            if self._child is None:
                most = self.memory or "four fifths of this machine's memory"
                self._child = Limited(
                    "mcptally.analytics.store:_answering",
                    self.paths,
                    self.memory,
                    memory=f"{most} of memory (or {SPILL} of disk)",
                )
        limits = list(self._limits)
        seconds = min((seconds for seconds, _ in limits), default=math.inf)
        rows = min((rows for _, rows in limits if rows), default=0)
        answer = self._child.call(
            name, args, kwargs, rows, seconds=seconds if math.isfinite(seconds) else None
        )
        with pa.ipc.open_stream(pa.py_buffer(answer)) as stream:
            table = stream.read_all()
        return duckdb.connect().from_arrow(table)

    def compare(self, other: "Store", **limits: float) -> "Comparison":
        """What changed from this store to `other`; the limits are those of `compare.compare`."""
        from mcptally.analytics import compare  # noqa: PLC0415  (it opens stores itself)

        return compare.compare(self, other, **limits)

    def __repr__(self) -> str:
        return f"Store({', '.join(repr(str(path)) for path in self.paths)})"


class HeldStore(Store):
    """A store in a child process, which is refused more memory than the store may take."""

    def __init__(self, *paths: Path, memory: str | None, exact: bool = False) -> None:
        super().__init__(*paths, memory=memory)
        self._exact = exact
        # This makes the views, so that no answer pays for them.
        [(limit,)] = self.sql("SELECT current_setting('memory_limit')").fetchall()
        number, unit = limit.split()
        power = ("bytes", "KiB", "MiB", "GiB", "TiB").index(unit)
        hold_memory(int(float(number) * 1024**power))

    @property
    def _is_limited(self) -> bool:
        return False


def _answering(paths: Sequence[Path], memory: str | None) -> Callable[..., memoryview]:
    """What the child process of a store calls: the store's answers as Arrow IPC streams."""
    store = HeldStore(*paths, memory=memory, exact=True)

    def answer(name: str, args: Any, kwargs: Any, rows: int) -> memoryview:
        relation: duckdb.DuckDBPyRelation = getattr(store, name)(*args, **kwargs)
        sink = pa.BufferOutputStream()
        try:
            with (
                (relation.limit(rows) if rows else relation).to_arrow_reader() as batches,
                pa.ipc.new_stream(sink, batches.schema) as stream,
            ):
                for batch in batches:
                    stream.write_batch(batch)
        except pa.ArrowException as error:
            raise QueryError(f"{error}") from error
        return memoryview(sink.getvalue())

    return answer


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
        memory: what DuckDB may take, such as `2GB`; by default four fifths of the machine's. With
            it answers are made in a child process, which is refused more.

    Raises:
        StoreError: there is no store, or none that this version reads.
    """
    return Store(Path(path), *map(Path, more), memory=memory)
