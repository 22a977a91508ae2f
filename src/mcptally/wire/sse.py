"""Parses server-sent events without I/O.

Follows the HTML standard (section 9.2, "Server-sent events"): a line ends at LF, CR or CRLF, `data`
lines are joined with a newline, and a blank line ends an event. Unlike a browser, the parser also
returns comments, events without data, and an unfinished last event. Memory is bounded by the cap:
data over the cap is hashed but not kept.
"""

import re
from typing import Final, NamedTuple

from mcptally.wire.byte_pool import BytePool, PooledBytes
from mcptally.wire.framing import DEFAULT_CAP, Piece

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
_DATA: Final = b"data:"

MAX_FIELD: Final = 64 * 1024
"""Maximum number of bytes kept from a line other than `data` (a comment, an id); the rest is
dropped."""


class SseEvent(NamedTuple):
    """One event, or one block without data, of an event stream."""

    data: Piece | None
    """The values of the `data` lines, joined with LF; None if the block has no such line."""
    name: bytes | None
    """Value of the last `event` line."""
    id: bytes | None
    """Value of the last `id` line."""
    retry: bytes | None
    """Value of the last `retry` line."""
    text: bytes
    """All lines, joined with LF, of a block without data (comments, ids); empty for other blocks.
    """
    torn: bool
    """Whether the stream ended before the blank line that ends the event. Clients ignore such an
    event."""


class SseParser:
    """Parses the events of one stream, received in chunks of any size."""

    def __init__(self, *, cap: int = DEFAULT_CAP, pool: BytePool | None = None) -> None:
        self._cap = cap
        self._pool = pool
        self._after_cr = False
        self._first = True
        # The parts of the incomplete line; empty while `_streaming`, when its parts go to `_data`.
        self._line: list[bytes] = []
        self._line_size = 0
        self._streaming = False
        self._reset()

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Add the next chunk of the stream, and return the events that it completes, in order."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            lines = _LINE_END.split(chunk)
        else:
            lines = chunk.split(b"\n")
        rest = lines.pop()
        found: list[SseEvent] = []
        for line in lines:
            if self._line_size:
                self._extend_line(line)
                self._end_line()
            elif line:
                self._take_line(line)
            elif (event := self._dispatch(torn=False)) is not None:
                found.append(event)
        if rest:
            self._extend_line(rest)
        return found

    def end(self) -> SseEvent | None:
        """End the stream; return its unfinished last event, or None if there is none."""
        if self._line_size:
            self._end_line()
        return self._dispatch(torn=True)

    def _reset(self) -> None:
        self._data: PooledBytes | None = None
        self._name: bytes | None = None
        self._id: bytes | None = None
        self._retry: bytes | None = None
        self._other_lines: list[bytes] = []
        self._other_lines_size = 0

    def _dispatch(self, *, torn: bool) -> SseEvent | None:
        if self._data is None and not self._other_lines:
            return None
        data = None if self._data is None else self._data.take()
        text = b"" if data is not None else b"\n".join(self._other_lines)
        event = SseEvent(data, self._name, self._id, self._retry, text, torn)
        self._reset()
        return event

    def _extend_line(self, part: bytes) -> None:
        """Add bytes to the incomplete line."""
        if self._streaming:
            self._add_data(part)
        elif self._line_size < MAX_FIELD:
            self._line.append(part)
        self._line_size += len(part)
        if self._line_size >= MAX_FIELD and not self._streaming:
            line = self._without_bom(b"".join(self._line))
            if line.startswith(_DATA):
                # Pass a long `data` line to its buffer as it arrives, so that it is not kept twice.
                self._streaming = True
                self._line.clear()
                self._open_data(line[len(_DATA) :].removeprefix(b" "))
            else:
                self._line = [line[:MAX_FIELD]]

    def _end_line(self) -> None:
        if not self._streaming:
            self._take_line(b"".join(self._line))
        self._line.clear()
        self._line_size = 0
        self._streaming = False

    def _without_bom(self, line: bytes) -> bytes:
        if self._first:
            self._first = False
            return line.removeprefix(_BOM)
        return line

    def _take_line(self, line: bytes) -> None:
        if self._first:
            line = self._without_bom(line)
            if not line:
                return
        if line.startswith(_DATA):
            self._open_data(line[6:] if line[5:6] == b" " else line[5:])
            return
        line = line[:MAX_FIELD]
        field, colon, value = line.partition(b":")
        if colon:
            value = value.removeprefix(b" ")
        if field == b"data":
            self._open_data(b"")
            return
        if field == b"event":
            self._name = value
        elif field == b"id":
            self._id = value
        elif field == b"retry":
            self._retry = value
        if self._other_lines_size < MAX_FIELD:
            self._other_lines.append(line)
            self._other_lines_size += len(line)

    def _open_data(self, value: bytes) -> None:
        if self._data is None:
            self._data = PooledBytes(cap=self._cap, pool=self._pool)
        else:
            self._add_data(b"\n")
        self._add_data(value)

    def _add_data(self, value: bytes) -> None:
        if self._data is not None:
            self._data.feed(value)
