"""The writer process: executes the calls in the queue on an `Archive` until the recorder ends."""

import contextlib
import marshal
import os
import select
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mcptally.transcript.writer.archive import Archive
from mcptally.transcript.writer.calls import (
    Call,
    decode_events,
    decode_piece,
    large_pieces,
    small_frames,
)
from mcptally.transcript.writer.clock import Clock
from mcptally.transcript.writer.interface import WAKE_MS
from mcptally.transcript.writer.recording import Recording
from mcptally.transcript.writer.segment_writer import Progress
from mcptally.transcript.writer.shared_queue import LIMIT_BYTES

if TYPE_CHECKING:
    from mcptally.transcript.writer.process import WriterProcess

_KILLED: Final = "the process that writes the recording ended while it wrote them"
_INCOMPLETE: Final = "the process that writes the recording ended before it had all their bytes"

_EVENTS: Final = frozenset({"frames", "stderr", "events"})
"""Calls that only record events. All others change more than the file, and are repeated by the next
process if the last one ended during them: each of them ends a batch."""

_BATCHED: Final = _EVENTS | {"part"}
"""Calls after which a batch may continue."""

_UNANNOUNCED_MS: Final = 5 * WAKE_MS
"""Time that a message about events in the queue may take; usually it takes WAKE_MS."""

_BATCH_BYTES: Final = 64 * 1024
"""Bytes of calls that are executed before their events are written."""


def serve(remote: "WriterProcess", wake: int) -> None:
    """Execute calls until the pipe `wake` has ended and the queue is empty."""
    writer = _Writer(remote)
    writer.execute_again()
    limit = remote.limit
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    while True:
        writer.execute_until(limit)
        head = remote.queue.counters.head
        if head != limit and not poll.poll(_UNANNOUNCED_MS):
            limit = head  # the pipe was full; what was stored so long ago is visible
        elif message := os.read(wake, 65536):
            limit = int.from_bytes(message[-LIMIT_BYTES:], "little")
        else:
            break
    writer.execute_until(remote.queue.counters.head)
    writer.archive.close()


class _Writer:
    """The recordings of the writer process, by number."""

    def __init__(self, remote: "WriterProcess") -> None:
        self.archive: Final = Archive(
            remote.folder,
            policy=remote.policy(),
            limits=remote.limits,
            log=remote.log,
            buffered=True,
        )
        self._queue = remote.queue
        self._progress = remote.progress
        self._recordings: dict[int, Recording] = {}
        self._slots: dict[int, int] = {}
        self._written: dict[int, int] = {}
        """Events that the last process wrote of the calls that are executed again."""
        self._executed: dict[int, int] = {}
        """Value of `begun` after the last call that the last process executed and saved."""
        self._batch: set[int] = set()
        """Numbers of the recordings with events in the current batch."""
        self._batch_events = 0
        self._now = 0
        self._parts: list[bytes] = []
        self._parts_of = 0
        """Number of the recording that the parts belong to."""
        for number, recording in remote.recordings.items():
            saved = self._progress.load(recording.slot, number)
            if saved is not None:
                self._executed[number], progress = saved
                self._prepare(number, **recording.arguments)
                self._written[number] = self._recordings[number].resume(Progress(*progress))

    def execute_again(self) -> None:
        """Execute the batch during which the last process ended, call by call.

        If the batch has only one call, its events are counted as lost: it may end this process too.
        """
        last = self._queue.begin_again()
        is_first = True
        while (record := self._queue.begin(last)) is not None:
            is_only = is_first and self._queue.counters.begun == last
            self._execute(marshal.loads(record), record, is_suspect=is_only)  # noqa: S302
            self._end_batch()
            is_first = False
        self._written.clear()
        self._executed.clear()

    def execute_until(self, limit: int) -> None:
        """Execute the calls in the queue before `limit`."""
        queue = self._queue
        batch: list[tuple[Call, bytes]] = []
        while (record := queue.begin(limit)) is not None:
            call: Call = marshal.loads(record)  # noqa: S302 - from the recorder
            batch.append((call, record))
            if queue.begun_bytes >= _BATCH_BYTES or call[2] not in _BATCHED:
                self._execute_batch(batch)
                batch = []
        self._execute_batch(batch)

    def _execute_batch(self, batch: Sequence[tuple[Call, bytes]]) -> None:
        """Execute calls, after one search for secrets in all their small frames."""
        frames = [frame for call, _ in batch for frame in small_frames(call)]
        with contextlib.suppress(Exception):  # a failing policy fails for each frame again
            self.archive.clean_frames = self.archive.policy.clean_frames(frames)
        for call, record in batch:
            self._execute(call, record)
        self._end_batch()

    def _end_batch(self) -> None:
        """Write the events of the current batch, and remove its calls from the queue."""
        begun = self._queue.counters.begun
        for number in self._batch:
            recording = self._recordings[number]
            recording.flush()
            self._progress.save(self._slots[number], number, (begun, tuple(recording.progress)))
        self._batch.clear()
        self._queue.done(self._batch_events)
        self._batch_events = 0

    def _execute(self, call: Call, record: bytes, *, is_suspect: bool = False) -> None:
        """Execute a call. If it may have ended the last process, count its events as lost."""
        number, self._now, method, events, items, sizes, arguments = call
        self._batch_events += events
        if self._executed and self._queue.counters.begun <= self._executed.get(number, 0):
            return
        if number != self._parts_of:
            # Parts of another recording are left over from an event that was lost.
            self._parts, self._parts_of = [], number
        if method == "part":
            self._parts.append(record[len(record) - sizes[0] :])
            return
        parts, self._parts = self._parts, []
        if method == "prepare" and number not in self._recordings:
            self._prepare(number, **arguments)
        recording = self._recordings.get(number)
        if recording is None:
            return
        self._batch.add(number)
        if method in _EVENTS:
            written = 0
            if self._written:
                written = min(events, self._written.get(number, 0))
                self._written[number] = self._written.get(number, 0) - written
            if is_suspect:
                recording.count_lost(events - written, _KILLED)
            elif written < events:
                large = large_pieces(sizes, b"".join(parts) if parts else record)
                if large is None:
                    recording.count_lost(events - written, _INCOMPLETE)
                else:
                    _record(recording, method, items[written:], large, arguments)
            return
        if method != "prepare":
            getattr(recording, method)(**arguments)
        self._end_batch()
        if method == "close":
            del self._recordings[number], self._slots[number]

    def _prepare(self, number: int, *, slot: int, began_ns: int, **arguments: Any) -> None:
        self._now = began_ns
        clock = Clock(wall=lambda: began_ns, steady=lambda: self._now)
        self._recordings[number] = self.archive.prepare(clock=clock, **arguments)
        self._slots[number] = slot


def _record(
    recording: Recording,
    method: str,
    items: Sequence[Any],
    large: Sequence[bytes],
    arguments: dict[str, Any],
) -> None:
    """Record the events of one call."""
    if method == "events":
        recording.events(decode_events(items, large))
        return
    pieces = [decode_piece(item, large) for item in items]
    if method == "frames":
        recording.frames(pieces, **arguments)
    else:
        recording.stderr([line for line in pieces if isinstance(line, bytes)])
