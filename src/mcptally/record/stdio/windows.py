"""A stdio server behind the recorder on Windows: threads in the place of poll, a job of processes.

Written without a Windows machine: what is not Windows' own (threads, order of record and relay,
exit codes) is tested elsewhere by running it there; the job object, the parent's handle and
binary mode are not. Differences from POSIX: docs/explanation/recorder.md.
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
from typing import TYPE_CHECKING, Any, Final

from mcptally.record.log import log_to_stderr
from mcptally.record.server_label import label
from mcptally.record.writer.recording import Archive, Recording
from mcptally.wire.framing import Splitter, StderrLines

if TYPE_CHECKING:
    from mcptally.transcript.format import Dir

_CHUNK: Final = 65536
_GRACE_SECONDS: Final = 2.0
_CHECK_SECONDS: Final = 0.25
_IDLE_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 1.0

NOT_STARTED: Final = 127
"""Exit code when the server cannot be started."""


def run(
    command: Sequence[str], *, archive: "Callable[[], Archive]", name: str | None = None
) -> int:
    """Run `command` behind the recorder and return its exit code (127: not started)."""
    with contextlib.suppress(ValueError):
        # Ctrl-C reaches the server too, which shares our console: it decides, and we follow.
        signal.signal(signal.SIGINT, lambda *_: None)
    _set_binary_mode()
    client = _ClientProcess()
    server, error = _start(command)
    to = archive()
    recording = to.open(transport="stdio", server=name or label(command), command=command)
    if server is None:
        code = _not_started(command, recording, error)
    else:
        code = _ThreadedRelay(server, recording, cap=to.limits.frame_bytes, client=client).run()
    to.close()
    return code


def _start(command: Sequence[str]) -> "tuple[subprocess.Popen[bytes] | None, OSError | None]":
    # Popen alone finds only .exe; npx and its like are .cmd files, which PATHEXT knows.
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


def _not_started(command: Sequence[str], recording: Recording, error: OSError | None) -> int:
    path = os.environ.get("PATH", os.defpath)
    why = f"cannot start {command[0]!r}: {error}; PATH searched: {path}"
    log_to_stderr(why)
    recording.close(reason="not_started", exit_code=NOT_STARTED, detail=why, path=path)
    return NOT_STARTED


class _ThreadedRelay:
    """Three threads, one a stream; every chunk is recorded before it is passed on."""

    def __init__(
        self,
        server: "subprocess.Popen[bytes]",
        recording: Recording,
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
        """Move bytes until the server has ended and all it wrote has passed."""
        stdin, stdout, stderr = (
            stream.fileno() if stream is not None else -1
            for stream in (self._server.stdin, self._server.stdout, self._server.stderr)
        )
        threads = [
            threading.Thread(target=work, args=args, daemon=True)
            for work, args in (
                (self._relay_frames, (0, stdin, "c2s")),
                (self._relay_frames, (stdout, 1, "s2c")),
                (self._relay_stderr, (stderr,)),
            )
        ]
        for thread in threads:
            thread.start()
        ended = False
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
                    ended = True
        code = self._server.wait()
        # Silence begins with the end: its last words may still be in the pipes.
        self._last_transfer = time.monotonic()
        for thread in threads[1:]:
            while thread.is_alive() and time.monotonic() - self._last_transfer < _DRAIN_SECONDS:
                thread.join(_CHECK_SECONDS)
        return self._recording.close_with_exit(code, reason="client_gone" if ended else None)

    def _relay_frames(self, source: int, target: int, direction: "Dir") -> None:
        splitter = Splitter(cap=self._cap)
        for chunk in _chunks(source):
            if pieces := splitter.feed(chunk):
                self._recording.frames(pieces, dir=direction)
            if not _write_all(target, chunk):
                break
            self._last_transfer = time.monotonic()
        if (rest := splitter.end()) is not None:
            self._recording.frame(rest, dir=direction, unterminated=True)
        if source == 0:
            self._input_ended.set()
        with contextlib.suppress(OSError):
            os.close(target)
        if source != 0:
            with contextlib.suppress(OSError):
                os.close(source)

    def _relay_stderr(self, source: int) -> None:
        lines = StderrLines()
        relayed = True
        for chunk in _chunks(source):
            self._recording.stderr(lines.feed(chunk))
            # Without a reader it is drained all the same: the server must not wait for one.
            relayed = relayed and _write_all(2, chunk)
            self._last_transfer = time.monotonic()
        self._recording.stderr(lines.end())


def _chunks(source: int) -> Iterator[bytes]:
    """What a descriptor gives until its end; an error is an end."""
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


# --- what only Windows has ------------------------------------------------------------------------


def _set_binary_mode() -> None:
    """Without this, Windows turns line ends of our three streams into others."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - does not exist elsewhere

        for fd in range(3):
            with contextlib.suppress(OSError):
                msvcrt.setmode(fd, os.O_BINARY)


class _ClientProcess:
    """The client's process, held open so that its end can be seen."""

    def __init__(self) -> None:
        self._handle: Any = None
        if sys.platform == "win32":
            import ctypes  # noqa: PLC0415 - start-up

            synchronize = 0x0010_0000
            self._kernel = ctypes.windll.kernel32
            self._kernel.OpenProcess.restype = ctypes.c_void_p
            self._handle = self._kernel.OpenProcess(synchronize, 0, os.getppid())

    def has_exited(self) -> bool:
        """Whether the client has ended; False where that cannot be known."""
        if sys.platform == "win32" and self._handle:
            import ctypes  # noqa: PLC0415 - loaded by now

            return bool(self._kernel.WaitForSingleObject(ctypes.c_void_p(self._handle), 0) == 0)
        return False


def _assign_to_job(server: "subprocess.Popen[bytes]") -> None:
    """Tie the server and all it starts to our own life: the job's last handle is ours."""
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
