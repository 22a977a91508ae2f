"""How much a recorder keeps, how long, and how long it may hold traffic up."""

from typing import NamedTuple

from mcptally.wire.framing import DEFAULT_CAP


class Limits(NamedTuple):
    """How much is kept, and how long; None switches a limit off where it may stand."""

    frame_bytes: int = DEFAULT_CAP
    """A frame over this is recorded as its head with size and hash."""
    segment_bytes: int | None = 64 * 1024 * 1024
    """A file that has grown to this is followed by another."""
    segment_seconds: float | None = 24 * 3600.0
    """So is one that is so old."""
    keep_bytes: int | None = 4 * 1024**3
    """Total size of the folder's segments; the oldest finished ones go first."""
    keep_seconds: float | None = 30 * 24 * 3600.0
    """Finished segments that were not written to for longer are removed."""
    compress: bool = True
    """Finished segments become `.jsonl.zst`."""
    stall_seconds: float | None = 1.0
    """Traffic waits so long for a write that does not return; then events are lost instead."""
