"""Which recording an HTTP exchange belongs to, and what is written of it.

The rules, in full in docs/explanation/http-recording.md: a session that an `initialize` opened
with an `Mcp-Session-Id` has a recording of its own, so has every legacy SSE stream, and all else
goes to the run's shared recording. The request that opens a session is recorded before anybody
knows what it opens: it begins a recording that becomes the session's.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec

from mcptally.record.http.body import BodyItem, is_event_stream
from mcptally.record.writer.recording import Archive, Recording
from mcptally.transcript.format import Dir, Transport
from mcptally.wire.framing import Piece

MAX_OPEN: Final = 512
"""Session recordings open at once; beyond it the longest idle one is closed."""

MAX_SESSION_IDS: Final = 50_000
"""Session ids remembered after their recording was closed."""

_MAX_INITIALIZE_BYTES: Final = 64 * 1024
"""A longer first request is no `initialize`."""

_SESSION_HEADER: Final = "mcp-session-id"


Headers = tuple[tuple[str, str], ...]
"""Names in lower case, values as text."""


class HeadRedaction(Protocol):
    """What of a head is recorded; mcptally.redaction.policy has the real one."""

    def headers(self, headers: Headers) -> dict[str, str]:
        """The allowed headers, session ids hashed."""

    def path(self, path: str) -> str:
        """A path and query with session ids hashed."""


class OpenRecording:
    """One recording as the event loop sees it; its file begins with its first event."""

    def __init__(self, recording: Recording, *, last_used: float) -> None:
        self._recording = recording
        self._marked_stalled = False
        self.active_exchanges = 0
        """Exchanges that have not ended."""
        self.last_used = last_used
        """When the last one ended, on the loop's clock."""
        self.close_reason: str | None = None
        """Why it is to be closed as soon as no exchange needs it."""

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        """Run one method of the recording; may wait for the disk."""
        if self._marked_stalled:
            self._marked_stalled = self._recording.stalled = False
        getattr(self._recording, name)(**arguments)

    def count_lost(self, name: str, arguments: dict[str, Any]) -> None:
        """Have an event counted as lost, because the disk holds the thread that writes."""
        # A recording that is marked so counts what it is told, and touches no file.
        self._marked_stalled = self._recording.stalled = True
        getattr(self._recording, name)(**arguments)


RecordingCall = tuple[OpenRecording, str, dict[str, Any]]
"""A method of a recording, and its arguments, for the scribe to run."""


class _Envelope(msgspec.Struct):
    method: Any = None
    result: Any = None


_envelope: Final = msgspec.json.Decoder(_Envelope).decode


def _is_initialize(piece: Piece) -> bool:
    return (
        isinstance(piece, bytes)
        and b"initialize" in piece
        and _parse_envelope(piece).method == "initialize"
    )


def _parse_envelope(piece: Piece) -> _Envelope:
    try:
        return _envelope(piece) if isinstance(piece, bytes) else _Envelope()
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _Envelope()


class ExchangeRecord:
    """One request and its response; what is to be written of them gathers for `take`."""

    def __init__(
        self,
        sessions: "Sessions",
        *,
        scope: str,
        method: str,
        path: str,
        headers: Headers,
        extra: dict[str, Any],
    ) -> None:
        self._sessions = sessions
        self.scope = scope
        self.method = method
        self.path = path
        self.session = _first_header(headers, _SESSION_HEADER)
        """The session id that the request names."""
        self.recording: OpenRecording | None = None
        """The recording it belongs to; None until that is known."""
        self.may_open_session = False
        """Its `initialize` may open a session."""
        self.is_legacy_stream = False
        """Its response is a legacy SSE stream."""
        self.status = 0
        """Of the response; 0 until it has come, or where it is no HTTP."""
        self.response_session: str | None = None
        """The session id that the response's head names."""
        self.has_ended = False
        """Its `end` has been noted."""
        self._request_size = 0
        self._calls: list[tuple[str, dict[str, Any]]] = []
        redaction = sessions.redaction
        self._add(
            "http",
            dir="c2s",
            phase="request",
            method=method,
            path=redaction.path(path),
            headers=redaction.headers(headers),
            **extra,
        )
        sessions.assign_from_request(self, headers)

    def take_calls(self) -> list[RecordingCall]:
        """What has to be written now; nothing while it is not known where."""
        if self.recording is None or not self._calls:
            return []
        recording, calls, self._calls = self.recording, self._calls, []
        return [(recording, name, arguments) for name, arguments in calls]

    def request_items(self, size: int, items: Sequence[BodyItem]) -> None:
        """Body bytes of the request went by."""
        self._request_size += size
        if self.recording is None:
            if any(_is_initialize(s.piece) for s in items):
                self._sessions.open_session(self)
            elif items or self._request_size > _MAX_INITIALIZE_BYTES:
                self._sessions.assign_shared(self)
        self._add_frames("c2s", items)

    def request_complete(self) -> None:
        """The request is complete."""
        if self.recording is None and self.method != "GET":
            self._sessions.assign_shared(self)

    def response_head(self, status: int | None, headers: Headers, **extra: Any) -> None:
        """The response begins."""
        self.status = status or 0
        self.response_session = _first_header(headers, _SESSION_HEADER)
        self._sessions.assign_from_response(self, _first_header(headers, "content-type"))
        self._add(
            "http",
            dir="s2c",
            phase="response",
            status=status,
            headers=self._sessions.redaction.headers(headers),
            **extra,
        )

    def response_items(
        self, items: Sequence[BodyItem], *, rewrite: Callable[[bytes], bytes | None] | None = None
    ) -> None:
        """Something in the response is complete."""
        for item in items:
            recorded = item
            if self.may_open_session and _parse_envelope(item.piece).result is not None:
                self._sessions.session_opened(self)
            if self.is_legacy_stream and item.fields.get("sse_event") == "endpoint":
                recorded = self._endpoint_item(item, rewrite)
            self._add_frames("s2c", [recorded])

    def end(self, closed_by: str, **why: Any) -> None:
        """The exchange is over; only the first call says who ended it."""
        if self.has_ended:
            return
        self.has_ended = True
        if self.recording is None:
            self._sessions.assign_shared(self)
        self._add("http", dir="s2c", phase="end", closed_by=closed_by, **why)

    def release(self) -> None:
        """Nothing more will be written of it."""
        self._sessions.release(self)

    def _endpoint_item(
        self, items: BodyItem, rewrite: Callable[[bytes], bytes | None] | None
    ) -> BodyItem:
        url = items.piece if isinstance(items.piece, bytes) else b""
        text = url.decode(errors="replace")
        self._sessions.legacy_endpoint(self, text)
        redaction = self._sessions.redaction
        fields = dict(items.fields)
        if rewrite is not None and (new := rewrite(url)):
            fields["rewritten"] = redaction.path(new.decode(errors="replace"))
        return BodyItem(redaction.path(text).encode(), fields, len(url))

    def _add_frames(self, direction: Dir, items: Iterable[BodyItem]) -> None:
        for piece, fields, wire_bytes in items:
            self._calls.append(
                (
                    "frame",
                    {
                        "piece": piece,
                        "dir": direction,
                        "scope": self.scope,
                        "wire_bytes": wire_bytes,
                        **fields,
                    },
                )
            )

    def _add(self, name: str, **arguments: Any) -> None:
        self._calls.append((name, {"scope": self.scope, **arguments}))


def _first_header(headers: Headers, name: str) -> str | None:
    for recorded, text in headers:
        if recorded == name:
            return text
    return None


class Sessions:
    """All recordings of one run, and the exchanges' way to them."""

    def __init__(
        self,
        archive: Archive,
        *,
        server: str | None,
        url: str,
        redaction: HeadRedaction,
        write_later: Callable[[Sequence[RecordingCall]], None],
        clock: Callable[[], float],
        max_open: int = MAX_OPEN,
    ) -> None:
        self.redaction = redaction
        self._archive = archive
        self._server = server
        self._url = url
        self._write_later = write_later
        self._clock = clock
        self._max_open = max_open
        self._scopes = itertools.count(1)
        self._shared: OpenRecording | None = None
        self._spare: OpenRecording | None = None
        self._stateless = False
        # Session id → its recording; None once that was closed for being idle.
        self._by_session: OrderedDict[str, OpenRecording | None] = OrderedDict()
        self._legacy_endpoints: dict[str, OpenRecording] = {}
        self._streamable: set[str] = set()
        self._open: dict[OpenRecording, None] = {}

    def begin(
        self,
        *,
        method: str,
        path: str,
        headers: Headers,
        **extra: Any,
    ) -> ExchangeRecord:
        """A request has come; `headers` have lower-case names."""
        scope = f"x{next(self._scopes)}"
        return ExchangeRecord(
            self, scope=scope, method=method, path=path, headers=headers, extra=extra
        )

    # --- where an exchange goes -----------------------------------------------------------------

    def assign_from_request(self, exchange: ExchangeRecord, headers: Headers) -> None:
        """Find the recording by what the request's head says, if that is enough."""
        if exchange.session is not None and exchange.session in self._by_session:
            recording = self._by_session[exchange.session]
            if recording is None:
                recording = self._by_session[exchange.session] = self._open_recording(
                    "streamable_http"
                )
            self._by_session.move_to_end(exchange.session)
            self._assign(exchange, recording)
        elif exchange.method == "POST":
            if (is_legacy_stream := self._legacy_endpoints.get(exchange.path)) is not None:
                self._assign(exchange, is_legacy_stream)
            # Else its body has to be seen: it may be an `initialize`.
        elif not (
            exchange.method == "GET"
            and exchange.session is None
            and "text/event-stream" in (_first_header(headers, "accept") or "")
            and not any(
                _first_header(headers, n) for n in ("mcp-protocol-version", "last-event-id")
            )
            and _without_query(exchange.path) not in self._streamable
        ):
            self.assign_shared(exchange)
        # Else its response has to be seen: it may be a legacy stream.

    def assign_shared(self, exchange: ExchangeRecord) -> None:
        """The exchange belongs to no session."""
        if self._shared is None:
            self._shared = self._open_recording("streamable_http")
        self._assign(exchange, self._shared)

    def open_session(self, exchange: ExchangeRecord) -> None:
        """The exchange asks for a session: it begins a recording."""
        if self._stateless:
            self.assign_shared(exchange)
            return
        recording, self._spare = self._spare or self._open_recording("streamable_http"), None
        exchange.may_open_session = True
        self._assign(exchange, recording)

    def session_opened(self, exchange: ExchangeRecord) -> None:
        """The `initialize` has succeeded: its recording is the session's, or the shared one."""
        recording = exchange.recording
        if recording is None or not 200 <= exchange.status < 300:
            return
        exchange.may_open_session = False
        if (session := exchange.response_session) is not None:
            before, self._by_session[session] = self._by_session.get(session), recording
            self._by_session.move_to_end(session)
            if before is not None and before is not recording:
                self._close_when_unused(before, "replaced")
            while len(self._by_session) > MAX_SESSION_IDS:
                _, old = self._by_session.popitem(last=False)
                if old is not None:
                    self._close_when_unused(old, "idle")
            return
        # The server keeps no sessions: what follows this `initialize` belongs with it.
        self._stateless = True
        before, self._shared = self._shared, recording
        if before is not None and before is not recording:
            self._close_when_unused(before, "continued")

    def assign_from_response(self, exchange: ExchangeRecord, content_type: str | None) -> None:
        """The response's head tells what the request's did not."""
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

    def legacy_endpoint(self, exchange: ExchangeRecord, url: str) -> None:
        """A legacy stream says where its client will post."""
        if exchange.recording is not None:
            at = urlsplit(urljoin(exchange.path, url))
            self._legacy_endpoints[f"{at.path}?{at.query}" if at.query else at.path] = (
                exchange.recording
            )

    def release(self, exchange: ExchangeRecord) -> None:
        """No more events of this exchange will come."""
        recording = exchange.recording
        if recording is None:
            return
        recording.active_exchanges -= 1
        recording.last_used = self._clock()
        if exchange.is_legacy_stream:
            self._legacy_endpoints = {
                path: at for path, at in self._legacy_endpoints.items() if at is not recording
            }
            recording.close_reason = recording.close_reason or "stream_ended"
        if (
            exchange.may_open_session
            and recording.close_reason is None
            and recording.active_exchanges == 0
        ):
            # Attempts that open nothing share one recording until one succeeds.
            if self._spare is None:
                self._spare = recording
            else:
                recording.close_reason = "no_session"
        self._close_if_unused(recording)

    # --- recordings -----------------------------------------------------------------------------

    def close_idle(self, seconds: float) -> None:
        """Close the session recordings that have been idle for so long."""
        before = self._clock() - seconds
        for recording in [
            recording
            for recording in self._open
            if recording.active_exchanges == 0 and recording.last_used < before
        ]:
            self._close_as_idle(recording)

    def close_all(self, reason: str) -> None:
        """Close every recording, with what is still going on in it."""
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

    def _assign(self, exchange: ExchangeRecord, recording: OpenRecording) -> None:
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
            self._write_later([(recording, "close", {"reason": reason})])


def _without_query(path: str) -> str:
    return path.partition("?")[0]
