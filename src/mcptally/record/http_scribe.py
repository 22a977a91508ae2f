"""The thread that writes recordings, so that a dead disk cannot stop the traffic.

The event loop hands over what must be in the file before bytes are passed on, and waits, but not
longer than `STALL_SECONDS`. After that traffic goes on: what comes while the disk holds the
thread is counted as lost, and a `gap` says so once it lets go.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from mcptally.record.http_sessions import Call
from mcptally.record.writer import STALL_SECONDS

_CLOSE_SECONDS: Final = 5.0
"""How long `stop` waits for what is still to be written."""


class Scribe:
    """Runs calls in order in a thread of its own."""

    def __init__(self, *, say: Callable[[str], None], stall_seconds: float = STALL_SECONDS) -> None:
        self._say = say
        self._stall_seconds = stall_seconds
        self._jobs: SimpleQueue[tuple[Sequence[Call], threading.Lock | None] | None] = SimpleQueue()
        self._waiting_for: threading.Lock | None = None
        self._thread = threading.Thread(target=self._run, name="scribe", daemon=True)
        self._thread.start()

    def write(self, calls: Sequence[Call]) -> None:
        """Run `calls`; back when they have run, or when the disk took too long."""
        if not calls:
            return
        if self._stalled():
            _count_as_lost(calls)
            return
        done = threading.Lock()
        done.acquire()
        self._jobs.put((calls, done))
        if not done.acquire(timeout=self._stall_seconds):
            self._waiting_for = done
            self._say("the disk does not take what is recorded; traffic goes on, a gap will tell")

    def later(self, calls: Sequence[Call]) -> None:
        """Run `calls` soon, in order with everything else, without waiting."""
        if self._stalled():
            _count_as_lost(calls)
        elif calls:
            self._jobs.put((calls, None))

    def stop(self) -> None:
        """Finish what is to be written and end the thread."""
        self._jobs.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _stalled(self) -> bool:
        waiting = self._waiting_for
        if waiting is None:
            return False
        if not waiting.acquire(blocking=False):
            return True
        self._waiting_for = None
        return False

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            calls, done = job
            for log, name, arguments in calls:
                try:
                    log.call(name, arguments)
                except Exception as error:  # noqa: BLE001 - a bug in recording must not stop traffic
                    with contextlib.suppress(OSError):
                        self._say(f"an event could not be recorded: {error!r}")
            if done is not None:
                done.release()


def _count_as_lost(calls: Sequence[Call]) -> None:
    for log, name, _ in calls:
        if name != "close":
            log.miss()
