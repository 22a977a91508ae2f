"""Runs functions in child processes, with limits on time and memory that also stop native code.

DuckDB checks for interrupts only between vectors, and does not count the memory that its scalar
functions allocate. Therefore untrusted SQL runs in a child process: the parent kills the child
after the time limit, and the operating system enforces the memory limit. A child takes about a
second to start, so it is reused; a child that was killed or ran out of memory is replaced.

Calls and answers are frames on the child's stdin and stdout: a kind (one byte), a length (eight
bytes) and the content. The parent pickles calls, but never unpickles answers.
"""

import collections
import contextlib
import functools
import importlib
import json
import os
import pickle
import queue
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

import duckdb

from mcptally import errors
from mcptally.analytics.spill import remove_abandoned
from mcptally.errors import McptallyError, QueryError

PROCESSES: Final = 2
"""Maximum number of calls that run at the same time; further calls wait."""

START_SECONDS: Final = 120.0
"""Maximum time in seconds that a process may take to start."""

HEADROOM: Final = 256 << 20
"""Number of bytes that a child may allocate in addition to 1.25 times its memory limit.

This covers Arrow's copy of an answer, stacks, and memory cached by allocators. With half of this
headroom, grouping 20 million rows within 500 MB sometimes failed."""

_ADVICE: Final = "ask for less: one server, a shorter time, fewer columns"

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
    """Raised if a child process ran out of memory; the message comes from DuckDB or Python."""


class _KilledError(Exception):
    """Raised if a child process was killed before it answered."""


class CancellableCall:
    """A call to a `ChildProcessPool` that another thread can stop, even before it starts."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._cancelled = False
        self._child: _Child | None = None

    def cancel(self) -> None:
        """Stop the call, unless it has finished."""
        with self._lock:
            self._cancelled = True
            if self._child is not None:
                self._child.stop()

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    @contextlib.contextmanager
    def running(self, child: "_Child") -> Iterator[None]:
        """Make `cancel` kill the child process that runs the call, during a `with` block."""
        with self._lock:
            if self._cancelled:
                raise QueryError("the query was cancelled before it started")
            self._child = child
        try:
            yield
        finally:
            with self._lock:
                self._child = None


class ChildProcessPool:
    """A pool of child processes that run the same function with limits. Threads may share a pool.

    Args:
        target: `module:name` of a factory that the child calls with `arguments`. The factory
            returns the function to run, and may call `limit_memory`.
        arguments: the arguments for `target`.
        memory: the memory limit that `target` sets, in words, for error messages.
    """

    def __init__(self, target: str, *arguments: Any, memory: str) -> None:
        self._start: Final = (target, arguments)
        self._memory: Final = memory
        self._places: Final = threading.BoundedSemaphore(PROCESSES)
        self._free: Final[collections.deque[_Child]] = collections.deque()
        self._lock: Final = threading.Lock()
        self._calls: Final[set[CancellableCall]] = set()
        self._is_closed = False

    def prepare(self) -> None:
        """Start a process in the background, so that the first call is answered sooner."""
        self._free.append(_Child(*self._start))

    def close(self) -> None:
        """Stop all processes, and cancel current and future calls."""
        with self._lock:
            self._is_closed = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()
        while (child := self._idle()) is not None:
            child.kill()

    @contextlib.contextmanager
    def _cancelled_by_close(self, call: CancellableCall) -> Iterator[None]:
        """Make `close` cancel the call, for the duration of a `with` block."""
        with self._lock:
            self._calls.add(call)
            is_closed = self._is_closed
        if is_closed:
            call.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)

    def call(
        self,
        *arguments: Any,
        seconds: float | None = None,
        cancellable: CancellableCall | None = None,
    ) -> bytes:
        """Run the function in a child process, and return its result.

        Args:
            arguments: picklable arguments for the function.
            seconds: time limit for the function, and for waiting for a free process. None means no
                limit, not even `START_SECONDS` for starting a process.
            cancellable: lets another thread stop the call.

        Raises:
            QueryError: the function exceeded its time or memory limit, all processes are busy, or
                the call was cancelled.
            McptallyError: the function raised this error; an underlying DuckDB error is its
                `__cause__`.
        """
        if seconds is not None:
            seconds = min(threading.TIMEOUT_MAX, seconds)  # the maximum time to wait for a lock
        if not self._places.acquire(timeout=seconds):
            raise QueryError(
                f"{PROCESSES} other queries are still running after {seconds:g} s; try again"
            )
        call = cancellable or CancellableCall()
        try:
            child = self._idle() or _Child(*self._start)
            try:
                with self._cancelled_by_close(call), call.running(child):
                    answer = child.call(arguments, seconds)
            except McptallyError:
                self._free.append(child)
                raise
            except BaseException as error:
                child.kill()
                if isinstance(error, _KilledError):
                    why = "was cancelled"
                    if seconds is not None and not call.is_cancelled:
                        why = f"took more than {seconds:g} s and was stopped; {_ADVICE}"
                    raise QueryError(f"the query {why}") from None
                if isinstance(error, _MemoryError):
                    raise QueryError(
                        f"the query took more than {self._memory} and was stopped; {_ADVICE} "
                        f"({error})"
                    ) from None
                raise
            self._free.append(child)
            return answer
        finally:
            self._places.release()

    def _idle(self) -> "_Child | None":
        """Return a live process that is waiting for a call, or None."""
        while self._free:
            with contextlib.suppress(IndexError):  # another thread has taken the process
                if (child := self._free.pop()).is_alive():
                    return child
        return None


class _Child:
    """A child process that handles one call at a time."""

    def __init__(self, target: str, arguments: tuple[Any, ...]) -> None:
        self._stderr: Final = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the child)
        self._process: Final = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._stopped = False
        self._ready = False
        self.kill: Final = weakref.finalize(self, _end, self._process, self._stderr)
        self._send((target, arguments))

    def is_alive(self) -> bool:
        return not self._stopped and self._process.poll() is None

    def call(self, arguments: tuple[Any, ...], seconds: float | None) -> bytes:
        """Return the child's answer to a call. Starting the child does not count towards the limit.

        Raises:
            McptallyError: the function raised it.
            _KilledError: the function exceeded its time limit, or `stop` was called.
            _MemoryError: the function exceeded its memory limit.
        """
        if not self._ready:
            self._within(None if seconds is None else START_SECONDS, self._receive)
            self._ready = True
        self._send(arguments)
        return self._within(seconds, self._receive)

    def _within(self, seconds: float | None, step: Callable[[], bytes]) -> bytes:
        """Return the result of `step`; kill the process if it takes longer than `seconds`."""
        if seconds is None:
            return step()
        timer = threading.Timer(seconds, self.stop)
        timer.daemon = True
        timer.start()
        try:
            return step()
        finally:
            timer.cancel()

    def stop(self) -> None:
        """Kill the process, whose current call then raises `_KilledError`."""
        self._stopped = True
        self._process.kill()

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None  # noqa: S101  (it is a pipe)
        with contextlib.suppress(BrokenPipeError):  # the error is reported when the answer is read
            _write(self._process.stdin, _ANSWER, pickle.dumps(message))

    def _receive(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101  (it is a pipe)
        frame = _read(self._process.stdout)
        if frame is None:
            code = self._process.wait()
            if self._stopped:
                raise _KilledError
            self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 2000))
            output = self._stderr.read().decode(errors="replace").strip()
            raise _MemoryError(
                f"its process ended with code {code}{': ' if output else ''}{output}"
            )
        kind, content = frame
        if kind == _NO_MEMORY:
            raise _MemoryError(content.decode().partition("\n")[0])
        if kind == _FAULT:
            raise RuntimeError(f"in the child process of a query:\n{content.decode()}")
        if kind == _ERROR:
            raise _rebuilt_error(**json.loads(content))
        return content


def _end(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for file in (process.stdin, process.stdout, stderr):
        with contextlib.suppress(OSError):  # unsent data cannot be flushed
            if file is not None:
                file.close()
    remove_abandoned()


def _write(pipe: IO[bytes], kind: bytes, content: bytes | memoryview) -> None:
    pipe.write(_FRAME.pack(kind, len(content)))
    pipe.write(content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Return the kind and content of the next frame in a pipe, or None at the end of the pipe."""
    head = pipe.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    kind, size = _FRAME.unpack(head)
    content = pipe.read(size)
    return (kind, content) if len(content) == size else None


def _rebuilt_error(kind: str, message: str, cause: str | None) -> McptallyError:
    """Build the exception that the child process reported.

    Args:
        kind: name of a class in `errors`.
        message: the error message.
        cause: name of the class of DuckDB error that caused the exception, if any.
    """
    error: McptallyError = getattr(errors, kind)(message)
    if cause is not None:
        error.__cause__ = getattr(duckdb, cause, duckdb.Error)(message)
    return error


def limit_memory(most: int) -> None:
    """Limit the memory that this process may allocate to 1.25 times `most` bytes plus `HEADROOM`.

    On Linux, RLIMIT_DATA counts writable memory, but not the gigabytes of address space that DuckDB
    and Arrow merely reserve. Other systems have no such limit.
    """
    if sys.platform != "linux":
        return
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  (not a regular file)
        data = next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, ((data << 10) + most + most // 4 + HEADROOM,) * 2)


def _main() -> None:
    """Run a child process: build the function, and call it for each frame on stdin."""
    import signal  # noqa: PLC0415  (only the child needs it)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles SIGINT and kills the child
    # A core dump would contain recorded traffic.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # `print` must not write into the frames
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        # A separate thread notices that the parent has exited, even while native code runs.
        while (frame := _read(sys.stdin.buffer)) is not None:
            calls.put(pickle.loads(frame[1]))  # noqa: S301  (the parent wrote it)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    target, arguments = calls.get()
    module, _, name = target.partition(":")
    kind, function = _outcome(lambda: getattr(importlib.import_module(module), name)(*arguments))
    _write(answers, kind, b"" if kind == _ANSWER else function)
    while kind == _ANSWER:
        given = calls.get()
        kind, content = _outcome(functools.partial(function, *given))
        _write(answers, kind, content)
        if kind == _ERROR:  # ordinary errors do not end the child, which can handle further calls
            kind = _ANSWER
    os._exit(0)  # skip the exit handlers, in which DuckDB reports registered functions as leaks


def _outcome(step: Callable[[], Any]) -> tuple[bytes, Any]:
    """Run a step; return the kind and content of the frame that reports its result or error."""
    try:
        return _ANSWER, step()
    except (McptallyError, duckdb.Error, MemoryError) as error:
        cause = error.__cause__ if isinstance(error, McptallyError) else error
        # DuckDB reports errors in Python UDFs only as text.
        if isinstance(cause, duckdb.OutOfMemoryException | MemoryError) or "MemoryError" in str(
            cause
        ):
            return _NO_MEMORY, str(error).encode("utf-8", "replace")
        kind = type(error).__name__ if isinstance(error, McptallyError) else "QueryError"
        duckdb_kind = type(cause).__name__ if isinstance(cause, duckdb.Error) else None
        fields = {"kind": kind, "message": str(error), "cause": duckdb_kind}
        return _ERROR, json.dumps(fields).encode()
    except Exception:  # noqa: BLE001  (a bug of mcptally: the parent raises it)
        return _FAULT, traceback.format_exc().encode("utf-8", "replace")
