"""A recording whose calls go through a queue to the writer process."""

import marshal
from collections.abc import Callable, Sequence
from typing import Any, Final

from mcptally.transcript.format import Dir
from mcptally.transcript.writer.calls import Call, encode_events, encode_piece
from mcptally.transcript.writer.clock import Clock, new_id
from mcptally.transcript.writer.interface import ExchangeEvent
from mcptally.wire.framing import Piece

_PART: Final = 4 * 1024 * 1024
"""Size of the parts of a piece that is larger than the queue takes at once."""

_LARGE_CALL: Final = 4 * 1024 * 1024
"""Bytes reserved for the part of a record that is not large pieces."""

_STALLED: Final = "the process that writes the recording was too slow"


class RemoteRecording:
    """A recording that the writer process writes; it has the calls of `recording.Recording`.

    `put` puts a record with a number of events into the queue, and returns False if there was no
    room for it in time; `largest` is the size of the largest record. `on_closed` is called after
    the last call. `arguments` are those of `Archive.prepare`.
    """

    def __init__(
        self,
        *,
        number: int,
        slot: int,
        put: Callable[[Sequence[bytes], int], bool],
        largest: int,
        on_closed: Callable[["RemoteRecording"], None],
        **arguments: Any,
    ) -> None:
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
        self._put_record = put
        self._largest = largest
        self._on_closed = on_closed
        self._is_prepared = False
        self._is_closed = False

    def begin(self) -> None:
        """Create the file now; otherwise the first event creates it."""
        self._call("begin", 0, [], {})

    def frames(
        self,
        pieces: Sequence[Piece],
        *,
        dir: Dir,  # noqa: A002 - name of the field in transcripts
        **fields: Any,
    ) -> None:
        """Record frames of a pipe."""
        self._call("frames", len(pieces), pieces, {"dir": dir, **fields})

    def stderr(self, lines: Sequence[bytes]) -> None:
        """Record lines of stderr."""
        self._call("stderr", len(lines), lines, {})

    def events(self, events: Sequence[ExchangeEvent]) -> None:
        """Record events of an HTTP exchange."""
        large: list[bytes] = []
        encoded = encode_events(events, large)
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
            self._on_closed(self)

    def _call(
        self, method: str, events: int, pieces: Sequence[Piece], arguments: dict[str, Any]
    ) -> None:
        large: list[bytes] = []
        encoded = [encode_piece(piece, large) for piece in pieces]
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
        return sum(map(len, large)) <= self._largest - _LARGE_CALL

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
        return self._put_record([marshal.dumps(call), *large], call[3])
