"""Run a stdio server and record its traffic on Windows, with threads instead of `poll`.

This module was written without a Windows machine. The threads, the order of recording and relaying,
and the exit codes are portable and tested on POSIX. The job object, the handle of the client
process and binary mode are untested. docs/explanation/recorder.md lists the differences from POSIX.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from mcptally.record.server_label import label
from mcptally.transcript.writer.interface import (
    ArchiveWriter,
    RecordingWriter,
    close_not_started,
    close_with_exit,
)
from mcptally.wire.framing import FrameSplitter, StderrLines

if TYPE_CHECKING:
    from mcptally.transcript.format import Dir

_CHUNK: Final = 65536
_GRACE_SECONDS: Final = 2.0
_CHECK_SECONDS: Final = 0.25
_IDLE_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 1.0


def run(
    command: Sequence[str], *, archive: "Callable[[], ArchiveWriter]", name: str | None = None
) -> int:
    """Run `command`, record its traffic and return its exit code (127: not started)."""
    with contextlib.suppress(ValueError):
        # Ignore Ctrl-C: the server gets it too, and the recorder ends when the server does.
        signal.signal(signal.SIGINT, lambda *_: None)
    _set_binary_mode()
    client = _ClientProcess()
    server, error = _start(command)
    output = archive()
    recording = output.prepare(transport="stdio", server=name or label(command), command=command)
    recording.begin()
    if server is None:
        path = os.environ.get("PATH", os.defpath)
        why = f"cannot start {command[0]!r}: {error}; PATH searched: {path}"
        code = close_not_started(recording, why)
    else:
        code = _ThreadedRelay(server, recording, cap=output.limits.frame_bytes, client=client).run()
    output.close()
    return code


def _start(command: Sequence[str]) -> "tuple[subprocess.Popen[bytes] | None, OSError | None]":
    # Popen finds only .exe files. npx is a .cmd file, which shutil.which finds through PATHEXT.
    program = shutil.which(command[0]) or command[0]
    try:
        server = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    except OSError as error:
        return None, error
    _assign_to_job(server)
    return server, None


class _ThreadedRelay:
    """Relays each of the three streams in its own thread; records each chunk before relaying it."""

    def __init__(
        self,
        server: "subprocess.Popen[bytes]",
        recording: RecordingWriter,
        *,
        cap: int,
        client: "_ClientProcess",
    ) -> None:
        self._server = server
        self._recording = recording
        self._cap = cap
        self._client = client
        self._input_ended = threading.Event()
        self._last_transfer = time.monotonic()

    def run(self) -> int:
        """Relay until the server has exited and its output is relayed; return its exit code."""
        stdin, stdout, stderr = self._server.stdin, self._server.stdout, self._server.stderr
        if stdin is None or stdout is None or stderr is None:
            raise ValueError("the server's streams must be pipes")
        threads = [
            threading.Thread(target=relay, args=args, daemon=True)
            for relay, args in (
                (self._relay_frames, (0, stdin.fileno(), "c2s", stdin)),
                (self._relay_frames, (stdout.fileno(), 1, "s2c", stdout)),
                (self._relay_stderr, (stderr.fileno(),)),
            )
        ]
        for thread in threads:
            thread.start()
        server_killed = False
        while self._server.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(_CHECK_SECONDS if self._input_ended.is_set() else _IDLE_SECONDS)
            if (
                self._input_ended.is_set()
                and self._server.poll() is None
                and self._client.has_exited()
            ):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.wait(_GRACE_SECONDS)
                if self._server.poll() is None:
                    self._server.kill()
                    server_killed = True
        code = self._server.wait()
        # Count the drain time from the exit: the pipes may still hold the server's last output.
        self._last_transfer = time.monotonic()
        for thread in threads[1:]:
            while thread.is_alive() and time.monotonic() - self._last_transfer < _DRAIN_SECONDS:
                thread.join(_CHECK_SECONDS)
        return close_with_exit(
            self._recording, code, reason="client_gone" if server_killed else None
        )

    def _relay_frames(self, source: int, target: int, direction: "Dir", pipe: "IO[bytes]") -> None:
        """Relay frames from `source` to `target`; then close `target` and `pipe`, the server's end.

        `pipe` is closed through its file object: Python 3.13 reports an error at exit when only
        its descriptor was closed.
        """
        splitter = FrameSplitter(cap=self._cap)
        for chunk in _chunks(source):
            if pieces := splitter.feed(chunk):
                self._recording.frames(pieces, dir=direction)
            if not _write_all(target, chunk):
                break
            self._last_transfer = time.monotonic()
        if (rest := splitter.end()) is not None:
            self._recording.frames([rest], dir=direction, unterminated=True)
        if source == 0:
            self._input_ended.set()
        else:
            with contextlib.suppress(OSError):
                os.close(target)
        with contextlib.suppress(OSError):
            pipe.close()

    def _relay_stderr(self, source: int) -> None:
        lines = StderrLines()
        relayed = True
        for chunk in _chunks(source):
            self._recording.stderr(lines.feed(chunk))
            # Go on reading when the client has stopped: the server must not block on its stderr.
            relayed = relayed and _write_all(2, chunk)
            self._last_transfer = time.monotonic()
        self._recording.stderr(lines.end())


def _chunks(source: int) -> Iterator[bytes]:
    """Chunks read from a descriptor until end of file or an error."""
    with contextlib.suppress(OSError):
        while chunk := os.read(source, _CHUNK):
            yield chunk


def _write_all(target: int, chunk: bytes) -> bool:
    view = memoryview(chunk)
    try:
        while view:
            view = view[os.write(target, view) :]
    except OSError:
        return False
    return True


# --- Windows only -------------------------------------------------------------------------------


def _set_binary_mode() -> None:
    """Stop Windows from translating line endings on the recorder's three standard streams."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - does not exist elsewhere

        for fd in range(3):
            with contextlib.suppress(OSError):
                msvcrt.setmode(fd, os.O_BINARY)


class _ClientProcess:
    """The client's process, with an open handle that shows when the process has exited."""

    def __init__(self) -> None:
        self._handle: Any = None
        if sys.platform == "win32":
            import ctypes  # noqa: PLC0415 - start-up

            synchronize = 0x0010_0000
            self._kernel = ctypes.windll.kernel32
            self._kernel.OpenProcess.restype = ctypes.c_void_p
            self._handle = self._kernel.OpenProcess(synchronize, 0, os.getppid())

    def has_exited(self) -> bool:
        """Whether the client has exited; False when that cannot be determined."""
        if sys.platform == "win32" and self._handle:
            import ctypes  # noqa: PLC0415 - loaded by now

            return bool(self._kernel.WaitForSingleObject(ctypes.c_void_p(self._handle), 0) == 0)
        return False


def _assign_to_job(server: "subprocess.Popen[bytes]") -> None:
    """Put the server into a job object that kills it and its children when the recorder ends.

    The recorder holds the only handle of the job and never closes it.
    """
    if sys.platform == "win32":
        import ctypes  # noqa: PLC0415 - start-up
        from ctypes import wintypes  # noqa: PLC0415

        class Basic(ctypes.Structure):
            _fields_ = (
                ("PerProcessUserTimeLimit", ctypes.c_int64),
                ("PerJobUserTimeLimit", ctypes.c_int64),
                ("LimitFlags", wintypes.DWORD),
                ("MinimumWorkingSetSize", ctypes.c_size_t),
                ("MaximumWorkingSetSize", ctypes.c_size_t),
                ("ActiveProcessLimit", wintypes.DWORD),
                ("Affinity", ctypes.c_size_t),
                ("PriorityClass", wintypes.DWORD),
                ("SchedulingClass", wintypes.DWORD),
            )

        class Extended(ctypes.Structure):
            _fields_ = (
                ("BasicLimitInformation", Basic),
                ("IoInfo", ctypes.c_uint64 * 6),
                ("ProcessMemoryLimit", ctypes.c_size_t),
                ("JobMemoryLimit", ctypes.c_size_t),
                ("PeakProcessMemoryUsed", ctypes.c_size_t),
                ("PeakJobMemoryUsed", ctypes.c_size_t),
            )

        kill_on_close, extended_limits = 0x2000, 9
        kernel = ctypes.windll.kernel32
        kernel.CreateJobObjectW.restype = ctypes.c_void_p
        job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
        limits = Extended()
        limits.BasicLimitInformation.LimitFlags = kill_on_close
        kernel.SetInformationJobObject(
            job, extended_limits, ctypes.byref(limits), ctypes.sizeof(limits)
        )
        kernel.AssignProcessToJobObject(job, ctypes.c_void_p(int(getattr(server, "_handle", 0))))
