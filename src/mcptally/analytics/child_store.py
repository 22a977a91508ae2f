"""Defines the store that a child process opens to compute answers within a memory limit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from mcptally.analytics.child_process import limit_memory
from mcptally.analytics.store import Store, retry_if_replaced
from mcptally.errors import QueryError


class MemoryLimitedStore(Store):
    """A store in a child process; opening it limits the memory of that process."""

    def __init__(self, path: Path, *, memory: str | None, masked: bool) -> None:
        super().__init__(path, memory=memory, masked=masked)
        self._connections.exact = True
        # Mask the tables and create the views now, so that no answer has to wait for them.
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
    masked: bool,  # noqa: FBT001  (child processes pass arguments by position)
) -> Callable[..., memoryview]:
    """Return a function that calls a method of a store and returns an Arrow IPC stream."""
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
