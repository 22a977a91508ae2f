"""Writes recordings in a separate process (POSIX), so disks and redaction do not delay traffic.

    recorder ──(events in the journal)───────── writer ── files
             ──(how far they may be read)────▶

When a method of `RemoteRecording` returns, its events are in the journal, which the recorder shares
with the writer process (journal.py), or they are counted as lost. The writer is a fork in its own
session. It ignores the signals that end a recorder, so it outlives the recorder. When the pipe is
closed and the queue is empty, it removes the journal and ends.

If the queue stays full for `Limits.stall_seconds`, events are lost and traffic continues. If the
writer dies, the recorder starts another writer, which continues each recording in a new segment:
the progress in the journal and the file show which events were written, and all other events are
still queued (executor.py). If recorder and writer die, the next recorder or reader of the folder
writes the queued events (recovery.py).

If the folder cannot contain a journal, events wait in anonymous memory. If the memory or the
process cannot be created, the constructor raises an error, and `opening.open_archive` falls back to
an archive in the recorder's process.
"""

import contextlib
import errno
import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from mcptally.plural import count
from mcptally.transcript.format import Transport
from mcptally.transcript.writer import journal as journals
from mcptally.transcript.writer.descriptors import detach_descriptors
from mcptally.transcript.writer.interface import WatchFunction
from mcptally.transcript.writer.journal import Journal
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.log import log_to_stderr, write_to_stderr
from mcptally.transcript.writer.progress import SLOTS
from mcptally.transcript.writer.remote_recording import RemoteRecording
from mcptally.transcript.writer.shared_queue import LIMIT_BYTES

_MAX_FAILURES: Final = 3
"""Number of consecutive writers that may end within a second and are still replaced."""

_RETRY_SECONDS: Final = 0.001

_IGNORED: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


class WriterProcess:
    """An archive that another process writes; it has the methods of `archive.Archive`.

    `policy` is the text of a redaction policy. The user of the class calls `wake` after recording
    events.

    Raises:
        OSError: from the constructor, if memory cannot be shared or the process cannot be started.
    """

    def __init__(
        self, folder: str, *, policy: str, limits: Limits, queue_bytes: int | None = None
    ) -> None:
        self.folder: Final = folder
        self.journal: Final = _journal(
            folder, policy, queue_bytes or journals.queue_bytes(limits.frame_bytes)
        )
        self.limits: Final = limits._replace(
            frame_bytes=min(limits.frame_bytes, self.journal.frame_bytes)
        )
        self.recordings: Final[dict[int, RemoteRecording]] = {}
        """Recordings by number, until the writer has executed their last call."""
        self._closed: deque[tuple[int, RemoteRecording]] = deque()
        """Closed recordings, each with the `head` of the queue after its last call."""
        self._free_slots: list[int] = []
        self._prepared = 0
        self._lost = 0
        """Number of lost events of closed recordings that were not reported to the writer."""
        self._events_put = 0
        """Total number of events put into the queue."""
        self.limit = 0
        """The `head` of the queue when the writer was started."""
        self._stalled_at = -1
        """The `tail` of the queue when it stalled; all events are lost until `tail` grows."""
        self._failures = 0
        self._started_at = 0.0
        self._pid = 0
        """Process id of the writer; 0 if there is no writer."""
        self._ended = -1
        """A pipe that carries the writer's messages and is closed when the writer exits."""
        self._wake = -1
        """Write end of a pipe that wakes the writer; it is closed when the recorder exits."""
        self._watch: WatchFunction = lambda _fd, _callback: None
        try:
            self._start()
        except OSError:
            self.journal.remove()
            raise

    def log(self, message: str) -> None:
        """Print a message for the user of the recorder."""
        log_to_stderr(message)

    def prepare(
        self,
        *,
        transport: Transport,
        server: str | None = None,
        command: Sequence[str] | None = None,
        url: str | None = None,
    ) -> RemoteRecording:
        """Return a recording without a file yet; `begin` or the first event creates the file."""
        self._forget_closed()
        number = self._prepared = self._prepared + 1
        recording = RemoteRecording(
            number=number,
            slot=self._free_slots.pop() if self._free_slots else self._new_slot(),
            put=self._put,
            largest=self.journal.queue.largest,
            save_lost=self.journal.progress.save_lost,
            on_closed=self._keep_closed,
            transport=transport,
            server=server,
            command=None if command is None else list(command),
            url=url,
        )
        self.recordings[number] = recording
        return recording

    def _new_slot(self) -> int:
        slot = self.journal.queue.slots
        if not self.journal.allocate_slot(slot):
            return SLOTS  # no slot is left, so the progress is not saved
        self.journal.queue.slots = slot + 1
        return slot

    def watch(self, watch: WatchFunction) -> None:
        """Register with an event loop, to restart the writer when it ends."""
        self._watch = watch
        if self._pid:
            watch(self._ended, self._on_ended)

    def close(self) -> None:
        """Wait until the writer has written everything, unless it makes no progress."""
        self._wait_for_writer()
        lost = self._lost + sum(recording.lost for recording in self.recordings.values())
        waiting = 0 if self._pid else self._events_put - self.journal.queue.counters.events
        if waiting and self.journal.path:
            self.log(
                f"{count(waiting, 'event')} wait in {self.journal.path}; "
                f"`mcptally check {self.folder}` writes them"
            )
        elif lost := lost + waiting:
            self.log(f"{count(lost, 'event')} could not be recorded")

    def wait_until_written(self) -> None:
        """Wait until all events so far are in the files; give up if the disk is too slow."""
        limit, began = self.limits.stall_seconds, time.monotonic()
        counters = self.journal.queue.counters
        while self._pid and counters.tail < counters.head:
            if limit is not None and time.monotonic() - began > limit:
                return
            if self._has_ended(_RETRY_SECONDS) and not self._restart():
                return
            counters = self.journal.queue.counters

    def _wait_for_writer(self) -> None:
        while self._pid:
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1
            counters = None
            while not self._has_ended(self.limits.stall_seconds):
                if counters == (counters := self.journal.queue.counters):
                    self.log(f"the recording is still being written, by process {self._pid}")
                    return
            self._restart()

    # --- the process ----------------------------------------------------------------------------

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self.limit = self.journal.queue.counters.head
        fds: list[int] = []
        try:
            for _ in range(2):
                fds += os.pipe()
            self._pid = os.fork()
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        wake, self._wake, self._ended, ended = fds
        os.set_blocking(self._wake, False)
        if self._pid == 0:
            try:
                _detach(ended, wake, self.journal.fd)
                from mcptally.transcript.writer.serve import serve  # noqa: PLC0415 - start-up

                serve(self, wake)
                os._exit(0)
            except BaseException as error:  # noqa: BLE001 - it must not return to the recorder
                self.log(f"the process that writes the recording failed: {error!r}")
            finally:
                os._exit(1)
        os.close(wake)
        os.close(ended)

    def _restart(self) -> bool:
        """Start another writer after one has ended; return False if no writer is running."""
        _, status = os.waitpid(self._pid, 0)
        was_closed = self._wake < 0
        self._watch(self._ended, None)
        os.close(self._ended)
        if not was_closed:
            os.close(self._wake)
            self._wake = -1  # a socket may get this number; do not write to it
        self._pid = 0
        if was_closed and status == 0:
            return False
        soon = time.monotonic() - self._started_at < 1
        self._failures = self._failures + 1 if soon else 1
        if self._failures > _MAX_FAILURES:
            self.log("the process that writes the recording ended again: nothing is recorded")
            return False
        ended = os.waitstatus_to_exitcode(status)
        how = f"by signal {-ended}" if ended < 0 else f"with exit code {ended}"
        self.log(f"the process that writes the recording ended {how}; another one continues")
        try:
            self._start()
        except OSError as error:
            self.log(f"nothing is recorded: cannot start the writer process: {error.strerror}")
            return False
        self._watch(self._ended, self._on_ended)
        return True

    def _on_ended(self) -> None:
        if not self._print_messages():
            self._restart()

    def _has_ended(self, seconds: float | None) -> bool:
        """Wait at most `seconds` for the writer to end; return whether it has ended."""
        poll = select.poll()  # `select` does not support descriptors above 1023
        poll.register(self._ended, select.POLLIN)
        while poll.poll(None if seconds is None else math.ceil(seconds * 1000)):
            if not self._print_messages():
                return True
        return False

    def _print_messages(self) -> bool:
        """Print pending messages from the writer; return False if the writer has exited."""
        messages = os.read(self._ended, 65536)
        if messages:
            write_to_stderr(messages)
        return bool(messages)

    # --- the queue -------------------------------------------------------------------------------

    def _put(self, parts: Sequence[bytes], events: int) -> bool:
        """Put a record into the queue; return False if no space became free in time."""
        if not self._pid:
            return False
        if self._stalled_at >= 0:
            if self._stalled_at == self.journal.queue.counters.tail:
                return False
            self._stalled_at = -1
        if not (self.journal.queue.put(parts) or self._wait_and_put(parts)):
            return False
        self._events_put += events
        return True

    def wake(self) -> None:
        """Wake the writer to execute the calls that are now in the queue."""
        head = self.journal.queue.counters.head
        with contextlib.suppress(
            OSError
        ):  # the pipe is full: the writer has not yet read earlier messages
            os.write(self._wake, head.to_bytes(LIMIT_BYTES, "little"))

    def _wait_and_put(self, parts: Sequence[bytes]) -> bool:
        self.wake()
        limit = self.limits.stall_seconds
        waiting_since, taken = time.monotonic(), self.journal.queue.counters.tail
        while limit is None or time.monotonic() - waiting_since < limit:
            if self._has_ended(_RETRY_SECONDS) and not self._restart():
                return False
            if self.journal.queue.put(parts):
                return True
            if taken != (taken := self.journal.queue.counters.tail):
                waiting_since = time.monotonic()
        self._stalled_at = taken
        self.log(
            f"events are not written to {self.folder} in time; traffic goes on without recording, "
            "and a gap event will count the lost events"
        )
        return False

    def _keep_closed(self, recording: RemoteRecording) -> None:
        """Keep a recording until the writer has executed its last call."""
        self._closed.append((self.journal.queue.counters.head, recording))

    def _forget_closed(self) -> None:
        taken = self.journal.queue.counters.tail
        while self._closed and self._closed[0][0] <= taken:
            recording = self._closed.popleft()[1]
            del self.recordings[recording.number]
            # If the call of `close` was lost, the writer will read the slot when it ends.
            if recording.slot < SLOTS and not recording.lost:
                self._free_slots.append(recording.slot)
            self._lost += recording.lost


def _journal(folder: str, policy: str, size: int) -> Journal:
    """Return a journal in `folder` or, if the folder is not writable, in anonymous memory."""
    try:
        return journals.create(folder, policy=policy, size=size)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        log_to_stderr(
            f"cannot keep a journal in {folder}: {error.strerror}; events that are not written yet "
            "are lost if the recorder and its writer are killed at once"
        )
        return Journal(size, policy=policy)


def _detach(messages: int, *kept: int) -> None:
    """Make a forked writer independent of the recorder, except for its pipes and the journal.

    Its stderr is the pipe `messages`, so that the recorder's stderr is closed when the recorder
    ends, even if the writer is still waiting for a disk.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    detach_descriptors(*kept, stderr=messages)
    if hasattr(os, "SCHED_BATCH"):
        # The writer must not preempt the recorder or its peers when an event arrives.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
