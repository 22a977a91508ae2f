"""A stdio server behind the recorder, from its start to its exit code (POSIX; windows.py else)."""

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

_CLIENT_LOOK_SECONDS: Final = 0.25
_DRAIN_SECONDS: Final = 1.0
"""After everything of the server's is gone, silence of this length ends the recording."""

NOT_STARTED: Final = 127
"""Exit code when the server cannot be started."""


def run(
    command: Sequence[str], *, archive: "Callable[[], Archive]", name: str | None = None
) -> int:
    """Run `command` behind the recorder and return its exit code (128 + signal, 127 not started).

    The server is started before the archive is made, so that its start and ours overlap.
    """
    signals = _Signals()
    try:
        server = supervisor.start(command)
    except OSError as error:
        from mcptally.record.log import log_to_stderr  # noqa: PLC0415 - start-up

        log_to_stderr(f"cannot start {command[0]!r}: {error.strerror}")
        return NOT_STARTED
    signals.send_to(server.control)

    from mcptally.record.stdio.relay import FrameLane, Relay, StderrLane  # noqa: PLC0415
    from mcptally.record.stdio.sink import Sink, client_sink  # noqa: PLC0415

    to = archive()
    recording = to.prepare(transport="stdio", server=name or label(command), command=command)
    cap = to.limits.frame_bytes
    stdout = client_sink(1)
    relay = Relay(
        recording=recording,
        from_client=FrameLane(0, Sink(server.stdin), recording, way="c2s", cap=cap),
        from_server=FrameLane(server.stdout, stdout or Sink(1), recording, way="s2c", cap=cap),
        stderr=StderrLane(server.stderr, client_sink(2), recording),
    )
    stall_seconds = to.limits.stall_seconds
    code = _Session(command, server, recording, relay, signals, stall_seconds=stall_seconds).run()
    to.leave()
    return code


class _Signals:
    """Signals that come for the server, kept until there is one to pass them to."""

    def __init__(self) -> None:
        self._waiting = b""
        self._control = -1
        self.came = False
        for name in _FORWARDED:
            number = getattr(signal, name, None)
            # What the client had ignored (nohup) stays ignored, here and in the server.
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._receive)

    def send_to(self, control: int) -> None:
        waiting, self._waiting, self._control = self._waiting, b"", control
        if waiting:
            self._send(waiting)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.came = self.came or number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._send(bytes([number]))

    def _send(self, numbers: bytes) -> None:
        if self._control < 0:
            self._waiting += numbers
        else:
            with contextlib.suppress(OSError):
                os.write(self._control, numbers)


class _Session:
    """The main thread of a recording: waits for the server's end, the client's, and the disk."""

    def __init__(
        self,
        command: Sequence[str],
        server: supervisor.Guarded,
        recording: "Recording",
        relay: "Relay",
        signals: _Signals,
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
        self._failed: int | None = None
        self._exit: int | None = None
        self._clean = False
        self._clean_at = 0.0
        self._seen_busy = 0.0
        self._client_gone_at: float | None = None
        self._ended = False
        self._relay_died = False
        self._parent = os.getppid()
        self._answers_to_file = stat.S_ISREG(os.fstat(1).st_mode)
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    def run(self) -> int:
        self._relay.on_change = self._wake
        self._in_thread(self._relay.run)
        poll = select.poll()
        poll.register(self._wake_r, select.POLLIN)
        poll.register(self._server.status, select.POLLIN)
        while not self._over():
            for fd, _ in poll.poll(self._patience()):
                if fd == self._wake_r:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_r, 4096)
                elif not self._read_status():
                    poll.unregister(fd)
            self._look_after_disk()
            self._look_after_client()
        return self._close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_w, b".")

    def _in_thread(self, work: Callable[[], None]) -> None:
        def relay() -> None:
            # Signals are the main thread's: they must interrupt its waiting.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                work()
            except BaseException:
                # Nothing is relayed any more: a client must not wait for it.
                self._relay_died = True
                self._send_end()
                raise
            finally:
                self._wake()

        threading.Thread(target=relay, name="mcptally-relay", daemon=True).start()

    def _patience(self) -> int | None:
        """Milliseconds until there is something to look after; None when only events matter."""
        if self._relay.done and not self._clean:
            return None
        if self._exit is not None or not self._relay.from_client.open:
            return int(_CLIENT_LOOK_SECONDS * 1000)
        if self._relay.from_client.source_ended:
            return int(_CLIENT_LOOK_SECONDS * 1000)
        if self._seen_busy:
            return int(_CLIENT_LOOK_SECONDS * 1000)
        return 1000 if self._relay.watched else None

    def _read_status(self) -> bool:
        """Take in what the guardian says; False at its end."""
        chunk = os.read(self._server.status, 256)
        self._status += chunk
        *lines, self._status = self._status.split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"failed":
                self._failed = int(number)
            elif word == b"exit":
                self._exit = int(number)
            elif word == b"clean":
                self._is_clean()
        if not chunk:
            self._is_clean()
        return bool(chunk)

    def _is_clean(self) -> None:
        """Nothing of the server's runs any more."""
        if not self._clean:
            self._clean = True
            self._clean_at = time.monotonic()

    def _over(self) -> bool:
        if not self._clean:
            return False
        if self._relay.done or self._relay_died or self._failed is not None:
            return True
        # Something outside our reach holds the server's stdout open: end when it is silent, and
        # the client has had all there was, or has asked us to end. Silence begins with the
        # server's end at the earliest: its last words may still be in the pipe.
        if time.monotonic() - max(self._relay.moved_at, self._clean_at) <= _DRAIN_SECONDS:
            return False
        if self._relay.from_server.pending:
            return self._signals.came or self._relay.client_is_gone()
        return not self._relay.has_more()

    def _look_after_disk(self) -> None:
        """Take traffic away from a thread that waits for a disk which does not answer."""
        busy_since = self._recording.busy_since
        seen, self._seen_busy = self._seen_busy, busy_since
        now = time.monotonic()
        if not busy_since:
            if now - self._relay.moved_at > 2:
                self._relay.watched = False
        elif (
            # Twice the same: a process that was held as a whole has had no turn to write.
            seen == busy_since
            and not self._recording.stalled
            and self._stall_seconds is not None
            and now - busy_since > self._stall_seconds
        ):
            self._recording.stall()
            self._in_thread(self._relay.take_over)

    def _wait_for_disk(self) -> None:
        turns = 0
        while self._recording.busy_since and not self._recording.stalled:
            time.sleep(0.005)
            turns += 1
            if turns % 50 == 0:
                self._look_after_disk()

    def _look_after_client(self) -> None:
        """A server whose client is gone and that does not end by itself is ended."""
        if self._ended or self._exit is not None:
            return
        gone = self._relay.client_is_gone() or (
            (not self._relay.from_client.open or self._relay.from_client.source_ended)
            and os.getppid() != self._parent
            and not self._answers_to_file
        )
        if not gone:
            self._client_gone_at = None
            return
        now = time.monotonic()
        if self._client_gone_at is None:
            self._client_gone_at = now
        elif now - self._client_gone_at >= supervisor.TERM_SECONDS:
            self._ended = True
            self._send_end()

    def _send_end(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._server.control, bytes([supervisor.END]))

    def _close(self) -> int:
        if self._failed is not None:
            return self._not_started(self._failed)
        if self._exit is None:
            self._exit = -signal.SIGKILL  # with its guardian
        self._wait_for_disk()
        reason = "client_gone" if self._ended else "signalled" if self._signals.came else None
        return self._recording.server_ended(self._exit, reason=reason)

    def _not_started(self, number: int) -> int:
        from mcptally.record.log import log_to_stderr  # noqa: PLC0415 - loaded by now

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
