"""Encodes calls to a recording's methods for the queue to the writer process."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.transcript.writer.utf8 import all_to_utf8
from mcptally.wire.framing import Piece, TruncatedFrame

STALLED: Final = "the process that writes the recording was too slow"
"""Why events are lost that did not fit into the queue."""


class Call(NamedTuple):
    """A call to a recording's method.

    The bytes of large pieces follow the encoded call, in which an index takes the place of each
    large piece. A `TruncatedFrame` is encoded as an array.
    """

    number: int
    """Number of the recording."""
    time_ns: int
    method: str
    events: int
    """Number of events that the call records."""
    items: list[Any]
    """The frames or stderr lines that the call records, or events of an HTTP exchange."""
    sizes: list[int]
    """Sizes of the large pieces."""
    arguments: dict[str, Any]


_LARGE: Final = 64 * 1024
"""Frames and stderr lines of at least this many bytes are copied into the queue unencoded."""

_LENGTH: Final = 4
"""Size in bytes of the length field before an encoded call."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Call).decode


def encode_call(
    number: int,
    time_ns: int,
    method: str,
    events: int,
    items: Sequence[Any],
    arguments: dict[str, Any],
) -> list[bytes]:
    """Encode a call as a record, a list of consecutive byte strings.

    `items` are frames, stderr lines or events of an exchange.
    """
    large: list[bytes] = []
    if method == "events":
        encoded = [
            item
            if isinstance(item, bytes) or _is_small(item[0])
            else (_encode_piece(item[0], large), *item[1:])
            for item in items
        ]
    else:
        encoded = [piece if _is_small(piece) else _encode_piece(piece, large) for piece in items]
    call = (number, time_ns, method, events, encoded, [len(piece) for piece in large], arguments)
    try:
        head = _encode(call)
    except UnicodeEncodeError:  # undecodable bytes in a command line or an environment variable
        head = _encode((*call[:-1], all_to_utf8(arguments)))
    return [len(head).to_bytes(_LENGTH, "little"), head, *large]


def decode_call(record: bytes) -> Call:
    """Decode the call in a record, and reinsert the large pieces of `frames` and `stderr`.

    Raises:
        msgspec.DecodeError, TypeError, ValueError, IndexError: another program wrote the record.
    """
    begin = _LENGTH + int.from_bytes(record[:_LENGTH], "little")
    call = _decode(memoryview(record)[_LENGTH:begin])
    large = []
    for size in call.sizes:
        large.append(record[begin : begin + size])
        begin += size
    if call.method == "events":
        items = [
            item if isinstance(item, bytes) else (_decode_piece(item[0], large), *item[1:])
            for item in call.items
        ]
    else:
        items = [_decode_piece(item, large) for item in call.items]
    return call._replace(items=items)


def frames_of(call: Call) -> list[bytes]:
    """Return the frames that a call records, except truncated frames."""
    if call.method == "frames":
        return [piece for piece in call.items if isinstance(piece, bytes)]
    if call.method == "events":
        pieces = [item[0] for item in call.items if not isinstance(item, bytes)]
        return [piece for piece in pieces if isinstance(piece, bytes)]
    return []


def _is_small(piece: Piece) -> bool:
    """Return whether the piece is encoded inside the call rather than appended to it."""
    return isinstance(piece, bytes) and len(piece) < _LARGE


def _encode_piece(piece: Piece, large: list[bytes]) -> Any:
    if not isinstance(piece, bytes):
        return tuple(piece)
    if len(piece) < _LARGE:
        return piece
    large.append(piece)
    return len(large) - 1


def _decode_piece(item: Any, large: Sequence[bytes]) -> Piece:
    if isinstance(item, bytes):
        return item
    return large[item] if isinstance(item, int) else TruncatedFrame(*item)
