"""Computes answers in child processes, which cannot allocate more than their memory limit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from mcptally.analytics.child_process import limit_memory
from mcptally.analytics.store import Store, retry_if_replaced
from mcptally.errors import QueryError


class MemoryLimitedStore(Store):
    """A store for a child process that cannot allocate more than its memory limit."""

    def __init__(self, path: Path, *, memory: str | None, masked: bool) -> None:
        super().__init__(path, memory=memory, masked=masked)
        self._connections.exact = True
        # This masks the tables and creates the views, so that no answer waits for them.
        connection = retry_if_replaced([self], self._connections.get)
        [(limit,)] = connection.execute("SELECT current_setting('memory_limit')").fetchall()
        number, unit = limit.split()
        power = ("bytes", "KiB", "MiB", "GiB", "TiB").index(unit)
        limit_memory(int(float(number) * 1024**power))

    @property
    def _is_limited(self) -> bool:
        return False


def answer_function(
    path: Path,
    memory: str | None,
    masked: bool,  # noqa: FBT001  (a child process gets its arguments by position)
) -> Callable[..., memoryview]:
    """Return the function that a child process calls: a store's answers as Arrow IPC streams."""
    store = MemoryLimitedStore(path, memory=memory, masked=masked)

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
