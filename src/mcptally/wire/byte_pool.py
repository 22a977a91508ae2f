"""Buffers incomplete bodies and events: each buffer has a cap, and all share a memory pool."""

from typing import Final

from mcptally.wire.framing import DEFAULT_CAP, HEAD_BYTES, OversizedFrame, Piece

POOL_BYTES: Final = 256 * 1024 * 1024
"""Maximum number of bytes that a run buffers for all incomplete bodies and events together."""


class BytePool:
    """A memory limit that several buffers share; small buffers are not counted."""

    def __init__(self, size: int = POOL_BYTES) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        """Reserve `size` bytes; return False, reserving nothing, if fewer are left."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """Return `size` reserved bytes to the pool."""
        self._left += size


class PooledBytes:
    """A buffer that keeps all bytes up to a size cap.

    Above the cap, it keeps only the head, tail, size and hash of the bytes. A buffer with more than
    `framing.HEAD_BYTES` bytes reserves memory in the pool. If the pool is exhausted, the buffer
    behaves as if its cap were reached.
    """

    def __init__(self, *, cap: int = DEFAULT_CAP, pool: BytePool | None = None) -> None:
        self._cap = cap
        self._pool = pool
        self._taken = 0
        self._parts: list[bytes] = []
        self._oversized: OversizedFrame | None = None
        self.size = 0
        """Total number of bytes passed to `feed`."""

    def __del__(self) -> None:
        """Return the reserved bytes to the pool, even if `take` was never called."""
        self._give_back()

    def feed(self, data: bytes) -> None:
        """Append `data` to the buffer."""
        self.size += len(data)
        if self._oversized is not None:
            self._oversized.feed(data)
            return
        self._parts.append(data)
        if self.size > self._cap or (self.size > HEAD_BYTES and not self._may_grow()):
            self._oversized = OversizedFrame(b"".join(self._parts), cap=self._cap)
            self._parts.clear()
            self._give_back()

    def take(self) -> Piece:
        """Return all bytes, or their head, tail, size and hash if they exceeded the cap."""
        self._give_back()
        if self._oversized is not None:
            return self._oversized.finish()
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _may_grow(self) -> bool:
        more = self.size - self._taken
        if self._pool is None or not self._pool.take(more):
            return self._pool is None
        self._taken += more
        return True

    def _give_back(self) -> None:
        if self._pool is not None and self._taken:
            self._pool.give(self._taken)
            self._taken = 0
