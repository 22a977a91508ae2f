"""Calls of a recording in the form in which they pass through the queue to the writer process."""

from collections.abc import Sequence
from typing import Any, Final

from mcptally.transcript.writer.interface import ExchangeEvent
from mcptally.wire.framing import Piece, TruncatedFrame

Call = tuple[int, int, str, int, list[Any], list[int], dict[str, Any]]
"""Number of the recording, time (ns), method, number of its events, its pieces or events, sizes of
its large pieces, other arguments.

The bytes of large pieces are at the end of the record, and an index stands for each of them. A
`TruncatedFrame` is a plain tuple."""

_LARGE: Final = 64 * 1024
"""Pieces of at least this many bytes are copied into the queue without being encoded."""


def _is_small(piece: Piece) -> bool:
    """Whether the piece is encoded as it is."""
    return isinstance(piece, bytes) and len(piece) < _LARGE


def encode_piece(piece: Piece, large: list[bytes]) -> Any:
    """The form of a piece in a `Call`; a large piece is added to `large`."""
    if _is_small(piece):
        return piece
    if not isinstance(piece, bytes):
        return tuple(piece)
    large.append(piece)
    return len(large) - 1


def encode_events(events: Sequence[ExchangeEvent], large: list[bytes]) -> list[Any]:
    """The form of the events of an HTTP exchange; large pieces are added to `large`."""
    return [
        event
        if isinstance(event, bytes) or _is_small(event[0])
        else (encode_piece(event[0], large), *event[1:])
        for event in events
    ]


def decode_events(items: Sequence[Any], large: Sequence[bytes]) -> list[ExchangeEvent]:
    """The events of an HTTP exchange from their form in a `Call`."""
    return [
        item if isinstance(item, bytes) else (decode_piece(item[0], large), *item[1:])
        for item in items
    ]


def small_frames(call: Call) -> list[bytes]:
    """The frames of a call, without large ones."""
    _, _, method, _, items, _, _ = call
    if method == "events":
        items = [item[0] for item in items if not isinstance(item, bytes)]
    elif method == "stderr":
        return []
    return [item for item in items if isinstance(item, bytes)]


def decode_piece(item: Any, large: Sequence[bytes]) -> Piece:
    """A piece from its form in a `Call`."""
    if isinstance(item, bytes):
        return item
    return large[item] if isinstance(item, int) else TruncatedFrame(*item)


def large_pieces(sizes: Sequence[int], data: bytes) -> list[bytes] | None:
    """The large pieces at the end of `data`; None if they are incomplete."""
    at = len(data) - sum(sizes)
    if at < 0:
        return None
    pieces = []
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return pieces
