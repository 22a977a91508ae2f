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

_STDERR_UNREAD: Final = 1024 * 1024
"""Bytes of stderr kept for a client that does not read it; the server never waits for that."""

_GONE: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Lane:
    """One direction: where its bytes come from, where they go, how they are recorded."""

    def __init__(self, source: int, sink: Sink | None, *, must_deliver: bool = True) -> None:
        self.source = source
        self.sink = sink
        self.must_deliver = must_deliver
        """Without a reader this lane ends; otherwise it goes on for the recording's sake."""
        self.pending = memoryview(b"")
        self.open = True
        self.source_ended = False
        self.unread = 0

    def record(self, chunk: bytes) -> None:
        """Record what `chunk` completes."""

    def record_rest(self) -> None:
        """Record what never got its line ending."""


class FrameLane(Lane):
    """A direction that carries frames."""

    def __init__(
        self, source: int, sink: Sink, recording: Recording, *, way: "Dir", cap: int
    ) -> None:
        super().__init__(source, sink)
        self._recording = recording
        self._splitter = Splitter(cap=cap)
        self._way: Dir = way

    def record(self, chunk: bytes) -> None:
        """Record the frames that `chunk` completes."""
        pieces = self._splitter.feed(chunk)
        if pieces:
            self._recording.frames(pieces, dir=self._way)

    def record_rest(self) -> None:
        """Record the frame that ended with the stream."""
        rest = self._splitter.end()
        if rest is not None:
            self._recording.frame(rest, dir=self._way, unterminated=True)


class StderrLane(Lane):
    """The server's stderr: always drained, recorded by line, relayed as long as somebody reads."""

    def __init__(self, source: int, sink: Sink | None, recording: Recording) -> None:
        super().__init__(source, sink, must_deliver=False)
        self._recording = recording
        self._lines = StderrLines()

    def record(self, chunk: bytes) -> None:
        """Record the lines that `chunk` completes."""
        if lines := self._lines.feed(chunk):
            self._recording.stderr(lines)

    def record_rest(self) -> None:
        """Record the line that ended with the stream."""
        if lines := self._lines.end():
            self._recording.stderr(lines)


class Relay:
    """Runs the lanes until the server's two are done; the client's may still be open then."""

    def __init__(
        self,
        *,
        recording: Recording,
        from_client: FrameLane,
        from_server: FrameLane,
        stderr: StderrLane,
    ) -> None:
        self._recording = recording
        self.from_client = from_client
        self.from_server = from_server
        self.stderr = stderr
        self.moved_at = time.monotonic()
        """When bytes last passed, on the monotonic clock."""
        self.on_change: Callable[[], None] = lambda: None
        """Called, on the loop's thread, when a lane ended or the loop began to be busy."""
        self.watched = False
        """Set here with the first chunk, and reset by the watchdog when nothing moves."""
        self._turn = 0
        self._poll = select.poll()
        self._lanes = (from_client, from_server, stderr)
        self._by_fd: dict[int, Lane] = {}
        self._watching: dict[int, int] = {}
        for lane in self._lanes:
            self._by_fd[lane.source] = lane
            if lane.sink is not None:
                self._by_fd[lane.sink.fd] = lane
            self._watch(lane)

    @property
    def done(self) -> bool:
        """Nothing more can come from the server."""
        return not self.from_server.open and not self.stderr.open

    def run(self) -> None:
        """Begin the recording, then move bytes until the server's lanes are done."""
        turn = self._turn
        try:
            self._recording.begin()
        except Exception as error:  # noqa: BLE001 - whatever recording does, traffic goes on
            _say_not_recorded(error)
        if self._turn == turn:
            self._move()

    def _move(self) -> None:
        turn = self._turn
        poll = self._poll.poll
        by_fd = self._by_fd
        while not self.done:
            for fd, event in poll():
                lane = by_fd.get(fd)
                if lane is None or not lane.open:
                    self._forget(fd)
                elif fd == lane.source:
                    if event & select.POLLIN:
                        self._read(lane)
                    elif lane.pending:
                        # The writer has gone while its last bytes still wait for the reader.
                        lane.source_ended = True
                        self._forget(fd)
                        self.on_change()
                    else:
                        self._end(lane)
                elif event & _GONE and not event & select.POLLOUT:
                    self._reader_gone(lane)
                else:
                    self._flush(lane)
                if self._turn != turn:
                    return

    def take_over(self) -> None:
        """Leave the thread that the disk holds behind, and go on in this one."""
        self._turn += 1
        for lane in self._lanes:
            if lane.open and lane.pending:
                self._flush(lane)
        self._move()

    def client_is_gone(self) -> bool:
        """Whether the client can neither send nor receive any more."""
        lane = self.from_server
        if not (self.from_client.source_ended or not self.from_client.open):
            return False
        if not lane.open or lane.sink is None:
            return True
        poll = select.poll()
        poll.register(lane.sink.fd, 0)
        return any(event & _GONE for _, event in poll.poll(0))

    def has_more(self) -> bool:
        """Whether something of the server's, or the end of it, waits to be read."""
        poll = select.poll()
        for lane in (self.from_server, self.stderr):
            if lane.open and not lane.source_ended:
                poll.register(lane.source, select.POLLIN)
        return bool(poll.poll(0))

    def _read(self, lane: Lane) -> None:
        turn = self._turn
        try:
            chunk = os.read(lane.source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""  # a reset socket is an end like any other
        if not chunk:
            self._end(lane)
            return
        if lane.unread or lane.pending:
            self._keep_stderr(lane, chunk)
        else:
            lane.pending = memoryview(chunk)
        self.moved_at = time.monotonic()
        if not self.watched:
            self.watched = True
            self.on_change()
        try:
            lane.record(chunk)
        except Exception as error:  # noqa: BLE001 - whatever recording does, traffic goes on
            _say_not_recorded(error)
        if self._turn == turn:
            self._flush(lane)

    def _keep_stderr(self, lane: Lane, chunk: bytes) -> None:
        """Only stderr is read while bytes wait: a client that never reads it stops nobody."""
        if len(lane.pending) + len(chunk) <= _STDERR_UNREAD and not lane.unread:
            lane.pending = memoryview(bytes(lane.pending) + chunk)
        else:
            lane.unread += len(chunk)

    def _flush(self, lane: Lane) -> None:
        sink = lane.sink
        if sink is None:
            lane.pending = memoryview(b"")
            return
        try:
            while lane.pending:
                taken = sink.write(lane.pending)
                if not taken:
                    break
                lane.pending = lane.pending[taken:]
        except OSError:
            self._reader_gone(lane)
            return
        if not lane.pending and lane.unread:
            note = f"mcptally: {lane.unread} bytes of stderr were not read in time\n".encode()
            lane.unread = 0
            lane.pending = memoryview(note)
            self._flush(lane)
            return
        if not lane.pending and lane.source_ended:
            self._end(lane)
        else:
            self._watch(lane)

    def _watch(self, lane: Lane) -> None:
        """Ask for what the lane needs next: room while bytes wait, else bytes."""
        waiting = bool(lane.pending)
        if not lane.source_ended:
            reading = not waiting or not lane.must_deliver
            self._ask(lane.source, select.POLLIN if reading else 0)
        if lane.sink is not None:
            self._ask(lane.sink.fd, select.POLLOUT if waiting else 0)

    def _ask(self, fd: int, events: int) -> None:
        if self._watching.get(fd) != events:
            self._poll.register(fd, events)
            self._watching[fd] = events

    def _forget(self, fd: int) -> None:
        if self._watching.pop(fd, None) is not None:
            with contextlib.suppress(KeyError, OSError):
                self._poll.unregister(fd)

    def _end(self, lane: Lane) -> None:
        """The source has ended: record what is left, deliver what waits, then close the sink."""
        if not lane.source_ended or not lane.pending:
            lane.source_ended = True
            self._forget(lane.source)
            turn = self._turn
            try:
                lane.record_rest()
            except Exception as error:  # noqa: BLE001 - whatever recording does, traffic goes on
                _say_not_recorded(error)
            if self._turn != turn:
                return
        if lane.pending:
            self._watch(lane)
        else:
            self._close(lane)

    def _reader_gone(self, lane: Lane) -> None:
        """Nobody reads the sink: the source must learn it, unless it is stderr."""
        sink, lane.sink = lane.sink, None
        lane.pending = memoryview(b"")
        lane.unread = 0
        if sink is not None:
            self._forget(sink.fd)
            self._by_fd.pop(sink.fd, None)
            sink.close()
        if lane.must_deliver:
            with contextlib.suppress(Exception):
                lane.record_rest()
            self._close(lane)
        elif lane.source_ended:
            self._close(lane)
        else:
            self._watch(lane)

    def _close(self, lane: Lane) -> None:
        lane.open = False
        for fd in (lane.source, *(() if lane.sink is None else (lane.sink.fd,))):
            self._forget(fd)
            self._by_fd.pop(fd, None)
        close_fd(lane.source)
        # stderr stays open: what the recorder itself has to say comes last.
        if lane.sink is not None and lane.must_deliver:
            lane.sink.close()
        self.on_change()


def _say_not_recorded(error: Exception) -> None:
    log_to_stderr(f"an event could not be recorded: {error!r}")
