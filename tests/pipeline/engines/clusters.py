"""A Dask cluster of processes on this machine, whose workers can be killed."""

import contextlib
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import distributed
import pytest

from mcptally.pipeline.engines import dask_tasks

PATIENCE = 60.0
"""Seconds that a process may take to start on a very busy machine."""


QUIET = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("ResourceWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning")
]
"""Ignore warnings of servers and event loops that are not mcptally's."""


class Machines:
    """A scheduler, and workers that a test starts: each is a process with one thread."""

    def __init__(self, scheduler: distributed.LocalCluster, folder: Path) -> None:
        self.address: str = scheduler.scheduler_address
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self.client = distributed.Client(scheduler, set_as_default=False)

    def add(self, count: int = 1, *, before: Path | None = None) -> None:
        """Start workers and wait until the scheduler knows them.

        Args:
            count: how many. before: a folder that comes first in their `sys.path`.
        """
        first = [str(before)] if before else []
        path = os.pathsep.join([*first, os.environ.get("PYTHONPATH", "")])
        alive = len(self.client.nthreads())
        for _ in range(count):
            log = (self.folder / f"worker-{len(self.workers)}.log").open("wb")
            command = [
                *(sys.executable, "-m", "distributed.cli.dask_worker", self.address),
                *("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0"),
                *("--local-directory", str(self.folder)),
            ]
            environment = {**os.environ, "PYTHONPATH": path}
            self.workers.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            log.close()
        self.client.wait_for_workers(alive + count, timeout=PATIENCE)

    def kill(self, number: int) -> None:
        """SIGKILL a worker."""
        self.workers[number].kill()
        self.workers[number].wait()

    def close(self) -> None:
        self.client.close()
        for worker in self.workers:
            worker.kill()
            worker.wait()


def hold() -> None:
    """Block a worker (run there): its tasks wait forever."""
    dask_tasks._ONE_AT_A_TIME.acquire()


def release() -> None:
    """Let the tasks of a worker continue (run there)."""
    dask_tasks._ONE_AT_A_TIME.release()


@contextlib.contextmanager
def machines(folder: Path, workers: int = 0) -> Iterator[Machines]:
    """A cluster that starts with this number of workers."""
    with (
        distributed.LocalCluster(
            n_workers=0,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as scheduler,
        contextlib.closing(Machines(scheduler, folder)) as found,
    ):
        if workers:
            found.add(workers)
        yield found
    with warnings.catch_warnings():  # about sockets of killed workers
        warnings.simplefilter("ignore")
        gc.collect()
