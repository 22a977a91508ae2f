"""The loop that moves bytes between client and server and keeps a copy (POSIX).

Every chunk goes the same way: read, recorded as far as it completes frames, passed on. So the
last byte of a frame waits for its record, and the bytes before it do not. One thread does all;
when the disk holds it longer than Limits.stall_seconds, `take_over` goes on without recording.
"""

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Final

from mcptally.record.log import log_to_stderr
from mcptally.record.stdio.sink import Sink, close_fd
from mcptally.record.writer.recording import Recording
from mcptally.wire.framing import Splitter, StderrLines

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcptally.transcript.format import Dir

_CHUNK: Final = 65536

_MAX_STDERR_BUFFER: Final = 1024 * 1024
"""Bytes of stderr kept for a client that does not read it; the server never waits for that."""

_CLOSED_EVENTS: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Stream:
    """One direction: where its bytes come from, where they go, how they are recorded."""

    def __init__(self, source: int, sink: Sink | None, *, must_deliver: bool = True) -> None:
        self.source = source
        self.sink = sink
        self.must_deliver = must_deliver
        """Without a reader this lane ends; otherwise it goes on for the recording's sake."""
        self.pending = memoryview(b"")
        self.open = True
        self.source_ended = False
        self.dropped_bytes = 0

    def record(self, chunk: bytes) -> None:
        """Record what `chunk` completes."""

    def record_unterminated(self) -> None:
        """Record what never got its line ending."""


class FrameStream(Stream):
    """A direction that carries frames."""

    def __init__(
        self, source: int, sink: Sink, recording: Recording, *, direction: "Dir", cap: int
    ) -> None:
        super().__init__(source, sink)
        self._recording = recording
        self._splitter = Splitter(cap=cap)
        self._direction: Dir = direction

    def record(self, chunk: bytes) -> None:
        """Record the frames that `chunk` completes."""
        pieces = self._splitter.feed(chunk)
        if pieces:
            self._recording.frames(pieces, dir=self._direction)

    def record_unterminated(self) -> None:
        """Record the frame that ended with the stream."""
        rest = self._splitter.end()
        if rest is not None:
            self._recording.frame(rest, dir=self._direction, unterminated=True)


class StderrStream(Stream):
    """The server's stderr: always drained, recorded by line, relayed as long as somebody reads."""

    def __init__(self, source: int, sink: Sink | None, recording: Recording) -> None:
        super().__init__(source, sink, must_deliver=False)
        self._recording = recording
        self._lines = StderrLines()

    def record(self, chunk: bytes) -> None:
        """Record the lines that `chunk` completes."""
        if lines := self._lines.feed(chunk):
            self._recording.stderr(lines)

    def record_unterminated(self) -> None:
        """Record the line that ended with the stream."""
        if lines := self._lines.end():
            self._recording.stderr(lines)


class Relay:
    """Runs the lanes until the server's two are done; the client's may still be open then."""

    def __init__(
        self,
        *,
        recording: Recording,
        from_client: FrameStream,
        from_server: FrameStream,
        stderr: StderrStream,
    ) -> None:
        self._recording = recording
        self.from_client = from_client
        self.from_server = from_server
        self.stderr = stderr
        self.last_transfer = time.monotonic()
        """When bytes last passed, on the monotonic clock."""
        self.on_change: Callable[[], None] = lambda: None
        """Called, on the loop's thread, when a lane ended or the loop began to be busy."""
        self.watchdog_active = False
        """Set here with the first chunk, and reset by the watchdog when nothing moves."""
        self._generation = 0
        self._poll = select.poll()
        self._streams = (from_client, from_server, stderr)
        self._by_fd: dict[int, Stream] = {}
        self._polled_events: dict[int, int] = {}
        for stream in self._streams:
            self._by_fd[stream.source] = stream
            if stream.sink is not None:
                self._by_fd[stream.sink.fd] = stream
            self._update_polling(stream)

    @property
    def done(self) -> bool:
        """Nothing more can come from the server."""
        return not self.from_server.open and not self.stderr.open

    def run(self) -> None:
        """Begin the recording, then move bytes until the server's lanes are done."""
        generation = self._generation
        try:
            self._recording.begin()
        except Exception as error:  # noqa: BLE001 - whatever recording does, traffic goes on
            _log_recording_error(error)
        if self._generation == generation:
            self._move()

    def _move(self) -> None:
        generation = self._generation
        poll = self._poll.poll
        by_fd = self._by_fd
        while not self.done:
            for fd, event in poll():
                stream = by_fd.get(fd)
                if stream is None or not stream.open:
                    self._stop_polling(fd)
                elif fd == stream.source:
                    if event & select.POLLIN:
                        self._read(stream)
                    elif stream.pending:
                        # The writer has gone while its last bytes still wait for the reader.
                        stream.source_ended = True
                        self._stop_polling(fd)
                        self.on_change()
                    else:
                        self._handle_source_end(stream)
                elif event & _CLOSED_EVENTS and not event & select.POLLOUT:
                    self._handle_sink_closed(stream)
                else:
                    self._flush(stream)
                if self._generation != generation:
                    return

    def continue_after_stall(self) -> None:
        """Leave the thread that the disk holds behind, and go on in this one."""
        self._generation += 1
        for stream in self._streams:
            if stream.open and stream.pending:
                self._flush(stream)
        self._move()

    def client_disconnected(self) -> bool:
        """Whether the client can neither send nor receive any more."""
        stream = self.from_server
        if not (self.from_client.source_ended or not self.from_client.open):
            return False
        if not stream.open or stream.sink is None:
            return True
        poll = select.poll()
        poll.register(stream.sink.fd, 0)
        return any(event & _CLOSED_EVENTS for _, event in poll.poll(0))

    def server_data_waiting(self) -> bool:
        """Whether something of the server's, or the end of it, waits to be read."""
        poll = select.poll()
        for stream in (self.from_server, self.stderr):
            if stream.open and not stream.source_ended:
                poll.register(stream.source, select.POLLIN)
        return bool(poll.poll(0))

    def _read(self, stream: Stream) -> None:
        generation = self._generation
        try:
            chunk = os.read(stream.source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""  # a reset socket is an end like any other
        if not chunk:
            self._handle_source_end(stream)
            return
        if stream.dropped_bytes or stream.pending:
            self._buffer_stderr(stream, chunk)
        else:
            stream.pending = memoryview(chunk)
        self.last_transfer = time.monotonic()
        if not self.watchdog_active:
            self.watchdog_active = True
            self.on_change()
        try:
            stream.record(chunk)
        except Exception as error:  # noqa: BLE001 - whatever recording does, traffic goes on
            _log_recording_error(error)
        if self._generation == generation:
            self._flush(stream)

    def _buffer_stderr(self, stream: Stream, chunk: bytes) -> None:
        """Only stderr is read while bytes wait: a client that never reads it stops nobody."""
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
            note = (
                f"mcptally: {stream.dropped_bytes} bytes of stderr were not read in time\n".encode()
            )
            stream.dropped_bytes = 0
            stream.pending = memoryview(note)
            self._flush(stream)
            return
        if not stream.pending and stream.source_ended:
            self._handle_source_end(stream)
        else:
            self._update_polling(stream)

    def _update_polling(self, stream: Stream) -> None:
        """Ask for what the lane needs next: room while bytes wait, else bytes."""
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
        """The source has ended: record what is left, deliver what waits, then close the sink."""
        if not stream.source_ended or not stream.pending:
            stream.source_ended = True
            self._stop_polling(stream.source)
            generation = self._generation
            try:
                stream.record_unterminated()
            except Exception as error:  # noqa: BLE001 - whatever recording does, traffic goes on
                _log_recording_error(error)
            if self._generation != generation:
                return
        if stream.pending:
            self._update_polling(stream)
        else:
            self._close(stream)

    def _handle_sink_closed(self, stream: Stream) -> None:
        """Nobody reads the sink: the source must learn it, unless it is stderr."""
        sink, stream.sink = stream.sink, None
        stream.pending = memoryview(b"")
        stream.dropped_bytes = 0
        if sink is not None:
            self._stop_polling(sink.fd)
            self._by_fd.pop(sink.fd, None)
            sink.close()
        if stream.must_deliver:
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
        # stderr stays open: what the recorder itself has to say comes last.
        if stream.sink is not None and stream.must_deliver:
            stream.sink.close()
        self.on_change()


def _log_recording_error(error: Exception) -> None:
    log_to_stderr(f"an event could not be recorded: {error!r}")
