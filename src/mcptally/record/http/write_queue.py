"""What is written when: at once and before anything is passed on, or as soon as there is time."""

import contextlib
from collections.abc import Callable, Sequence

from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.recordings import Call


class WriteQueue:
    """Writes events through the loop's `commit`, or counts them while a disk holds a thread."""

    def __init__(self, loop: EventLoop, *, say: Callable[[str], None]) -> None:
        self._loop = loop
        self._say = say
        self._later: list[Call] = []
        self._said = False

    def write(self, calls: Sequence[Call], then: Callable[[], None]) -> None:
        """Write, then go on with `then`: the last thing a callback does."""
        if self._later:
            calls, self._later = [*self._later, *calls], []
        if not calls:
            then()
        elif self._loop.held:
            self._give_up(calls)
            then()
        else:
            self._said = False
            self._loop.commit(lambda: self._write(calls), then)

    def later(self, calls: Sequence[Call]) -> None:
        """Write after the present callback."""
        if not self._later:
            self._loop.call_soon(lambda: self.write([], lambda: None))
        self._later += calls

    def flush(self) -> None:
        """Write what waits, at the end of a run."""
        calls, self._later = self._later, []
        if self._loop.held:
            self._give_up(calls)
        else:
            self._write(calls)

    def _write(self, calls: Sequence[Call]) -> None:
        for log, name, arguments in calls:
            try:
                log.call(name, arguments)
            except Exception as error:  # noqa: BLE001 - a bug in recording must not stop traffic
                with contextlib.suppress(OSError):
                    self._say(f"an event could not be recorded: {error!r}")

    def _give_up(self, calls: Sequence[Call]) -> None:
        if not self._said:
            self._said = True
            self._say("the disk does not take events in time; traffic goes on, a gap will tell")
        for log, name, arguments in calls:
            log.give_up(name, arguments)
