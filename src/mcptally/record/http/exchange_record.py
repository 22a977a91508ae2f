"""Builds the events of an HTTP exchange; recordings.py assigns them to a recording."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from mcptally.record.http.body import BodyItem
from mcptally.record.http.head import Head
from mcptally.record.http.recordings import Exchange, RecordingCall, Sessions
from mcptally.transcript.format import Dir
from mcptally.transcript.writer.event_line import http_event
from mcptally.transcript.writer.interface import ExchangeEvent
from mcptally.wire.framing import Piece

_MAX_INITIALIZE_BYTES: Final = 64 * 1024
"""Maximum bytes of an `initialize` request."""


class _Envelope(msgspec.Struct):
    method: Any = None
    result: Any = None


_HTTP: Final = b'"dir":"%b","scope":"%b",%b'
_END: Final = b'"phase":"end","closed_by":"%b"'

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


class ExchangeRecord(Exchange):
    """Builds the events of one request and its response; `take_events` returns them.

    `HeadRedaction` explains `length_text`; `extra` contains further fields of the request.
    """

    has_ended = False
    """Whether `end` has been called."""
    _request_size = 0

    def __init__(
        self,
        sessions: Sessions,
        *,
        method: str,
        path: str,
        head: Head,
        length_text: bytes | None,
        extra: dict[str, Any],
    ) -> None:
        super().__init__(method=method, path=path, session=head.session)
        self._sessions = sessions
        self._scope = next(sessions.scopes)
        self._events: list[ExchangeEvent] = []
        self._add_http("c2s", sessions.redaction.request(method, path, head, length_text), extra)
        sessions.assign_from_request(self, head)

    def take_events(self) -> list[RecordingCall]:
        """Return a list with one function, which records the events collected so far.

        The list is empty if there is no recording yet.
        """
        if self.recording is None or not self._events:
            return []
        events, self._events = self._events, []
        return [functools.partial(self.recording.writer.events, events)]

    def request_items(self, size: int, items: Sequence[BodyItem]) -> None:
        """Record items of the request body; `size` is the number of body bytes received."""
        self._request_size += size
        if self.recording is None:
            if any(_is_initialize(item.piece) for item in items):
                self._sessions.open_session(self)
            elif items or self._request_size > _MAX_INITIALIZE_BYTES:
                self._sessions.assign_shared(self)
        self._add_frames("c2s", items)

    def request_complete(self) -> None:
        """Record that the request is complete."""
        if self.recording is None and self.method != "GET":
            self._sessions.assign_shared(self)

    def response_head(
        self, status: int | None, head: Head, *, length_text: bytes | None = None, **extra: Any
    ) -> None:
        """Record the head of the response; `HeadRedaction` explains `length_text`."""
        self.status = status or 0
        self.response_session = head.session
        self._sessions.assign_from_response(self, head.get(b"content-type"))
        self._add_http("s2c", self._sessions.redaction.response(status, head, length_text), extra)

    def response_items(
        self, items: Sequence[BodyItem], *, rewrite: Callable[[bytes], bytes | None] | None = None
    ) -> None:
        """Record items of the response body; `rewrite` changes the URL in an `endpoint` event."""
        for item in items:
            recorded = item
            if self.may_open_session and _parse_envelope(item.piece).result is not None:
                self._sessions.session_opened(self)
            if self.is_legacy_stream and item.fields.get("sse_event") == "endpoint":
                recorded = self._endpoint_item(item, rewrite)
            self._add_frames("s2c", [recorded])

    def end(self, closed_by: str, **why: Any) -> None:
        """Record the end of the exchange; only the first call has an effect."""
        if self.has_ended:
            return
        self.has_ended = True
        if self.recording is None:
            self._sessions.assign_shared(self)
        self._add_http("s2c", _END % closed_by.encode(), why)

    def release(self) -> None:
        """Release the recording: the exchange has no more events."""
        self._sessions.release(self)

    def _endpoint_item(
        self, item: BodyItem, rewrite: Callable[[bytes], bytes | None] | None
    ) -> BodyItem:
        url = item.piece if isinstance(item.piece, bytes) else b""
        text = url.decode(errors="replace")
        self._sessions.add_legacy_endpoint(self, text)
        redaction = self._sessions.redaction
        fields = dict(item.fields)
        if rewrite is not None and (new_url := rewrite(url)):
            fields["rewritten"] = redaction.path(new_url.decode(errors="replace"))
        return BodyItem(redaction.path(text).encode(), fields, len(url))

    def _add_frames(self, direction: Dir, items: Iterable[BodyItem]) -> None:
        for piece, fields, wire_bytes in items:
            self._events.append((piece, direction, self._scope, wire_bytes, fields))

    def _add_http(self, direction: Dir, fields: bytes, extra: dict[str, Any]) -> None:
        if extra:
            fields = b"%b,%b" % (fields, http_event(extra))
        self._events.append(_HTTP % (direction.encode(), self._scope.encode(), fields))
