r"""Bytes in, frames out: where one line of a pipe ends, without any input or output.

A frame ends at `\n` and nowhere else (U+2028, U+0085 and a lone CR are legal inside JSON or
between its tokens); one trailing `\r` belongs to the line ending. A frame over the cap is not
kept: its head, its tail, its size and its hash are.
"""

from typing import Final, NamedTuple

HEAD: Final = 64 * 1024
"""Bytes kept of the beginning of a frame over the cap."""

TAIL: Final = 4 * 1024
"""Bytes kept of its end, to look for the id and isError there: many servers write them last."""

DEFAULT_CAP: Final = 16 * 1024 * 1024
"""Bytes of the largest frame that is kept whole (the largest seen in the wild was 12.3 MB)."""


STDERR_LINE: Final = 64 * 1024
"""Bytes beyond which a line on stderr is recorded in parts."""


class TooLarge(NamedTuple):
    """What is kept of a frame over the cap; `size` and `sha256` are those of the whole frame."""

    head: bytes
    tail: bytes
    size: int
    sha256: str


Piece = bytes | TooLarge
"""A frame without its line ending, or what is left of one that was too large."""


def capped(body: bytes, *, cap: int = DEFAULT_CAP) -> Piece:
    """A whole body as one piece: itself, or what is left of it when it is over the cap."""
    return body if len(body) <= cap else Over(body, cap=cap).finish()


class Splitter:
    """Cuts a stream of bytes into frames, however the bytes arrive; memory stays below the cap."""

    def __init__(self, *, cap: int = DEFAULT_CAP) -> None:
        self._cap = cap
        self._kept = bytearray()
        self._size = 0
        self._over: Over | None = None

    def feed(self, chunk: bytes) -> list[Piece]:
        """The frames that `chunk` completes, in order."""
        if not self._size:
            if chunk.endswith(b"\n") and len(chunk) <= self._cap:
                # The common case: whole lines, nothing kept from before.
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
        """What was left without a line ending when the stream ended, if anything."""
        return self._take(ended=False) if self._size else None

    @property
    def pending(self) -> int:
        """Bytes of the frame that has begun and not ended."""
        return self._size

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._over is not None:
            self._over.feed(data)
        else:
            self._kept += data
            # One byte more than the cap may still be the `\r` of the line ending.
            if self._size > self._cap + 1:
                kept, self._kept = self._kept, bytearray()
                self._over = Over(bytes(kept), cap=self._cap)

    def _take(self, *, ended: bool) -> Piece:
        over, self._over = self._over, None
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
        return Over(frame, cap=self._cap).finish()


class StderrLines:
    """Cuts what a server writes to stderr into lines; one that grows too long comes in parts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their endings."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) >= STDERR_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [line.removesuffix(b"\r") for line in lines]

    def end(self) -> list[bytes]:
        """The line that ended with the stream, if there is one."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class Over:
    """What outgrew the cap: hashed as it passes, with a head and a rolling tail."""

    def __init__(self, first: bytes, *, cap: int) -> None:
        # OpenSSL is dear to load and most recorders never need it: start-up is felt in a client.
        import hashlib  # noqa: PLC0415

        self._sha = hashlib.sha256()
        self._head = first[: min(HEAD, cap)]
        self._tail = b""
        self._size = 0
        # The last byte waits: it may be the `\r` of the line ending, which is not hashed.
        self._held = b""
        self.feed(first)

    def feed(self, data: bytes) -> None:
        """More of it has come."""
        if not data:
            return
        self._sha.update(self._held)
        self._sha.update(memoryview(data)[:-1])
        self._held = data[-1:]
        self._size += len(data)
        self._tail = (self._tail + data[-TAIL - 1 :])[-TAIL - 1 :]

    def finish(self, *, ended: bool = False) -> TooLarge:
        r"""What is left of it; `ended`: by a line ending, whose `\r` is none of its own."""
        if ended and self._held == b"\r":
            self._size -= 1
            self._tail = self._tail[:-1]
        else:
            self._sha.update(self._held)
        return TooLarge(self._head, self._tail[-TAIL:], self._size, self._sha.hexdigest())
