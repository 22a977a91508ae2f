"""Implements a recording that passes its method calls through a queue to the writer process."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from mcptally.transcript.format import Dir
from mcptally.transcript.writer.calls import STALLED, encode_call
from mcptally.transcript.writer.clock import Clock, new_id
from mcptally.transcript.writer.interface import ExchangeEvent
from mcptally.wire.framing import Piece


class RemoteRecording:
    """A recording that the writer process writes; it has the methods of `recording.Recording`.

    `put` adds a record to the queue, given how many events it contains, and returns False if no
    space became free in time; `largest` is the maximum size of a record. `save_lost` saves, for a
    slot, the number of events that are lost and not reported. `on_closed` is called after the
    recording's last call. `arguments` are the arguments of `Archive.prepare`.
    """

    def __init__(
        self,
        *,
        number: int,
        slot: int,
        put: Callable[[Sequence[bytes], int], bool],
        largest: int,
        save_lost: Callable[[int, int], None],
        on_closed: Callable[["RemoteRecording"], None],
        **arguments: Any,
    ) -> None:
        self.number: Final = number
        self.slot: Final = slot
        self._clock = Clock()
        self._arguments = {
            **arguments,
            "slot": slot,
            "began_ns": self._clock.began_ns,
            "recording_id": new_id(),
        }
        self.lost = 0
        """Number of events that were not queued and not reported to the writer as lost."""
        self._put_record = put
        self._largest = largest
        self._save_lost = save_lost
        self._on_closed = on_closed
        self._is_prepared = False
        self._is_closed = False

    def begin(self) -> None:
        """Create the file now, not with the first event."""
        self._call("begin", 0, [], {})

    def frames(
        self,
        pieces: Sequence[Piece],
        *,
        dir: Dir,  # noqa: A002 - name of the field in transcripts
        **fields: Any,
    ) -> None:
        """Record frames read from a pipe."""
        self._call("frames", len(pieces), pieces, {"dir": dir, **fields})

    def stderr(self, lines: Sequence[bytes]) -> None:
        """Record lines of stderr."""
        self._call("stderr", len(lines), lines, {})

    def events(self, events: Sequence[ExchangeEvent]) -> None:
        """Record events of an HTTP exchange."""
        self._call("events", len(events), events, {})

    def close(
        self, *, reason: str, exit_code: int | None = None, signal: int | None = None, **fields: Any
    ) -> None:
        """End the recording."""
        if not self._is_closed:
            end = {"reason": reason, "exit_code": exit_code, "signal": signal, **fields}
            self._call("close", 1, [], end)
            self._is_closed = True
            self._on_closed(self)

    def _call(
        self, method: str, events: int, items: Sequence[Any], arguments: dict[str, Any]
    ) -> None:
        """Put a call into the queue, or count its events as lost."""
        now = self._clock.now()
        record = encode_call(self.number, now, method, events, items, arguments)
        is_too_large = sum(map(len, record)) > self._largest
        if is_too_large and len(items) > 1:
            half = len(items) // 2
            self._call(method, half, items[:half], arguments)
            self._call(method, events - half, items[half:], arguments)
        elif is_too_large or not (
            (self._is_prepared or self._prepare())
            and (not self.lost or self._hand_over_lost(now))
            and self._put_record(record, events)
        ):
            self._set_lost(self.lost + events)

    def _prepare(self) -> bool:
        now, arguments = self._clock.began_ns, self._arguments
        record = encode_call(self.number, now, "prepare", 0, [], arguments)
        self._is_prepared = self._put_record(record, 0)
        return self._is_prepared

    def _hand_over_lost(self, now: int) -> bool:
        arguments = {"events": self.lost, "why": STALLED}
        record = encode_call(self.number, now, "count_lost", self.lost, [], arguments)
        if not self._put_record(record, self.lost):
            return False
        self._set_lost(0)
        return True

    def _set_lost(self, events: int) -> None:
        self.lost = events
        self._save_lost(self.slot, events)
