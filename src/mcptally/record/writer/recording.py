"""Recordings on disk while they grow: one event, one line, in the file before it is passed on.

How to use it (stdio and HTTP alike; safe to call from several threads and from an event loop):

    archive = Archive("traces", policy=policy, limits=Limits())
    recording = archive.open(transport="stdio", server="time", command=["mcp-server-time"])
    recording.frame(b'{"jsonrpc":...}', dir="c2s")               # a `message` or a `raw`
    recording.frame(data, dir="s2c", scope="x1", sse_id="7")     # HTTP: exchange id, SSE fields
    recording.http(dir="c2s", scope="x1", phase="request", method="POST", path="/mcp")
    recording.stderr([b"a line"])
    recording.close(reason="server_exited", exit_code=0)

When a call returns, its events are in the file (`write` has returned, no fsync). No call raises
because of the disk: what could not be written is counted, said once, and told by a `gap` as soon
as the disk takes it again. Lost events keep their `seq`, so every hole in `seq` has its `gap`.
A `Splitter` (framing.py) cuts a stream into the pieces that `frame` and `frames` take; of a whole
body, `framing.capped` makes the piece. What a line says is lines.py's, the file segment.py's.

The policy redacts the copy only. Segments rotate by size and age; rest.py compresses finished
ones and applies retention, in a background thread.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mcptally.record.limits import Limits
from mcptally.record.log import log_to_stderr
from mcptally.record.writer.clock import Clock, new_id
from mcptally.record.writer.event_line import EventLineEncoder
from mcptally.record.writer.housekeeping import Housekeeper
from mcptally.record.writer.segment import Segment, segment_stem
from mcptally.redaction.policy import Policy
from mcptally.redaction.policy import policy as policy_named
from mcptally.transcript.format import Dir, Transport
from mcptally.wire.framing import Piece

RECORDER: Final = "mcptally 0.1.0"
"""Name and version for `open.recorder`; asking the package's metadata would cost start-up time."""

RETRY_SECONDS: Final = 1.0
"""After the disk refused an event, it is asked again at most this often."""

_STALLED: Final = "the disk did not take an event in time"
_REMOVED: Final = "their file was removed while it was being written"


class Archive:
    """A folder that recordings are written to, with one policy and one set of limits.

    `say` is told, in a sentence each, what whoever runs the recorder should know.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        log: Callable[[str], None] = log_to_stderr,
    ) -> None:
        self.folder = os.fspath(out)
        self.policy = policy or policy_named()
        self.limits = limits or Limits()
        self.log = log
        self.housekeeper = Housekeeper(
            self.folder,
            keep_bytes=self.limits.keep_bytes,
            keep_seconds=self.limits.keep_seconds,
            compress=self.limits.compress,
        )

    def open(
        self,
        *,
        transport: Transport,
        server: str | None = None,
        command: Sequence[str] | None = None,
        url: str | None = None,
    ) -> "Recording":
        """Begin a recording; a disk that refuses is a loss like any other, never an error."""
        recording = self.prepare(transport=transport, server=server, command=command, url=url)
        recording.begin()
        return recording

    def close(self) -> None:
        """Stop the work in the background; recordings are closed by their owners."""
        self.housekeeper.stop()

    def prepare(
        self,
        *,
        transport: Transport,
        server: str | None = None,
        command: Sequence[str] | None = None,
        url: str | None = None,
    ) -> "Recording":
        """A recording whose `begin` is still to be called, on a thread that may wait for a disk."""
        self.housekeeper.start()
        return Recording(self, transport=transport, server=server, command=command, url=url)


class Recording:
    """One pipe's life or one HTTP session, written to one segment after another.

    `busy_since` (seconds on the monotonic clock, 0 when no write is under way) and `stalled` let
    a watchdog take traffic away from a thread that a dead disk holds; stdio.py and http_sessions.py
    do. `lost` counts the events that are not in the files.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        transport: Transport,
        server: str | None,
        command: Sequence[str] | None,
        url: str | None,
    ) -> None:
        self.id = new_id()
        self.busy_since = 0.0
        self.stalled = False
        self.lost = 0
        self._archive = archive
        self._limits = archive.limits
        self._lock = threading.Lock()
        self._encoder = EventLineEncoder(self.id, archive.policy)
        self._clock = Clock()
        self._seq = 0
        self._counts: dict[str, int] = {}
        self._unreported_lost = 0
        self._lost_reason = ""
        self._skipped: deque[int] = deque()
        self._retry_at = 0.0
        self._error_logged = False
        server = None if server is None else self._encoder.redact_label(server)
        self._file_stem = segment_stem(server, self.id, self._clock.began_ns)
        self._segment: Segment | None = None
        self._segment_count = 0
        self._segment_counts: dict[str, int] = {}
        """Events in the open segment, counted like `_counts`."""
        self._lost_in_segment_gaps = 0
        """Lost events that gaps in the open segment account for."""
        self._closed = False
        self._open = {
            "transport": transport,
            "server": server,
            **({} if command is None else {"command": self._encoder.redact_command(command)}),
            **({} if url is None else {"url": self._encoder.redact_url(url)}),
            "recorder": RECORDER,
            "redaction": archive.policy.name,
        }

    def begin(self) -> None:
        """Write the first segment's `open`; the first event does it where nobody called this."""
        with self._lock:
            self._prepare_write(0)

    def mark_stalled(self) -> None:
        """Give up waiting for a write that does not return: events are lost until it does."""
        self.stalled = True
        self._archive.log(
            f"{self._archive.folder} does not take events in time; traffic goes on, a gap will tell"
        )

    # --- events ---------------------------------------------------------------------------------

    def frame(
        self,
        piece: Piece,
        *,
        dir: Dir,  # noqa: A002 - the transcript's own word
        scope: str | None = None,
        wire_bytes: int | None = None,
        **fields: Any,
    ) -> None:
        """One frame as a `message`, or as a `raw` when it is not strict JSON or over the cap.

        `wire_bytes` is its length on the wire where that is not its own (decoded SSE);
        `fields` (`sse_id`, `sse_event`, `unterminated`) are added to the event as they are.
        """
        self._write_frames([piece], dir, scope, wire_bytes, fields)

    def frames(self, pieces: Sequence[Piece], *, dir: Dir) -> None:  # noqa: A002
        """Frames of a pipe that one read completed: as many events, one write."""
        self._write_frames(pieces, dir, None, None, {})

    def stderr(self, lines: Sequence[bytes]) -> None:
        """What the server wrote to stderr, an event a line."""
        self._write_events("stderr", [partial(self._encoder.text_fields, line) for line in lines])

    def http(
        self,
        *,
        dir: Dir,  # noqa: A002
        scope: str | None,
        phase: str,
        **fields: Any,
    ) -> None:
        """An HTTP event; `method`, `path`, `status`, `headers`, `closed_by` go to `fields`.

        `path` is redacted here; the header allowlist and hashed session ids are the caller's.
        """
        if isinstance(path := fields.get("path"), str):
            fields["path"] = self._encoder.redact_url(path)
        self._write_events("http", [lambda: {"dir": dir, "scope": scope, "phase": phase, **fields}])

    def close(
        self,
        *,
        reason: str,
        exit_code: int | None = None,
        signal: int | None = None,
        **fields: Any,
    ) -> None:
        """End the recording; later calls write nothing."""
        if self._closed:
            return
        self._retry_at = 0.0
        end = {"reason": reason, "exit_code": exit_code, "signal": signal, **fields}
        self._write_events(
            "close", [lambda: {**end, "counts": {**self._counts, "lost": self.lost}}]
        )
        self._closed = True
        if self._unreported_lost or self._skipped:
            lost = self._unreported_lost + sum(self._skipped)
            self._archive.log(
                f"{lost} events could not be recorded: {self._lost_reason or _STALLED}"
            )
        if self._segment is not None and not self.stalled:
            self._segment.close()

    def close_with_exit(self, code: int, *, reason: str | None = None) -> int:
        """Close with a server's end: its exit code, or -N where signal N ended it.

        `reason` is why, where it did not end by itself. What it gives is the exit code that a
        shell would make of it: 128 + N for a signal.
        """
        if code >= 0:
            self.close(reason=reason or "server_exited", exit_code=code)
            return code
        self.close(reason=reason or "server_killed", signal=-code)
        return 128 - code

    # --- lines (the lock is held) ---------------------------------------------------------------

    def _write_frames(
        self,
        pieces: Sequence[Piece],
        direction: Dir,
        scope: str | None,
        wire_bytes: int | None,
        fields: dict[str, Any],
    ) -> None:
        if self.stalled or self._closed:
            self._skipped.append(len(pieces))
            return
        with self._lock:
            if not self._prepare_write(len(pieces)):
                return
            now = self._clock.now()
            context = self._encoder.frame_context(
                direction, scope=scope, wire_bytes=wire_bytes, fields=fields
            )
            lines = []
            messages = 0
            for piece in pieces:
                line, is_message = self._encoder.encode_frame(
                    piece, context, seq=self._seq, ts_ns=now
                )
                self._seq += 1
                messages += is_message
                lines.append(line)
            self._write(b"".join(lines), {"message": messages, "raw": len(lines) - messages})

    def _write_events(self, event: str, fields: Sequence[Callable[[], Mapping[str, Any]]]) -> None:
        if self.stalled or self._closed:
            self._skipped.append(len(fields))
            return
        with self._lock:
            if self._prepare_write(len(fields)):
                now = self._clock.now()
                lines = [self._encode(event, now, make()) for make in fields]
                self._write(b"".join(lines), {event: len(lines)})

    def _encode(self, event: str, ts_ns: int, fields: Mapping[str, Any]) -> bytes:
        line = self._encoder.encode_event(event, fields, seq=self._seq, ts_ns=ts_ns)
        self._seq += 1
        return line

    # --- the file (the lock is held) ------------------------------------------------------------

    def _prepare_write(self, events: int) -> bool:
        """Make the file ready for `events` more, or count them as lost.

        Opens the first segment, begins the next one, and writes the gap that is owed.
        """
        monotonic = time.monotonic()
        while self._skipped:
            self._count_lost(self._skipped.popleft(), _STALLED)
        if self._segment is not None and not self._segment_exists(self._segment):
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
        file, limits = self._segment, self._limits
        if file is None or monotonic < self._retry_at:
            return False
        if limits.segment_bytes is not None and file.size >= limits.segment_bytes:
            return True
        age = monotonic - file.opened_at
        return limits.segment_seconds is not None and age >= limits.segment_seconds

    def _segment_exists(self, file: Segment) -> bool:
        # Before every write (about 1 µs): what is written to a removed file is lost unseen.
        self.busy_since = time.monotonic()
        try:
            return file.exists()
        finally:
            self.busy_since = 0.0
            self.stalled = False

    def _handle_removed_segment(self, file: Segment) -> None:
        """Count all events of a removed segment as lost; the next write begins a new one."""
        file.close()
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
            f"{file.path} was removed while it was being written: {events} events are lost; "
            "the recording goes on in a new file"
        )

    def _start_next_segment(self, monotonic: float) -> None:
        """Begin the next segment; when the disk refuses, the present one goes on growing."""
        previous = self._segment
        try:
            self._open_segment()
        except OSError:
            self._retry_at = monotonic + RETRY_SECONDS
            return
        if previous is not None:
            previous.close()
            self._archive.housekeeper.finished(previous.path)

    def _open_segment(self) -> None:
        name = f"{self._file_stem}-{self._segment_count:04d}.jsonl"
        self.busy_since = time.monotonic()
        try:
            segment = Segment(self._archive.folder, name)
        finally:
            self.busy_since = 0.0
            self.stalled = False
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
        """An event of the file's own (open, gap), which is no loss when it fails."""
        line = self._encode(event, self._clock.now(), fields)
        try:
            self._write_or_raise(line, {event: 1})
        except OSError:
            self._seq -= 1
            raise

    def _write(self, lines: bytes, counts: Mapping[str, int]) -> None:
        try:
            self._write_or_raise(lines, counts)
        except OSError as error:
            events = sum(counts.values())
            self._seq -= events  # counted again with the loss
            self._handle_write_error(error, events)

    def _write_or_raise(self, lines: bytes, counts: Mapping[str, int]) -> None:
        if self._segment is None:
            raise OSError("no segment is open")
        self.busy_since = time.monotonic()
        try:
            self._segment.put(lines)
        finally:
            self.busy_since = 0.0
            self.stalled = False
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
                f"cannot record to {self._archive.folder}: {why}; traffic goes on, a gap will tell"
            )

    def _count_lost(self, events: int, why: str) -> None:
        self._seq += events
        self.lost += events
        self._unreported_lost += events
        self._lost_reason = why
