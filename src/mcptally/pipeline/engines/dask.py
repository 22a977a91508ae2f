"""Implements the worker pool that runs on a Dask cluster.

This process reads no transcripts: it submits tasks and combines their reports. Dask tracks which
worker has which result, and reruns the tasks of a worker that dies (see `dask_tasks`).
"""

import concurrent.futures
import contextlib
import functools
import itertools
import json
import queue
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import dask
import distributed
import msgspec

from mcptally import process_memory
from mcptally.errors import McptallyError, UsageError
from mcptally.pipeline.engines import dask_tasks
from mcptally.pipeline.engines.local import interrupts_blocked
from mcptally.pipeline.engines.pool import ContextOf
from mcptally.pipeline.engines.worker import FinishSettings, GatherReport, Partition
from mcptally.store import remote_folder
from mcptally.store.parts import Written

CHECK_SECONDS: Final = 30.0
"""Time in seconds without a result after which the cluster is checked for workers."""

EMPTY_CHECKS: Final = 10
"""Number of consecutive checks without a worker after which the run ends; clusters scale slowly."""

ANSWER_SECONDS: Final = 60.0
"""Time limit in seconds for a cluster to start, and for workers to answer requests other than
tasks."""

_T = TypeVar("_T")


@contextlib.contextmanager
def connected(
    scheduler: str | None,
    *,
    client: "distributed.Client | None" = None,
    jobs: int,
    upload_url: str | None = None,
) -> Iterator["DaskEngine"]:
    """Yield an engine for a Dask cluster.

    Args:
        scheduler: address of the cluster, or the path of a scheduler file (`*.json`); if None, the
            scheduler in Dask's configuration (`DASK_SCHEDULER_ADDRESS`), or else a new cluster on
            this machine.
        client: a client that is already connected.
        jobs: number of workers in a new cluster on this machine.
        upload_url: URL under which workers put their files, if they do not write into the
            store's folder.

    Raises:
        McptallyError: the cluster cannot be reached, or has no workers.
        UsageError: a worker has another version of mcptally.
    """
    with contextlib.ExitStack() as closing:
        closing.enter_context(_second_interrupt_kills())
        if client is None:
            address = scheduler or dask.config.get("scheduler-address", None)
            client = closing.enter_context(_client(address) if address else _on_this_machine(jobs))
        yield DaskEngine(client, upload_url)


def _client(address: str) -> "distributed.Client":
    try:
        if address.endswith(".json"):
            known = json.loads(Path(address).read_bytes())  # Dask itself would wait for the file
            return distributed.Client(known["address"], set_as_default=False)
        return distributed.Client(address, set_as_default=False)
    except (OSError, ValueError, LookupError, TypeError) as error:  # this is not a scheduler file
        raise McptallyError(
            f"no Dask scheduler answers at {address}: {error}; start one with: dask scheduler"
        ) from error


@contextlib.contextmanager
def _on_this_machine(jobs: int) -> Iterator["distributed.Client"]:
    environment = {
        **dask.config.get("distributed.nanny.pre-spawn-environ"),
        **process_memory.ENVIRONMENT,
    }

    def start() -> distributed.LocalCluster:
        with dask.config.set({"distributed.nanny.pre-spawn-environ": environment}):
            return distributed.LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                memory_limit=None,
                dashboard_address="127.0.0.1:0",
                silence_logs=_LOG_LEVEL,
                preload=[dask_tasks.__name__],
            )

    with contextlib.ExitStack() as closing:
        with _interrupt_afterwards():  # a cluster that is only partly started cannot be closed
            cluster = closing.enter_context(_within(ANSWER_SECONDS, start))
        yield closing.enter_context(distributed.Client(cluster, set_as_default=False))


def _within(seconds: float, call: Callable[[], _T]) -> _T:
    """Run `call` in a thread with a time limit, and return its result.

    Ctrl-C is blocked in the thread and in processes that it starts.

    Raises:
        TimeoutError: the call takes longer; it continues, but its result is ignored.
    """
    result: concurrent.futures.Future[_T] = concurrent.futures.Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  (the caller raises it)
            result.set_exception(error)

    with interrupts_blocked():
        threading.Thread(target=run, daemon=True).start()
    try:
        return result.result(seconds)
    except concurrent.futures.TimeoutError:
        raise TimeoutError(f"no answer in {seconds:.0f} s") from None


@contextlib.contextmanager
def _handling_interrupts(handle: Callable[[Callable[..., Any]], None]) -> Iterator[None]:
    """Make Ctrl-C call `handle` during a `with` block.

    `handle` gets a function that runs the previous handler.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda *given: handle(functools.partial(before, *given)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _second_interrupt_kills() -> Iterator[None]:
    """Make the first Ctrl-C end the run, and the second one kill this process.

    When this process is killed, its child processes end too, and the store stays unchanged.
    """

    def handle(interrupt: Callable[..., Any]) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interrupt()

    with _handling_interrupts(handle):
        yield


@contextlib.contextmanager
def _interrupt_afterwards() -> Iterator[None]:
    """Postpone Ctrl-C until the `with` block ends; a second Ctrl-C kills this process."""
    waiting: list[Callable[..., Any]] = []

    def handle(interrupt: Callable[..., Any]) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        waiting.append(interrupt)

    with _handling_interrupts(handle):
        yield
    for interrupt in waiting:
        interrupt()


_LOG_LEVEL: Final = 50
"""Log level for clusters that mcptally starts: mcptally itself reports important events."""


class DaskEngine:
    """The cluster to which a client is connected."""

    def __init__(self, client: "distributed.Client", upload_url: str | None = None) -> None:
        self.client = client
        self.upload_url = upload_url
        try:
            client.wait_for_workers(1, timeout=CHECK_SECONDS)
        except TimeoutError as error:
            raise McptallyError(
                f"the Dask cluster at {_address(client)} has no workers; start some with: "
                f"dask worker {_address(client)} --nthreads 1"
            ) from error
        self._require_versions()
        self.jobs = len(client.nthreads())

    def pool(self, _partitions: int, work: Path, _memory: int) -> "DaskPool":
        """Return a pool of the cluster's workers, for a run that writes to the work folder."""
        return DaskPool(self.client, work, upload_url=self.upload_url)

    def _require_versions(self) -> None:
        """Check that all workers have the versions of this process.

        Workers that join later are checked by the tasks that they run.
        """
        ours = dask_tasks.versions()
        for worker, version in self._ask_workers(metadata.version, "mcptally").items():
            if isinstance(version, BaseException):
                raise UsageError(
                    f"worker {worker} has no mcptally; install it on every worker: "
                    f"pip install 'mcptally[dask]=={ours['mcptally']}'"
                )
            dask_tasks.require_versions(worker, {**ours, "mcptally": version}, ours)
        for worker, theirs in self._ask_workers(dask_tasks.versions).items():
            if isinstance(theirs, BaseException):
                raise UsageError(f"worker {worker} cannot load mcptally: {theirs}") from theirs
            dask_tasks.require_versions(worker, theirs, ours)

    def _ask_workers(self, function: Callable[..., Any], *arguments: object) -> dict[str, Any]:
        try:
            return _run_on_workers(self.client, function, *arguments, on_error="return")
        except TimeoutError as error:
            raise McptallyError(
                f"the workers of {_address(self.client)} do not answer ({error}); restart them"
            ) from error


class DaskPool:
    """The workers of a cluster, for one run."""

    def __init__(
        self, client: "distributed.Client", work: Path, *, upload_url: str | None = None
    ) -> None:
        self.client = client
        self.run = dask_tasks.DaskRun(
            secrets.token_hex(8), work.absolute(), upload_url, dask_tasks.versions()
        )
        self.gathered: dict[int, tuple[distributed.Future, GatherReport]] = {}
        """Maps the number of each gathered partition to its task and its report."""

    def __enter__(self) -> Self:
        if self.run.upload_url is None:
            for worker, seen in _run_on_workers(
                self.client, dask_tasks.sees, self.run.work
            ).items():
                if not seen:
                    raise UsageError(dask_tasks.not_seen(worker, self.run.work))
        return self

    def __exit__(self, *error: object) -> None:
        self.gathered.clear()
        # A worker that cannot be reached removes its scratch folder itself.
        with contextlib.suppress(OSError, RuntimeError):
            _run_on_workers(self.client, dask_tasks.clear, self.run, on_error="ignore")

    def gather(self, partitions: Sequence[Partition]) -> Iterator[tuple[int, GatherReport]]:
        """Gather partitions, each on any free worker; see `WorkerPool.gather`."""
        numbers: dict[distributed.Future, int] = {}
        for part in partitions:
            absolute = msgspec.structs.replace(
                part,
                files=[path.absolute() for path in part.files],
                names=[str(path) for path in part.files],
            )
            numbers[self._submit(dask_tasks.gather, self.run, absolute)] = part.number
        for future, saved in self._results(list(numbers)):
            number = numbers[future]
            self.gathered[number] = (future, saved.report)
            yield number, saved.report
        self._download()

    def discard(self, numbers: Iterable[int]) -> None:
        """Delete gathered partitions; see `WorkerPool.discard`."""
        for number in numbers:
            del self.gathered[number]

    def finish(
        self, numbers: Iterable[int], context_of: ContextOf, settings: FinishSettings
    ) -> Iterator[Written]:
        """Finish partitions, if possible on the worker that gathered them; see `WorkerPool`."""
        # Send the settings as a task, not as an argument: the scheduler receives them only once,
        # and can rerun the task on any worker.
        shared = self._submit(dask_tasks.share_settings, settings)

        def submitted() -> Iterator[distributed.Future]:
            for number in numbers:
                saved, report = self.gathered.pop(number)
                yield self._submit(
                    dask_tasks.finish, self.run, saved, report, shared, context_of(number)
                )

        ahead = 2 * len(self.client.nthreads()) + 8
        for _, written in self._results(submitted(), ahead):
            yield written
        self._download()

    def _download(self) -> None:
        """Download the workers' uploads, if they cannot access the work folder."""
        if self.run.upload_url is not None:
            uploaded = f"{self.run.upload_url}/{self.run.name}"
            parts = remote_folder.list_names(uploaded)
            remote_folder.download(uploaded, self.run.work, parts)
            remote_folder.remove(uploaded, parts)

    def _submit(self, function: Callable[..., Any], *arguments: object) -> "distributed.Future":
        key = f"mcptally-{function.__name__}-{secrets.token_hex(8)}"
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            return self.client.submit(function, *arguments, key=key, pure=False)

    def _results(
        self, futures: Iterable["distributed.Future"], ahead: int = sys.maxsize
    ) -> Iterator[tuple["distributed.Future", Any]]:
        """Yield futures with their results as they complete, with at most `ahead` in progress.

        Raises:
            McptallyError: a task raised it, or the cluster has no workers left.
        """
        done: queue.SimpleQueue[distributed.Future] = queue.SimpleQueue()
        coming = iter(futures)
        waiting: set[distributed.Future] = set()
        try:
            while True:
                for future in itertools.islice(coming, ahead - len(waiting)):
                    waiting.add(future)
                    future.add_done_callback(done.put)
                if not waiting:
                    return
                future = self._next_done(done)
                waiting.discard(future)
                yield future, self._result(future)
        except BaseException:
            # Cancel only after an error. Otherwise, Dask may be rerunning tasks of a dead worker,
            # whose results are still needed.
            self.client.cancel([future for future in waiting if not future.done()])
            raise

    def _next_done(self, done: "queue.SimpleQueue[distributed.Future]") -> "distributed.Future":
        for _ in range(EMPTY_CHECKS):
            with contextlib.suppress(queue.Empty):
                return done.get(timeout=CHECK_SECONDS)
            while self._has_workers():
                with contextlib.suppress(queue.Empty):
                    return done.get(timeout=CHECK_SECONDS)
        raise McptallyError(
            f"no worker is left at {_address(self.client)}; start some and score again"
        )

    def _has_workers(self) -> bool:
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


def _run_on_workers(
    client: "distributed.Client", function: Callable[..., Any], *arguments: object, **named: str
) -> dict[str, Any]:
    """Run a function on every worker, and map each worker's address to its result.

    Raises:
        TimeoutError: the workers do not answer within `ANSWER_SECONDS`.
    """
    return _within(ANSWER_SECONDS, lambda: client.run(function, *arguments, **named))


def _address(client: "distributed.Client") -> str:
    return str(client.scheduler.address) if client.scheduler else "?"
