"""A run on Dask: partitions dealt to the workers of a cluster, whichever of them live.

This process reads nothing: it deals, listens, and puts together what the workers learned. Dask
keeps count of who holds what; what was on a worker that dies, another does again (see `errand`).
"""

import contextlib
import itertools
import json
import queue
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import dask
import distributed

from mcptally import process_memory
from mcptally.errors import McptallyError, UsageError
from mcptally.pipeline.engines import dask_tasks
from mcptally.pipeline.engines.local import Task
from mcptally.pipeline.engines.worker import Learned
from mcptally.transcript import remote

LOOK: Final = 30.0
"""Seconds without news after which we look whether anybody is left to do the work."""

PATIENCE: Final = 10
"""How many looks in a row may find nobody: clusters that grow and shrink take their time."""


@contextlib.contextmanager
def connected(
    scheduler: str | None,
    *,
    client: "distributed.Client | None" = None,
    jobs: int,
    parcels: str | None = None,
) -> Iterator["Dask"]:
    """A cluster to work on.

    Args:
        scheduler: its address, or the path of a scheduler file (`*.json`); if None, what Dask's
            configuration says (`DASK_SCHEDULER_ADDRESS`), or else a cluster on this machine.
        client: a client of it that is there already.
        jobs: workers of a cluster on this machine.
        parcels: the URL below which workers put what they write, where they do not write into the
            store's folder.

    Raises:
        McptallyError: it cannot be reached, or has no workers.
        UsageError: a worker has another version of mcptally.
    """
    with contextlib.ExitStack() as closing:
        if client is None:
            address = scheduler or dask.config.get("scheduler-address", None)
            client = closing.enter_context(_client(address) if address else _on_this_machine(jobs))
        yield Dask(client, parcels)


def _client(address: str) -> "distributed.Client":
    try:
        if address.endswith(".json"):
            known = json.loads(Path(address).read_bytes())  # Dask would wait for the file
            return distributed.Client(known["address"], set_as_default=False)
        return distributed.Client(address, set_as_default=False)
    except (OSError, ValueError, LookupError, TypeError) as error:  # (a file that is none)
        raise McptallyError(
            f"no Dask scheduler answers at {address}: {error}; start one with: dask scheduler"
        ) from error


@contextlib.contextmanager
def _on_this_machine(jobs: int) -> Iterator["distributed.Client"]:
    environment = {
        **dask.config.get("distributed.nanny.pre-spawn-environ"),
        **process_memory.ENVIRONMENT,
    }
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": environment}),
        distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=_SILENT,
            preload=[dask_tasks.__name__],
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


_SILENT: Final = 50
"""Log level of a cluster of our own: what matters, we say."""


class Dask:
    """The cluster that a client is connected to."""

    def __init__(self, client: "distributed.Client", parcels: str | None = None) -> None:
        self.client = client
        self.parcels = parcels
        try:
            client.wait_for_workers(1, timeout=LOOK)
        except TimeoutError as error:
            raise McptallyError(
                f"the Dask cluster at {_address(client)} has no workers; start some with: "
                f"dask worker {_address(client)} --nthreads 1"
            ) from error
        self._check()
        self.jobs = len(client.nthreads())

    def crew(self, _parts: int, work: Path, _held: int) -> "DaskCrew":
        """The workers, ready for a run whose work folder this is."""
        return DaskCrew(self.client, work, parcels=self.parcels)

    def _check(self) -> None:
        """See that workers have mcptally, and ours; one that comes later is asked again there."""
        ours = dask_tasks.versions()
        for worker, version in self._answers(metadata.version, "mcptally").items():
            if isinstance(version, BaseException):
                raise UsageError(
                    f"worker {worker} has no mcptally; install it on every worker: "
                    f"pip install 'mcptally[dask]=={ours['mcptally']}'"
                )
            dask_tasks.refuse(worker, {**ours, "mcptally": version}, ours)
        for worker, theirs in self._answers(dask_tasks.versions).items():
            if isinstance(theirs, BaseException):
                raise UsageError(f"worker {worker} cannot load mcptally: {theirs}") from theirs
            dask_tasks.refuse(worker, theirs, ours)

    def _answers(self, function: Callable[..., Any], *arguments: object) -> dict[str, Any]:
        found: dict[str, Any] = self.client.run(function, *arguments, on_error="return")
        return found


class DaskCrew:
    """The workers of a cluster, as the one member of a crew."""

    def __init__(
        self,
        client: "distributed.Client",
        work: Path,
        *,
        parcels: str | None = None,
        look: float = LOOK,
        patience: int = PATIENCE,
    ) -> None:
        self.client = client
        self.run = dask_tasks.Run(
            secrets.token_hex(8), work.absolute(), parcels, dask_tasks.versions()
        )
        self.look = look
        self.patience = patience
        self.kept: dict[int, tuple[distributed.Future, Learned]] = {}
        self.settled: distributed.Future | None = None

    def __enter__(self) -> Self:
        if self.run.parcels is None:
            for worker, seen in self.client.run(dask_tasks.sees, self.run.work).items():
                if not seen:
                    raise UsageError(dask_tasks.unseen(worker, self.run.work))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kept.clear()
        # A worker that cannot be asked any more leaves nothing that outlives it.
        with contextlib.suppress(OSError, RuntimeError):
            self.client.run(dask_tasks.clear, self.run, on_error="ignore")

    def any(
        self, tasks: Sequence[Task], done: Callable[[int], None] = lambda _: None
    ) -> list[tuple[int, Any]]:
        """Each partition gathered by whoever is free, and what it brought to light."""
        asked: dict[distributed.Future, int] = {}
        numbers: list[int] = []
        for place, (_, (number, files)) in enumerate(tasks):
            batch = dask_tasks.Batch(
                number, [path.absolute() for path in files], [str(path) for path in files]
            )
            numbers.append(number)
            asked[self._submit(dask_tasks.gather, self.run, batch)] = place
        learned: dict[int, Learned] = {}
        for future, kept in self._answers(list(asked)):
            place = asked[future]
            learned[place] = kept.learned
            self.kept[numbers[place]] = (future, kept.learned)
            done(place)
        self._fetch()
        return [(0, learned[place]) for place in range(len(tasks))]

    def each(
        self,
        tasks: Mapping[int, Iterable[Task]],
        done: Callable[[int, int], None] = lambda *_: None,
    ) -> list[Any]:
        """Partitions dropped or finished, as `Share` would."""
        asked: dict[distributed.Future, int] = {}

        def submitted() -> Iterator[distributed.Future]:
            for place, (name, arguments) in enumerate(tasks.get(0, ())):
                if name == "drop":
                    del self.kept[arguments[0]]
                elif name == "settle":
                    # As a task it is told to the scheduler once, and made again on who needs it.
                    self.settled = self._submit(dask_tasks.settle, dask_tasks.Settled(*arguments))
                else:
                    number, archive = arguments
                    kept = self.kept.pop(number)
                    future = self._submit(dask_tasks.finish, self.run, *kept, self.settled, archive)
                    asked[future] = place
                    yield future

        results = []
        ahead = 2 * len(self.client.nthreads()) + 8
        for future, written in self._answers(submitted(), ahead):
            results.append(written)
            done(0, asked.pop(future))
        self._fetch()
        return results

    def _fetch(self) -> None:
        """Bring what workers wrote to parcels, if they do not see the work folder."""
        if self.run.parcels is not None:
            sent = f"{self.run.parcels}/{self.run.name}"
            parts = remote.names(sent)
            remote.fetch(sent, self.run.work, parts)
            remote.remove(sent, parts)

    def _submit(self, function: Callable[..., Any], *arguments: object) -> "distributed.Future":
        key = f"mcptally-{function.__name__}-{secrets.token_hex(8)}"
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            return self.client.submit(function, *arguments, key=key, pure=False)

    def _answers(
        self, futures: Iterable["distributed.Future"], ahead: int = sys.maxsize
    ) -> Iterator[tuple["distributed.Future", Any]]:
        """Futures as they are done, with their results; no more than `ahead` wait at a time.

        Raises:
            McptallyError: an error of ours on a worker, or nobody is left to do the work.
        """
        news: queue.SimpleQueue[distributed.Future] = queue.SimpleQueue()
        coming = iter(futures)
        waiting: set[distributed.Future] = set()
        try:
            while True:
                for future in itertools.islice(coming, ahead - len(waiting)):
                    waiting.add(future)
                    future.add_done_callback(news.put)
                if not waiting:
                    return
                future = self._next(news)
                waiting.discard(future)
                yield future, self._result(future)
        except BaseException:
            # Not at a good end: what a dead worker held is on its way again by then, and wanted.
            self.client.cancel([future for future in waiting if not future.done()])
            raise

    def _next(self, news: "queue.SimpleQueue[distributed.Future]") -> "distributed.Future":
        for _ in range(self.patience):
            with contextlib.suppress(queue.Empty):
                return news.get(timeout=self.look)
            while self._anybody():
                with contextlib.suppress(queue.Empty):
                    return news.get(timeout=self.look)
        raise McptallyError(
            f"no worker is left at {_address(self.client)}; start some and score again"
        )

    def _anybody(self) -> bool:
        """Whether the cluster has a worker."""
        try:
            return bool(self.client.nthreads())
        except OSError:
            return False

    def _result(self, future: "distributed.Future") -> Any:
        try:
            return future.result()
        except distributed.scheduler.KilledWorker as error:
            raise McptallyError(
                f"{error.allowed_failures + 1} workers died one after the other over the same "
                f"partition, the last at {error.last_worker.address}; they may have been out of "
                "memory: give each more, or make partitions smaller (--memory)"
            ) from error
        except distributed.CancelledError as error:
            raise McptallyError(f"the Dask scheduler is gone: {error}") from error


def _address(client: "distributed.Client") -> str:
    return str(client.scheduler.address) if client.scheduler else "?"
