"""Writes the lines of one recording into segment files, which rotate by size and age.

No call raises a disk error: lost events are counted and logged once, and a `gap` event reports them
when writing works again. Lost events keep their `seq`, so every gap in `seq` has a matching `gap`
event. segment.py writes the file.
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mcptally.plural import count
from mcptally.transcript.writer.clock import Clock
from mcptally.transcript.writer.event_line import EventLineEncoder
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.progress import Opening, Progress
from mcptally.transcript.writer.segment import Segment, open_plain

RETRY_SECONDS: Final = 1.0
"""Minimum time between write attempts after a write failed."""

_BUFFER_BYTES: Final = 256 * 1024
"""Lines are written when at least this many bytes are buffered."""

_REMOVED: Final = "their file was removed while it was being written"


class _Kind(msgspec.Struct):
    event: str
    seq: int


_decode_kind: Final = msgspec.json.Decoder(_Kind).decode


class SegmentWriter:
    """Writes lines into the segments of one recording; the caller holds the recording's lock.

    `on_finished` is called with the path of a segment after the next segment was opened. If
    `buffered`, lines are written by `flush`.
    """

    def __init__(
        self,
        folder: str,
        opening: Opening,
        *,
        encoder: EventLineEncoder,
        clock: Clock,
        limits: Limits,
        buffered: bool,
        log: Callable[[str], None],
        on_finished: Callable[[str], None],
    ) -> None:
        self.seq = 0
        """The `seq` of the next event."""
        self.lost = 0
        """Number of events missing from the files."""
        self.counts: Counter[str] = Counter()
        """Number of events in the files by kind."""
        self.retry_at = 0.0
        """Monotonic time before which a failed write is not tried again."""
        self.opening: Final = opening
        self._folder = folder
        self._encoder = encoder
        self._clock = clock
        self._limits = limits
        self._buffered = buffered
        self._log = log
        self._on_finished = on_finished
        self._unreported_lost = 0
        self._lost_reason = ""
        self._error_logged = False
        self._segment: Segment | None = None
        self._segment_count = 0
        self._buffer: list[bytes] = []
        self._buffer_size = 0
        self._buffer_counts: Counter[str] = Counter()

    def prepare(self, events: int) -> bool:
        """Prepare the file for another `events` events; return False if they are lost.

        If needed, the method opens the first or the next segment, and writes a pending `gap` event.
        """
        if self._buffer:
            if not self._unreported_lost:
                return True
            self.flush()  # write the buffered events before the `gap` event
        monotonic = time.monotonic()
        # Check before each write, in about 1 µs: a write to a removed file succeeds, but its data
        # is lost.
        if self._segment is not None and not self._segment.exists():
            self._handle_removed_segment(self._segment)
        if self._segment is None or self._unreported_lost:
            if monotonic < self.retry_at:
                self.count_lost(events, self._lost_reason)
                return False
            try:
                segment = self._segment or self._open_segment()
                if self._unreported_lost:
                    gap = {"lost": self._unreported_lost, "why": self._lost_reason}
                    self._put_own_event(segment, "gap", gap)
                    segment.reported_lost += self._unreported_lost
                    self._unreported_lost = 0
                    self._error_logged = False
            except OSError as error:
                self._handle_write_error(error, events)
                return False
        elif self._segment_is_full(monotonic):
            self._start_next_segment(monotonic)
        return True

    def write(self, lines: Sequence[bytes], counts: Mapping[str, int]) -> None:
        """Write or buffer lines, one per event; `counts` is their number by kind of event."""
        self.seq += len(lines)
        joined = b"".join(lines)
        self._buffer.append(joined)
        self._buffer_size += len(joined)
        for event, number in counts.items():
            self._buffer_counts[event] += number
        if not self._buffered or self._buffer_size >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines."""
        if not self._buffer:
            return
        lines, self._buffer, self._buffer_size = b"".join(self._buffer), [], 0
        counts, self._buffer_counts = self._buffer_counts, Counter()
        try:
            self._put(self._segment, lines, counts)
        except OSError as error:
            events = counts.total()
            self.seq -= events  # subtract these events, because `count_lost` adds them
            self._handle_write_error(error, events)

    def count_lost(self, events: int, why: str) -> None:
        """Count events that cannot be written; a later `gap` event reports their number."""
        self.seq += events
        self.lost += events
        self._unreported_lost += events
        self._lost_reason = why

    def close(self) -> None:
        """Close the file, and log the number of lost events that no `gap` reports."""
        if self._unreported_lost:
            lost = count(self._unreported_lost, "event")
            self._log(f"{lost} could not be recorded: {self._lost_reason}")
        if self._segment is not None:
            self._segment.close()

    # --- continuing in another process ----------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The state after the last `flush`, from which `resume` can continue."""
        return Progress(
            self.seq,
            self._segment_count,
            0 if self._segment is None else self._segment.size,
            self.lost,
            self._unreported_lost,
            self._lost_reason,
            self.counts,
        )

    def resume(self, progress: Progress) -> int:
        """Continue in a new segment after the process that wrote this recording has died.

        Returns the number of events that the dead process wrote after `progress` was saved. An
        incomplete last line is removed.
        """
        self.seq = progress.seq
        self._segment_count = max(0, progress.segments - 1)
        self.lost = progress.lost
        self._unreported_lost = progress.unreported_lost
        self._lost_reason = progress.lost_reason
        self.counts = Counter(progress.counts)
        size = progress.size
        resumed = 0
        while (written := self._read_rest(size)) is not None:
            for event, seq in written:
                self.seq = max(self.seq, seq + 1)
                self.counts[event] += 1
                resumed += event not in ("open", "gap")
                if event == "gap":
                    self._unreported_lost = 0
            self._segment_count += 1
            size = 0
        self._segment_count = max(self._segment_count, progress.segments)
        return resumed

    def _read_rest(self, size: int) -> list[tuple[str, int]] | None:
        """Return the kind and `seq` of each line after the segment's first `size` bytes."""
        path = self._segment_path()
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.part")  # noqa: PTH108 - it has no event but `open`
        try:
            with open(path, "r+b", opener=open_plain) as file:
                file.seek(size)
                *lines, torn = file.read().split(b"\n")
                if torn:
                    file.truncate(file.tell() - len(torn))
        except OSError:
            return None
        return [(event.event, event.seq) for event in map(_decode_kind, lines)]

    def _segment_path(self) -> str:
        name = f"{self.opening.stem}-{self._segment_count:04d}.jsonl"
        return os.path.join(self._folder, name)  # noqa: PTH118

    # --- segments -------------------------------------------------------------------------------

    def _segment_is_full(self, monotonic: float) -> bool:
        segment, limits = self._segment, self._limits
        if segment is None or monotonic < self.retry_at:
            return False
        if limits.segment_bytes is not None and segment.size >= limits.segment_bytes:
            return True
        age = monotonic - segment.opened_at
        return limits.segment_seconds is not None and age >= limits.segment_seconds

    def _handle_removed_segment(self, segment: Segment) -> None:
        """Count all events of a removed segment as lost; the next write opens a new segment."""
        segment.close()
        self._segment = None
        events = segment.counts.total()
        self.counts -= segment.counts
        self.lost += events
        self._unreported_lost += events + segment.reported_lost
        self._lost_reason = _REMOVED
        self.retry_at = 0.0
        self._log(
            f"{segment.path} was removed while it was being written: "
            f"{count(events, 'event')} lost; the recording continues in a new file"
        )

    def _start_next_segment(self, monotonic: float) -> None:
        """Open the next segment; if that fails, continue with the current one."""
        previous = self._segment
        try:
            self._open_segment()
        except OSError:
            self.retry_at = monotonic + RETRY_SECONDS
            return
        if previous is not None:
            previous.close()
            self._on_finished(previous.path)

    def _open_segment(self) -> Segment:
        segment = Segment(self._folder, os.path.basename(self._segment_path()))  # noqa: PTH119
        try:
            self._put_own_event(
                segment, "open", {**self.opening.fields, "segment": self._segment_count}
            )
        except OSError:
            segment.discard()
            raise
        with contextlib.suppress(OSError):
            segment.publish()
        self._segment = segment
        self._segment_count += 1
        return segment

    def _put_own_event(self, segment: Segment, event: str, fields: Mapping[str, Any]) -> None:
        """Write an `open` or `gap` event; if this fails, the event is not counted as lost."""
        line = self._encoder.encode_event(event, fields, seq=self.seq, ts_ns=self._clock.now())
        self._put(segment, line, {event: 1})
        self.seq += 1

    def _put(self, segment: Segment | None, lines: bytes, counts: Mapping[str, int]) -> None:
        if segment is None:
            raise OSError("no segment is open")
        segment.put(lines)
        for event, number in counts.items():
            if number:
                self.counts[event] += number
                segment.counts[event] += number

    def _handle_write_error(self, error: OSError, events: int) -> None:
        why = error.strerror or str(error)
        self.retry_at = time.monotonic() + RETRY_SECONDS
        self.count_lost(events, why)
        if not self._error_logged:
            self._error_logged = True
            self._log(
                f"cannot record to {self._folder}: {why}; traffic goes on, and a "
                "gap event will count the lost events"
            )
