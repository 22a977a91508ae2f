"""Functions that run in child processes with a limit on time and memory that holds in native code.

DuckDB looks at interrupts between vectors only, and its scalar functions allocate outside its own
accounting. So a statement of a stranger runs in a child process: this process kills it at the end
of its time, and the system refuses it memory beyond its limit. The processes stay for further
calls, since a start takes about a second; one that was killed or ran out of memory is replaced.

A call and its answer are frames on the child's stdin and stdout: a kind (one byte), a length (eight
bytes), the contents. Calls are pickled by this process; answers are bytes, and never unpickled.
"""

import collections
import contextlib
import functools
import importlib
import json
import os
import pickle
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import IO, Any, Final

import duckdb

from mcptally import errors
from mcptally.analytics.spill import remove_abandoned
from mcptally.errors import McptallyError, QueryError

if sys.platform != "win32":
    import resource

PROCESSES: Final = 2
"""Calls that run at the same time; another one waits."""

START_SECONDS: Final = 120.0
"""How long a process may take until it can answer."""

HEADROOM: Final = 256 << 20
"""Bytes beyond a memory limit and a quarter of it: Arrow's copy of an answer, stacks, what
allocators keep. With half of it, grouping 20 million rows within 500 MB failed at times."""

LESS: Final = "ask for less: one server, a shorter time, fewer columns"

_FRAME: Final = struct.Struct(">cQ")
_ANSWER: Final = b"A"
_ERROR: Final = b"E"
_NO_MEMORY: Final = b"M"
_FAULT: Final = b"F"

_START: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from mcptally.analytics.child_process import _main; _main()"
)


class _MemoryError(Exception):
    """The child ran out of memory; the message is DuckDB's or Python's."""


class _KilledError(Exception):
    """The child did not answer in time and was killed."""


class Limited:
    """A function, built in each child process by `target`, that is called there.

    Threads may share it.

    Args:
        target: `module:name` of a function that, called with `arguments` in the child, gives the
            function to call. It may call `hold_memory`.
        arguments: what `target` is called with.
        memory: the limit that `target` sets, in words for a message.
    """

    def __init__(self, target: str, *arguments: Any, memory: str) -> None:
        self._start: Final = (target, arguments)
        self._memory: Final = memory
        self._places: Final = threading.BoundedSemaphore(PROCESSES)
        self._free: Final[collections.deque[_Child]] = collections.deque()

    def prepare(self) -> None:
        """Start a process now, and do not wait for it: the first call is answered sooner."""
        self._free.append(_Child(*self._start))

    def call(self, *arguments: Any, seconds: float | None = None) -> bytes:
        """What the function gives for these arguments.

        Args:
            arguments: what can be pickled.
            seconds: how long the function may take, and how long to wait for a free process.

        Raises:
            QueryError: it took too long or too much memory, or every process is busy.
            McptallyError: what the function raised, if it is one; a DuckDB error is its cause.
        """
        if not self._places.acquire(timeout=seconds):
            raise QueryError(
                f"{PROCESSES} other queries are still running after {seconds:g} s; ask again"
            )
        try:
            child = self._idle() or _Child(*self._start)
            try:
                answer = child.call(arguments, seconds)
            except McptallyError:
                self._free.append(child)
                raise
            except BaseException as error:
                child.kill()
                if isinstance(error, _KilledError):
                    raise QueryError(
                        f"it took more than {seconds:g} s and was stopped; {LESS}"
                    ) from None
                if isinstance(error, _MemoryError):
                    raise QueryError(
                        f"it took more than {self._memory} and was stopped; {LESS} ({error})"
                    ) from None
                raise
            self._free.append(child)
            return answer
        finally:
            self._places.release()

    def _idle(self) -> "_Child | None":
        """A process that is there and waits for a call."""
        while self._free:
            with contextlib.suppress(IndexError):  # another thread was first
                if (child := self._free.pop()).is_alive():
                    return child
        return None


class _Child:
    """One child process; one call at a time."""

    def __init__(self, target: str, arguments: tuple[Any, ...]) -> None:
        self._said: Final = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the child)
        self._process: Final = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self._late = False
        self._ready = False
        self.kill: Final = weakref.finalize(self, _end, self._process, self._said)
        self._send((target, arguments))

    def is_alive(self) -> bool:
        return not self._late and self._process.poll() is None

    def call(self, arguments: tuple[Any, ...], seconds: float | None) -> bytes:
        """The child's answer; the time of its start does not count.

        Raises:
            McptallyError: the function raised it.
            _KilledError: the time is over.
            _MemoryError: the memory does not suffice.
        """
        if not self._ready:
            self._within(START_SECONDS, self._receive)
            self._ready = True
        self._send(arguments)
        return self._within(seconds, self._receive)

    def _within(self, seconds: float | None, step: Callable[[], bytes]) -> bytes:
        """The result of a step; the process is killed if it takes longer."""
        if seconds is None:
            return step()
        timer = threading.Timer(seconds, self._kill_late)
        timer.daemon = True
        timer.start()
        try:
            return step()
        finally:
            timer.cancel()

    def _kill_late(self) -> None:
        self._late = True
        self._process.kill()

    def _send(self, what: Any) -> None:
        assert self._process.stdin is not None  # noqa: S101  (it is a pipe)
        with contextlib.suppress(BrokenPipeError):  # the missing answer says why
            _write(self._process.stdin, _ANSWER, pickle.dumps(what))

    def _receive(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101  (it is a pipe)
        frame = _read(self._process.stdout)
        if frame is None:
            code = self._process.wait()
            if self._late:
                raise _KilledError
            self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 2000))
            said = self._said.read().decode(errors="replace").strip()
            raise _MemoryError(f"its process ended with code {code}{': ' if said else ''}{said}")
        kind, content = frame
        if kind == _NO_MEMORY:
            raise _MemoryError(content.decode().partition("\n")[0])
        if kind == _FAULT:
            raise RuntimeError(f"in the process of a query:\n{content.decode()}")
        if kind == _ERROR:
            raise _rebuilt(**json.loads(content))
        return content


def _end(process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for file in (process.stdin, process.stdout, said):
        with contextlib.suppress(OSError):  # what was not sent cannot be flushed
            if file is not None:
                file.close()
    remove_abandoned()


def _write(pipe: IO[bytes], kind: bytes, content: bytes | memoryview) -> None:
    pipe.write(_FRAME.pack(kind, len(content)))
    pipe.write(content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """The next frame; None at the end."""
    head = pipe.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    kind, size = _FRAME.unpack(head)
    content = pipe.read(size)
    return (kind, content) if len(content) == size else None


def _rebuilt(kind: str, message: str, cause: str | None) -> McptallyError:
    """An error of the child as one of this process."""
    error: McptallyError = getattr(errors, kind)(message)
    if cause is not None:
        error.__cause__ = getattr(duckdb, cause, duckdb.Error)(message)
    return error


def hold_memory(most: int) -> None:
    """Refuse this process more than `most` bytes (and `HEADROOM`) beyond what it has now.

    Linux counts what a process can write to (RLIMIT_DATA); address space that is only reserved, of
    which DuckDB and Arrow have gigabytes, is free. Other systems do not have such a limit.
    """
    if sys.platform != "linux":
        return
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  (a kernel's file)
        data = next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, ((data << 10) + most + most // 4 + HEADROOM,) * 2)


def _main() -> None:
    """The child: build the function, then call it for each frame of stdin."""
    import signal  # noqa: PLC0415  (only the child needs it)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and kills this process
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold recorded traffic
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints, prints elsewhere
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        # A thread of its own: it sees the parent's end while native code runs.
        while (frame := _read(sys.stdin.buffer)) is not None:
            calls.put(pickle.loads(frame[1]))  # noqa: S301  (the parent wrote it)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    target, arguments = calls.get()
    module, _, name = target.partition(":")
    kind, made = _tried(lambda: getattr(importlib.import_module(module), name)(*arguments))
    _write(answers, kind, b"" if kind == _ANSWER else made)
    while kind == _ANSWER:
        given = calls.get()
        kind, content = _tried(functools.partial(made, *given))
        _write(answers, kind, content)
        if kind == _ERROR:  # an ordinary one: the next call may go well
            kind = _ANSWER
    os._exit(0)  # DuckDB reports Python functions that it still knows as leaks


def _tried(step: Callable[[], Any]) -> tuple[bytes, Any]:
    """The kind and the contents of a step's answer."""
    try:
        return _ANSWER, step()
    except (McptallyError, duckdb.Error, MemoryError) as error:
        cause = error.__cause__ if isinstance(error, McptallyError) else error
        # An error of a Python function in SQL is a text in DuckDB's.
        if isinstance(cause, duckdb.OutOfMemoryException | MemoryError) or "MemoryError" in str(
            cause
        ):
            return _NO_MEMORY, str(error).encode("utf-8", "replace")
        ours = type(error).__name__ if isinstance(error, McptallyError) else "QueryError"
        theirs = type(cause).__name__ if isinstance(cause, duckdb.Error) else None
        told = {"kind": ours, "message": str(error), "cause": theirs}
        return _ERROR, json.dumps(told).encode()
    except Exception:  # noqa: BLE001  (a fault of ours: the parent raises it)
        return _FAULT, traceback.format_exc().encode("utf-8", "replace")
