"""Parses a request and its response, records both, and serializes each for the other side.

h11 parses both sides and serializes the parsed request for the server, so the recorder and the
server always agree on where a request ends. This module maps bytes to bytes; proxy.py owns the
sockets and timers.
"""

import enum
from collections.abc import Sequence
from typing import Any, Final

import h11

from mcptally.record.http import headers as http_headers
from mcptally.record.http.body import BodyItem, BodyParser
from mcptally.record.http.exchange_record import ExchangeRecord
from mcptally.record.http.head import NO_HEAD, Head, parse_head
from mcptally.record.http.shared import Shared
from mcptally.record.http.sse_endpoint import EndpointFilter, rewrite_url


class State(enum.Enum):
    """The states of a connection, by the event that it waits for; see the handlers in proxy.py."""

    IDLE = enum.auto()
    """Waits for the first bytes of a request."""
    REQUESTED = enum.auto()
    """Waits for the response head; the request may be incomplete."""
    RESPONDING = enum.auto()
    """Waits for the rest of the response; the request may be incomplete."""
    RAW = enum.auto()
    """Waits for the rest of a response that is not HTTP."""
    ANSWERED = enum.auto()
    """Waits for the rest of the request; the response is complete."""
    LINGERING = enum.auto()
    """Waits for the client to close after its last response; its data is not forwarded."""
    CLOSED = enum.auto()
    """Waits for nothing."""


class ProxiedExchange:
    """A connection's current request and the response to it."""

    state = State.REQUESTED
    """REQUESTED, RESPONDING, RAW or ANSWERED."""
    closes_connection = False
    """Whether the connection must close after this response."""
    unparsed = b""
    """Bytes from the server before the response head is complete; these bytes may not be HTTP."""
    _request_body: BodyParser | None = None
    _response_body: BodyParser | None = None
    _endpoint_filter: EndpointFilter | None = None
    _own_origin = b""

    def __init__(
        self, record: ExchangeRecord, shared: Shared, client: h11.Connection, server: h11.Connection
    ) -> None:
        self.record: Final = record
        """Builds the recorded events."""
        self._client = client
        self._server = server
        self._shared = shared
        self._upstream = shared.upstream

    # --- the request ----------------------------------------------------------------------------

    def request_head(self, request: h11.Request, head: Head) -> bytes:
        """Return the request head to send to the server.

        Raises:
            RefusedError: the request must not be forwarded.
        """
        http_headers.check_request(request, head)
        forwarded = http_headers.request_for_server(
            request, head, host=self._upstream.host, authorization=self._upstream.authorization
        )
        self.begin_request(head)
        return self._server.send(forwarded) or b""

    def begin_request(self, head: Head) -> None:
        """Begin recording the request body."""
        self._request_body = self._new_body(head)
        self._own_origin = b"http://" + (head.get(b"host") or "").encode("latin-1")

    def record_request(self, head: Head, data: bytes) -> None:
        """Record the request body, which was received in one piece."""
        if not self._is_plain(head, data):
            self.begin_request(head)
            self.record_request_data(data)
            self.record_request_end()
            return
        if data:
            self.record.request_items(len(data), [BodyItem(data, {})])
        self.record.request_complete()

    def request_data(self, event: h11.Data) -> bytes:
        """Record a part of the request body and return the bytes for the server."""
        self.record_request_data(bytes(event.data))
        return self._to_server(event)

    def record_request_data(self, data: bytes) -> None:
        """Record a part of the request body."""
        if self._request_body is not None:
            self.record.request_items(len(data), self._request_body.feed(data))

    def request_end(self, event: h11.EndOfMessage) -> bytes:
        """Record the end of the request and return the bytes for the server.

        Raises:
            RefusedError: a trailer would change the framing, routing or authorization.
        """
        http_headers.check_trailers(event)
        self.record_request_end()
        return self._to_server(event)

    def record_request_end(self) -> None:
        """Record the end of the request."""
        if self._request_body is not None:
            self.record.request_items(0, self._request_body.end())
            self.record.request_complete()
            self._request_body = None

    def truncate_request(self) -> None:
        """Record that the request body ended early."""
        if self._request_body is not None:
            self.record.request_items(0, self._request_body.end(truncated=True))
            self._request_body = None

    def _to_server(self, event: h11.Data | h11.EndOfMessage) -> bytes:
        if self._server.our_state is not h11.SEND_BODY:
            return b""  # the server has closed its side, so the rest of the request is discarded
        return self._server.send(event) or b""

    # --- the response ---------------------------------------------------------------------------

    @property
    def is_streaming(self) -> bool:
        """Whether the response is an event stream, which may never end."""
        return self._response_body is not None and self._response_body.is_event_stream

    def response_head(self, response: h11.Response) -> bytes:
        """Record the response head and return the bytes for the client."""
        head = parse_head(response)
        self.begin_response(response.status_code, head)
        self.closes_connection = http_headers.closes_connection(response, head)
        if self.record.is_legacy_stream and b"content-encoding" not in head:
            self._endpoint_filter = EndpointFilter(
                server=self._upstream.origins, own_origin=self._own_origin
            )
        return self._client.send(http_headers.response_for_client(response, head)) or b""

    def begin_response(self, status: int, head: Head, *, length_text: bytes | None = None) -> None:
        """Record the response head, and begin recording the body.

        See `known_heads.KnownResponse` for `length_text`.
        """
        self._record_response_head(status, head, length_text)
        self._response_body = self._new_body(head)

    def record_response(
        self, status: int, head: Head, data: bytes, *, length_text: bytes | None = None
    ) -> None:
        """Record the response, which was received in one piece."""
        if not self._is_plain(head, data):
            self.begin_response(status, head, length_text=length_text)
            self.record_response_data(data)
            self.record_response_end()
            return
        self._record_response_head(status, head, length_text)
        if data:
            self._record_items([BodyItem(data, {})])

    def _record_response_head(self, status: int, head: Head, length_text: bytes | None) -> None:
        self.state = State.RESPONDING
        self.unparsed = b""
        self.record.response_head(status, head, length_text=length_text)

    def response_data(self, event: h11.Data) -> bytes:
        """Record a part of the response body and return the bytes for the client."""
        data = bytes(event.data)
        self.record_response_data(data)
        if self._endpoint_filter is None:
            return self._client.send(event) or b""
        data = self._endpoint_filter.feed(data)
        if self._endpoint_filter.done:
            self._endpoint_filter = None
        return (self._client.send(h11.Data(data=data)) or b"") if data else b""

    def record_response_data(self, data: bytes) -> None:
        """Record a part of the response body or of a response that is not HTTP."""
        if self._response_body is not None:
            self._record_items(self._response_body.feed(data))

    def record_response_end(self, *, truncated: bool = False) -> None:
        """Record the end of the response; `truncated` means that it ended early."""
        if self._response_body is not None:
            items = self._response_body.end(truncated=truncated)
            self._record_items(_without_heads(items) if self.state is State.RAW else items)
            self._response_body = None

    def response_end(self, event: h11.EndOfMessage) -> bytes:
        """Record the end of the response and return the bytes for the client."""
        out = b""
        if self._endpoint_filter is not None and (pending := self._endpoint_filter.end()):
            out = self._client.send(h11.Data(data=pending)) or b""
        self.record_response_end()
        if event.headers and self._client.their_http_version != b"1.1":
            event = h11.EndOfMessage()  # trailers need chunked encoding, which needs HTTP/1.1
        return out + (self._client.send(event) or b"")

    def truncate(self, closed_by: str, *, why: str) -> None:
        """Record that the exchange ended prematurely."""
        self.truncate_request()
        self.record_response_end(truncated=True)
        self.record.end(closed_by, why=why)

    def _record_items(self, items: Sequence[BodyItem]) -> None:
        if items:
            self.record.response_items(
                items, rewrite=self._rewrite if self._endpoint_filter else None
            )

    def _rewrite(self, url: bytes) -> bytes | None:
        return rewrite_url(url, server=self._upstream.origins, own_origin=self._own_origin)

    def _is_plain(self, head: Head, data: bytes) -> bool:
        """Return whether `data`, a complete body, is recorded as a single unchanged frame."""
        return head.has_plain_body and len(data) <= self._shared.cap

    def _new_body(self, head: Head) -> BodyParser:
        return BodyParser(
            content_type=head.get(b"content-type"),
            content_encoding=head.get(b"content-encoding"),
            cap=self._shared.cap,
            pool=self._shared.pool,
        )

    # --- responses from the recorder ------------------------------------------------------------

    def respond(self, status: int, text: str, why: str) -> bytes | None:
        """Return the recorder's own response; None if the server's response has already begun."""
        if self._client.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return None
        body = text.encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        head = Head(tuple((name.encode(), text.encode()) for name, text in headers))
        self.record.response_head(status, head, why=why)
        self.record.end("proxy", why=why)
        from http import HTTPStatus  # noqa: PLC0415 - seldom needed

        reason = HTTPStatus(status).phrase
        events: tuple[Any, ...] = (
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        return b"".join(self._client.send(event) or b"" for event in events)

    # --- responses that are not HTTP ------------------------------------------------------------

    def switch_to_raw(self, why: str) -> bytes:
        """Stop parsing HTTP on this connection; return the bytes received so far."""
        data, self.unparsed = self.unparsed, b""
        self.state = State.RAW
        self._response_body = BodyParser(cap=self._shared.cap, pool=self._shared.pool)
        self._response_body.feed(data)
        self.closes_connection = True
        self.record.response_head(None, NO_HEAD, why=f"not HTTP: {why}")
        return data

    def end_raw(self) -> None:
        """Record the end of a response that was not HTTP."""
        self.record_response_end()
        self.record.end("server", why="not HTTP")


def _without_heads(items: Sequence[BodyItem]) -> list[BodyItem]:
    """Drop the heads, which may contain credentials, from items of a response that is not HTTP."""
    kept = []
    for item in items:
        piece = item.piece
        head, size = (piece, len(piece)) if isinstance(piece, bytes) else (piece.head, piece.size)
        # The headers of malformed HTTP cannot be redacted.
        withheld = BodyItem(b"", {"why": "not_http", "withheld": "head"}, size)
        kept.append(withheld if head.startswith(b"HTTP/") else item)
    return kept
