"""The processes that share an archive: this one, and others beside it where there is work."""

import collections
import contextlib
import ctypes
import gc
import itertools
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self

from mcptally import process_memory
from mcptally.errors import McptallyError
from mcptally.pipeline.engines.worker import Share

_AHEAD: Final = 2
"""Tasks given to a process at a time while there are plenty, so that it never waits."""

_PDEATHSIG: Final = 1

Task = tuple[str, tuple[Any, ...]]
"""A method of `Share` and its arguments."""


class Team(Protocol):
    """Whoever does the tasks of a run: processes here, or the workers of a cluster.

    What a task raises, of ours or of the system, is raised here; McptallyError also says that
    somebody died over it.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def any(
        self, tasks: Sequence[Task], done: Callable[[int], None] = ...
    ) -> list[tuple[int, Any]]:
        """Each task done by whoever is free: the member who did it, and what came of it."""

    def each(
        self, tasks: Mapping[int, Iterable[Task]], done: Callable[[int, int], None] = ...
    ) -> list[Any]:
        """The tasks of each member done by that one; what came of them, in no order.

        Tasks are asked for as they are given to somebody, a few ahead.
        """


class Crew:
    """`jobs` processes, of which this one is the first; each has a share of its own.

    Partitions of `held` bytes of transcript wait in memory, in all of them together.
    """

    def __init__(self, jobs: int, work: Path, held: int) -> None:
        self.share = Share(work, held // jobs)
        self.others = [_Other(work, held // jobs) for _ in range(jobs - 1)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for other in self.others:
            other.end()

    def any(
        self, tasks: Sequence[Task], done: Callable[[int], None] = lambda _: None
    ) -> list[tuple[int, Any]]:
        """Each task done by whoever is free: the member who did it, and what came of it."""
        results: list[tuple[int, Any]] = [(0, None)] * len(tasks)
        waiting = collections.deque(enumerate(tasks))
        while waiting:
            for other in self.others:
                ahead = _AHEAD if len(waiting) > _AHEAD * (len(self.others) + 1) else 1
                while waiting and len(other.asked) < ahead:
                    other.ask(*waiting.popleft())
            if waiting:
                number, (name, arguments) = waiting.popleft()
                results[number] = (0, getattr(self.share, name)(*arguments))
                done(number)
            for member, number, result in self._answers(wait=False):
                results[number] = (member, result)
                done(number)
        for member, number, result in self._answers(wait=True):
            results[number] = (member, result)
            done(number)
        return results

    def each(
        self,
        tasks: Mapping[int, Iterable[Task]],
        done: Callable[[int, int], None] = lambda *_: None,
    ) -> list[Any]:
        """The tasks of each member done by that one; what came of them, in no order."""
        coming = {member: enumerate(mine) for member, mine in tasks.items()}
        results = []

        def hear(*, wait: bool) -> None:
            self._feed(coming)
            for member, place, result in self._answers(wait=wait):
                results.append(result)
                done(member, place)
                self._feed(coming)

        for number, (name, arguments) in coming.get(0, ()):
            hear(wait=False)
            results.append(getattr(self.share, name)(*arguments))
            done(0, number)
        hear(wait=True)
        return results

    def _feed(self, coming: Mapping[int, Iterator[tuple[int, Task]]]) -> None:
        """Give the others what they are to do next."""
        for member, other in enumerate(self.others, start=1):
            for number, task in itertools.islice(
                coming.get(member, iter(())), _AHEAD - len(other.asked)
            ):
                other.ask(number, task)

    def _answers(self, *, wait: bool) -> Iterator[tuple[int, int, Any]]:
        """Answers that are there, or all that are outstanding: member, number, result."""
        while busy := {
            other.pipe: (member, other)
            for member, other in enumerate(self.others, start=1)
            if other.asked
        }:
            ready = multiprocessing.connection.wait(list(busy), timeout=None if wait else 0)
            if not ready:
                return
            for pipe in ready:
                member, other = busy[pipe]  # type: ignore[index]
                yield member, *other.answer()


class _Other:
    """Another process and its share."""

    def __init__(self, work: Path, budget: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.asked: collections.deque[int] = collections.deque()
        self.unsent: Exception | None = None
        self.process = context.Process(target=_serve, args=(theirs, work, budget), daemon=True)
        with _environment():
            self.process.start()
        theirs.close()
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def ask(self, number: int, task: Task) -> None:
        self.asked.append(number)
        self.tasks.put(task)

    def _send(self) -> None:
        """Send tasks on: the pipe takes no more than it holds while the process is at work."""
        try:
            while (task := self.tasks.get()) is not None:
                self.pipe.send(task)
        except OSError:  # it died, which whoever waits for its answer is told
            pass
        except Exception as error:  # noqa: BLE001  (no memory, say: an answer would never come)
            self.unsent = error
            self.process.terminate()

    def answer(self) -> tuple[int, Any]:
        try:
            result, error = self.pipe.recv()
        except (EOFError, OSError):
            self._died()
        if error is not None:
            raise error
        return self.asked.popleft(), result

    def _died(self) -> NoReturn:
        self.process.join(10)
        if self.unsent is not None:
            raise McptallyError(
                f"a task could not be sent to a process of this run: {self.unsent!r}; try a "
                "smaller --jobs"
            ) from self.unsent
        raise McptallyError(
            f"a process of this run ended by itself (exit code {self.process.exitcode}; the "
            "system may have been out of memory): try a smaller --jobs"
        )

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.tasks.put(None)
        self.sender.join()
        self.pipe.close()


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """The environment as a process of its own should have it."""
    before = dict(os.environ)
    os.environ.update(process_memory.ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(pipe: Any, work: Path, budget: int) -> None:
    """Do what is asked until the other end hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides, and ends this one
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)  # it may be killed, too
    gc.disable()
    share = Share(work, budget)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        answer: tuple[Any, BaseException | None]
        try:
            answer = getattr(share, name)(*arguments), None
        except (McptallyError, OSError) as error:  # a full disk, say
            answer = None, error
        except Exception:  # noqa: BLE001  (whatever it is, the first process says it)
            answer = None, RuntimeError(f"in another process:\n{traceback.format_exc()}")
        try:
            pipe.send(answer)
        except OSError:
            return
