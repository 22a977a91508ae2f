"""Computes a store's answers for the pages, and caches them until the store changes.

Questions and SQL read masked copies of the tables, in child processes with limits. The first answer
waits until the copies exist. Only the questions on the first page do not wait: they read the
unmasked store, and their rows are masked afterwards, as in the report.
"""

import collections
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

import polars as pl

from mcptally.analytics import contrasts
from mcptally.analytics.answer import Answer, masked
from mcptally.analytics.reviewing import failure_rate_in_words
from mcptally.analytics.store import Store, open_store, retry_if_replaced
from mcptally.errors import McptallyError, QueryError
from mcptally.output.explore.state import State

MEMORY: Final = "4GB"
"""The memory limit for computing an answer."""
ROWS: Final = 100_000
"""Maximum number of rows read from an answer."""
KEPT: Final = 256 << 20
"""Maximum total size of cached answers, in bytes."""

_FIRST: Final = ("priorities", "timeline", "change_points", "tool_scores")
"""Questions on the first page and on tools' pages, whose answers have few rows."""


class Answers:
    """A cache of a store's answers, which several threads may use.

    Args:
        state: the state of the store, and of an earlier store to compare with.
        seconds: the time limit for an answer.

    Raises:
        StoreError: there is no store.
    """

    def __init__(self, state: State, seconds: float) -> None:
        path, base = state.path, state.base
        self.recorded: Final = open_store(path)
        """The unmasked store, whose answers must be masked before they are shown."""
        self.masked: Final = open_store(path, memory=MEMORY, masked=True)
        self.base: Final = None if base is None else open_store(base)
        """The earlier store, unmasked."""
        self._state: Final = state
        self._limited_recorded: Final = open_store(path, memory=MEMORY)
        self._seconds: Final = seconds
        self._lock: Final = threading.Lock()
        self._copies: Future[None] | None = None
        self._threads: Final[list[threading.Thread]] = []
        self._mark: object = None
        self._kept: collections.OrderedDict[object, Future[pl.DataFrame]] = (
            collections.OrderedDict()
        )

    def reviewed(self, server: str | None, tool: str | None) -> str | None:
        """Return a sentence with the failure rate from a reviewed sample; None without a sample."""
        return failure_rate_in_words(self.recorded, server, tool, file=self._state.reviews)

    def prepare(self, first: Callable[[], object]) -> None:
        """In a thread, call `first`, compute the first pages' answers, and write the masked copies.

        The child processes that compute answers start after `first`, which they would slow down.
        """

        def ask() -> None:
            # Ignore errors: the page that needs an answer reports the error.
            with contextlib.suppress(McptallyError):
                first()
                for question in _FIRST:
                    self.ask(question)
                self._wait_for_copies()

        self._start(ask)

    def cancel(self) -> None:
        """Cancel current and later computations of answers, which then raise an error."""
        for store in (self.masked, self._limited_recorded):
            store.cancel()

    def close(self) -> None:
        """Cancel the computations, and wait for the threads.

        If Python exits while a thread runs native code, the process is aborted.
        """
        self.cancel()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def ask(self, question: str, **filters: Any) -> pl.DataFrame:
        """Return the answer to a predefined question; see `Store.ask`.

        Raises:
            QueryError, UsageError: the question or a filter is invalid, or it took too long.
        """
        given = {name: value for name, value in filters.items() if value is not None}
        if question in _FIRST and not given:
            return self._recorded(("first", question), lambda store: store.ask(question))
        return self.kept(
            ("ask", question, *sorted(given.items())),
            lambda: self._masked(lambda store: store.ask(question, **given)),
        )

    def contrasts(self, tools: Sequence[str]) -> pl.DataFrame:
        """Return the rows of `contrasts` about the tools with these keys (`contrasts.tool_key`).

        Raises:
            QueryError: the answer took too long.
        """
        return self._recorded(
            ("contrasts", *tools), lambda store: store.sql(contrasts.OF_TOOLS, [list(tools)])
        )

    def _recorded(self, key: object, ask: Callable[[Store], Answer]) -> pl.DataFrame:
        """Ask the unmasked store, mask the answer, cache it under `key` and return it."""
        return self.kept(
            key, lambda: self._limited(self._limited_recorded, lambda store: masked(ask(store)))
        )

    def sql(self, query: str, *parameters: Any) -> pl.DataFrame:
        """Return the answer to a SELECT; see `Store.sql`.

        Raises:
            QueryError: the query is invalid or took too long.
        """
        return self.kept(
            ("sql", query, *map(repr, parameters)),
            lambda: self._masked(lambda store: store.sql(query, params=list(parameters) or None)),
        )

    def light(self, query: str) -> pl.DataFrame:
        """Return the answer to a fast SELECT without user input, not waiting for masked copies."""
        return self._unlimited(("light", query), self.recorded, lambda store: store.sql(query))

    def base_errors(self) -> pl.DataFrame:
        """Return the base store's answer to `error_groups`; empty without a base store."""
        if self.base is None:
            return self.ask("error_groups").clear()
        return self._unlimited(("base",), self.base, lambda store: store.ask("error_groups"))

    def _unlimited(self, key: object, store: Store, ask: Callable[[Store], Answer]) -> pl.DataFrame:
        return self.kept(key, lambda: retry_if_replaced([store], lambda: masked(ask(store)).pl()))

    def _wait_for_copies(self) -> None:
        """Wait for the masked copies, which a child process writes once per store.

        Raises:
            QueryError: writing the copies takes longer than the time limit for an answer.
        """
        with self._lock:
            is_first = self._copies is None
            copies = self._copies = self._copies or Future()
        if is_first:
            self._start(lambda: self._write_copies(copies))
        try:
            copies.result(self._seconds)
        except TimeoutError:
            raise QueryError(
                "secrets in the store are being masked, which takes about as long as scoring it, "
                "once; open the page again later"
            ) from None

    def _write_copies(self, copies: Future[None]) -> None:
        # Call this outside `within`, whose time limit would stop it if the store has millions of
        # calls.
        store = self.masked
        try:
            retry_if_replaced([store], lambda: store.sql("SELECT 1 FROM calls LIMIT 0").fetchall())
        except BaseException as error:  # noqa: BLE001  (waiting threads raise it)
            copies.set_exception(error)
        else:
            copies.set_result(None)

    def _masked(self, ask: Callable[[Store], Answer]) -> pl.DataFrame:
        self._wait_for_copies()
        return self._limited(self.masked, ask)

    def _limited(self, store: Store, ask: Callable[[Store], Answer]) -> pl.DataFrame:
        with store.within(self._seconds, rows=ROWS):
            frame: pl.DataFrame = retry_if_replaced([store], lambda: ask(store).pl())
        return frame

    def kept(self, key: object, compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return the cached answer for a key; compute it if there is none or the store has changed.

        Threads that request the key in the meantime wait for the same answer.
        """
        with self._lock:
            if (mark := self._state.mark()) != self._mark:
                self._mark = mark
                self._kept.clear()
            answer = self._kept.get(key)
            mine = answer is None
            if answer is None:
                answer = self._kept[key] = Future()
            self._kept.move_to_end(key)
        if mine:
            try:
                answer.set_result(compute())
            except BaseException as error:  # noqa: BLE001  (waiting threads also raise it)
                answer.set_exception(error)
                with self._lock:
                    self._kept.pop(key, None)
            else:
                self._forget()
        return answer.result()

    def _forget(self) -> None:
        """Evict the least recently used answers until the remaining answers fit into `KEPT`."""
        with self._lock:
            done = [(key, one) for key, one in self._kept.items() if one.done()]
            sizes = [(key, one.result().estimated_size()) for key, one in done]
            spare = sum(size for _, size in sizes) - KEPT
            for key, size in sizes[:-1]:
                if spare <= 0:
                    return
                del self._kept[key]
                spare -= size
