"""Writes recordings in a separate process: neither disks nor redaction delay traffic (POSIX).

    recorder ──(events in shared memory)─────── writer ── files
             ──(how far they may be read)────▶

When a call of a `RemoteRecording` returns, its events are in memory that the recorder shares with
the writer process (shared_queue.py), or they are counted as lost. The writer is a fork in its own
session. It ignores the signals that end a recorder, and so outlives the recorder: it ends when the
pipe has ended and the queue is empty.

If the queue stays full for `Limits.stall_seconds`, events are lost and traffic goes on. If the
writer dies, the recorder starts another one, which continues each recording in a new segment: what
was written is known from the progress in shared memory and from the file, and the rest is in the
queue. The batch of calls that the dead writer was executing is executed call by call; a call during
which a writer dies again is lost, because it may kill the next writer too.

Without the memory or the process, the constructor raises an error, and `opening.open_archive`
uses an archive in the process of the recorder.
"""

import contextlib
import marshal
import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mcptally.record.limits import Limits
from mcptally.record.log import log_to_stderr, write_to_stderr
from mcptally.record.writer.clock import Clock, new_id
from mcptally.record.writer.interface import ExchangeEvent, WatchFunction
from mcptally.record.writer.progress import ProgressTable
from mcptally.record.writer.shared_queue import LIMIT_BYTES, QUEUE_BYTES, SharedQueue
from mcptally.transcript.format import Dir, Transport
from mcptally.wire.framing import Piece

if TYPE_CHECKING:
    from mcptally.redaction.policy import Policy

Call = tuple[int, int, str, int, list[Any], list[int], dict[str, Any]]
"""Number of the recording, time (ns), method, number of its events, its pieces or events, sizes of
its large pieces, other arguments.

The bytes of large pieces are at the end of the record, and an index stands for each of them. A
`TruncatedFrame` is a plain tuple."""

_LARGE: Final = 64 * 1024
"""Pieces of at least this many bytes are copied into the queue without being encoded."""

_PART: Final = 4 * 1024 * 1024
"""Size of the parts of a piece that is larger than the queue takes at once."""

_MAX_FAILURES: Final = 3
"""How many writers in a row may end within a second of their start and still be replaced."""

_LARGE_CALL: Final = 4 * 1024 * 1024
"""Bytes reserved for the part of a record that is not large pieces."""

_RETRY_SECONDS: Final = 0.001

_STALLED: Final = "the process that writes the recording was too slow"

_IGNORED: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


class WriterProcess:
    """An archive whose files another process writes; it has the calls of `archive.Archive`.

    `policy` is called in that process. After one or several events the caller calls `wake`.

    Raises:
        OSError: from the constructor, if memory cannot be shared or the process cannot be started.
    """

    def __init__(
        self,
        folder: str,
        *,
        policy: "Callable[[], Policy]",
        limits: Limits,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.folder: Final = folder
        self.limits: Final = limits
        self.policy: Final = policy
        self.queue: Final = SharedQueue(queue_bytes)
        self.progress: Final = ProgressTable()
        self.recordings: Final[dict[int, RemoteRecording]] = {}
        """The recordings whose last call the writer has not executed, by number."""
        self._closed: deque[tuple[int, RemoteRecording]] = deque()
        """Closed recordings, each with the `head` of the queue after its last call."""
        self._free_slots: list[int] = []
        self._prepared = 0
        self._lost = 0
        """Lost events that the writer does not know about, of recordings that it has closed."""
        self._events_put = 0
        """Number of events in all records that were put into the queue."""
        self.limit = 0
        """The `head` of the queue when the writer was started."""
        self._stalled_at = -1
        """The `tail` of the queue when it stalled: until it moves, all events are lost."""
        self._failures = 0
        self._started_at = 0.0
        self._pid = 0
        """Process id of the writer; 0 if there is no writer."""
        self._ended = -1
        """A pipe that ends with the writer and yields its messages."""
        self._wake = -1
        """Write end of a pipe that wakes the writer; its end tells it that the recorder ended."""
        self._watch: WatchFunction = lambda _fd, _callback: None
        self._start()

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
    ) -> "RemoteRecording":
        """A recording without a file yet; `begin` or the first event creates it."""
        self._forget_closed()
        number = self._prepared = self._prepared + 1
        recording = RemoteRecording(
            self,
            number=number,
            slot=self._free_slots.pop() if self._free_slots else len(self.recordings),
            transport=transport,
            server=server,
            command=None if command is None else list(command),
            url=url,
        )
        self.recordings[number] = recording
        return recording

    def watch(self, watch: WatchFunction) -> None:
        """Register with an event loop, to restart the writer when it ends."""
        self._watch = watch
        if self._pid:
            watch(self._ended, self._on_ended)

    def close(self) -> None:
        """Wait until the writer has written everything, unless it makes no progress."""
        self._wait_for_writer()
        lost = self._lost + sum(recording.lost for recording in self.recordings.values())
        if not self._pid:
            lost += self._events_put - self.queue.counters.events
        if lost:
            self.log(f"{lost} events could not be recorded")

    def _wait_for_writer(self) -> None:
        while self._pid:
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1
            counters = None
            while not self._has_ended(self.limits.stall_seconds):
                if counters == (counters := self.queue.counters):
                    self.log(f"the recording is still being written, by process {self._pid}")
                    return
            self._restart()

    # --- the process ----------------------------------------------------------------------------

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self.limit = self.queue.counters.head
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
                _detach(wake, ended)
                from mcptally.record.writer.serve import serve  # noqa: PLC0415 - start-up

                serve(self, wake)
                os._exit(0)
            except BaseException as error:  # noqa: BLE001 - it must not return to the recorder
                self.log(f"the process that writes the recording failed: {error!r}")
            finally:
                os._exit(1)
        os.close(wake)
        os.close(ended)

    def _restart(self) -> bool:
        """Start another writer after one has ended; return False if no writer runs."""
        _, status = os.waitpid(self._pid, 0)
        was_closed = self._wake < 0
        self._watch(self._ended, None)
        os.close(self._ended)
        if not was_closed:
            os.close(self._wake)
            self._wake = -1  # the number may be that of a socket soon: `wake` must not write there
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
        poll = select.poll()  # not `select`, which takes no descriptor over 1023
        poll.register(self._ended, select.POLLIN)
        while poll.poll(None if seconds is None else math.ceil(seconds * 1000)):
            if not self._print_messages():
                return True
        return False

    def _print_messages(self) -> bool:
        """Print waiting messages of the writer; return False if it has ended."""
        messages = os.read(self._ended, 65536)
        if messages:
            write_to_stderr(messages)
        return bool(messages)

    # --- handing over ---------------------------------------------------------------------------

    def put(self, parts: Sequence[bytes], *, events: int) -> bool:
        """Put a record into the queue; return False if there was no room for it in time."""
        if not self._pid:
            return False
        if self._stalled_at >= 0:
            if self._stalled_at == self.queue.counters.tail:
                return False
            self._stalled_at = -1
        if not (self.queue.put(parts) or self._wait_and_put(parts)):
            return False
        self._events_put += events
        return True

    def wake(self) -> None:
        """Wake the writer, and let it execute what is in the queue now."""
        head = self.queue.counters.head
        with contextlib.suppress(OSError):  # full: the writer has yet to read earlier messages
            os.write(self._wake, head.to_bytes(LIMIT_BYTES, "little"))

    def _wait_and_put(self, parts: Sequence[bytes]) -> bool:
        self.wake()
        limit = self.limits.stall_seconds
        waiting_since, taken = time.monotonic(), self.queue.counters.tail
        while limit is None or time.monotonic() - waiting_since < limit:
            if self._has_ended(_RETRY_SECONDS) and not self._restart():
                return False
            if self.queue.put(parts):
                return True
            if taken != (taken := self.queue.counters.tail):
                waiting_since = time.monotonic()
        self._stalled_at = taken
        self.log(
            f"events are not written to {self.folder} in time; traffic goes on without recording, "
            "and a gap event will count the lost events"
        )
        return False

    def closed(self, recording: "RemoteRecording") -> None:
        """Keep a recording until the writer has executed its last call."""
        self._closed.append((self.queue.counters.head, recording))

    def _forget_closed(self) -> None:
        taken = self.queue.counters.tail
        while self._closed and self._closed[0][0] <= taken:
            recording = self._closed.popleft()[1]
            del self.recordings[recording.number]
            self._free_slots.append(recording.slot)
            self._lost += recording.lost


class RemoteRecording:
    """A recording that the writer process writes; it has the calls of `recording.Recording`."""

    def __init__(self, writer: WriterProcess, *, number: int, slot: int, **arguments: Any) -> None:
        self.number: Final = number
        self.slot: Final = slot
        self._clock = Clock()
        self.arguments: Final = {
            **arguments,
            "slot": slot,
            "began_ns": self._clock.began_ns,
            "recording_id": new_id(),
        }
        """Arguments of `Archive.prepare`, and what else the writer needs to know."""
        self.lost = 0
        """Events that could not be handed over and that the writer does not know about."""
        self._writer = writer
        self._is_prepared = False
        self._is_closed = False

    def begin(self) -> None:
        """Create the file now; otherwise the first event creates it."""
        self._call("begin", 0, [], {})

    def frame(
        self,
        piece: Piece,
        *,
        dir: Dir,  # noqa: A002 - name of the field in transcripts
        scope: str | None = None,
        wire_bytes: int | None = None,
        **fields: Any,
    ) -> None:
        """Record a frame."""
        self._call(
            "frame", 1, [piece], {"dir": dir, "scope": scope, "wire_bytes": wire_bytes, **fields}
        )

    def frames(self, pieces: Sequence[Piece], *, dir: Dir) -> None:  # noqa: A002
        """Record several frames."""
        self._call("frames", len(pieces), pieces, {"dir": dir})

    def stderr(self, lines: Sequence[bytes]) -> None:
        """Record lines of stderr."""
        self._call("stderr", len(lines), lines, {})

    def events(self, events: Sequence[ExchangeEvent]) -> None:
        """Record events of an HTTP exchange."""
        large: list[bytes] = []
        encoded = [
            event
            if isinstance(event, bytes) or _is_small(event[0])
            else (_encode_piece(event[0], large), *event[1:])
            for event in events
        ]
        self._hand_over("events", len(encoded), encoded, large, {})

    def close(
        self,
        *,
        reason: str,
        exit_code: int | None = None,
        signal: int | None = None,
        **fields: Any,
    ) -> None:
        """End the recording."""
        if not self._is_closed:
            end = {"reason": reason, "exit_code": exit_code, "signal": signal, **fields}
            self._call("close", 1, [], end)
            self._is_closed = True
            self._writer.closed(self)

    def _call(
        self, method: str, events: int, pieces: Sequence[Piece], arguments: dict[str, Any]
    ) -> None:
        large: list[bytes] = []
        encoded = [_encode_piece(piece, large) for piece in pieces]
        self._hand_over(method, events, encoded, large, arguments)

    def _hand_over(
        self,
        method: str,
        events: int,
        encoded: list[Any],
        large: list[bytes],
        arguments: dict[str, Any],
    ) -> None:
        """Hand over a call, or count its events as lost."""
        now = self._clock.now()
        sizes = [len(piece) for piece in large] if large else []
        if not (
            (self._is_prepared or self._prepare())
            and (not self.lost or self._hand_over_lost(now))
            and (not large or self._fits(large) or self._put_parts(now, large))
            and self._put((self.number, now, method, events, encoded, sizes, arguments), large)
        ):
            self.lost += events

    def _prepare(self) -> bool:
        call: Call = (self.number, self._clock.began_ns, "prepare", 0, [], [], self.arguments)
        self._is_prepared = self._put(call, [])
        return self._is_prepared

    def _hand_over_lost(self, now: int) -> bool:
        arguments = {"events": self.lost, "why": _STALLED}
        if not self._put((self.number, now, "count_lost", self.lost, [], [], arguments), []):
            return False
        self.lost = 0
        return True

    def _fits(self, large: list[bytes]) -> bool:
        return sum(map(len, large)) <= self._writer.queue.largest - _LARGE_CALL

    def _put_parts(self, now: int, large: list[bytes]) -> bool:
        """Hand over the bytes of pieces that do not fit into one record, and empty `large`."""
        for piece in large:
            for start in range(0, len(piece), _PART):
                part = piece[start : start + _PART]
                if not self._put((self.number, now, "part", 0, [], [len(part)], {}), [part]):
                    return False
        large.clear()
        return True

    def _put(self, call: Call, large: list[bytes]) -> bool:
        return self._writer.put([marshal.dumps(call), *large], events=call[3])


def _is_small(piece: Piece) -> bool:
    """Whether the piece is encoded as it is."""
    return isinstance(piece, bytes) and len(piece) < _LARGE


def _encode_piece(piece: Piece, large: list[bytes]) -> Any:
    """The form of a piece in a `Call`; a large piece is added to `large`."""
    if _is_small(piece):
        return piece
    if not isinstance(piece, bytes):
        return tuple(piece)
    large.append(piece)
    return len(large) - 1


def _detach(wake: int, messages: int) -> None:
    """Make a forked writer independent of the recorder, except for the two pipes.

    Its stderr is the pipe `messages`: the client must see the end of the recorder's stderr when the
    recorder ends, even if the writer still waits for a disk.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(messages, 2)
    if hasattr(os, "SCHED_BATCH"):
        # When an event arrives, the writer must not preempt the recorder and its peers.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.closerange(3, wake)
    os.closerange(wake + 1, os.sysconf("SC_OPEN_MAX"))
