"""Run a stdio server and record its traffic, from its start to its exit (POSIX; see windows.py)."""

import contextlib
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from mcptally.record.server_label import label
from mcptally.record.stdio import supervisor

if TYPE_CHECKING:
    from mcptally.record.stdio.relay import Relay
    from mcptally.record.writer.recording import Archive, Recording

_FORWARDED: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")

_CLIENT_CHECK_SECONDS: Final = 0.25
_DRAIN_SECONDS: Final = 1.0
"""After all processes of the server have ended, no traffic for this long ends the recording."""

NOT_STARTED: Final = 127
"""Exit code when the server cannot be started."""


def run(
    command: Sequence[str], *, archive: "Callable[[], Archive]", name: str | None = None
) -> int:
    """Run `command`, record its traffic and return its exit code (128 + signal, 127 not started).

    `archive` is called after the server was started, so that their start-ups overlap.
    """
    signals = _SignalForwarder()
    try:
        server = supervisor.start(command)
    except OSError as error:
        from mcptally.record.log import log_to_stderr  # noqa: PLC0415 - start-up

        log_to_stderr(f"cannot start {command[0]!r}: {error.strerror}")
        return NOT_STARTED
    signals.send_to(server.control)

    from mcptally.record.stdio.relay import FrameStream, Relay, StderrStream  # noqa: PLC0415
    from mcptally.record.stdio.sink import Sink, client_sink  # noqa: PLC0415

    output = archive()
    recording = output.prepare(transport="stdio", server=name or label(command), command=command)
    cap = output.limits.frame_bytes
    stdout = client_sink(1)
    relay = Relay(
        recording=recording,
        from_client=FrameStream(0, Sink(server.stdin), recording, direction="c2s", cap=cap),
        from_server=FrameStream(
            server.stdout, stdout or Sink(1), recording, direction="s2c", cap=cap
        ),
        stderr=StderrStream(server.stderr, client_sink(2), recording),
    )
    stall_seconds = output.limits.stall_seconds
    code = _StdioSession(
        command, server, recording, relay, signals, stall_seconds=stall_seconds
    ).run()
    output.close()
    return code


class _SignalForwarder:
    """Forwards signals to the server; stores those that arrive before it has started."""

    def __init__(self) -> None:
        self._pending = b""
        self._control = -1
        self.end_requested = False
        for name in _FORWARDED:
            number = getattr(signal, name, None)
            # A signal that the client ignores (nohup) stays ignored, here and in the server.
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._receive)

    def send_to(self, control: int) -> None:
        pending, self._pending, self._control = self._pending, b"", control
        if pending:
            self._send(pending)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.end_requested = True
        self._send(bytes([number]))

    def _send(self, numbers: bytes) -> None:
        if self._control < 0:
            self._pending += numbers
        else:
            with contextlib.suppress(OSError):
                os.write(self._control, numbers)


class _StdioSession:
    """The main thread of a recording: watches the server, the client and the disk."""

    def __init__(
        self,
        command: Sequence[str],
        server: supervisor.SupervisedServer,
        recording: "Recording",
        relay: "Relay",
        signals: _SignalForwarder,
        *,
        stall_seconds: float | None,
    ) -> None:
        self._command = command
        self._server = server
        self._recording = recording
        self._relay = relay
        self._signals = signals
        self._stall_seconds = stall_seconds
        self._status = b""
        self._start_errno: int | None = None
        self._exit_code: int | None = None
        self._processes_ended = False
        self._processes_ended_at = 0.0
        self._last_busy_since = 0.0
        self._client_gone_at: float | None = None
        self._ended_by_recorder = False
        self._relay_failed = False
        self._client_pid = os.getppid()
        self._stdout_is_file = stat.S_ISREG(os.fstat(1).st_mode)
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    def run(self) -> int:
        self._relay.on_change = self._wake
        self._start_relay_thread(self._relay.run)
        poll = select.poll()
        poll.register(self._wake_r, select.POLLIN)
        poll.register(self._server.status, select.POLLIN)
        while not self._is_finished():
            for fd, _ in poll.poll(self._poll_timeout_ms()):
                if fd == self._wake_r:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_r, 4096)
                elif not self._read_status():
                    poll.unregister(fd)
            self._check_disk()
            self._check_client()
        return self._close_recording()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_w, b".")

    def _start_relay_thread(self, work: Callable[[], None]) -> None:
        def relay() -> None:
            # Signals must interrupt the main thread's poll.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                work()
            except BaseException:
                # Nothing is relayed any more: end the server, so that the client does not wait.
                self._relay_failed = True
                self._request_server_end()
                raise
            finally:
                self._wake()

        threading.Thread(target=relay, name="mcptally-relay", daemon=True).start()

    def _poll_timeout_ms(self) -> int | None:
        """The timeout of the main loop in milliseconds; None if it need not wake up by itself."""
        if self._relay.done and not self._processes_ended:
            return None
        if self._exit_code is not None or not self._relay.from_client.open:
            return int(_CLIENT_CHECK_SECONDS * 1000)
        if self._relay.from_client.source_ended:
            return int(_CLIENT_CHECK_SECONDS * 1000)
        if self._last_busy_since:
            return int(_CLIENT_CHECK_SECONDS * 1000)
        return 1000 if self._relay.watchdog_active else None

    def _read_status(self) -> bool:
        """Read status lines from the supervisor process; False at end of file."""
        chunk = os.read(self._server.status, 256)
        self._status += chunk
        *lines, self._status = self._status.split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"failed":
                self._start_errno = int(number)
            elif word == b"exit":
                self._exit_code = int(number)
            elif word == b"clean":
                self._mark_processes_ended()
        if not chunk:
            self._mark_processes_ended()
        return bool(chunk)

    def _mark_processes_ended(self) -> None:
        """Note that the server and all processes it started have ended."""
        if not self._processes_ended:
            self._processes_ended = True
            self._processes_ended_at = time.monotonic()

    def _is_finished(self) -> bool:
        if not self._processes_ended:
            return False
        if self._relay.done or self._relay_failed or self._start_errno is not None:
            return True
        # Another process holds the server's stdout open. End when nothing was written for a while,
        # and the client has read everything, has gone, or has sent a signal. The time counts from
        # the end of the server at the earliest: its last output may still be in the pipe.
        if (
            time.monotonic() - max(self._relay.last_transfer, self._processes_ended_at)
            <= _DRAIN_SECONDS
        ):
            return False
        if self._relay.from_server.pending:
            return self._signals.end_requested or self._relay.client_disconnected()
        return not self._relay.server_data_waiting()

    def _check_disk(self) -> None:
        """Let another thread relay if the relay thread is blocked by a write to disk."""
        busy_since = self._recording.busy_since
        previous, self._last_busy_since = self._last_busy_since, busy_since
        now = time.monotonic()
        if not busy_since:
            if now - self._relay.last_transfer > 2:
                self._relay.watchdog_active = False
        elif (
            # The same write in two checks: a process resumed after SIGSTOP needs time for it.
            previous == busy_since
            and not self._recording.stalled
            and self._stall_seconds is not None
            and now - busy_since > self._stall_seconds
        ):
            self._recording.mark_stalled()
            self._start_relay_thread(self._relay.continue_after_stall)

    def _wait_for_disk(self) -> None:
        checks = 0
        while self._recording.busy_since and not self._recording.stalled:
            time.sleep(0.005)
            checks += 1
            if checks % 50 == 0:
                self._check_disk()

    def _check_client(self) -> None:
        """End the server if the client has gone and the server does not end by itself."""
        if self._ended_by_recorder or self._exit_code is not None:
            return
        gone = self._relay.client_disconnected() or (
            (not self._relay.from_client.open or self._relay.from_client.source_ended)
            and os.getppid() != self._client_pid
            and not self._stdout_is_file
        )
        if not gone:
            self._client_gone_at = None
            return
        now = time.monotonic()
        if self._client_gone_at is None:
            self._client_gone_at = now
        elif now - self._client_gone_at >= supervisor.TERM_SECONDS:
            self._ended_by_recorder = True
            self._request_server_end()

    def _request_server_end(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._server.control, bytes([supervisor.END]))

    def _close_recording(self) -> int:
        if self._start_errno is not None:
            return self._not_started(self._start_errno)
        if self._exit_code is None:
            self._exit_code = -signal.SIGKILL  # killed with the supervisor process
        self._wait_for_disk()
        reason = None
        if self._ended_by_recorder:
            reason = "client_gone"
        elif self._signals.end_requested:
            reason = "signalled"
        return self._recording.close_with_exit(self._exit_code, reason=reason)

    def _not_started(self, number: int) -> int:
        from mcptally.record.log import log_to_stderr  # noqa: PLC0415 - loaded already

        program = self._command[0]
        why = f"cannot start {program!r}: {os.strerror(number)}"
        path = os.environ.get("PATH", os.defpath)
        if not program.strip():
            why = f"cannot start {program!r}: give the server's command after `--`"
        elif os.sep not in program:
            why += f"; PATH searched: {path}"
        log_to_stderr(why)
        self._wait_for_disk()
        self._recording.close(reason="not_started", exit_code=NOT_STARTED, detail=why, path=path)
        return NOT_STARTED
