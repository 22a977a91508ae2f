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
body, `framing.capped` makes the piece.

The policy redacts the copy only. Segments rotate by size and age; rest.py compresses finished
ones and applies retention, in a background thread.
"""

import contextlib
import os
import select
import threading
import time
from binascii import b2a_base64
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.frame import FORMAT_VERSION, Dir, Transport
from mcptally.record.found import found_in
from mcptally.record.framing import DEFAULT_CAP, Piece, TooLarge
from mcptally.record.redact import Policy
from mcptally.record.redact import policy as policy_named
from mcptally.record.rest import Housekeeper
from mcptally.record.segment import Segment, stem
from mcptally.record.strict import why_not_strict

_encode: Final = msgspec.json.Encoder().encode

RECORDER: Final = "mcptally 0.1.0"
"""Name and version for `open.recorder`; asking the package's metadata would cost start-up time."""

RETRY_SECONDS: Final = 1.0
"""After the disk refused an event, it is asked again at most this often."""

STALL_SECONDS: Final = 1.0
"""A write that has not returned after this time no longer holds up stdio traffic."""

_LOOK_SECONDS: Final = 5.0
"""How often, at most, a recording looks whether its segment still has a name."""

_STALLED: Final = "the disk did not take an event in time"

# CLOCK_BOOTTIME goes on while a laptop sleeps; elsewhere the monotonic clock has to do.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def _steady_ns() -> int:
    return time.monotonic_ns() if _BOOTTIME is None else time.clock_gettime_ns(_BOOTTIME)


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


def new_id() -> str:
    """A UUIDv7: sorts by the time it was made (RFC 9562, section 5.7)."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def say_on_stderr(message: str) -> None:
    """One line of the recorder's own on stderr, unless nobody reads it."""
    with contextlib.suppress(OSError):
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(2, select.POLLOUT)
            if not any(event & select.POLLOUT for _, event in poll.poll(0)):
                return
        os.write(2, f"mcptally: {message}\n".encode(errors="replace"))


def _utf8(text: str) -> str:
    """Words of a command line that are not UTF-8 come as surrogates, which no JSON can hold."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


class Archive:
    """A folder that recordings are written to, with one policy and one set of limits."""

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        say: Callable[[str], None] = say_on_stderr,
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
    a watchdog take traffic away from a thread that a dead disk holds; relay.py does.
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
        self._policy = archive.policy
        self._limits = archive.limits
        self._lock = threading.Lock()
        self._wall = time.time_ns()
        self._steady = _steady_ns()
        self._seq = 0
        self._counts: dict[str, int] = {}
        self._gap = 0
        self._gap_why = ""
        self._missed: deque[int] = deque()
        self._retry_at = 0.0
        self._said = False
        self._stem = stem(server, self.id, self._wall)
        self._file: Segment | None = None
        self._segments = 0
        self._look_at = 0.0
        self._finished = False
        self._open = {
            "transport": transport,
            "server": server,
            **({} if command is None else {"command": self._redacted_command(command)}),
            **({} if url is None else {"url": self._redacted_url(url)}),
            "recorder": RECORDER,
            "redaction": self._policy.name,
        }
        self._message = {
            way: (
                b'{"v":%d,"event":"message","recording":"%b","seq":%%d,"ts_ns":%%d,"dir":"%b",'
                b'"scope":%%b,"bytes":%%d,%%b"msg":%%b}\n'
            )
            % (FORMAT_VERSION, self.id.encode(), way.encode())
            for way in ("c2s", "s2c")
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
        self._events("stderr", [partial(self._text_fields, line) for line in lines])

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
            fields["path"] = self._redacted_url(path)
        self._events("http", [lambda: {"dir": dir, "scope": scope, "phase": phase, **fields}])

    def gap(self, *, lost: int, why: str) -> None:
        """Say that `lost` events are missing; for losses that only the caller knows of."""
        self._events("gap", [lambda: {"lost": lost, "why": why}])

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
            now = self._now()
            template = self._message[way]
            json_scope = b"null" if scope is None else _encode(scope)
            json_fields = _encode(fields)[1:-1] + b"," if fields else b""
            lines = []
            messages = 0
            for piece in pieces:
                own = piece.size if isinstance(piece, TooLarge) else len(piece)
                size = own if wire_bytes is None else wire_bytes
                event: dict[str, Any] = {"dir": way, "scope": scope, "bytes": size}
                if isinstance(piece, TooLarge):
                    event |= {"why": "too_large", **fields, **self._oversize(piece)}
                    lines.append(self._line("raw", now, event))
                    continue
                if why := why_not_strict(piece):
                    if why == "not_json" and "unterminated" in fields:
                        why = "torn"
                    event |= {"why": why, **fields, **self._text_fields(piece)}
                    lines.append(self._line("raw", now, event))
                    continue
                try:
                    copy, redacted = self._policy.json(piece)
                except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
                    event |= {"why": "redaction_failed", **fields, "text": ""}
                    lines.append(self._line("raw", now, event))
                    continue
                extra = json_fields
                if redacted:
                    extra += b'"redacted":%d,' % redacted
                if b"\r" in copy or b"\n" in copy:
                    # In strict JSON a line break can only stand between tokens.
                    copy = copy.replace(b"\r", b" ").replace(b"\n", b" ")
                    extra += b'"reflowed":true,'
                lines.append(template % (self._seq, now, json_scope, size, extra, copy))
                self._seq += 1
                messages += 1
            self._put(b"".join(lines), {"message": messages, "raw": len(lines) - messages})

    def _events(self, event: str, fields: Sequence[Callable[[], Mapping[str, Any]]]) -> None:
        if self.stalled or self._finished:
            self._missed.append(len(fields))
            return
        with self._lock:
            if self._ready(len(fields)):
                now = self._now()
                lines = [self._line(event, now, make()) for make in fields]
                self._put(b"".join(lines), {event: len(lines)})

    def _now(self) -> int:
        return self._wall + _steady_ns() - self._steady

    def _line(self, event: str, ts_ns: int, fields: Mapping[str, Any]) -> bytes:
        begin = {"v": FORMAT_VERSION, "event": event, "recording": self.id}
        line = _encode({**begin, "seq": self._seq, "ts_ns": ts_ns, **fields})
        self._seq += 1
        return line + b"\n"

    def _oversize(self, piece: TooLarge) -> dict[str, Any]:
        found = {
            key: self._redacted(value) if isinstance(value, str) else value
            for key, value in found_in(piece).items()
        }
        # A hash of the whole would let a short secret be guessed.
        whole = {"sha256": piece.sha256} if self._policy.name == "none" else {}
        return {"truncated": True, **whole, **found, **self._text_fields(piece.head)}

    # --- redaction ------------------------------------------------------------------------------

    def _text_fields(self, data: bytes) -> dict[str, Any]:
        try:
            data, redacted = self._policy.text(data)
        except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
            return {"text": "", "withheld": "redaction_failed"}
        extra: dict[str, Any] = {"redacted": redacted} if redacted else {}
        try:
            return {**extra, "text": data.decode()}
        except UnicodeDecodeError:
            return {**extra, "b64": b2a_base64(data, newline=False).decode()}

    def _redacted(self, text: str) -> str:
        return str(self._text_fields(text.encode(errors="replace")).get("text", ""))

    def _redacted_url(self, url: str) -> str:
        try:
            return _utf8(self._policy.url(url)[0])
        except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
            return ""

    def _redacted_command(self, command: Sequence[str]) -> list[str]:
        try:
            return [_utf8(word) for word in self._policy.argv(command)[0]]
        except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
            return []

    # --- the file (the lock is held) ------------------------------------------------------------

    def _ready(self, events: int) -> bool:
        """Make the file ready for `events` more, or count them as lost.

        Opens the first segment, begins the next one, and writes the gap that is owed.
        """
        monotonic = time.monotonic()
        while self._missed:
            self._lose(self._missed.popleft(), _STALLED)
        if self._file is None or self._gap:
            if monotonic < self._retry_at:
                self._lose(events, self._gap_why)
                return False
            try:
                if self._file is None:
                    self._begin_segment()
                if self._gap:
                    self._put_one("gap", {"lost": self._gap, "why": self._gap_why})
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
        if limits.segment_seconds is not None and age >= limits.segment_seconds:
            return True
        if monotonic >= self._look_at:
            self._look_at = monotonic + _LOOK_SECONDS
            return not file.has_name()
        return False

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
        try:
            self._put_one("open", {**self._open, "segment": self._segments})
        except OSError:
            self._file = before
            segment.discard()
            raise
        with contextlib.suppress(OSError):
            segment.publish()
        self._segments += 1

    def _put_one(self, event: str, fields: Mapping[str, Any]) -> None:
        """An event of the file's own (open, gap), which is no loss when it fails."""
        line = self._line(event, self._now(), fields)
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
