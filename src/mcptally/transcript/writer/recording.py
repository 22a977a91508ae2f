"""Records one connection: encodes each event and passes its line to the segments.

When a method returns, its events are in the file (`write` has returned, without fsync). If the
archive is `buffered`, `flush` writes the events; the writer process calls it. No method raises a
disk error (segment_writer.py). The `pieces` passed to `frames` come from
`wire.framing.FrameSplitter`, which splits a stream, or from `wire.framing.cap_frame`, which takes a
whole body. event_line.py encodes the lines.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mcptally.transcript.format import Dir
from mcptally.transcript.writer.clock import Clock
from mcptally.transcript.writer.event_line import EventLineEncoder
from mcptally.transcript.writer.interface import ExchangeEvent
from mcptally.transcript.writer.progress import Progress
from mcptally.transcript.writer.segment_writer import SegmentWriter
from mcptally.wire.framing import Piece
from mcptally.wire.strict_json import strict_json_error

_NOISE: Final = (
    "the %s sends bytes that are not lines of JSON, as MCP requires; they are passed on unchanged "
    "and recorded as raw events"
)


def _is_noise(piece: Piece, *, unterminated: bool) -> bool:
    """Return whether a frame is not JSON, unless it is only incomplete because the stream ended."""
    if not isinstance(piece, bytes) or strict_json_error(piece) not in {"not_json", "not_utf8"}:
        return False
    return not (unterminated and piece.lstrip().startswith((b"{", b"[")))


class Recording:
    """The recording of one stdio connection or HTTP session, created by `Archive.prepare`."""

    def __init__(
        self,
        recording_id: str,
        segments: SegmentWriter,
        *,
        encoder: EventLineEncoder,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        self.id = recording_id
        self._log = log
        self._reported_noise: set[Dir] = set()
        """Directions whose non-JSON bytes have been reported to the user."""
        self.segments: Final = segments
        """Writes the lines."""
        self._encoder = encoder
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False

    def begin(self) -> None:
        """Write the first segment's `open` event now, before the first event."""
        with self._lock:
            self.segments.prepare(0)

    def flush(self) -> None:
        """Write the buffered events."""
        with self._lock:
            self.segments.flush()

    def resume(self, progress: Progress) -> int:
        """Continue the recording of a process that has died; see `SegmentWriter.resume`."""
        resumed = self.segments.resume(progress)
        self._closed = "close" in self.segments.counts
        return resumed

    def release(self) -> None:
        """Close the file without writing a `close` event."""
        if self.segments.progress.unreported_lost:
            self.begin()  # this writes the `gap` event
        self.segments.close()

    # --- events ---------------------------------------------------------------------------------

    def frames(
        self,
        pieces: Sequence[Piece],
        *,
        dir: Dir,  # noqa: A002 - name of the field in transcripts
        **fields: Any,
    ) -> None:
        """Record frames from a pipe in one write, each as `message` or `raw` (see `encode_frame`).

        `fields` (such as `unterminated`) are added to the events unchanged.
        """
        if self._closed:
            return
        with self._lock:
            if not self.segments.prepare(len(pieces)):
                return
            now = self._clock.now()
            encoder = self._encoder
            context = encoder.frame_context(dir, None, None, fields)
            lines = []
            messages = 0
            for seq, piece in enumerate(pieces, self.segments.seq):
                line, is_message = encoder.encode_frame(piece, context, seq=seq, ts_ns=now)
                messages += is_message
                lines.append(line)
                if (
                    not is_message
                    and dir not in self._reported_noise
                    and _is_noise(piece, unterminated="unterminated" in fields)
                ):
                    self._reported_noise.add(dir)
                    self._log(_NOISE % ("client" if dir == "c2s" else "server"))
            self.segments.write(lines, {"message": messages, "raw": len(lines) - messages})

    def stderr(self, lines: Sequence[bytes]) -> None:
        """Record lines that the server wrote to stderr, one event per line."""
        self._write_events("stderr", [partial(self._encoder.stderr_fields, line) for line in lines])

    def events(self, events: Sequence[ExchangeEvent]) -> None:
        """Record `http` events and frames of an HTTP exchange."""
        if self._closed:
            return
        with self._lock:
            if not self.segments.prepare(len(events)):
                return
            now = self._clock.now()
            encoder = self._encoder
            lines = []
            messages = frames = 0
            for seq, event in enumerate(events, self.segments.seq):
                if isinstance(event, bytes):
                    line = encoder.encode_http(event, seq=seq, ts_ns=now)
                else:
                    piece, direction, scope, wire_bytes, fields = event
                    context = encoder.frame_context(direction, scope, wire_bytes, fields)
                    line, is_message = encoder.encode_frame(piece, context, seq=seq, ts_ns=now)
                    frames += 1
                    messages += is_message
                lines.append(line)
            http = len(lines) - frames
            self.segments.write(
                lines, {"http": http, "message": messages, "raw": frames - messages}
            )

    def close(
        self, *, reason: str, exit_code: int | None = None, signal: int | None = None, **fields: Any
    ) -> None:
        """Write the `close` event and end the recording; later calls write nothing."""
        if self._closed:
            return
        self.segments.retry_at = 0.0
        self.flush()  # write buffered events first, so that `counts` is complete
        end = {"reason": reason, "exit_code": exit_code, "signal": signal, **fields}
        self._write_events(
            "close",
            [lambda: {**end, "counts": {**self.segments.counts, "lost": self.segments.lost}}],
        )
        self.flush()
        self._closed = True
        self.segments.close()

    def _write_events(self, event: str, fields: Sequence[Callable[[], Mapping[str, Any]]]) -> None:
        if self._closed:
            return
        with self._lock:
            if not self.segments.prepare(len(fields)):
                return
            now = self._clock.now()
            lines = [
                self._encoder.encode_event(event, make(), seq=seq, ts_ns=now)
                for seq, make in enumerate(fields, self.segments.seq)
            ]
            self.segments.write(lines, {event: len(lines)})
