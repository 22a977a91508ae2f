"""Parses a copy of an HTTP body into the items that a recording stores.

A body with the content type `text/event-stream` is parsed as server-sent events, any other body as
one JSON document. Content codings are decoded first. The forwarded bytes are neither changed nor
delayed.
"""

from typing import Any, Final, NamedTuple

from mcptally.wire.byte_pool import BytePool, PooledBytes
from mcptally.wire.content_coding import CodingError, Decoder, decoder
from mcptally.wire.framing import DEFAULT_CAP, Piece
from mcptally.wire.sse import SseEvent, SseParser

UNCHECKED_EXPANSION: Final = 64 * 1024 * 1024
"""Decoded size of a compressed body above which the expansion ratio is checked."""

MAX_EXPANSION_RATIO: Final = 100
"""Maximum decoded bytes per encoded byte of a body above `UNCHECKED_EXPANSION`, against
decompression bombs."""

_EVENT_STREAM: Final = "text/event-stream"


class BodyItem(NamedTuple):
    """A complete document or event in a body, which is recorded as a frame."""

    piece: Piece
    fields: dict[str, Any]
    """Further fields of the event: `sse_id`, `sse_event`, `why` and `unterminated`."""
    wire_bytes: int | None = None
    """Length before decoding, in bytes; None if it equals the length of the item."""


def is_event_stream(content_type: str | None) -> bool:
    """Return whether a Content-Type header denotes server-sent events."""
    return (content_type or "").partition(";")[0].strip().lower() == _EVENT_STREAM


class BodyParser:
    """Parses one request or response body incrementally."""

    def __init__(
        self,
        *,
        content_type: str | None = None,
        content_encoding: str | None = None,
        cap: int = DEFAULT_CAP,
        pool: BytePool | None = None,
    ) -> None:
        self.is_event_stream: Final = is_event_stream(content_type)
        self._encoded_size = 0
        self._decoded_size = 0
        self._events = SseParser(cap=cap, pool=pool) if self.is_event_stream else None
        self._decode_error = ""
        self._decoder: Decoder | None = None
        try:
            self._decoder = decoder(content_encoding) if content_encoding else None
        except CodingError as error:
            self._stop_decoding(error)
        # Encoded bytes are stored in case decoding fails later.
        plain = self._decoder is None and not self._decode_error
        self._encoded = None if plain else PooledBytes(cap=cap, pool=pool)
        self._document = PooledBytes(cap=cap, pool=pool) if self._events is None else None

    def feed(self, data: bytes) -> list[BodyItem]:
        """Return the events that `data` completes. A JSON document is returned by `end`."""
        self._encoded_size += len(data)
        if self._encoded is None:
            return self._observe(data)
        if self._events is None or self._decode_error:
            # An event stream that can be decoded needs no encoded copy: its events are already
            # recorded.
            self._encoded.feed(data)
        if self._decode_error or self._decoder is None:
            return []
        items: list[BodyItem] = []
        try:
            for part in self._decoder.feed(data):
                self._count_decoded(len(part))
                items += self._observe(part)
        except CodingError as error:
            self._stop_decoding(error)
            if self._events is not None:
                self._encoded.feed(data)
        return items

    def end(self, *, truncated: bool = False) -> list[BodyItem]:
        """Return the items that the end of the body completes; `truncated` if it ended early."""
        if self._decoder is not None and not self._decode_error:
            try:
                self._decoder.end()
            except CodingError as error:
                if not truncated:
                    self._stop_decoding(error)
        items: list[BodyItem] = []
        if self._events is not None and (event := self._events.end()) is not None:
            items.append(_event_item(event))
        if self._decode_error and self._encoded is not None and self._encoded.size:
            items.append(self._undecoded_item(self._encoded.take()))
        elif self._document is not None and self._encoded_size:
            fields = {"unterminated": True} if truncated else {}
            encoded_size = None if self._encoded is None else self._encoded_size
            items.append(BodyItem(self._document.take(), fields, encoded_size))
        return items

    def _stop_decoding(self, error: CodingError) -> None:
        self._decode_error = f"content coding: {error}"

    def _count_decoded(self, decoded: int) -> None:
        self._decoded_size += decoded
        if self._decoded_size > UNCHECKED_EXPANSION + MAX_EXPANSION_RATIO * self._encoded_size:
            raise CodingError(f"expands more than {MAX_EXPANSION_RATIO} times")

    def _undecoded_item(self, piece: Piece) -> BodyItem:
        return BodyItem(piece, {"why": self._decode_error})

    def _observe(self, data: bytes) -> list[BodyItem]:
        if self._events is not None:
            return [_event_item(event) for event in self._events.feed(data)]
        if self._document is not None:
            self._document.feed(data)
        return []


def _event_item(event: SseEvent) -> BodyItem:
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
        return BodyItem(event.text, {**fields, "why": "comment" if not fields else "no_data"})
    if event.data == b"":
        fields["why"] = "empty"
    elif event.torn:
        fields["why"] = "torn"  # clients ignore an incomplete event
    return BodyItem(event.data, fields)
