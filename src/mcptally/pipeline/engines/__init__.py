"""Which engine does the work of a run: processes of this machine, or a Dask cluster."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from mcptally.errors import UsageError, near
from mcptally.pipeline.engines.local import Crew, Team

ENGINES: Final = ("local", "dask")


class Engine(Protocol):
    """Something that can do the work of a run."""

    jobs: int
    """How many partitions it works on at a time."""

    def crew(self, parts: int, work: Path, held: int) -> Team:
        """Who does the work of a run of so many partitions, in this work folder.

        Of this machine's processes, partitions of `held` bytes wait in memory; more on disk.
        """


class _Local:
    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def crew(self, parts: int, work: Path, held: int) -> Team:
        # A partition that is alone makes room for nobody: to put it on disk would be two copies.
        return Crew(min(self.jobs, parts), work, held if parts > 1 else sys.maxsize)


@contextlib.contextmanager
def opened(
    engine: Any, *, scheduler: str | None = None, jobs: int = 1, parcels: str | None = None
) -> Iterator[Engine]:
    """An engine at work, closed afterwards if it was opened here.

    Args:
        engine: its name, one of `ENGINES`, or a `distributed.Client`.
        scheduler: address or scheduler file of the Dask cluster.
        jobs: processes on this machine; 0 means one a core.
        parcels: the URL below which workers elsewhere put what they write, if the store is no
            folder that they see.

    Raises:
        UsageError: there is no such engine, its package is not installed, `jobs` is negative, or a
            worker has another version of mcptally.
        McptallyError: the cluster cannot be reached, or has no workers.
    """
    if jobs < 0:
        raise UsageError(f"jobs is {jobs}: give 0 for one a core, or how many")
    jobs = jobs or cores()
    if isinstance(engine, str) and engine not in ENGINES:
        hint = near(engine, ENGINES)
        raise UsageError(f"no engine is called {engine!r}{hint} (there are: {', '.join(ENGINES)})")
    if engine == "local":
        if scheduler is not None:
            raise UsageError("a scheduler is Dask's: give --engine dask (engine='dask') as well")
        yield _Local(jobs)
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
    with dask_engine.connected(scheduler, client=client, jobs=jobs, parcels=parcels) as found:
        yield found


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()) or 1
