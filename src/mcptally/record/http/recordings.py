"""Assigns HTTP exchanges to recordings.

docs/explanation/recorder.md lists all the rules. Each session that an `initialize` opens with an
`Mcp-Session-Id` has its own recording, and each legacy SSE stream has one. All other exchanges
belong to the run's shared recording. An `initialize` request is recorded before its result is
known: it starts a recording that later becomes the session's recording.
"""

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urljoin, urlsplit

from mcptally.record.http.body import is_event_stream
from mcptally.record.http.head import Head
from mcptally.record.http.head_redaction import HeadRedaction
from mcptally.transcript.format import Transport
from mcptally.transcript.writer.interface import ArchiveWriter, RecordingWriter

MAX_OPEN: Final = 512
"""Maximum number of open session recordings. Above it, the recording that has been idle longest is
closed."""

MAX_SESSION_IDS: Final = 50_000
"""Maximum number of session ids kept, including ids whose recording was closed."""


class OpenRecording:
    """An open recording and its exchanges; the file is created when the first event is written."""

    def __init__(self, recording: RecordingWriter, *, last_used: float) -> None:
        self.writer: Final = recording
        self.active_exchanges = 0
        """Number of exchanges that have not ended."""
        self.last_used = last_used
        """Loop time at which the last exchange ended."""
        self.close_reason: str | None = None
        """Reason to close the recording when no exchange uses it; None keeps it open."""


RecordingCall = Callable[[], None]
"""A call to a recording's method that records events."""


class Exchange:
    """The facts about an HTTP exchange that determine its recording."""

    recording: OpenRecording | None = None
    """The exchange's recording; None until it is known."""
    may_open_session = False
    """Whether the request is an `initialize` that may open a session."""
    is_legacy_stream = False
    """Whether the response is a legacy SSE stream."""
    status = 0
    """Status of the response; 0 before it arrives and for responses that are not HTTP."""
    response_session: str | None = None
    """Session id in the response head, or None."""

    def __init__(self, *, method: str, path: str, session: str | None) -> None:
        self.method = method
        self.path = path
        self.session = session
        """Session id in the request, or None."""


class Sessions:
    """The recordings of one run, and the assignment of exchanges to them."""

    def __init__(
        self,
        archive: ArchiveWriter,
        *,
        server: str | None,
        url: str,
        redaction: HeadRedaction,
        write_later: Callable[[Sequence[RecordingCall]], None],
        clock: Callable[[], float],
        max_open: int = MAX_OPEN,
    ) -> None:
        self.redaction: Final = redaction
        self.scopes: Final = map("x{}".format, itertools.count(1))
        """The scopes of exchanges, in the order in which they begin."""
        self._archive = archive
        self._server = server
        self._url = url
        self._write_later = write_later
        self._clock = clock
        self._max_open = max_open
        self._shared: OpenRecording | None = None
        self._spare: OpenRecording | None = None
        self._stateless = False
        # Maps session ids to recordings; None if the recording was closed because it was idle.
        self._by_session: OrderedDict[str, OpenRecording | None] = OrderedDict()
        self._legacy_endpoints: dict[str, OpenRecording] = {}
        self._streamable: set[str] = set()
        self._open: dict[OpenRecording, None] = {}

    # --- assignment of exchanges ----------------------------------------------------------------

    def assign_from_request(self, exchange: Exchange, head: Head) -> None:
        """Assign the exchange to a recording, if the request head determines it."""
        if exchange.session is not None and exchange.session in self._by_session:
            recording = self._by_session[exchange.session]
            if recording is None:
                recording = self._by_session[exchange.session] = self._open_recording(
                    "streamable_http"
                )
            self._by_session.move_to_end(exchange.session)
            self._assign(exchange, recording)
        elif exchange.method == "POST":
            if (legacy_recording := self._legacy_endpoints.get(exchange.path)) is not None:
                self._assign(exchange, legacy_recording)
            # In all other cases, the body determines the recording, because it may be an
            # `initialize`.
        elif not (
            exchange.method == "GET"
            and exchange.session is None
            and "text/event-stream" in (head.get(b"accept") or "")
            and not any(head.get(name) for name in (b"mcp-protocol-version", b"last-event-id"))
            and _without_query(exchange.path) not in self._streamable
        ):
            self.assign_shared(exchange)
        # In the remaining cases, the response determines the recording, because it may be a legacy
        # stream.

    def assign_shared(self, exchange: Exchange) -> None:
        """Assign an exchange without a session to the shared recording."""
        if self._shared is None:
            self._shared = self._open_recording("streamable_http")
        self._assign(exchange, self._shared)

    def open_session(self, exchange: Exchange) -> None:
        """Assign an `initialize` to a new recording, unless the server is stateless."""
        if self._stateless:
            self.assign_shared(exchange)
            return
        recording, self._spare = self._spare or self._open_recording("streamable_http"), None
        exchange.may_open_session = True
        self._assign(exchange, recording)

    def session_opened(self, exchange: Exchange) -> None:
        """Assign later exchanges to the recording of a successful `initialize`.

        If the server returned a session id, only the exchanges with this id are assigned to it.
        """
        recording = exchange.recording
        if recording is None or not 200 <= exchange.status < 300:
            return
        exchange.may_open_session = False
        if (session := exchange.response_session) is not None:
            previous, self._by_session[session] = self._by_session.get(session), recording
            self._by_session.move_to_end(session)
            if previous is not None and previous is not recording:
                self._close_when_unused(previous, "replaced")
            while len(self._by_session) > MAX_SESSION_IDS:
                _, old = self._by_session.popitem(last=False)
                if old is not None:
                    self._close_when_unused(old, "idle")
            return
        # The server is stateless: later exchanges belong to the recording of this `initialize`.
        self._stateless = True
        previous, self._shared = self._shared, recording
        if previous is not None and previous is not recording:
            self._close_when_unused(previous, "continued")

    def assign_from_response(self, exchange: Exchange, content_type: str | None) -> None:
        """Assign the exchange by its response head, if necessary, and update the sessions."""
        is_success = 200 <= exchange.status < 300
        if exchange.recording is None:
            if exchange.method == "GET" and is_success and is_event_stream(content_type):
                exchange.is_legacy_stream = True
                self._assign(exchange, self._open_recording("http_sse"))
            else:
                self.assign_shared(exchange)
        if not is_success:
            return
        if exchange.method == "POST" and exchange.path not in self._legacy_endpoints:
            if len(self._streamable) < 1000:
                self._streamable.add(_without_query(exchange.path))
        elif exchange.method == "DELETE" and exchange.session is not None:
            recording = self._by_session.pop(exchange.session, None)
            if recording is not None:
                self._close_when_unused(recording, "session_deleted")

    def add_legacy_endpoint(self, exchange: Exchange, url: str) -> None:
        """Store the URL to which the client of a legacy stream posts its messages."""
        if exchange.recording is not None:
            target = urlsplit(urljoin(exchange.path, url))
            self._legacy_endpoints[
                f"{target.path}?{target.query}" if target.query else target.path
            ] = exchange.recording

    def release(self, exchange: Exchange) -> None:
        """Release the recording of an exchange that has no more events."""
        recording = exchange.recording
        if recording is None:
            return
        recording.active_exchanges -= 1
        recording.last_used = self._clock()
        if exchange.is_legacy_stream:
            self._legacy_endpoints = {
                path: other
                for path, other in self._legacy_endpoints.items()
                if other is not recording
            }
            recording.close_reason = recording.close_reason or "stream_ended"
        if (
            exchange.may_open_session
            and recording.close_reason is None
            and recording.active_exchanges == 0
        ):
            # Failed attempts to initialize share one recording until an attempt succeeds.
            if self._spare is None:
                self._spare = recording
            else:
                recording.close_reason = "no_session"
        self._close_if_unused(recording)

    # --- recordings -----------------------------------------------------------------------------

    def close_idle(self, seconds: float) -> None:
        """Close the session recordings that have been idle for `seconds`."""
        limit = self._clock() - seconds
        for recording in [
            recording
            for recording in self._open
            if recording.active_exchanges == 0 and recording.last_used < limit
        ]:
            self._close_as_idle(recording)

    def close_all(self, reason: str) -> None:
        """Close every recording, including recordings with active exchanges."""
        for recording in list(self._open):
            self._close(recording, reason)

    def _open_recording(self, transport: Transport) -> OpenRecording:
        if len(self._open) >= self._max_open:
            idle = [
                recording
                for recording in self._open
                if recording.active_exchanges == 0 and self._may_close_idle(recording)
            ]
            if idle:
                self._close_as_idle(min(idle, key=lambda recording: recording.last_used))
        recording = OpenRecording(
            self._archive.prepare(transport=transport, server=self._server, url=self._url),
            last_used=self._clock(),
        )
        self._open[recording] = None
        return recording

    def _assign(self, exchange: Exchange, recording: OpenRecording) -> None:
        exchange.recording = recording
        recording.active_exchanges += 1

    def _may_close_idle(self, recording: OpenRecording) -> bool:
        return recording is not self._shared and recording is not self._spare

    def _close_as_idle(self, recording: OpenRecording) -> None:
        if self._may_close_idle(recording):
            self._by_session.update(
                {s: None for s, at in self._by_session.items() if at is recording}
            )
            self._close(recording, "idle")

    def _close_when_unused(self, recording: OpenRecording, reason: str) -> None:
        recording.close_reason = reason
        self._close_if_unused(recording)

    def _close_if_unused(self, recording: OpenRecording) -> None:
        if recording.close_reason is not None and recording.active_exchanges == 0:
            self._close(recording, recording.close_reason)

    def _close(self, recording: OpenRecording, reason: str) -> None:
        if recording in self._open:
            del self._open[recording]
            self._write_later([functools.partial(recording.writer.close, reason=reason)])


def _without_query(path: str) -> str:
    return path.partition("?")[0]
