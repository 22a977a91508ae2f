"""How much a recorder keeps, how long, and how long it may hold traffic up."""

from typing import NamedTuple

from mcptally.record.framing import DEFAULT_CAP


class Limits(NamedTuple):
    """How much is kept, and how long; None switches a limit off."""

    frame_bytes: int = DEFAULT_CAP
    """A frame over this is recorded as its head with size and hash."""
    segment_bytes: int | None = 64 * 1024 * 1024
    segment_seconds: float | None = 24 * 3600.0
    keep_bytes: int | None = 4 * 1024**3
    """Total size of the folder's segments; the oldest finished ones go first."""
    keep_seconds: float | None = 30 * 24 * 3600.0
    compress: bool = True
    """Finished segments become `.jsonl.zst`."""
    stall_seconds: float | None = 1.0
    """Traffic waits so long for a write that does not return; then events are lost instead."""
