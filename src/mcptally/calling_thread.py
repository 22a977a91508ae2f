"""Runs polars queries on the thread that starts them, not in polars' pool of threads.

A query on a small table takes polars 30 to 50 microseconds. To hand it to the pool and wait for it
takes as much again: two switches of threads, while the pool looks for more work. A run has hundreds
of queries for each partition, and one process per core.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import polars as pl

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def on_calling_thread(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function, so that polars runs the queries that it starts on the calling thread.

    Polars has no setting for this, but does it for queries that a function within a query starts
    (`LazyFrame.map_batches`), because a thread of the pool must not wait for the pool. So the
    decorated function is called within a query. If a version of polars did otherwise, results would
    be the same.
    """

    @functools.wraps(function)
    def decorated(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        results: list[_Result] = []
        errors: list[BaseException] = []

        def call(frame: pl.DataFrame) -> pl.DataFrame:
            try:
                results.append(function(*arguments, **named))
            except BaseException as error:  # noqa: BLE001  (polars would wrap it)
                errors.append(error)
            return frame

        _ANY_TABLE.map_batches(call).collect(engine="streaming")
        if errors:
            raise errors.pop()
        return results[0]

    return decorated


_ANY_TABLE = pl.LazyFrame({"unused": [0]})
