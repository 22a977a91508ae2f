"""Writes recordings: each event becomes one line of a file.

On POSIX these classes run in the writer process (process.py). Usage, safe from several threads:

    archive = Archive("traces", policy=policy, limits=Limits())
    recording = archive.open(transport="stdio", server="time", command=["mcp-server-time"])
    recording.frame(b'{"jsonrpc":...}', dir="c2s")               # a `message` or a `raw`
    recording.frame(data, dir="s2c", scope="x1", sse_id="7")     # HTTP: exchange id, SSE fields
    recording.events([http_event({"dir": "c2s", "scope": "x1", "phase": "request"})])
    recording.stderr([b"a line"])
    recording.close(reason="server_exited", exit_code=0)

When a call returns, its events are in the file (`write` has returned, without fsync), unless the
archive is `buffered`: then they are written by `flush`, which the writer process calls. No call
raises an error of the disk: lost events are counted and logged once, and a `gap` event reports
them when writing works again. Lost events keep their `seq`, so each hole in `seq` has its `gap`.
`wire.framing.FrameSplitter` cuts a stream into the pieces for `frame` and `frames`;
`wire.framing.cap_frame` makes the piece of a whole body. event_line.py encodes a line, segment.py
writes the file.

The policy redacts only the recorded copy. Segments rotate by size and age; housekeeping.py
compresses finished segments and applies retention in a background thread.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.record.limits import Limits
from mcptally.record.log import log_to_stderr
from mcptally.record.writer.clock import Clock, new_id
from mcptally.record.writer.event_line import EventLineEncoder
from mcptally.record.writer.housekeeping import Housekeeper
from mcptally.record.writer.interface import ExchangeEvent, WatchFunction
from mcptally.record.writer.segment import Segment, segment_stem
from mcptally.redaction.policy import Policy
from mcptally.redaction.policy import policy as policy_named
from mcptally.transcript.format import Dir, Transport
from mcptally.wire.framing import Piece

RECORDER: Final = "mcptally 0.1.0"
"""Name and version for `open.recorder`, a constant to save reading the package metadata."""

RETRY_SECONDS: Final = 1.0
"""Minimum time between write attempts after a write failed."""


class _Kind(msgspec.Struct):
    event: str
    seq: int


_decode_kind: Final = msgspec.json.Decoder(_Kind).decode

_BUFFER_BYTES: Final = 256 * 1024
"""A buffer of lines is written when it has this size."""

_REMOVED: Final = "their file was removed while it was being written"


class Archive:
    """A folder for recordings, with one redaction policy and one set of limits.

    `log` is called with each message for the user of the recorder. If `buffered`, events are
    written when `Recording.flush` is called.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        log: Callable[[str], None] = log_to_stderr,
        buffered: bool = False,
    ) -> None:
        self.folder = os.fspath(out)
        self.policy = policy or policy_named()
        self.limits = limits or Limits()
        self.log = log
        self.buffered = buffered
        self.clean_frames: frozenset[bytes] = frozenset()
        """Frames that the policy leaves as they are, from `Policy.clean_frames`."""
        self.housekeeper = Housekeeper(
            self.folder,
            keep_bytes=self.limits.keep_bytes,
            keep_seconds=self.limits.keep_seconds,
            compress=self.limits.compress,
            log=log,
        )

    def open(
        self,
        *,
        transport: Transport,
        server: str | None = None,
        command: Sequence[str] | None = None,
        url: str | None = None,
    ) -> "Recording":
        """Start a recording. If its file cannot be written, events are lost; it raises nothing."""
        recording = self.prepare(transport=transport, server=server, command=command, url=url)
        recording.begin()
        return recording

    def wake(self) -> None:
        """Do nothing: events are written at once."""

    def watch(self, watch: WatchFunction) -> None:
        """Do nothing: a write that fails is noticed at once."""

    def close(self) -> None:
        """Stop the background thread. Recordings must be closed separately."""
        self.housekeeper.stop()

    def prepare(
        self,
        *,
        transport: Transport,
        server: str | None = None,
        command: Sequence[str] | None = None,
        url: str | None = None,
        recording_id: str | None = None,
        clock: Clock | None = None,
    ) -> "Recording":
        """A recording without a file yet; `begin` or the first event creates it."""
        self.housekeeper.start()
        return Recording(
            self,
            transport=transport,
            server=server,
            command=command,
            url=url,
            recording_id=recording_id or new_id(),
            clock=clock or Clock(),
        )


class Progress(NamedTuple):
    """The state that another process needs to continue writing a recording."""

    seq: int = 0
    segments: int = 0
    size: int = 0
    """Bytes of the last segment; later lines are not part of the other numbers."""
    lost: int = 0
    unreported_lost: int = 0
    lost_reason: str = ""
    counts: dict[str, int] = {}  # noqa: RUF012 - never changed


class Recording:
    """The recording of one stdio connection or HTTP session, in one or more segments.

    `lost` counts the events missing from the files.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        transport: Transport,
        server: str | None,
        command: Sequence[str] | None,
        url: str | None,
        recording_id: str,
        clock: Clock,
    ) -> None:
        self.id = recording_id
        self.lost = 0
        self._archive = archive
        self._limits = archive.limits
        self._lock = threading.Lock()
        self._encoder = EventLineEncoder(
            self.id, archive.policy, is_clean=lambda frame: frame in archive.clean_frames
        )
        self._clock = clock
        self._seq = 0
        self._counts: dict[str, int] = {}
        self._unreported_lost = 0
        self._lost_reason = ""
        self._retry_at = 0.0
        self._error_logged = False
        server = None if server is None else self._encoder.redact_label(server)
        self._file_stem = segment_stem(server, self.id, self._clock.began_ns)
        self._segment: Segment | None = None
        self._segment_count = 0
        self._segment_counts: dict[str, int] = {}
        """Events in the open segment by kind, like `_counts`."""
        self._lost_in_segment_gaps = 0
        """Lost events reported by `gap` events in the open segment."""
        self._closed = False
        self._buffer: list[bytes] = []
        self._buffer_size = 0
        self._buffer_counts: dict[str, int] = {}
        self._open = {
            "transport": transport,
            "server": server,
            **({} if command is None else {"command": self._encoder.redact_command(command)}),
            **({} if url is None else {"url": self._encoder.redact_url(url)}),
            "recorder": RECORDER,
            "redaction": archive.policy.name,
        }

    def begin(self) -> None:
        """Write the `open` event of the first segment now, not with the first event."""
        with self._lock:
            self._prepare_write(0)

    def flush(self) -> None:
        """Write the buffered events."""
        with self._lock:
            self._flush()

    # --- continuing in another process ----------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The state for `resume`, after the last `flush`."""
        return Progress(
            self._seq,
            self._segment_count,
            0 if self._segment is None else self._segment.size,
            self.lost,
            self._unreported_lost,
            self._lost_reason,
            self._counts,
        )

    def resume(self, progress: Progress) -> int:
        """Continue in a new segment after the process that wrote this recording has died.

        Returns the number of events that it wrote after `progress` was taken. An incomplete last
        line is removed.
        """
        self._seq = progress.seq
        self._segment_count = max(0, progress.segments - 1)
        self.lost = progress.lost
        self._unreported_lost = progress.unreported_lost
        self._lost_reason = progress.lost_reason
        self._counts = dict(progress.counts)
        self._closed = "close" in progress.counts
        size = progress.size
        resumed = 0
        while (written := self._read_rest(size)) is not None:
            for event, seq in written:
                self._seq = max(self._seq, seq + 1)
                self._counts[event] = self._counts.get(event, 0) + 1
                resumed += event not in ("open", "gap")
                if event == "gap":
                    self._unreported_lost = 0
                self._closed = self._closed or event == "close"
            self._segment_count += 1
            size = 0
        self._segment_count = max(self._segment_count, progress.segments)
        return resumed

    def _read_rest(self, size: int) -> list[tuple[str, int]] | None:
        """Kind and `seq` of the lines of the current segment after its first `size` bytes."""
        path = self._segment_path()
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.part")  # noqa: PTH108 - it has no event but `open`
        try:
            with open(path, "r+b") as file:  # noqa: PTH123 - see segment.py
                file.seek(size)
                *lines, torn = file.read().split(b"\n")
                if torn:
                    file.truncate(file.tell() - len(torn))
        except OSError:
            return None
        return [(event.event, event.seq) for event in map(_decode_kind, lines)]

    def _segment_path(self) -> str:
        name = f"{self._file_stem}-{self._segment_count:04d}.jsonl"
        return os.path.join(self._archive.folder, name)  # noqa: PTH118

    def count_lost(self, events: int, why: str) -> None:
        """Count events that the recorder could not hand over; a `gap` reports them."""
        with self._lock:
            self._count_lost(events, why)

    # --- events ---------------------------------------------------------------------------------

    def frame(
        self,
        piece: Piece,
        *,
        dir: Dir,  # noqa: A002 - name of the field in transcripts
        scope: str | None = None,
        wire_bytes: int | None = None,
        **fields: Any,
    ) -> None:
        """Record a frame: as `message`, or as `raw` if not strict JSON or too large.

        `wire_bytes` is the length on the wire if it differs from the frame's (decoded SSE);
        `fields` (`sse_id`, `sse_event`, `unterminated`) are added to the event unchanged.
        """
        self._write_frames([piece], dir, scope, wire_bytes, fields)

    def frames(self, pieces: Sequence[Piece], *, dir: Dir) -> None:  # noqa: A002
        """Record the frames completed by one read of a pipe: one event each, in one write."""
        self._write_frames(pieces, dir, None, None, {})

    def stderr(self, lines: Sequence[bytes]) -> None:
        """Record lines that the server wrote to stderr, one event per line."""
        self._write_events("stderr", [partial(self._encoder.text_fields, line) for line in lines])

    def events(self, events: Sequence[ExchangeEvent]) -> None:
        """Record `http` events and frames of an HTTP exchange."""
        if self._closed:
            return
        with self._lock:
            if not self._prepare_write(len(events)):
                return
            now = self._clock.now()
            encoder = self._encoder
            lines = []
            messages = frames = 0
            for event in events:
                if isinstance(event, bytes):
                    line = encoder.encode_http(event, seq=self._seq, ts_ns=now)
                else:
                    piece, direction, scope, wire_bytes, fields = event
                    context = encoder.frame_context(direction, scope, wire_bytes, fields)
                    line, is_message = encoder.encode_frame(
                        piece, context, seq=self._seq, ts_ns=now
                    )
                    frames += 1
                    messages += is_message
                self._seq += 1
                lines.append(line)
            self._write(
                lines,
                {
                    "http": len(lines) - frames,
                    "message": messages,
                    "raw": frames - messages,
                },
            )

    def close(
        self,
        *,
        reason: str,
        exit_code: int | None = None,
        signal: int | None = None,
        **fields: Any,
    ) -> None:
        """Write the `close` event and end the recording; later calls write nothing."""
        if self._closed:
            return
        self._retry_at = 0.0
        self.flush()  # counts the events
        end = {"reason": reason, "exit_code": exit_code, "signal": signal, **fields}
        self._write_events(
            "close", [lambda: {**end, "counts": {**self._counts, "lost": self.lost}}]
        )
        self.flush()
        self._closed = True
        if self._unreported_lost:
            self._archive.log(
                f"{self._unreported_lost} events could not be recorded: {self._lost_reason}"
            )
        if self._segment is not None:
            self._segment.close()

    # --- lines (caller holds lock) --------------------------------------------------------------

    def _write_frames(
        self,
        pieces: Sequence[Piece],
        direction: Dir,
        scope: str | None,
        wire_bytes: int | None,
        fields: dict[str, Any],
    ) -> None:
        if self._closed:
            return
        with self._lock:
            if not self._prepare_write(len(pieces)):
                return
            now = self._clock.now()
            context = self._encoder.frame_context(direction, scope, wire_bytes, fields)
            lines = []
            messages = 0
            for piece in pieces:
                line, is_message = self._encoder.encode_frame(
                    piece, context, seq=self._seq, ts_ns=now
                )
                self._seq += 1
                messages += is_message
                lines.append(line)
            self._write(lines, {"message": messages, "raw": len(lines) - messages})

    def _write_events(self, event: str, fields: Sequence[Callable[[], Mapping[str, Any]]]) -> None:
        if self._closed:
            return
        with self._lock:
            if self._prepare_write(len(fields)):
                now = self._clock.now()
                lines = [self._encode(event, now, make()) for make in fields]
                self._write(lines, {event: len(lines)})

    def _encode(self, event: str, ts_ns: int, fields: Mapping[str, Any]) -> bytes:
        line = self._encoder.encode_event(event, fields, seq=self._seq, ts_ns=ts_ns)
        self._seq += 1
        return line

    # --- file (caller holds the lock) -----------------------------------------------------------

    def _prepare_write(self, events: int) -> bool:
        """Prepare the segment for `events` more events; if that fails, count them as lost.

        Opens the first or the next segment, and writes a pending `gap` event.
        """
        if self._buffer:
            if not self._unreported_lost:
                return True
            self._flush()  # before the `gap`
        monotonic = time.monotonic()
        # Checked before each write (about 1 µs): writes to a removed file succeed and are lost.
        if self._segment is not None and not self._segment.exists():
            self._handle_removed_segment(self._segment)
        if self._segment is None or self._unreported_lost:
            if monotonic < self._retry_at:
                self._count_lost(events, self._lost_reason)
                return False
            try:
                if self._segment is None:
                    self._open_segment()
                if self._unreported_lost:
                    self._write_own_event(
                        "gap", {"lost": self._unreported_lost, "why": self._lost_reason}
                    )
                    self._lost_in_segment_gaps += self._unreported_lost
                    self._unreported_lost = 0
                    self._error_logged = False
            except OSError as error:
                self._handle_write_error(error, events)
                return False
        elif self._segment_is_full(monotonic):
            self._start_next_segment(monotonic)
        return True

    def _segment_is_full(self, monotonic: float) -> bool:
        segment, limits = self._segment, self._limits
        if segment is None or monotonic < self._retry_at:
            return False
        if limits.segment_bytes is not None and segment.size >= limits.segment_bytes:
            return True
        age = monotonic - segment.opened_at
        return limits.segment_seconds is not None and age >= limits.segment_seconds

    def _handle_removed_segment(self, segment: Segment) -> None:
        """Count all events of a removed segment as lost; the next write opens a new segment."""
        segment.close()
        self._segment = None
        events = sum(self._segment_counts.values())
        self._counts = {
            event: left
            for event, number in self._counts.items()
            if (left := number - self._segment_counts.get(event, 0))
        }
        self.lost += events
        self._unreported_lost += events + self._lost_in_segment_gaps
        self._segment_counts, self._lost_in_segment_gaps = {}, 0
        self._lost_reason = _REMOVED
        self._retry_at = 0.0
        self._archive.log(
            f"{segment.path} was removed while it was being written: {events} events are lost; "
            "the recording continues in a new file"
        )

    def _start_next_segment(self, monotonic: float) -> None:
        """Open the next segment; if that fails, continue with the current one."""
        previous = self._segment
        try:
            self._open_segment()
        except OSError:
            self._retry_at = monotonic + RETRY_SECONDS
            return
        if previous is not None:
            previous.close()
            self._archive.housekeeper.queue(previous.path)

    def _open_segment(self) -> None:
        segment = Segment(self._archive.folder, os.path.basename(self._segment_path()))  # noqa: PTH119
        previous, self._segment = self._segment, segment
        counts, self._segment_counts = self._segment_counts, {}
        lost_in_gaps, self._lost_in_segment_gaps = self._lost_in_segment_gaps, 0
        try:
            self._write_own_event("open", {**self._open, "segment": self._segment_count})
        except OSError:
            self._segment, self._segment_counts, self._lost_in_segment_gaps = (
                previous,
                counts,
                lost_in_gaps,
            )
            segment.discard()
            raise
        with contextlib.suppress(OSError):
            segment.publish()
        self._segment_count += 1

    def _write_own_event(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write an `open` or `gap` event, which is not counted as lost if it fails."""
        line = self._encode(event, self._clock.now(), fields)
        try:
            self._write_or_raise(line, {event: 1})
        except OSError:
            self._seq -= 1
            raise

    def _write(self, lines: Sequence[bytes], counts: Mapping[str, int]) -> None:
        """Write lines, or add them to the buffer of a buffered archive."""
        joined = b"".join(lines)
        self._buffer.append(joined)
        self._buffer_size += len(joined)
        buffered = self._buffer_counts
        for event, number in counts.items():
            buffered[event] = buffered.get(event, 0) + number
        if not self._archive.buffered or self._buffer_size >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        lines, self._buffer, self._buffer_size = b"".join(self._buffer), [], 0
        counts, self._buffer_counts = self._buffer_counts, {}
        try:
            self._write_or_raise(lines, counts)
        except OSError as error:
            events = sum(counts.values())
            self._seq -= events  # counted again with the loss
            self._handle_write_error(error, events)

    def _write_or_raise(self, lines: bytes, counts: Mapping[str, int]) -> None:
        if self._segment is None:
            raise OSError("no segment is open")
        self._segment.put(lines)
        for event, number in counts.items():
            if number:
                self._counts[event] = self._counts.get(event, 0) + number
                self._segment_counts[event] = self._segment_counts.get(event, 0) + number

    def _handle_write_error(self, error: OSError, events: int) -> None:
        why = error.strerror or str(error)
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._count_lost(events, why)
        if not self._error_logged:
            self._error_logged = True
            self._archive.log(
                f"cannot record to {self._archive.folder}: {why}; traffic goes on, and a "
                "gap event will count the lost events"
            )

    def _count_lost(self, events: int, why: str) -> None:
        self._seq += events
        self.lost += events
        self._unreported_lost += events
        self._lost_reason = why
