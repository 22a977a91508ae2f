"""Provides the engines that execute a run: processes on this machine, or a Dask cluster.

May import the modules of `pipeline` that work on one partition, and lower layers.
"""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from mcptally.errors import McptallyError, UsageError, near
from mcptally.pipeline.engines.local import LocalEngine
from mcptally.pipeline.engines.pool import Engine
from mcptally.transcript.discover import files_below

ENGINES: Final = ("local", "dask")


@contextlib.contextmanager
def open_engine(
    engine: Any, *, scheduler: str | None = None, jobs: int = 1, upload_url: str | None = None
) -> Iterator[Engine]:
    """Yield an engine; close it at the end if this function opened it.

    Args:
        engine: one of `ENGINES`, a `distributed.Client`, or the result of `local_engine`.
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
    if engine == "local" or isinstance(engine, LocalEngine):
        if scheduler is not None:
            raise UsageError(
                "a scheduler belongs to Dask: give --engine dask (engine='dask') as well"
            )
        with contextlib.closing(LocalEngine(jobs) if engine == "local" else engine) as local:
            yield local
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


def local_engine(paths: Iterable[str | Path], *, jobs: int) -> LocalEngine:
    """Return an engine to score all files at `paths`; its processes start if these are large.

    The processes import the columnar libraries while this process does the same.

    Args:
        paths: transcript files and folders; others are not counted.
        jobs: maximum number of processes; 0 means one per core.
    """
    from mcptally.pipeline.plan import ONE_PROCESS, WORTHWHILE, transcript_bytes  # noqa: PLC0415

    engine = LocalEngine(jobs or cores())
    if engine.jobs > 1:
        total = 0
        with contextlib.suppress(McptallyError, OSError, ValueError):  # reported by the run
            files = itertools.chain.from_iterable(
                files_below(path, []) if path.is_dir() else [str(path)] for path in map(Path, paths)
            )
            total = sum(transcript_bytes(Path(name)) for name in itertools.islice(files, _COUNTED))
        if total >= ONE_PROCESS:
            engine.start(min(engine.jobs, total // WORTHWHILE))
    return engine


_COUNTED: Final = 1_000
"""Maximum number of files whose sizes `local_engine` adds up: more files are mostly small."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()) or 1
