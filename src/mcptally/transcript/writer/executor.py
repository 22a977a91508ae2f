"""Executes a journal's calls on an `Archive`, in the writer process or after it was killed."""

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from mcptally.transcript.writer.archive import Archive
from mcptally.transcript.writer.calls import STALLED, Call, decode_call, frames_of
from mcptally.transcript.writer.clock import Clock
from mcptally.transcript.writer.journal import Journal
from mcptally.transcript.writer.progress import Opening
from mcptally.transcript.writer.recording import Recording

_KILLED: Final = "the process that writes the recording ended while it wrote them"

_EVENTS: Final = frozenset({"frames", "stderr", "events"})
"""Calls that only record events. Any other call ends a batch, because it changes more than the
file: if the process exits during the other call, the next process repeats that call."""

_BATCH_BYTES: Final = 64 * 1024
"""Number of bytes of calls after which the events are written."""


class Executor:
    """Executes the calls in a journal; continues the recordings of a process that has ended.

    Raises:
        msgspec.DecodeError: from the constructor, if another program has written to the journal.
    """

    def __init__(self, journal: Journal, archive: Archive) -> None:
        self.archive: Final = archive
        self._queue = journal.queue
        self._progress = journal.progress
        self._recordings: dict[int, Recording] = {}
        self._slots: dict[int, int] = {}
        self._written: dict[int, int] = {}
        """Number of events that the previous process wrote for the calls that are executed
        again."""
        self._executed: dict[int, int] = {}
        """Value of `begun` after the last call that the previous process executed and saved."""
        self._batch: set[int] = set()
        """Numbers of the recordings with events in the current batch."""
        self._batch_events = 0
        self._now = 0
        for saved in self._progress.load(self._queue.slots):
            number = saved.number
            self._continue(number, saved.slot, saved.opening)
            self._executed[number] = saved.begun
            self._written[number] = self._recordings[number].resume(saved.progress)

    def execute_again(self) -> None:
        """Repeat, call by call, the batch during which the previous process ended.

        If two processes ended during a batch of one call, its events are counted as lost: the call
        might end this process too.
        """
        last, deaths = self._queue.begin_again()
        is_first = True
        while (record := self._queue.begin(last)) is not None:
            is_suspect = is_first and deaths > 1 and self._queue.counters.begun == last
            self._execute(decode_call(record), is_suspect=is_suspect)
            self._end_batch()
            is_first = False
        self._written.clear()
        self._executed.clear()

    def execute_until(self, limit: int) -> None:
        """Execute the queued calls up to, but not including, position `limit`."""
        queue = self._queue
        batch: list[Call] = []
        while (record := queue.begin(limit)) is not None:
            call = decode_call(record)
            batch.append(call)
            if queue.begun_bytes >= _BATCH_BYTES or call.method not in _EVENTS:
                self._execute_batch(batch)
                batch = []
        self._execute_batch(batch)

    def release(self) -> None:
        """Close the files without writing `close` events.

        A `gap` counts the events that the recorder lost last.
        """
        for number, recording in self._recordings.items():
            if lost := self._progress.lost(self._slots[number]):
                recording.segments.count_lost(lost, STALLED)
            recording.release()
        self.archive.close()

    def _execute_batch(self, batch: Sequence[Call]) -> None:
        """Execute calls, after searching all their small frames for secrets at once."""
        frames = [frame for call in batch for frame in frames_of(call)]
        with contextlib.suppress(Exception):  # the error occurs again when the frame is recorded
            self.archive.clean_frames = self.archive.policy.clean_frames(frames)
        for call in batch:
            self._execute(call)
        self._end_batch()

    def _end_batch(self) -> None:
        """Write the current batch's events, and remove its calls from the queue."""
        begun = self._queue.counters.begun
        for number in self._batch:
            recording = self._recordings[number]
            recording.flush()
            self._progress.save(self._slots[number], number, begun, recording.segments.progress)
        self._batch.clear()
        self._queue.done(self._batch_events)
        self._batch_events = 0

    def _execute(self, call: Call, *, is_suspect: bool = False) -> None:
        """Execute a call.

        If the call may have ended the previous process, count its events as lost.
        """
        number, self._now, method, events, items, _, arguments = call
        self._batch_events += events
        if self._executed and self._queue.counters.begun <= self._executed.get(number, 0):
            return
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
                recording.segments.count_lost(events - written, _KILLED)
            elif written < events:
                getattr(recording, method)(items[written:], **arguments)
            return
        if method == "count_lost":
            recording.segments.count_lost(**arguments)
        elif method == "close":
            recording.close(**arguments)
        elif method == "begin":
            recording.begin()
        self._end_batch()
        if method == "close":
            self._progress.forget(self._slots.pop(number))
            del self._recordings[number]

    def _prepare(self, number: int, *, slot: int, began_ns: int, **arguments: Any) -> None:
        self._recordings[number] = self.archive.prepare(clock=self._clock(began_ns), **arguments)
        self._slots[number] = slot
        self._progress.open(slot, number, self._recordings[number].segments.opening)

    def _continue(self, number: int, slot: int, opening: Opening) -> None:
        clock = self._clock(opening.began_ns)
        self._recordings[number] = self.archive.continued(opening, clock=clock)
        self._slots[number] = slot

    def _clock(self, began_ns: int) -> Clock:
        self._now = began_ns
        return Clock(wall=lambda: began_ns, steady=lambda: self._now)
