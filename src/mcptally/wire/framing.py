r"""Splits a stream of bytes into frames (lines), without I/O.

Only `\n` ends a frame: U+2028, U+0085 and a lone CR are legal inside JSON or between its tokens.
One `\r` before the `\n` belongs to the line ending. If a frame exceeds the cap, only its head,
tail, size and hash are kept.
"""

from typing import Final, NamedTuple

HEAD_BYTES: Final = 64 * 1024
"""Number of bytes kept from the start of a frame over the cap."""

TAIL: Final = 4 * 1024
"""Number of bytes kept from the end of a frame over the cap, where many servers write id and
isError."""

DEFAULT_CAP: Final = 16 * 1024 * 1024
"""Maximum size in bytes of a frame that is recorded completely (the largest seen had 12.3 MB)."""


MAX_STDERR_LINE: Final = 64 * 1024
"""Length in bytes above which a stderr line is recorded in parts."""


class TruncatedFrame(NamedTuple):
    """The kept parts of a frame over the cap. `size` and `sha256` describe the whole frame."""

    head: bytes
    tail: bytes
    size: int
    sha256: str


Piece = bytes | TruncatedFrame
"""A frame without its line ending, or the kept parts of a frame over the cap."""


def cap_frame(body: bytes, *, cap: int = DEFAULT_CAP) -> Piece:
    """Return `body`, or only its head, tail, size and hash if it exceeds the cap."""
    return body if len(body) <= cap else OversizedFrame(body, cap=cap).finish()


class FrameSplitter:
    """Splits a stream, received in chunks of any size, into frames, using bounded memory."""

    def __init__(self, *, cap: int = DEFAULT_CAP) -> None:
        self._cap = cap
        self._kept = bytearray()
        self._size = 0
        self._oversized: OversizedFrame | None = None

    def feed(self, chunk: bytes) -> list[Piece]:
        """Add the next chunk of the stream, and return the frames that it completes, in order."""
        if not self._size:
            if chunk.endswith(b"\n") and len(chunk) <= self._cap:
                # The common case: whole lines and no incomplete frame.
                lines = chunk.split(b"\n")
                lines.pop()
                return [line[:-1] if line.endswith(b"\r") else line for line in lines]
        elif b"\n" not in chunk:
            self._keep(chunk)
            return []
        lines = chunk.split(b"\n")
        rest = lines.pop()
        pieces: list[Piece] = []
        for line in lines:
            if not self._size and len(line) <= self._cap:
                pieces.append(line[:-1] if line.endswith(b"\r") else line)
            else:
                self._keep(line)
                pieces.append(self._take(ended=True))
        if rest:
            self._keep(rest)
        return pieces

    def end(self) -> Piece | None:
        """End the stream; return its last frame if that has no line ending, otherwise None."""
        return self._take(ended=False) if self._size else None

    @property
    def pending(self) -> int:
        """Number of bytes in the incomplete frame."""
        return self._size

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._oversized is not None:
            self._oversized.feed(data)
        else:
            self._kept += data
            # A byte beyond the cap may still be the `\r` of the line ending.
            if self._size > self._cap + 1:
                kept, self._kept = self._kept, bytearray()
                self._oversized = OversizedFrame(bytes(kept), cap=self._cap)

    def _take(self, *, ended: bool) -> Piece:
        over, self._oversized = self._oversized, None
        size, self._size = self._size, 0
        if over is not None:
            return over.finish(ended=ended)
        kept, self._kept = self._kept, bytearray()
        if ended and kept.endswith(b"\r"):
            del kept[-1]
            size -= 1
        frame = bytes(kept)
        if size <= self._cap:
            return frame
        return OversizedFrame(frame, cap=self._cap).finish()


class StderrLines:
    """Splits stderr into lines; a line of `MAX_STDERR_LINE` bytes or more is split into parts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add the next chunk of stderr, and return the lines that it completes, without endings."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) >= MAX_STDERR_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [line.removesuffix(b"\r") for line in lines]

    def end(self) -> list[bytes]:
        """End the stream; return its last line, in a list, if that line has no ending."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class OversizedFrame:
    """Hashes the bytes of a frame over the cap as they arrive, and keeps its head and tail."""

    def __init__(self, first: bytes, *, cap: int) -> None:
        # Import late: loading OpenSSL slows startup, and most recorders never need it.
        import hashlib  # noqa: PLC0415

        self._sha = hashlib.sha256()
        self._head = first[: min(HEAD_BYTES, cap)]
        self._tail = b""
        self._size = 0
        # Hold back the last byte: it may be the `\r` of the line ending, which is not hashed.
        self._held = b""
        self.feed(first)

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the frame."""
        if not data:
            return
        self._sha.update(self._held)
        self._sha.update(memoryview(data)[:-1])
        self._held = data[-1:]
        self._size += len(data)
        self._tail = (self._tail + data[-TAIL - 1 :])[-TAIL - 1 :]

    def finish(self, *, ended: bool = False) -> TruncatedFrame:
        r"""Return the kept parts; with `ended`, drop a final `\r` as part of the line ending."""
        if ended and self._held == b"\r":
            self._size -= 1
            self._tail = self._tail[:-1]
        else:
            self._sha.update(self._held)
        return TruncatedFrame(self._head, self._tail[-TAIL:], self._size, self._sha.hexdigest())
