"""Limits of a recorder: file sizes, retention, and how long a slow writer may delay traffic."""

from typing import NamedTuple

from mcptally.wire.framing import DEFAULT_CAP


class Limits(NamedTuple):
    """Limits of sizes in bytes and of times in seconds; None, where allowed, means no limit."""

    frame_bytes: int = DEFAULT_CAP
    """For a larger frame only its beginning, size and (without redaction) hash are recorded."""
    segment_bytes: int | None = 64 * 1024 * 1024
    """The recorder starts a new segment file when the current one reaches this size."""
    segment_seconds: float | None = 24 * 3600.0
    """The recorder also starts a new segment file when the current one reaches this age."""
    keep_bytes: int | None = 4 * 1024**3
    """Total size of the segments in the folder; the oldest finished ones are removed first."""
    keep_seconds: float | None = 30 * 24 * 3600.0
    """Finished segments are removed when their last write is longer ago than this."""
    compress: bool = True
    """Whether finished segments are compressed to `.jsonl.zst`."""
    stall_seconds: float | None = 1.0
    """Longest wait of traffic for the writer to finish an event while the queue is full; after it,
    traffic continues and events are lost."""
