"""Write events to recordings: before their bytes are forwarded, or after the current callback."""

import contextlib
from collections.abc import Callable, Sequence

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.recordings import RecordingCall


class WriteQueue:
    """Writes events with the loop's `commit`, or counts them as lost while a write is stalled."""

    def __init__(self, loop: EventLoop, *, log: Callable[[str], None]) -> None:
        self._loop = loop
        self._log = log
        self._queued: list[RecordingCall] = []
        self._stall_logged = False

    def write(self, calls: Sequence[RecordingCall], then: Callable[[], None]) -> None:
        """Write the calls, then run `then`; no code may follow the call."""
        if self._queued:
            calls, self._queued = [*self._queued, *calls], []
        if not calls:
            then()
        elif self._loop.is_stalled:
            self._count_lost(calls)
            then()
        else:
            self._stall_logged = False
            self._loop.commit(lambda: self._write(calls), then)

    def enqueue(self, calls: Sequence[RecordingCall]) -> None:
        """Write the calls after the current callback."""
        if not self._queued:
            self._loop.call_soon(lambda: self.write([], lambda: None))
        self._queued += calls

    def flush(self) -> None:
        """Write the queued calls at the end of a run."""
        calls, self._queued = self._queued, []
        if self._loop.is_stalled:
            self._count_lost(calls)
        else:
            self._write(calls)

    def _write(self, calls: Sequence[RecordingCall]) -> None:
        for recording, name, arguments in calls:
            try:
                recording.call(name, arguments)
            except Exception as error:  # noqa: BLE001 - a bug in recording must not stop traffic
                with contextlib.suppress(OSError):
                    self._log(f"an event could not be recorded: {error!r}")

    def _count_lost(self, calls: Sequence[RecordingCall]) -> None:
        if not self._stall_logged:
            self._stall_logged = True
            self._log(
                "the disk is too slow; traffic goes on, and a gap event will count the lost events"
            )
        for recording, name, arguments in calls:
            recording.count_lost(name, arguments)
