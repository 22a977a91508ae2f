"""Defines `Store`, which answers predefined questions and SQL, with optional limits.

`connections` opens the store; `child_store` computes answers in child processes with limits.
"""

import contextlib
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa

from mcptally.analytics import ask, compare, views
from mcptally.analytics.answer import CONNECTION_IN_USE, Answer, as_answer, of_table
from mcptally.analytics.child_process import ChildProcessPool
from mcptally.analytics.connections import PAYLOAD_TABLES, Connections, answer_of
from mcptally.analytics.filters import Filters, Moment
from mcptally.analytics.sql_guard import SPILL, check_select
from mcptally.errors import QueryError, StoreError
from mcptally.store.manifest import LiveFiles
from mcptally.transcript.unread import Unread

if TYPE_CHECKING:
    import polars as pl

    from mcptally.analytics.explanation import Explanation

_T = TypeVar("_T")


class Store:
    """An open store.

    Every answer is a DuckDB relation, which notebooks show as a table. Get its rows with `.pl()`,
    `.to_arrow_table()`, `.fetchall()`, or `.df()` (extra `mcptally[pandas]`). Threads may share a
    store.

    With a limit (`memory`, or inside `within`), an answer is computed immediately, in a child
    process that is killed if it exceeds the limit. The relation then contains the finished rows.

    Attributes:
        path: folder of the store.
        memory: DuckDB's memory limit, such as `2GB`; None means four fifths of the machine's
            memory.
        masked: whether secrets are removed from all texts, so that SQL cannot access them.
    """

    def __init__(self, path: Path, *, memory: str | None = None, masked: bool = False) -> None:
        self.path: Final = path
        self.memory: Final = memory
        self.masked: Final = masked
        self._connections: Final = Connections(path, memory, masked=masked)
        self._lock: Final = threading.Lock()
        self._children: ChildProcessPool | None = None
        self._limits: Final[list[tuple[float, int]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; answers that have not been fetched become unusable."""
        self._connections.close()
        with self._lock:
            children, self._children = self._children, None
        if children is not None:
            children.close()

    def cancel(self) -> None:
        """Cancel current and later queries in child processes, which then raise an error.

        Queries that run in this process are not cancelled.
        """
        self._pool().close()

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of `store.json`, without the list of archive files.

        It is reloaded for the first question after a run has replaced the store.
        """
        return self._connections.manifest

    @property
    def unread(self) -> Unread | None:
        """The parts of the archive that scoring could not read; None if everything was read."""
        return msgspec.convert(self.manifest.get("unread"), Unread | None)

    @property
    def has_payloads(self) -> bool:
        """Whether the store contains arguments and results."""
        return self._connections.has_payloads

    def mark(self) -> tuple[int, int]:
        """Return a value that changes when a run replaces the store."""
        return self._connections.mark()

    @property
    def files(self) -> LiveFiles:
        """Maps tables to the store's live files; reloaded after a run has replaced the store."""
        return self._connections.files()

    @property
    def folder(self) -> Path:
        """The folder that contains the tables: the store, or the folder of its masked copies."""
        return self._connections.folder

    def ask(
        self,
        question: views.Question | str,
        *,
        server: str | None = None,
        tool: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        client: str | None = None,
        model: str | None = None,
        min_calls: int | None = None,
    ) -> Answer:
        """Return the answer to a predefined question.

        Args:
            question: the question's name; `mcptally query STORE` lists all names.
            server: a server's label.
            tool: a tool's name.
            since: only count calls made at or after this time: a date, a datetime, an ISO 8601
                string, or an age such as `7d` or `24h`.
            until: only count calls made before this time.
            client: only count calls by the client with this name.
            model: only count calls requested by this language model.
            min_calls: omit rows with fewer calls.

        Raises:
            QueryError: there is no such question, server, tool, client or model.
            UsageError: a filter cannot be parsed, or the question does not support it.
        """
        filters = Filters(
            server=server,
            tool=tool,
            since=since,
            until=until,
            client=client,
            model=model,
            min_calls=min_calls,
        )
        if self._is_limited:
            return self._in_child("ask", question, **msgspec.structs.asdict(filters))
        with CONNECTION_IN_USE:
            return ask.answer(self._connections, question, filters)

    def keeping(self) -> Callable[[str], Answer]:
        """Return a function that answers questions like `ask`, but computes each answer only once.

        Answers are computed again after a run has replaced the store. Other questions read them.
        """
        return self.ask if self._is_limited else self._connections.kept

    def sql(self, query: str, params: Any = None) -> Answer:
        """Return the answer to a SELECT; the store's tables and questions are views.

        Raises:
            QueryError: the query is not a single SELECT, DuckDB rejects it, or it exceeds a limit.
        """
        if self._is_limited:
            return self._in_child("sql", query, params)
        with CONNECTION_IN_USE:
            return self._sql(query, params)

    def _sql(self, query: str, params: Any) -> Answer:
        if _SHOW_TABLES.fullmatch(query):
            query = _LIST_TABLES
        texts = views.texts_read(query)
        payloads = views.reads_any_of(PAYLOAD_TABLES, texts.values(), query)
        connection = self._connections.get_for(texts, payloads=payloads)
        check_select(connection, query)
        try:
            return answer_of(connection, query, params)
        except QueryError:
            # Retry with all questions: the query may refer to a question in an unexpected way, and
            # DuckDB can then suggest names.
            connection = self._connections.get_for(views.all_texts())
            return answer_of(connection, query, params)

    def show(self, call: str, *, seed: bool = False) -> "Explanation":
        """Explain a call: its request and reply, and all rules that led to its verdict.

        `print` shows the explanation as text, a notebook as HTML. Frames and stderr are read from
        the transcript; they are missing if the store was made with --no-payloads or the transcript
        is gone.

        Args:
            call: the `call_id`, or a unique prefix of it.
            seed: whether to include the scores of the seed documents.

        Raises:
            QueryError: no call has this id, or several ids start with it.
        """
        from mcptally.analytics import explain, explanation  # noqa: PLC0415  (loads polars)

        # Rules must be applied to the recorded texts, not to masked ones.
        recorded = Store(self.path, memory=self.memory) if self.masked else self
        found = retry_if_replaced(
            [recorded], lambda: explain.explain(recorded, call, seed=seed), consistent=True
        )
        return explanation.masked(found) if self.masked else found

    @contextlib.contextmanager
    def within(self, seconds: float | None, *, rows: int = 0) -> Iterator[None]:
        """Limit the time and the number of rows of each answer requested in a `with` block.

        Args:
            seconds: maximum time for an answer in seconds; None for no limit.
            rows: maximum number of rows if a time or memory limit applies; 0 for all rows.

        Raises:
            QueryError: an answer exceeded its time or memory limit.
        """
        limit = (math.inf if seconds is None else seconds, rows)
        self._limits.append(limit)
        try:
            yield
        finally:
            self._limits.remove(limit)

    @property
    def _is_limited(self) -> bool:
        """Whether answers must be computed in a child process."""
        timed = any(math.isfinite(seconds) for seconds, _ in self._limits)
        return timed or self.memory is not None

    def _in_child(self, name: str, *args: Any, **kwargs: Any) -> Answer:
        """Run a method of this store in a child process, and return its answer."""
        limits = list(self._limits)
        seconds = min((seconds for seconds, _ in limits), default=math.inf)
        rows = min((rows for _, rows in limits if rows), default=0)
        answer = self._pool().call(
            name, args, kwargs, rows, seconds=seconds if math.isfinite(seconds) else None
        )
        with pa.ipc.open_stream(pa.py_buffer(answer)) as stream:
            table = stream.read_all()
        found = of_table(table)
        return as_answer(found.set_alias(args[0])) if name == "ask" else found

    def _pool(self) -> ChildProcessPool:
        """Return this store's pool of child processes, which start when they are needed."""
        with self._lock:
            if self._children is None:
                most = self.memory or "four fifths of this machine's memory"
                self._children = ChildProcessPool(
                    "mcptally.analytics.child_store:answer_function",
                    self.path,
                    self.memory,
                    self.masked,
                    memory=f"{most} of memory (or {SPILL} of disk)",
                )
            return self._children

    def compare(
        self,
        other: "Store",
        *,
        min_difference: float = compare.MIN_DIFFERENCE,
        min_ratio: float = compare.MIN_RATIO,
        alpha: float = compare.ALPHA,
    ) -> compare.Comparison:
        """Return the changes from this store to `other`.

        Args:
            other: the store to compare with this one.
            min_difference: smallest change in a rate to report (0.05: five percentage points).
            min_ratio: smallest ratio of latencies or sizes to report (1.25: 25 % more).
            alpha: false-discovery rate: the expected share of reported changes that are due to
                chance.

        Raises:
            StoreError: a table is missing or damaged.
        """
        parameters = compare.limits(min_difference=min_difference, min_ratio=min_ratio, alpha=alpha)

        def compared() -> compare.Comparison:
            base, new = (
                compare.Side(s.folder, s.files, s.memory, s.manifest.get("mcptally"))
                for s in (self, other)
            )
            return compare.compare(base, new, parameters)

        return retry_if_replaced([self, other], compared, consistent=True)

    def review(
        self,
        n: int = 50,
        *,
        sample: bool = False,
        server: str | None = None,
        tool: str | None = None,
        who: str | None = None,
        reviews: str | Path | None = None,
    ) -> "pl.DataFrame":
        """Return a table of calls to review: fill in the column `answer`, then pass it to `answer`.

        Args:
            n: number of calls.
            sample: whether to draw a random sample of `n` calls, from which rates can be computed.
                By default, the calls are examples from the largest and least certain groups of
                failed calls.
            server: only calls to this server.
            tool: only calls to this tool.
            who: the reviewer's name; by default, the user's name.
            reviews: the file of answers; by default `reviews.jsonl` in the archive's folder.

        Returns:
            One row per call: request, reply, our verdict, the number (`calls`) and `share` of
            failed calls in its group, and the columns `answer`, `group` and `why` to fill in.
            Secrets are masked.

        Raises:
            UsageError: a sample is too small, or no file of answers can be written.
        """
        from mcptally.analytics import reviewing  # noqa: PLC0415  (loads polars)

        return reviewing.to_fill(
            self, n, sample=sample, server=server, tool=tool, who=who, reviews=reviews
        )

    def answer(
        self,
        filled: "pl.DataFrame",
        *,
        who: str | None = None,
        reviews: str | Path | None = None,
    ) -> int:
        """Save the answers in a table from `review`; return the number of answers.

        Args:
            filled: the table. `answer` is the party at fault (`caller`, `account`, `tool`,
                `upstream`, `network`, or `c`, `a`, `t`, `u`, `n`), `not_an_error` (`o`),
                `cannot_tell` (`?`), or null; `group` is whether the answer applies to all calls in
                the group.
            who: the reviewer's name; by default, the user's name.
            reviews: the file of answers; by default `reviews.jsonl` in the archive's folder.

        Raises:
            UsageError: an answer is invalid, or the file cannot be written.
        """
        from mcptally.analytics import reviewing  # noqa: PLC0415  (loads polars)

        return reviewing.save(self, filled, who=who, reviews=reviews)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"


_SHOW_TABLES: Final = re.compile(r"\s*SHOW\s+(?:ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE)
_LIST_TABLES: Final = (
    "SELECT table_name AS name FROM information_schema.tables "
    "WHERE NOT starts_with(table_name, '_') ORDER BY name"
)
"""The query that replaces SHOW TABLES, which would also list internal views."""


def retry_if_replaced(
    stores: Sequence[Store], work: Callable[[], _T], *, consistent: bool = False
) -> _T:
    """Return the result of `work`, repeating it if a run replaces a store in the meantime.

    A run removes the previous store's files, perhaps before `work` has read them.

    Args:
        stores: the stores that `work` reads.
        work: a function that reads everything before it writes anything.
        consistent: whether to repeat `work` even if it succeeded, so that everything it read comes
            from the same state of the store.

    Raises:
        StoreError: the stores were replaced each time.
    """
    for _ in range(_ATTEMPTS):
        before = [store.mark() for store in stores]
        try:
            found = work()
        except Exception:  # DuckDB raises these errors, or Arrow raises them while it reads batches
            if [store.mark() for store in stores] == before:
                raise
        else:
            if not consistent or [store.mark() for store in stores] == before:
                return found
    raise StoreError(
        f"{stores[0].path}: was replaced {_ATTEMPTS} times while it was read; try again when no "
        "run writes to it"
    )


_ATTEMPTS: Final = 5


def open_store(path: str | Path, *, memory: str | None = None, masked: bool = False) -> Store:
    """Open a store.

    Args:
        path: the store's folder.
        memory: DuckDB's memory limit, such as `2GB`; by default four fifths of the machine's
            memory. With a limit, answers are computed in a child process that cannot exceed it.
        masked: whether to replace tokens and passwords with `[redacted:NAME]` in everything that
            the store returns; required for untrusted SQL. The first query writes masked copies of
            the tables into the store.

    Raises:
        StoreError: there is no store, or this version cannot read it.
    """
    return Store(Path(path), memory=memory, masked=masked)
