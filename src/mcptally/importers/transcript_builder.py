"""Converts items to recordings: redacted events in transcript format 1, with stable ids.

Importing a source again yields the same recording ids, even after the source has grown. An id is a
hash of the format, the connection and the time of the first event. If the source records no times,
the file's redacted lines are hashed instead of the time.
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from mcptally.importers.items import Connection, Item, Tally
from mcptally.importers.packer import Packer
from mcptally.redaction.policy import Policy
from mcptally.transcript.format import RECORDER
from mcptally.transcript.writer.event_line import UNKNOWN_SIZE, EventLineEncoder
from mcptally.wire.framing import cap_frame
from mcptally.wire.json_text import decode_or_none

MAX_OPEN: Final = 20_000
"""Maximum number of unfinished recordings. Above it, the least recently active recording is
closed."""

UNKNOWN_TIME: Final = 0
"""`ts_ns` of events whose source records no times."""

_encode: Final = msgspec.json.Encoder().encode


class _Head(msgspec.Struct):
    method: str | None = None


_HEAD: Final = msgspec.json.Decoder(_Head)


class _Recording:
    """The state of an unfinished recording."""

    __slots__ = ("about", "at", "counts", "encoder", "ends", "id", "lost", "seq", "talked")

    encoder: EventLineEncoder
    """Set when the recording gets its id, at the first event."""

    def __init__(self) -> None:
        self.id = ""
        self.seq = 0
        self.at = UNKNOWN_TIME
        self.counts: Counter[str] = Counter()
        self.about: dict[str, Any] = {}
        self.ends: str | None = None
        self.lost = 0
        self.talked = False


class TranscriptBuilder:
    """Converts a source's items to recordings."""

    def __init__(
        self,
        packer: Packer,
        policy: Policy,
        *,
        source: Mapping[str, Any],
        restarts: bool,
        fingerprint: Callable[[], str],
        tally: Tally,
    ) -> None:
        self._packer = packer
        self._policy = policy
        self._source = source
        self._restarts = restarts
        # The fingerprint reads the whole file, so compute it once for all recordings without times.
        self._fingerprint = functools.cache(fingerprint)
        self._tally = tally
        self._open: dict[Connection, _Recording] = {}
        self._ids: Counter[str] = Counter()
        self.recordings = 0
        self.events: Counter[str] = Counter()

    def put(self, item: Item) -> None:
        """Add an item."""
        recording = self._of(item)
        if item.kind == "begin":
            recording.about |= item.extra
            if item.at is not None:
                recording.at = max(recording.at, item.at)
            return
        if item.kind == "end":
            recording.ends = str(item.extra.get("reason", "ended"))
            return
        self._event(recording, item)

    def finish(self) -> None:
        """Close all recordings, at the end of the source."""
        for connection in list(self._open):
            self._close(connection, "source_ended")

    # --- recordings ---------------------------------------------------------------------------

    def _of(self, item: Item) -> _Recording:
        connection = item.connection
        recording = self._open.pop(connection, None)
        if recording is not None and self._restarted(recording, item):
            self._open[connection] = recording
            self._close(connection, "restarted")
            recording = None
        if recording is None:
            recording = _Recording()
            if len(self._open) >= MAX_OPEN:
                self._close(next(iter(self._open)), "silent")
        self._open[connection] = recording  # the last item of the dict is the most recently active
        if item.kind in {"message", "head"} and item.dir == "c2s" and item.scope is None:
            method = _method(item)
            # A client may probe for the stateless revision before it initializes; the handshake
            # then belongs to the same recording.
            recording.talked |= method not in {"server/discover", None}
        return recording

    def _restarted(self, recording: _Recording, item: Item) -> bool:
        """Return whether this item starts a new connection, in which request ids begin again."""
        if item.kind == "begin":
            return bool(recording.counts) and bool(item.extra.get("new", True))
        if not self._restarts or item.connection.is_session or item.scope is not None:
            return False
        asks = item.kind in {"message", "head"} and item.dir == "c2s"
        return asks and recording.talked and _method(item) == "initialize"

    def _close(self, connection: Connection, reason: str) -> None:
        recording = self._open.pop(connection)
        if not recording.counts:
            return
        counts = {**recording.counts, "lost": recording.lost}
        fields = {"reason": recording.ends or reason, "exit_code": None, "signal": None}
        self._write(recording, "close", {**fields, "counts": counts})
        self._packer.end(recording.id)

    def _begin(self, recording: _Recording, item: Item) -> None:
        connection = item.connection
        first = item.at if item.at is not None else recording.at or None
        told = [self._source["format"], connection.server, connection.key]
        told += [first] if first is not None else [self._fingerprint()]
        base = hashlib.blake2b(_encode(told), digest_size=16).hexdigest()
        self._ids[base] += 1
        again = self._ids[base]
        if again > 1:
            base = hashlib.blake2b(_encode([base, again]), digest_size=16).hexdigest()
        recording.id = f"import-{base}"
        encoder = recording.encoder = EventLineEncoder(
            recording.id, self._policy, is_clean=lambda _: False
        )
        about = dict(recording.about)
        about.pop("new", None)
        server = connection.server
        fields: dict[str, Any] = {
            "transport": "import",
            "server": None if server is None else encoder.redact_label(server),
        }
        if command := about.pop("command", None):
            fields["command"] = encoder.redact_command(command)
        if url := about.pop("url", None):
            fields["url"] = encoder.redact_url(url)
        source = {**self._source, "transport": connection.transport, **about}
        # Items before the first timestamp have no time, even in a source with timestamps.
        if item.at is None and not recording.at:
            source["missing"] = sorted({*source["missing"], "time"})
        fields |= {"source": source, "recorder": RECORDER, "redaction": self._policy.name}
        self._write(recording, "open", {**fields, "segment": 0})
        self.recordings += 1

    # --- events -------------------------------------------------------------------------------

    def _event(self, recording: _Recording, item: Item) -> None:
        if item.at is not None:
            if item.at < recording.at:
                self._tally.notes["time was earlier than the previous one; replaced by it"] += 1
            recording.at = max(recording.at, item.at)
        elif item.kind in {"message", "head"} and recording.at:
            self._tally.notes["no time; the time of the previous event was used"] += 1
        if not recording.counts:
            self._begin(recording, item)
        if item.kind == "message":
            self._message(recording, item)
        elif item.kind == "head":
            self._head(recording, item)
        elif item.kind == "stderr":
            self._write(recording, "stderr", recording.encoder.stderr_fields(item.data))
        elif item.kind == "http":
            self._http(recording, item)
        else:
            # Missing events retain their sequence numbers.
            recording.seq += 1
            recording.lost += 1
            self._write(recording, "gap", {"lost": 1, **item.extra})

    def _message(self, recording: _Recording, item: Item) -> None:
        encoder = recording.encoder
        derived = {"derived": True} if item.derived else {}
        context = encoder.frame_context(
            item.dir,
            item.scope,
            UNKNOWN_SIZE if item.size is None else item.size,
            {**derived, **_redacted(item.extra, encoder)},
        )
        line, is_message = encoder.encode_frame(
            cap_frame(item.data), context, seq=recording.seq, ts_ns=recording.at
        )
        self._put(recording, "message" if is_message else "raw", line)

    def _head(self, recording: _Recording, item: Item) -> None:
        """Write a `raw` event in place of a message whose content is missing."""
        encoder = recording.encoder
        fields: dict[str, Any] = {"dir": item.dir, "scope": item.scope, "bytes": item.size}
        if item.derived:
            fields["derived"] = True
        fields |= {"why": "too_large", "truncated": True, **_redacted(item.extra, encoder)}
        self._write(recording, "raw", {**fields, **encoder.text_fields(item.data)})

    def _http(self, recording: _Recording, item: Item) -> None:
        fields = {"dir": item.dir, "scope": item.scope, **item.extra}
        if isinstance(fields.get("path"), str):
            fields["path"] = recording.encoder.redact_url(fields["path"])
        if pairs := fields.pop("headers", None):
            fields["headers"], _ = self._policy.headers(pairs)
        self._write(recording, "http", fields)

    def _write(self, recording: _Recording, event: str, fields: Mapping[str, Any]) -> None:
        line = recording.encoder.encode_event(event, fields, seq=recording.seq, ts_ns=recording.at)
        self._put(recording, event, line)

    def _put(self, recording: _Recording, event: str, line: bytes) -> None:
        self._packer.put(recording.id, line)
        recording.seq += 1
        recording.counts[event] += 1
        self.events[event] += 1


def _redacted(fields: Mapping[str, Any], encoder: EventLineEncoder) -> dict[str, Any]:
    return {
        name: encoder.redact_text(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _method(item: Item) -> str | None:
    if item.kind == "head":
        method = item.extra.get("method")
        return method if isinstance(method, str) else None
    if b'"method"' not in item.data:
        return None
    head = decode_or_none(_HEAD, item.data)
    return None if head is None else head.method
