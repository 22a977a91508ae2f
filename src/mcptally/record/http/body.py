"""One HTTP body, observed: its bytes in, what a recording says of them out.

A body is watched as an event stream when its type says so, else as one JSON document; either way
in a decoded copy. It never changes or delays what passes.
"""

from typing import Any, Final, NamedTuple

from mcptally.wire.byte_pool import Pool, PooledBytes
from mcptally.wire.content_coding import CodingError, Decoder, decoder
from mcptally.wire.framing import DEFAULT_CAP, Piece
from mcptally.wire.sse import SseEvent, SseParser

FREE: Final = 64 * 1024 * 1024
"""Bytes that a compressed body may expand to in any case."""

RATIO: Final = 100
"""Beyond that, decoded bytes for each one on the wire: a bomb must not hold up all others."""

_EVENT_STREAM: Final = "text/event-stream"


class Seen(NamedTuple):
    """Something complete in a body: the arguments of `Recording.frame`."""

    piece: Piece
    fields: dict[str, Any]
    """Extra fields: `sse_id`, `sse_event`, `why`, `unterminated`."""
    wire_bytes: int | None = None
    """Length on the wire where that is not the piece's own."""


def is_event_stream(content_type: str | None) -> bool:
    """Whether a Content-Type means server-sent events."""
    return (content_type or "").partition(";")[0].strip().lower() == _EVENT_STREAM


class Body:
    """The observer of one body."""

    def __init__(
        self,
        *,
        content_type: str | None = None,
        content_encoding: str | None = None,
        cap: int = DEFAULT_CAP,
        pool: Pool | None = None,
    ) -> None:
        self.is_event_stream: Final = is_event_stream(content_type)
        self._wire = 0
        self._decoded = 0
        self._events = SseParser(cap=cap, pool=pool) if self.is_event_stream else None
        self._undecodable = ""
        self._decoder: Decoder | None = None
        try:
            self._decoder = decoder(content_encoding) if content_encoding else None
        except CodingError as error:
            self._fail(error)
        # Kept beside the decoded copy as long as decoding may still fail.
        plain = self._decoder is None and not self._undecodable
        self._encoded = None if plain else PooledBytes(cap=cap, pool=pool)
        self._whole = PooledBytes(cap=cap, pool=pool) if self._events is None else None

    def feed(self, data: bytes) -> list[Seen]:
        """What `data` completes: events of a stream; a document is complete only at its end."""
        self._wire += len(data)
        if self._encoded is None:
            return self._take(data)
        if self._events is None or self._undecodable:
            # A stream's encoded bytes need no copy while decoding works: its events are recorded.
            self._encoded.feed(data)
        if self._undecodable or self._decoder is None:
            return []
        found: list[Seen] = []
        try:
            for part in self._decoder.feed(data):
                self._count(len(part))
                found += self._take(part)
        except CodingError as error:
            self._fail(error)
            if self._events is not None:
                self._encoded.feed(data)
        return found

    def end(self, *, torn: bool = False) -> list[Seen]:
        """What is left when the body is over; `torn` when it ended before it was complete."""
        if self._decoder is not None and not self._undecodable:
            try:
                self._decoder.end()
            except CodingError as error:
                if not torn:
                    self._fail(error)
        found: list[Seen] = []
        if self._events is not None and (event := self._events.end()) is not None:
            found.append(_seen(event))
        if self._undecodable and self._encoded is not None and self._encoded.size:
            found.append(self._undecoded(self._encoded.take()))
        elif self._whole is not None and self._wire:
            fields = {"unterminated": True} if torn else {}
            wire = None if self._encoded is None else self._wire
            found.append(Seen(self._whole.take(), fields, wire))
        return found

    def _fail(self, error: CodingError) -> None:
        self._undecodable = f"content coding: {error}"

    def _count(self, decoded: int) -> None:
        self._decoded += decoded
        if self._decoded > FREE + RATIO * self._wire:
            raise CodingError(f"expands more than {RATIO} times")

    def _undecoded(self, piece: Piece) -> Seen:
        return Seen(piece, {"why": self._undecodable})

    def _take(self, data: bytes) -> list[Seen]:
        if self._events is not None:
            return [_seen(event) for event in self._events.feed(data)]
        if self._whole is not None:
            self._whole.feed(data)
        return []


def _seen(event: SseEvent) -> Seen:
    fields: dict[str, Any] = {}
    if event.id is not None:
        fields["sse_id"] = event.id.decode(errors="replace")
    if event.name is not None:
        fields["sse_event"] = event.name.decode(errors="replace")
    if event.retry is not None:
        fields["sse_retry"] = event.retry.decode(errors="replace")
    if event.torn:
        fields["unterminated"] = True
    if event.data is None:
        return Seen(event.text, {**fields, "why": "comment" if not fields else "no_data"})
    if event.data == b"":
        fields["why"] = "empty"
    return Seen(event.data, fields)
