"""Provides the engines that execute a run: processes on this machine, or a Dask cluster.

May import the modules of `pipeline` that work on one partition, and lower layers.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

from mcptally.errors import UsageError, near
from mcptally.pipeline.engines.local import LocalEngine
from mcptally.pipeline.engines.pool import Engine

ENGINES: Final = ("local", "dask")


@contextlib.contextmanager
def open_engine(
    engine: Any, *, scheduler: str | None = None, jobs: int = 1, upload_url: str | None = None
) -> Iterator[Engine]:
    """Yield an engine; close it at the end if this function opened it.

    Args:
        engine: one of `ENGINES`, or a `distributed.Client`.
        scheduler: address or scheduler file of a Dask cluster.
        jobs: number of processes on this machine; 0 means one per core.
        upload_url: URL under which Dask workers put their files, if the store is not a folder
            that they can access.

    Raises:
        UsageError: there is no such engine, its package is not installed, `jobs` is negative, or a
            worker has another version of mcptally.
        McptallyError: the cluster cannot be reached, or has no workers.
    """
    if jobs < 0:
        raise UsageError(f"jobs is {jobs}: give the number of processes, or 0 for one per core")
    jobs = jobs or cores()
    if isinstance(engine, str) and engine not in ENGINES:
        hint = near(engine, ENGINES)
        raise UsageError(f"no engine is called {engine!r}{hint}; there are: {', '.join(ENGINES)}")
    if engine == "local":
        if scheduler is not None:
            raise UsageError(
                "a scheduler belongs to Dask: give --engine dask (engine='dask') as well"
            )
        yield LocalEngine(jobs)
        return
    try:
        from mcptally.pipeline.engines import dask as dask_engine  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("dask", "distributed"):
            raise
        raise UsageError(
            "the engine dask needs Dask, which is not installed: pip install 'mcptally[dask]'"
        ) from error
    client = None if isinstance(engine, str) else engine
    with dask_engine.connected(scheduler, client=client, jobs=jobs, upload_url=upload_url) as found:
        yield found


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()) or 1
