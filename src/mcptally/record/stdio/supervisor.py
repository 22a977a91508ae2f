"""Starts the server from a supervisor process that later ends the server's processes (POSIX).

    client ── recorder ──(pipes)── server
                 └── supervisor ──────┘ parent of the server

The supervisor process is a fork of the recorder without the relayed pipes. It forwards signals and
reports the exit status. When the server or the recorder has exited, it ends the processes that the
server left running. On Linux, the supervisor is a subreaper, so it also finds processes that left
the server's group, and the kernel kills the server if the supervisor dies. On other systems, the
supervisor ends the server's process group.
"""

import contextlib
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mcptally.transcript.writer.descriptors import detach_descriptors

END: Final = 0x80
"""Control byte: terminate the server and its children, first with SIGTERM, then SIGKILL."""

TERM_SECONDS: Final = 2.0
"""Seconds from closing stdin or SIGTERM to the next step, as in the MCP SDKs."""

LEFTOVER_SECONDS: Final = 0.3
"""Seconds that the server's child processes have to exit after the server."""

ORPHAN_SECONDS: Final = 0.5
"""Seconds between SIGTERM and SIGKILL after the recorder was killed."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_GROUP_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
"""Signals that are sent to the server's process group, as a terminal does. Other signals go only to
the server."""


class SupervisedServer(NamedTuple):
    """The descriptors of a started server: its three streams, and the supervisor's two pipes."""

    stdin: int
    stdout: int
    stderr: int
    control: int
    """Accepts signal numbers and END. Closing this descriptor ends all processes."""
    status: int
    """Yields the lines `failed ERRNO` (not started), `exit CODE` (-N for signal N) and `clean`."""


def start(command: Sequence[str]) -> SupervisedServer:
    """Start `command` in this process's environment and folder, with pipes as its three streams.

    Raises:
        OSError: the limit on descriptors or processes has been reached.
    """
    _open_missing_standard_fds()
    fds: list[int] = []
    try:
        for _ in range(5):
            fds += os.pipe()
        child = os.fork()
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    in_r, in_w, out_r, out_w, err_r, err_w, control_r, control_w, status_r, status_w = fds
    if child == 0:
        try:
            os.setpgid(0, 0)
            for fd in (in_w, out_r, err_r, control_w, status_r):
                os.close(fd)
            _run_supervisor(command, (in_r, out_w, err_w), control_r, status_w)
        finally:
            os._exit(70)
    for fd in (in_r, out_w, err_w, control_r, status_w):
        os.close(fd)
    os.set_blocking(in_w, False)
    os.set_blocking(out_r, False)
    os.set_blocking(err_r, False)
    return SupervisedServer(in_w, out_r, err_r, control_w, status_r)


def _open_missing_standard_fds() -> None:
    """Open /dev/null for closed descriptors 0, 1 and 2, so that no pipe gets these numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _run_supervisor(
    command: Sequence[str], streams: tuple[int, int, int], control: int, status: int
) -> None:
    prctl = _prctl()
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    own_pid = os.getpid()
    server = os.fork()
    if server == 0:
        try:
            _exec_server(command, streams, status, own_pid, prctl)
        finally:
            os._exit(127)
    with contextlib.suppress(OSError):
        os.setpgid(server, server)  # the server calls setpgid too, and either call may come first
    detach_descriptors(control, status)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _Supervisor(server, control, status).run()
    os._exit(0)


def _prctl() -> "Callable[[int, int], int] | None":
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - imported in the supervisor only

    function = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: int(function(option, ctypes.c_ulong(value), 0, 0, 0))


def _exec_server(
    command: Sequence[str],
    streams: tuple[int, int, int],
    status: int,
    supervisor_pid: int,
    prctl: "Callable[[int, int], int] | None",
) -> None:
    """Replace this process with the server; report the errno if that fails."""
    os.setpgid(0, 0)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor_pid:
            return
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
    # Python ignores these two signals: restore the default, which the client would pass on.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is wanted
    except OSError as error:
        failure = error
    except ValueError:
        # The name is empty or has a NUL byte: report the C library's error.
        failure = OSError(errno.ENOENT, "")
    if failure.errno == errno.ENOEXEC:
        # Run a script without `#!` with sh, as the C library's execvp and node do.
        with contextlib.suppress(OSError):
            os.execv("/bin/sh", ["/bin/sh", *command])  # noqa: S606
    os.write(status, b"failed %d\n" % (failure.errno or 0))


class _Supervisor:
    """The main loop of the supervisor process.

    It reports `exit CODE` when the server has exited, and `clean` when none of its processes is
    left.
    """

    def __init__(self, server: int, control: int, status: int) -> None:
        self._server = server
        self._control = control
        self._status = status
        self._server_running = True
        self._recorder_running = True
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_r, False)
        os.set_blocking(wake_w, False)
        os.set_blocking(control, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wake = wake_r
        self._poll = select.poll()
        self._poll.register(wake_r, select.POLLIN)
        self._poll.register(control, select.POLLIN)

    def run(self) -> None:
        while self._server_running and self._recorder_running:
            for byte in self._wait(None):
                if byte == END:
                    self._end_all(TERM_SECONDS)
                else:
                    self._forward_signal(byte)
        if self._recorder_running:
            self._end_leftover_processes()
        else:
            self._end_all(ORPHAN_SECONDS)
        self._report(b"clean\n")

    def _wait(self, seconds: float | None) -> bytes:
        """Wait for a control byte, a child's exit or the timeout; return the control bytes read."""
        self._reap()
        if not self._server_running and seconds is None:
            return b""
        self._poll.poll(None if seconds is None else max(0, round(seconds * 1000)))
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 512)
        control = b""
        if self._recorder_running:
            try:
                control = os.read(self._control, 64)
                if not control:
                    self._recorder_running = False
                    self._poll.unregister(self._control)
            except BlockingIOError:
                pass
        self._reap()
        return control

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._server:
                self._server_running = False
                self._report(b"exit %d\n" % os.waitstatus_to_exitcode(status))

    def _report(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._status, line)

    def _forward_signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            if self._server_running:
                os.kill(-self._server if number in _GROUP_SIGNALS else self._server, number)

    def _end_leftover_processes(self) -> None:
        if self._wait_until_ended(LEFTOVER_SECONDS):
            return
        self._end_all(TERM_SECONDS / 4)

    def _end_all(self, grace: float) -> None:
        self._kill_all(signal.SIGTERM)
        if self._wait_until_ended(grace):
            return
        for _ in range(40):  # repeat the kill, because a process may fork while it is being killed
            self._kill_all(signal.SIGKILL)
            if self._wait_until_ended(0.05):
                return

    def _wait_until_ended(self, seconds: float) -> bool:
        """Wait until the server's processes have ended; return False on timeout."""
        deadline = time.monotonic() + seconds
        step = 0.005
        while True:
            self._reap()
            if not self._server_running and not self._remaining_processes():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for byte in self._wait(min(left, step)):
                if byte == signal.SIGKILL:
                    return False
            step = min(step * 2, 0.05)

    def _kill_all(self, number: int) -> None:
        for pid in self._remaining_processes():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _remaining_processes(self) -> list[int]:
        """Return the server's running processes.

        These are pids on Linux; on other systems, the negated id of the process group.
        """
        if sys.platform == "linux":
            return _descendants(os.getpid())
        else:  # noqa: RET505  (without `else`, mypy reports unreachable code)
            try:
                os.kill(-self._server, 0)
            except OSError:
                return []
            return [-self._server]


def _descendants(root: int) -> list[int]:
    """Return the pids of all descendants of `root`, without zombies (Linux)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - called often while waiting
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - same
                    # The command name is in parentheses and may contain any character.
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found
