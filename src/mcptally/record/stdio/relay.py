"""Relays bytes between client and server in a loop, and records them (POSIX).

After a chunk is read, the frames that it completes are recorded, and then the chunk is relayed. So
a frame is recorded before its last byte is relayed; its earlier bytes need not wait. One thread
reads, records and relays, and handles the session's other events as callbacks of the same `poll`.
"""

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Final

from mcptally.record.stdio.sink import Sink, close_fd
from mcptally.transcript.writer.interface import RecordingWriter
from mcptally.transcript.writer.log import log_to_stderr
from mcptally.wire.framing import FrameSplitter, StderrLines

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcptally.transcript.format import Dir

_CHUNK: Final = 65536

_MAX_STDERR_BUFFER: Final = 1024 * 1024
"""Maximum bytes of stderr buffered for a client that does not read it. Further bytes are recorded
but not relayed."""

_CLOSED_EVENTS: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Stream:
    """A relayed stream with a source, a sink, and a way to record its bytes."""

    def __init__(self, source: int, sink: Sink | None, *, must_deliver: bool = True) -> None:
        self.source = source
        self.sink = sink
        self.must_deliver = must_deliver
        """Whether the stream ends when its reader closes it. If not, the stream is recorded to its
        end."""
        self.pending = memoryview(b"")
        self.open = True
        self.writer_closed = False
        """Whether the writer has closed the source, which may still contain unread bytes."""
        self.source_ended = False
        self.dropped_bytes = 0

    def record(self, chunk: bytes) -> None:
        """Record the frames or lines that `chunk` completes."""

    def record_unterminated(self) -> None:
        """Record the last frame or line if it has no line ending."""


class FrameStream(Stream):
    """A stream of frames."""

    def __init__(
        self, source: int, sink: Sink, recording: RecordingWriter, *, direction: "Dir", cap: int
    ) -> None:
        super().__init__(source, sink)
        self._recording = recording
        self._splitter = FrameSplitter(cap=cap)
        self._direction: Dir = direction

    def record(self, chunk: bytes) -> None:
        """Record the frames that `chunk` completes."""
        pieces = self._splitter.feed(chunk)
        if pieces:
            self._recording.frames(pieces, dir=self._direction)

    def record_unterminated(self) -> None:
        """Record the last frame if it has no line ending."""
        rest = self._splitter.end()
        if rest is not None:
            self._recording.frames([rest], dir=self._direction, unterminated=True)


class StderrStream(Stream):
    """The server's stderr.

    It is always read and recorded line by line, and relayed as long as the client reads it.
    """

    def __init__(self, source: int, sink: Sink | None, recording: RecordingWriter) -> None:
        super().__init__(source, sink, must_deliver=False)
        self._recording = recording
        self._lines = StderrLines()

    def record(self, chunk: bytes) -> None:
        """Record the lines that `chunk` completes."""
        if lines := self._lines.feed(chunk):
            self._recording.stderr(lines)

    def record_unterminated(self) -> None:
        """Record the last line if it has no line ending."""
        if lines := self._lines.end():
            self._recording.stderr(lines)


class Relay:
    """Relays bytes until the server's stdout and stderr have ended; stdin may still be open."""

    def __init__(
        self, *, from_client: FrameStream, from_server: FrameStream, stderr: StderrStream
    ) -> None:
        self.from_client = from_client
        self.from_server = from_server
        self.stderr = stderr
        self.last_transfer = time.monotonic()
        """Time of the last read, in seconds of the monotonic clock."""
        self.has_recorded = False
        """Whether something was recorded; reset by the caller."""
        self._poll = select.poll()
        self._streams = (from_client, from_server, stderr)
        self._by_fd: dict[int, Stream] = {}
        self._polled_events: dict[int, int] = {}
        self._watched: dict[int, Callable[[], None]] = {}
        for stream in self._streams:
            self._by_fd[stream.source] = stream
            if stream.sink is not None:
                self._by_fd[stream.sink.fd] = stream
            self._update_polling(stream)

    @property
    def done(self) -> bool:
        """Whether the server's stdout and stderr have both ended."""
        return not self.from_server.open and not self.stderr.open

    def watch(self, fd: int, callback: "Callable[[], None] | None") -> None:
        """Call `callback` when `fd` is readable or ends; None unregisters it."""
        if callback is None:
            del self._watched[fd]
            self._stop_polling(fd)
        else:
            self._watched[fd] = callback
            self._set_poll_events(fd, select.POLLIN)

    def step(self, timeout_ms: int | None) -> None:
        """Wait for events, at most `timeout_ms`, and handle them."""
        for fd, event in self._poll.poll(timeout_ms):
            stream = self._by_fd.get(fd)
            if stream is None or not stream.open:
                if (callback := self._watched.get(fd)) is not None:
                    callback()
                else:
                    self._stop_polling(fd)
            elif fd == stream.source:
                if not event & select.POLLIN:
                    stream.writer_closed = True
                    if stream.pending:
                        # `_flush` polls the source again, since it may have unread data.
                        self._stop_polling(fd)
                        continue
                self._read(stream)
            elif event & _CLOSED_EVENTS and not event & select.POLLOUT:
                self._handle_sink_closed(stream)
            else:
                self._flush(stream)

    def client_disconnected(self) -> bool:
        """Return whether the client has closed both stdin and stdout."""
        stream = self.from_server
        if self.from_client.open and not self.from_client.writer_closed:
            return False
        if not stream.open or stream.sink is None:
            return True
        poll = select.poll()
        poll.register(stream.sink.fd, 0)
        return any(event & _CLOSED_EVENTS for _, event in poll.poll(0))

    def server_data_waiting(self) -> bool:
        """Return whether data or an end of file from the server can be read."""
        poll = select.poll()
        for stream in (self.from_server, self.stderr):
            if stream.open and not stream.source_ended:
                poll.register(stream.source, select.POLLIN)
        return bool(poll.poll(0))

    def _read(self, stream: Stream) -> None:
        try:
            chunk = os.read(stream.source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""  # treat a reset socket as end of file
        if not chunk:
            self._handle_source_end(stream)
            return
        if stream.dropped_bytes or stream.pending:
            self._buffer_stderr(stream, chunk)
        else:
            stream.pending = memoryview(chunk)
        self.last_transfer = time.monotonic()
        self.has_recorded = True
        try:
            stream.record(chunk)
        except Exception as error:  # noqa: BLE001 - a recording error must not stop traffic
            _log_recording_error(error)
        self._flush(stream)

    def _buffer_stderr(self, stream: Stream, chunk: bytes) -> None:
        """Buffer a chunk of stderr until the client reads it, or count it as dropped."""
        if len(stream.pending) + len(chunk) <= _MAX_STDERR_BUFFER and not stream.dropped_bytes:
            stream.pending = memoryview(bytes(stream.pending) + chunk)
        else:
            stream.dropped_bytes += len(chunk)

    def _flush(self, stream: Stream) -> None:
        sink = stream.sink
        if sink is None:
            stream.pending = memoryview(b"")
            return
        try:
            while stream.pending:
                written = sink.write(stream.pending)
                if not written:
                    break
                stream.pending = stream.pending[written:]
        except OSError:
            self._handle_sink_closed(stream)
            return
        if not stream.pending and stream.dropped_bytes:
            dropped = stream.dropped_bytes
            note = f"mcptally: {dropped} bytes of stderr were not read in time\n".encode()
            stream.dropped_bytes = 0
            stream.pending = memoryview(note)
            self._flush(stream)
            return
        if not stream.pending and stream.source_ended:
            self._handle_source_end(stream)
        else:
            self._update_polling(stream)

    def _update_polling(self, stream: Stream) -> None:
        """Poll for a writable sink while bytes are pending, otherwise for a readable source."""
        waiting = bool(stream.pending)
        if not stream.source_ended:
            reading = not waiting or not stream.must_deliver
            self._set_poll_events(stream.source, select.POLLIN if reading else 0)
        if stream.sink is not None:
            self._set_poll_events(stream.sink.fd, select.POLLOUT if waiting else 0)

    def _set_poll_events(self, fd: int, events: int) -> None:
        if self._polled_events.get(fd) != events:
            self._poll.register(fd, events)
            self._polled_events[fd] = events

    def _stop_polling(self, fd: int) -> None:
        if self._polled_events.pop(fd, None) is not None:
            with contextlib.suppress(KeyError, OSError):
                self._poll.unregister(fd)

    def _handle_source_end(self, stream: Stream) -> None:
        """Record and relay the remaining bytes after the source has ended, and close the sink."""
        if not stream.source_ended or not stream.pending:
            stream.source_ended = stream.writer_closed = True
            self._stop_polling(stream.source)
            self.has_recorded = True
            try:
                stream.record_unterminated()
            except Exception as error:  # noqa: BLE001 - a recording error must not stop traffic
                _log_recording_error(error)
        if stream.pending:
            self._update_polling(stream)
        else:
            self._close(stream)

    def _handle_sink_closed(self, stream: Stream) -> None:
        """Handle a sink that its reader has closed: close the source too, unless it is stderr."""
        sink, stream.sink = stream.sink, None
        stream.pending = memoryview(b"")
        stream.dropped_bytes = 0
        if sink is not None:
            self._stop_polling(sink.fd)
            self._by_fd.pop(sink.fd, None)
            sink.close()
        if stream.must_deliver:
            self.has_recorded = True
            with contextlib.suppress(Exception):
                stream.record_unterminated()
            self._close(stream)
        elif stream.source_ended:
            self._close(stream)
        else:
            self._update_polling(stream)

    def _close(self, stream: Stream) -> None:
        stream.open = False
        for fd in (stream.source, *(() if stream.sink is None else (stream.sink.fd,))):
            self._stop_polling(fd)
            self._by_fd.pop(fd, None)
        close_fd(stream.source)
        # stderr stays open for the recorder's log messages.
        if stream.sink is not None and stream.must_deliver:
            stream.sink.close()


def _log_recording_error(error: Exception) -> None:
    log_to_stderr(f"an event could not be recorded: {error!r}")
