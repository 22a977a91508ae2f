"""Bytes kept until they are complete: each up to a cap, all together up to a pool."""

from typing import Final

from mcptally.wire.framing import DEFAULT_CAP, HEAD, Over, Piece

POOL_BYTES: Final = 256 * 1024 * 1024
"""What a run keeps at most of all bodies and events that have begun and not ended."""


class Pool:
    """How much may still be kept by all who share it; what is small never asks."""

    def __init__(self, size: int = POOL_BYTES) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        """Take so many bytes, if they are there."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self._left += size


class PooledBytes:
    """Bytes kept whole up to a cap; beyond it only head, tail, size and hash.

    More than `framing.HEAD` bytes come out of the pool: when it is empty, the cap is there.
    """

    def __init__(self, *, cap: int = DEFAULT_CAP, pool: Pool | None = None) -> None:
        self._cap = cap
        self._pool = pool
        self._taken = 0
        self._parts: list[bytes] = []
        self._over: Over | None = None
        self.size = 0
        """Bytes that were fed, kept or not."""

    def __del__(self) -> None:
        """Whatever became of it: the pool is for those who are left."""
        self._give_back()

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self.size += len(data)
        if self._over is not None:
            self._over.feed(data)
            return
        self._parts.append(data)
        if self.size > self._cap or (self.size > HEAD and not self._may_grow()):
            self._over = Over(b"".join(self._parts), cap=self._cap)
            self._parts.clear()
            self._give_back()

    def take(self) -> Piece:
        """What was kept: the bytes, or what is left of them when they were over the cap."""
        self._give_back()
        if self._over is not None:
            return self._over.finish()
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
