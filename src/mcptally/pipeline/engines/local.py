"""Implements the worker pool on one machine: this process and, if needed, child processes.

Importing this module loads no columnar library, so that child processes can start before.
"""

import collections
import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

from mcptally import process_memory
from mcptally.errors import McptallyError
from mcptally.pipeline.engines.pool import ContextOf

if TYPE_CHECKING:
    from mcptally.pipeline.engines.worker import FinishSettings, GatherReport, Partition
    from mcptally.store.parts import Written

_AHEAD: Final = 2
"""Number of tasks that are sent to a child process in advance, so that it is never idle."""

_PR_SET_PDEATHSIG: Final = 1

Task = tuple[str, tuple[Any, ...]]
"""Name of a method of `PartitionWorker`, and the arguments for it."""


class LocalEngine:
    """The engine that runs processes on this machine, for one run."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self.children: list[_Child] = []

    def start(self, jobs: int) -> Self:
        """Start processes, until there are `jobs` including this one; they import modules."""
        for number in range(len(self.children) + 1, jobs):
            self.children.append(_Child(number, self.answers))
        return self

    def pool(self, partitions: int, work: Path, memory: int) -> "LocalPool":
        """Return a pool with one process per partition, but at most `jobs`; see `Engine.pool`."""
        jobs = min(self.jobs, partitions)
        children = self.start(jobs).children[: jobs - 1]
        return LocalPool(children, self.answers, work, memory // jobs)

    def close(self) -> None:
        """End the child processes."""
        for child in self.children:
            child.end()


class LocalPool:
    """A pool of this process and child processes, each with a `PartitionWorker`.

    Each keeps up to `memory` bytes of transcript in memory, plus its latest partition. A partition
    is finished by the process that gathered it.
    """

    def __init__(
        self,
        children: "list[_Child]",
        answers: "queue.SimpleQueue[_Answer]",
        work: Path,
        memory: int,
    ) -> None:
        from mcptally.pipeline.engines.worker import PartitionWorker  # noqa: PLC0415  (see above)

        self.worker = PartitionWorker(work, memory)
        self.answers = answers
        self.children = children
        for child in children:
            child.outbox.put((work, memory))
        self.owners: dict[int, int] = {}
        """Maps the number of each gathered partition to the number of its process; 0 is this
        process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for child in self.children:
            child.end()

    def gather(self, partitions: "Sequence[Partition]") -> "Iterator[tuple[int, GatherReport]]":
        """Gather partitions, each in the next free process; see `WorkerPool.gather`."""
        tasks = [("gather", (each,)) for each in partitions]
        for process, (_, (partition,)), report in self.run(tasks):
            self.owners[partition.number] = process
            yield partition.number, report

    def discard(self, numbers: Iterable[int]) -> None:
        """Delete gathered partitions; see `WorkerPool.discard`."""
        tasks = {
            process: [("discard", (number,)) for number in mine]
            for process, mine in self._by_owner(numbers).items()
        }
        for _, (_, (number,)), _ in self.run(own=tasks):
            del self.owners[number]

    def finish(
        self, numbers: Iterable[int], context_of: ContextOf, settings: "FinishSettings"
    ) -> "Iterator[Written]":
        """Finish partitions, each in the process that gathered it; see `WorkerPool.finish`."""

        def tasks(mine: Iterable[int]) -> Iterator[Task]:
            yield "configure", (settings,)
            for number in mine:
                yield "finish", (number, context_of(number))

        # Start with the latest partition, because it is still unpacked in memory.
        own = {process: tasks(mine[::-1]) for process, mine in self._by_owner(numbers).items()}
        for _, (method, _), written in self.run(own=own):
            if method == "finish":
                yield written

    def _by_owner(self, numbers: Iterable[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number in numbers:
            found.setdefault(self.owners[number], []).append(number)
        return found

    def run(
        self,
        shared: Iterable[Task] = (),
        *,
        own: Mapping[int, Iterable[Task]] = MappingProxyType({}),
    ) -> Iterator[tuple[int, Task, Any]]:
        """Run tasks in all processes; yield process, task and result in order of completion.

        Args:
            shared: tasks for any free process.
            own: maps the number of a process to the tasks that only this process may run. A task is
                taken from its iterable when it is sent; at most `_AHEAD` of them are unanswered.
        """
        waiting = collections.deque(shared)
        mine = {process: iter(tasks) for process, tasks in own.items()}
        for child in self.children:
            child.shared = waiting

        while True:
            for child in self.children:
                tasks = mine.get(child.number, iter(()))
                while len(child.sent) < _AHEAD and (task := next(tasks, None)):
                    child.send(task)
                if not child.sent:
                    child.send_shared()
            here = next(mine.get(0, iter(())), None) or _pop(waiting)
            if here is not None:
                method, arguments = here
                yield 0, here, getattr(self.worker, method)(*arguments)
            elif not any(child.unanswered for child in self.children):
                return
            yield from self._answers(wait=here is None)

    def _answers(self, *, wait: bool) -> Iterator[tuple[int, Task, Any]]:
        """Yield the process, the task and the result of each answer that has arrived.

        Args:
            wait: whether to wait until there is at least one answer.
        """
        while wait or not self.answers.empty():
            answer = self.answers.get()
            child = self.children[answer.process - 1]
            if answer.task is None:
                child.raise_died()
            child.answered += 1
            if answer.error is not None:
                raise answer.error
            yield answer.process, answer.task, answer.result
            wait = False


class _Answer(NamedTuple):
    """The result of a task in a child process, or the error to raise."""

    process: int
    task: Task | None
    """The task; None if the process died."""
    result: Any = None
    error: BaseException | None = None


def _pop(tasks: collections.deque[Task]) -> Task | None:
    """Remove and return the first task, or return None if there is none; threads share `tasks`."""
    try:
        return tasks.popleft()
    except IndexError:
        return None


class _Child:
    """A child process with a `PartitionWorker`, and the pipe to it.

    A thread waits for the child's answers and sends the next shared task, so that the child is
    never idle while this process is busy.
    """

    def __init__(self, number: int, answers: queue.SimpleQueue[_Answer]) -> None:
        import multiprocessing  # noqa: PLC0415  (a small archive has no children)

        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.number = number
        self.answers = answers
        self.shared: collections.deque[Task] = collections.deque()
        """Tasks for any free process."""
        self.sent: collections.deque[Task] = collections.deque()
        """Tasks that were sent to the process and are not yet answered, in order."""
        self.sending = threading.Lock()
        self.sent_in_all = 0
        self.answered = 0
        """Number of answers that `LocalPool.run` has consumed."""
        self.unsent: Exception | None = None
        """The error that prevented a task from being sent; None if all tasks were sent."""
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _child_environment(), interrupts_blocked():
            self.process.start()
        theirs.close()
        self.outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """First the work folder and the bytes of memory, then tasks, and None at the end."""
        self.sender = threading.Thread(target=self._send_all, daemon=True)
        self.sender.start()
        threading.Thread(target=self._receive_all, daemon=True).start()

    def send(self, task: Task) -> None:
        with self.sending:  # two threads send; keep `sent` in the order of `outbox`
            self.sent.append(task)
            self.sent_in_all += 1
            self.outbox.put(task)

    @property
    def unanswered(self) -> int:
        """Number of tasks whose answers `LocalPool.run` still has to consume.

        The next shared task is counted before the preceding answer can be consumed.
        """
        return self.sent_in_all - self.answered

    def send_shared(self) -> None:
        """Send the next shared task, if there is one."""
        if (task := _pop(self.shared)) is not None:
            self.send(task)

    def _send_all(self) -> None:
        """Write tasks to the pipe; runs in a thread, because a full pipe blocks."""
        try:
            while (task := self.outbox.get()) is not None:
                self.pipe.send(task)
        except OSError:  # the child died; `receive` reports it
            pass
        except Exception as error:  # noqa: BLE001  (no memory, say: an answer would never come)
            self.unsent = error
            self.process.terminate()

    def _receive_all(self) -> None:
        """Forward the answers of the process; runs in a thread."""
        while True:
            try:
                result, error = self.pipe.recv()
            except (EOFError, OSError):
                self.answers.put(_Answer(self.number, None))
                return
            except Exception as raised:  # noqa: BLE001  (no memory, say: `run` raises it)
                result, error = None, raised
            task = self.sent.popleft()
            if not self.sent:
                self.send_shared()
            self.answers.put(_Answer(self.number, task, result, error))

    def raise_died(self) -> NoReturn:
        self.process.join(10)
        if self.unsent is not None:
            raise McptallyError(
                f"a task could not be sent to a process of this run: {self.unsent!r}; try a "
                "smaller --jobs"
            ) from self.unsent
        raise McptallyError(
            f"a process of this run died (exit code {self.process.exitcode}; the system may have "
            "been out of memory): try a smaller --jobs"
        )

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.outbox.put(None)
        self.sender.join()
        self.pipe.close()


@contextlib.contextmanager
def _child_environment() -> Iterator[None]:
    """Set the environment variables that child processes inherit, during a `with` block."""
    before = dict(os.environ)
    os.environ.update(process_memory.ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread, and permanently in child processes started in the `with` block.

    Otherwise, Ctrl-C could end a starting child with a traceback before `_serve` ignores SIGINT.
    """
    from multiprocessing import resource_tracker  # noqa: PLC0415  (a small archive has no children)

    # Start the resource tracker first, because starting it unblocks SIGINT.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Any) -> None:
    """Run the tasks that arrive through the pipe until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    if sys.platform == "linux":
        # Let the system kill this process when its parent dies: otherwise, it would outlive a
        # killed parent.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    from mcptally.pipeline.engines.worker import PartitionWorker  # noqa: PLC0415  (takes longest)

    try:
        worker = PartitionWorker(*pipe.recv())
    except EOFError:
        return
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_answer(getattr(worker, method), arguments))
        except OSError:
            return


def _answer(
    method: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Run a task; return its result, or the error that the parent process is to raise."""
    try:
        return method(*arguments), None
    except (McptallyError, OSError) as error:  # for example because the disk is full
        return None, error
    except Exception:  # noqa: BLE001  (the parent reports it)
        return None, RuntimeError(f"in another process:\n{traceback.format_exc()}")
