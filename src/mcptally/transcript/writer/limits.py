"""Defines a recorder's limits: file sizes, retention, and delays caused by a slow writer."""

from typing import NamedTuple

from mcptally.wire.framing import DEFAULT_CAP


class Limits(NamedTuple):
    """A recorder's limits, in bytes or seconds; None, where allowed, means no limit."""

    frame_bytes: int = DEFAULT_CAP
    """Frames above this size are truncated: only their head, their size and (without redaction)
    their hash are recorded."""
    segment_bytes: int | None = 64 * 1024 * 1024
    """The recorder starts a new segment file when the current one reaches this size."""
    segment_seconds: float | None = 24 * 3600.0
    """The recorder also starts a new segment file when the current one reaches this age."""
    keep_bytes: int | None = 4 * 1024**3
    """Maximum total size of the segments in the folder; the oldest finished segments are removed
    first."""
    keep_seconds: float | None = 30 * 24 * 3600.0
    """A finished segment is removed this many seconds after its last write."""
    compress: bool = True
    """Whether finished segments are compressed to `.jsonl.zst`."""
    stall_seconds: float | None = 1.0
    """Maximum time for which traffic is delayed while the queue is full and the writer finishes no
    event. After that, traffic continues and events are lost."""
