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
from mcptally.record.writer.event_line import Lines
from mcptally.record.writer.housekeeping import Housekeeper
from mcptally.record.writer.segment import Segment, stem
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
        say: Callable[[str], None] = log_to_stderr,
    ) -> None:
        self.folder = os.fspath(out)
        self.policy = policy or policy_named()
        self.limits = limits or Limits()
        self.say = say
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

    def leave(self) -> None:
        """Stop the work in the background; recordings are closed by their owners."""
        self.housekeeper.leave()

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
        self._lines = Lines(self.id, archive.policy)
        self._clock = Clock()
        self._seq = 0
        self._counts: dict[str, int] = {}
        self._gap = 0
        self._gap_why = ""
        self._missed: deque[int] = deque()
        self._retry_at = 0.0
        self._said = False
        server = None if server is None else self._lines.label(server)
        self._stem = stem(server, self.id, self._clock.began_ns)
        self._file: Segment | None = None
        self._segments = 0
        self._in_segment: dict[str, int] = {}
        """Events in the open segment, counted like `_counts`."""
        self._told_in_segment = 0
        """Lost events that gaps in the open segment account for."""
        self._finished = False
        self._open = {
            "transport": transport,
            "server": server,
            **({} if command is None else {"command": self._lines.command(command)}),
            **({} if url is None else {"url": self._lines.url(url)}),
            "recorder": RECORDER,
            "redaction": archive.policy.name,
        }

    def begin(self) -> None:
        """Write the first segment's `open`; the first event does it where nobody called this."""
        with self._lock:
            self._ready(0)

    def stall(self) -> None:
        """Give up waiting for a write that does not return: events are lost until it does."""
        self.stalled = True
        self._archive.say(
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
        self._append([piece], dir, scope, wire_bytes, fields)

    def frames(self, pieces: Sequence[Piece], *, dir: Dir) -> None:  # noqa: A002
        """Frames of a pipe that one read completed: as many events, one write."""
        self._append(pieces, dir, None, None, {})

    def stderr(self, lines: Sequence[bytes]) -> None:
        """What the server wrote to stderr, an event a line."""
        self._events("stderr", [partial(self._lines.text, line) for line in lines])

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
            fields["path"] = self._lines.url(path)
        self._events("http", [lambda: {"dir": dir, "scope": scope, "phase": phase, **fields}])

    def close(
        self,
        *,
        reason: str,
        exit_code: int | None = None,
        signal: int | None = None,
        **fields: Any,
    ) -> None:
        """End the recording; later calls write nothing."""
        if self._finished:
            return
        self._retry_at = 0.0
        end = {"reason": reason, "exit_code": exit_code, "signal": signal, **fields}
        self._events("close", [lambda: {**end, "counts": {**self._counts, "lost": self.lost}}])
        self._finished = True
        if self._gap or self._missed:
            lost = self._gap + sum(self._missed)
            self._archive.say(f"{lost} events could not be recorded: {self._gap_why or _STALLED}")
        if self._file is not None and not self.stalled:
            self._file.close()

    def server_ended(self, code: int, *, reason: str | None = None) -> int:
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

    def _append(
        self,
        pieces: Sequence[Piece],
        way: Dir,
        scope: str | None,
        wire_bytes: int | None,
        fields: dict[str, Any],
    ) -> None:
        if self.stalled or self._finished:
            self._missed.append(len(pieces))
            return
        with self._lock:
            if not self._ready(len(pieces)):
                return
            now = self._clock.now()
            around = self._lines.around(way, scope=scope, wire_bytes=wire_bytes, fields=fields)
            lines = []
            messages = 0
            for piece in pieces:
                line, is_message = self._lines.frame(piece, around, seq=self._seq, ts_ns=now)
                self._seq += 1
                messages += is_message
                lines.append(line)
            self._put(b"".join(lines), {"message": messages, "raw": len(lines) - messages})

    def _events(self, event: str, fields: Sequence[Callable[[], Mapping[str, Any]]]) -> None:
        if self.stalled or self._finished:
            self._missed.append(len(fields))
            return
        with self._lock:
            if self._ready(len(fields)):
                now = self._clock.now()
                lines = [self._line(event, now, make()) for make in fields]
                self._put(b"".join(lines), {event: len(lines)})

    def _line(self, event: str, ts_ns: int, fields: Mapping[str, Any]) -> bytes:
        line = self._lines.event(event, fields, seq=self._seq, ts_ns=ts_ns)
        self._seq += 1
        return line

    # --- the file (the lock is held) ------------------------------------------------------------

    def _ready(self, events: int) -> bool:
        """Make the file ready for `events` more, or count them as lost.

        Opens the first segment, begins the next one, and writes the gap that is owed.
        """
        monotonic = time.monotonic()
        while self._missed:
            self._lose(self._missed.popleft(), _STALLED)
        if self._file is not None and not self._has_name(self._file):
            self._removed(self._file)
        if self._file is None or self._gap:
            if monotonic < self._retry_at:
                self._lose(events, self._gap_why)
                return False
            try:
                if self._file is None:
                    self._begin_segment()
                if self._gap:
                    self._put_one("gap", {"lost": self._gap, "why": self._gap_why})
                    self._told_in_segment += self._gap
                    self._gap = 0
                    self._said = False
            except OSError as error:
                self._refuse(error, events)
                return False
        elif self._segment_is_full(monotonic):
            self._rotate(monotonic)
        return True

    def _segment_is_full(self, monotonic: float) -> bool:
        file, limits = self._file, self._limits
        if file is None or monotonic < self._retry_at:
            return False
        if limits.segment_bytes is not None and file.size >= limits.segment_bytes:
            return True
        age = monotonic - file.began
        return limits.segment_seconds is not None and age >= limits.segment_seconds

    def _has_name(self, file: Segment) -> bool:
        # Before every write (about 1 µs): what is written to a removed file is lost unseen.
        self.busy_since = time.monotonic()
        try:
            return file.has_name()
        finally:
            self.busy_since = 0.0
            self.stalled = False

    def _removed(self, file: Segment) -> None:
        """Count all events of a removed segment as lost; the next write begins a new one."""
        file.close()
        self._file = None
        events = sum(self._in_segment.values())
        self._counts = {
            event: left
            for event, number in self._counts.items()
            if (left := number - self._in_segment.get(event, 0))
        }
        self.lost += events
        self._gap += events + self._told_in_segment
        self._in_segment, self._told_in_segment = {}, 0
        self._gap_why = _REMOVED
        self._retry_at = 0.0
        self._archive.say(
            f"{file.path} was removed while it was being written: {events} events are lost; "
            "the recording goes on in a new file"
        )

    def _rotate(self, monotonic: float) -> None:
        """Begin the next segment; when the disk refuses, the present one goes on growing."""
        before = self._file
        try:
            self._begin_segment()
        except OSError:
            self._retry_at = monotonic + RETRY_SECONDS
            return
        if before is not None:
            before.close()
            self._archive.housekeeper.finished(before.path)

    def _begin_segment(self) -> None:
        name = f"{self._stem}-{self._segments:04d}.jsonl"
        self.busy_since = time.monotonic()
        try:
            segment = Segment(self._archive.folder, name)
        finally:
            self.busy_since = 0.0
            self.stalled = False
        before, self._file = self._file, segment
        counted, self._in_segment = self._in_segment, {}
        told, self._told_in_segment = self._told_in_segment, 0
        try:
            self._put_one("open", {**self._open, "segment": self._segments})
        except OSError:
            self._file, self._in_segment, self._told_in_segment = before, counted, told
            segment.discard()
            raise
        with contextlib.suppress(OSError):
            segment.publish()
        self._segments += 1

    def _put_one(self, event: str, fields: Mapping[str, Any]) -> None:
        """An event of the file's own (open, gap), which is no loss when it fails."""
        line = self._line(event, self._clock.now(), fields)
        try:
            self._put_or_raise(line, {event: 1})
        except OSError:
            self._seq -= 1
            raise

    def _put(self, lines: bytes, counts: Mapping[str, int]) -> None:
        try:
            self._put_or_raise(lines, counts)
        except OSError as error:
            events = sum(counts.values())
            self._seq -= events  # counted again with the loss
            self._refuse(error, events)

    def _put_or_raise(self, lines: bytes, counts: Mapping[str, int]) -> None:
        if self._file is None:
            raise OSError("no segment is open")
        self.busy_since = time.monotonic()
        try:
            self._file.put(lines)
        finally:
            self.busy_since = 0.0
            self.stalled = False
        for event, number in counts.items():
            if number:
                self._counts[event] = self._counts.get(event, 0) + number
                self._in_segment[event] = self._in_segment.get(event, 0) + number

    def _refuse(self, error: OSError, events: int) -> None:
        why = error.strerror or str(error)
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._lose(events, why)
        if not self._said:
            self._said = True
            self._archive.say(
                f"cannot record to {self._archive.folder}: {why}; traffic goes on, a gap will tell"
            )

    def _lose(self, events: int, why: str) -> None:
        self._seq += events
        self.lost += events
        self._gap += events
        self._gap_why = why
