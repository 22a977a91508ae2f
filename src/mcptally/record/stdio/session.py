"""Runs a stdio server and records its traffic from start to exit."""

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from mcptally.record.server_label import label
from mcptally.record.stdio import supervisor
from mcptally.transcript.writer.interface import (
    NOT_STARTED,
    WAKE_MS,
    close_not_started,
    close_with_exit,
)
from mcptally.transcript.writer.log import log_to_stderr

if TYPE_CHECKING:
    from mcptally.record.stdio.relay import Relay
    from mcptally.transcript.writer.interface import ArchiveWriter, RecordingWriter

_FORWARDED: Final = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH),
)

_CLIENT_CHECK_SECONDS: Final = 0.25
_DRAIN_SECONDS: Final = 1.0
"""Seconds without traffic after which a recording ends once the server has exited."""


def run(
    command: Sequence[str], *, archive: "Callable[[], ArchiveWriter]", name: str | None = None
) -> int:
    """Run `command`, record its traffic and return its exit code (128 + signal; 127: not started).

    `archive` is called after the server is started, so that server and archive start concurrently,
    and before the relay is imported, so that a forked writer process is small.
    """
    signals = _SignalForwarder()
    try:
        server = supervisor.start(command)
    except OSError as error:
        log_to_stderr(f"cannot start {command[0]!r}: {error.strerror}")
        return NOT_STARTED
    signals.send_to(server.control)
    output = archive()

    from mcptally.record.stdio.relay import FrameStream, Relay, StderrStream  # noqa: PLC0415
    from mcptally.record.stdio.sink import Sink, client_sink  # noqa: PLC0415

    recording = output.prepare(transport="stdio", server=name or label(command), command=command)
    cap = output.limits.frame_bytes
    stdout = client_sink(1)
    relay = Relay(
        from_client=FrameStream(0, Sink(server.stdin), recording, direction="c2s", cap=cap),
        from_server=FrameStream(
            server.stdout, stdout or Sink(1), recording, direction="s2c", cap=cap
        ),
        stderr=StderrStream(server.stderr, client_sink(2), recording),
    )
    code = _StdioSession(command, server, output, recording, relay, signals).run()
    output.close()
    return code


class _SignalForwarder:
    """Forwards signals to the server; stores signals that arrive before it has started."""

    def __init__(self) -> None:
        self._pending = b""
        self._control = -1
        self.end_requested = False
        for number in _FORWARDED:
            # A signal that the client ignores (nohup) stays ignored here and in the server.
            if signal.getsignal(number) != signal.SIG_IGN:
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
    """Runs a recording from start to end: relays bytes, and watches the server and the client."""

    def __init__(
        self,
        command: Sequence[str],
        server: supervisor.SupervisedServer,
        archive: "ArchiveWriter",
        recording: "RecordingWriter",
        relay: "Relay",
        signals: _SignalForwarder,
    ) -> None:
        self._command = command
        self._server = server
        self._archive = archive
        self._recording = recording
        self._relay = relay
        self._signals = signals
        self._status = b""
        self._start_errno: int | None = None
        self._exit_code: int | None = None
        self._processes_ended = False
        self._processes_ended_at = 0.0
        self._client_gone_at: float | None = None
        self._ended_by_recorder = False
        self._quit = False
        """Whether the server exited with 0 although the client had not closed its end."""
        self._client_pid = os.getppid()
        self._stdout_is_file = stat.S_ISREG(os.fstat(1).st_mode)

    def run(self) -> int:
        relay = self._relay
        relay.watch(self._server.status, self._read_status)
        self._archive.watch(relay.watch)
        self._recording.begin()
        self._archive.wake()
        self._archive.wait_until_written()
        woken_at = 0.0
        try:
            while not self._is_finished():
                relay.step(WAKE_MS if relay.has_recorded else self._poll_timeout_ms())
                self._check_client()
                if relay.has_recorded and (now := time.monotonic()) - woken_at >= WAKE_MS / 1000:
                    self._archive.wake()
                    woken_at, relay.has_recorded = now, False
        except Exception as error:  # noqa: BLE001 - the client must not wait for the server
            log_to_stderr(f"internal error, the server is ended: {error!r}; please report this")
            self._request_server_end()
            while not self._processes_ended:
                self._read_status()
        return self._close_recording()

    def _poll_timeout_ms(self) -> int | None:
        """Return the main loop's timeout in milliseconds; None means no timeout."""
        if self._relay.done and not self._processes_ended:
            return None
        client = self._relay.from_client
        is_ending = self._exit_code is not None or not client.open or client.writer_closed
        return int(_CLIENT_CHECK_SECONDS * 1000) if is_ending else None

    def _read_status(self) -> None:
        """Read status lines from the supervisor process."""
        chunk = os.read(self._server.status, 256)
        self._status += chunk
        *lines, self._status = self._status.split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"failed":
                self._start_errno = int(number)
            elif word == b"exit":
                self._exit_code = int(number)
                self._quit = not self._exit_code and not self._relay.from_client.writer_closed
            elif word == b"clean":
                self._mark_processes_ended()
        if not chunk:
            self._mark_processes_ended()
            self._relay.watch(self._server.status, None)

    def _mark_processes_ended(self) -> None:
        """Store that the server and all processes that it started have ended."""
        if not self._processes_ended:
            self._processes_ended = True
            self._processes_ended_at = time.monotonic()

    def _is_finished(self) -> bool:
        if not self._processes_ended:
            return False
        if self._relay.done or self._start_errno is not None:
            return True
        # Another process has the server's stdout open. End the recording when nothing was written
        # for a while, and the client has read everything, has disconnected, or has sent a signal.
        # The wait starts only when the server has exited, because its last output may still be in
        # the pipe.
        if (
            time.monotonic() - max(self._relay.last_transfer, self._processes_ended_at)
            <= _DRAIN_SECONDS
        ):
            return False
        if self._relay.from_server.pending:
            return self._signals.end_requested or self._relay.client_disconnected()
        return not self._relay.server_data_waiting()

    def _check_client(self) -> None:
        """Terminate the server if the client has gone and the server does not exit by itself."""
        if self._ended_by_recorder or self._exit_code is not None:
            return
        gone = self._relay.client_disconnected() or (
            (not self._relay.from_client.open or self._relay.from_client.writer_closed)
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
            self._exit_code = -signal.SIGKILL  # the server was killed together with the supervisor
        reason = None
        if self._ended_by_recorder:
            reason = "client_gone"
        elif self._signals.end_requested:
            reason = "signalled"
        elif self._quit:
            reason = "server_quit"
        return close_with_exit(self._recording, self._exit_code, reason=reason)

    def _not_started(self, number: int) -> int:
        program = self._command[0]
        why = f"cannot start {program!r}: {os.strerror(number)}"
        if not program.strip():
            why = f"cannot start {program!r}: give the server's command after `--`"
        elif os.sep not in program:
            why += f"; PATH searched: {os.environ.get('PATH', os.defpath)}"
        return close_not_started(self._recording, why)
