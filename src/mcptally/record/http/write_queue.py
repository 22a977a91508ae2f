"""Records events in order; some wait until the event loop's current callback has finished."""

import contextlib
from collections.abc import Sequence

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.recordings import RecordingCall
from mcptally.transcript.writer.interface import WAKE_MS, ArchiveWriter


class WriteQueue:
    """Records events in order; recording errors do not stop traffic."""

    def __init__(self, loop: EventLoop, archive: ArchiveWriter) -> None:
        self._loop = loop
        self._archive = archive
        self._queued: list[RecordingCall] = []
        self._wakes = False

    def write(self, calls: Sequence[RecordingCall]) -> None:
        """Run the queued calls, then these calls."""
        if self._queued:
            calls, self._queued = [*self._queued, *calls], []
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - a bug in recording must not stop traffic
                with contextlib.suppress(OSError):
                    self._archive.log(f"an event could not be recorded: {error!r}")

        if calls and not self._wakes:
            self._wakes = True
            self._loop.call_later(WAKE_MS / 1000, self._wake)

    def _wake(self) -> None:
        self._wakes = False
        self._archive.wake()

    def enqueue(self, calls: Sequence[RecordingCall]) -> None:
        """Queue the calls; the event loop runs them after its current callback."""
        if not self._queued:
            self._loop.call_soon(lambda: self.write([]))
        self._queued += calls
