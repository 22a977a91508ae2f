"""Tracks the HTTP state of a client connection, and turns received bytes into bytes to send.

The module assigns bytes to exchanges and decides when the next exchange may begin; exchange.py
parses and records each exchange.
"""

from collections.abc import Callable
from typing import Any, Final

import h11

from mcptally.record.http import headers as http_headers
from mcptally.record.http.exchange import ProxiedExchange, State
from mcptally.record.http.exchange_record import ExchangeRecord
from mcptally.record.http.head import NO_HEAD, Head, parse_head
from mcptally.record.http.known_heads import (
    KnownExchange,
    known_request,
    known_response,
    split_head,
)
from mcptally.record.http.request_limits import RequestLimits
from mcptally.record.http.shared import Shared

MAX_HEAD: Final = 256 * 1024
"""Maximum size of a head in bytes; servers usually allow 16 to 64 KB."""


class NotHttpError(Exception):
    """Raised if the server sends bytes that are not HTTP; `forwarded` is the output before them."""

    def __init__(self, why: str, forwarded: bytes) -> None:
        super().__init__(why)
        self.forwarded = forwarded


class HttpProtocol:
    """The requests and responses of one client connection, in sequence."""

    def __init__(self, shared: Shared, on_head_timeout: Callable[[], None]) -> None:
        self._shared = shared
        self._request_limits = RequestLimits(shared.loop, on_head_timeout)
        self._client = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._server = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._known: KnownExchange | None = None
        """Set while the current exchange needs no parser; the parsers are then idle."""
        self.exchange: ProxiedExchange | None = None
        """The current exchange, or None."""
        self.pipelined_bytes = 0
        """Bytes that the client has sent beyond the current request."""

    def stop(self) -> None:
        """Cancel the timer for the request head, because the connection is closed."""
        self._request_limits.stop()

    # --- the client's side ----------------------------------------------------------------------

    @property
    def is_receiving_request(self) -> bool:
        """Whether the current request is incomplete."""
        if self._known is not None:
            return self._known.request_left > 0
        return self._client.their_state is h11.SEND_BODY

    def receive_from_client(self, data: bytes) -> bytes | None:
        """Return the bytes for the server; None while the current request awaits its response.

        Raises:
            RefusedError: the request must not be forwarded.
        """
        if (forwarded := self._receive_known_request(data)) is not None:
            return forwarded
        if self._client.their_state is h11.IDLE:
            self._request_limits.count_lines(data)
        self._client.receive_data(data)
        if self._client.their_state in (h11.DONE, h11.MUST_CLOSE):
            self.pipelined_bytes += len(data)
            return None
        return self._parse_requests()

    def _receive_known_request(self, data: bytes) -> bytes | None:
        """Return the bytes for the server; None if the parser must handle `data`."""
        known = self._known
        if known is not None:
            if len(data) <= known.request_left and known.response is None:
                self._record_known_request(known, data)
                return data
            self.resume_parsing()
            return None
        if self.exchange is not None or self.pipelined_bytes or self._request_limits.is_timing:
            return None
        raw, body = split_head(data)
        if not raw:
            return None
        upstream, require_loopback = self._shared.upstream, self._shared.require_loopback_host
        request = known_request(raw, upstream.host, upstream.authorization, require_loopback)
        if request is None or len(body) > request.length:
            return None
        exchange = self._new_exchange(
            method="POST", path=request.path, head=request.head, length_text=request.length_text
        )
        self._known = known = KnownExchange(request)
        if len(body) == request.length:
            known.request_left = 0
            exchange.record_request(request.head, body)
        else:
            exchange.begin_request(request.head)
            self._record_known_request(known, body)
        return request.forwarded_bytes + body

    def _record_known_request(self, known: KnownExchange, data: bytes) -> None:
        if self.exchange is None:
            return
        known.request_left -= len(data)
        if data:
            self.exchange.record_request_data(data)
        if not known.request_left:
            self.exchange.record_request_end()

    def resume_parsing(self) -> None:
        """Resume parsing the current exchange if it was handled without the parsers."""
        if self._known is not None:
            self._known.replay(self._client, self._server)
            self._known = None

    def parse_pipelined(self) -> bytes | None:
        """Parse pipelined bytes as the next request; return the bytes for the server, if any.

        Raises:
            RefusedError: the request must not be forwarded.
        """
        if not self.pipelined_bytes:
            return None
        self.pipelined_bytes = 0
        self._request_limits.count_lines(self._client.trailing_data[0])
        return self._parse_requests()

    def _parse_requests(self) -> bytes:
        out: list[bytes] = []
        while True:
            try:
                event = self._client.next_event()
            except h11.RemoteProtocolError as error:
                raise http_headers.RefusedError(
                    error.error_status_hint or 400, str(error)
                ) from error
            if isinstance(event, h11.Request):
                out.append(self._begin_exchange(event))
            elif isinstance(event, h11.Data) and self.exchange is not None:
                out.append(self.exchange.request_data(event))
            elif isinstance(event, h11.EndOfMessage) and self.exchange is not None:
                out.append(self.exchange.request_end(event))
                self.pipelined_bytes = len(self._client.trailing_data[0])
                break
            else:
                break
        if (
            self.exchange is None
            and not self._request_limits.is_timing
            and self._client.trailing_data[0]
        ):
            self._request_limits.start_timer()
        return b"".join(out)

    def _begin_exchange(self, request: h11.Request) -> bytes:
        self._request_limits.reset()
        head = parse_head(request)
        extra: dict[str, Any] = {}
        if request.http_version != b"1.1":
            extra["http_version"] = request.http_version.decode()
        exchange = self._new_exchange(
            method=request.method.decode("latin-1"),
            path=request.target.decode("latin-1"),
            head=head,
            **extra,
        )
        if self._shared.require_loopback_host:
            http_headers.check_host(head)
        return exchange.request_head(request, head)

    def refused_exchange(self, why: str) -> ProxiedExchange:
        """Return the exchange for a request that the recorder answers itself."""
        # An unparsable head is not recorded: it may contain credentials.
        return self.exchange or self._new_exchange(method="", path="", head=NO_HEAD, why=why)

    def _new_exchange(
        self, *, method: str, path: str, head: Head, length_text: bytes | None = None, **extra: Any
    ) -> ProxiedExchange:
        sessions = self._shared.sessions
        record = ExchangeRecord(
            sessions, method=method, path=path, head=head, length_text=length_text, extra=extra
        )
        self.exchange = ProxiedExchange(record, self._shared, self._client, self._server)
        return self.exchange

    # --- the server's side ----------------------------------------------------------------------

    def receive_from_server(self, exchange: ProxiedExchange, data: bytes) -> tuple[bytes, bool]:
        """Return the bytes for the client, and whether the response is complete.

        Empty `data` means that the server closed its sending side.

        Raises:
            NotHttpError: the bytes are not HTTP.
        """
        if self._known is not None:
            if (received := self._receive_known_response(self._known, exchange, data)) is not None:
                return received
            self.resume_parsing()
        if exchange.state is State.REQUESTED:
            exchange.unparsed += data
        self._server.receive_data(data)
        out: list[bytes] = []
        while True:
            try:
                event = self._server.next_event()
            except h11.RemoteProtocolError as error:
                raise NotHttpError(str(error), b"".join(out)) from error
            if isinstance(event, h11.Data):
                out.append(exchange.response_data(event))
            elif isinstance(event, h11.Response):
                out.append(exchange.response_head(event))
            elif isinstance(event, h11.InformationalResponse):
                if self._client.our_state is h11.SEND_RESPONSE:
                    out.append(
                        self._client.send(http_headers.informational_for_client(event)) or b""
                    )
            elif isinstance(event, h11.EndOfMessage):
                out.append(exchange.response_end(event))
                return b"".join(out), True
            else:
                return b"".join(out), False

    def _receive_known_response(
        self, known: KnownExchange, exchange: ProxiedExchange, data: bytes
    ) -> tuple[bytes, bool] | None:
        """Return the result of `receive_from_server`; None if the parser must handle `data`."""
        out = b""
        if known.response is None:
            raw, data = split_head(data)
            response = known_response(raw) if raw and not known.request_left else None
            if response is None:
                return None
            known.response, known.response_left = response, response.length
            out = response.forwarded_bytes
            if len(data) == response.length:
                known.response_left = 0
                exchange.record_response(
                    response.status, response.head, data, length_text=response.length_text
                )
                return out + data, True
            exchange.begin_response(
                response.status, response.head, length_text=response.length_text
            )
        elif not data:
            raise NotHttpError("the response is incomplete", b"")
        if len(data) > known.response_left:
            data, known.has_excess_data = data[: known.response_left], True
        known.response_left -= len(data)
        if data:
            exchange.record_response_data(data)
        if not known.response_left:
            exchange.record_response_end()
        return out + data, not known.response_left

    # --- the next exchange ----------------------------------------------------------------------

    def start_next_cycle(self, exchange: ProxiedExchange) -> bool:
        """Prepare both connections for the next request; return False if one cannot be reused."""
        known, self._known = self._known, None
        if known is not None:
            return not (exchange.closes_connection or known.has_excess_data)
        # The server sent more than the response: the connection cannot be reused.
        has_excess_data = bool(self._server.trailing_data[0])
        states = (
            self._client.our_state,
            self._client.their_state,
            self._server.our_state,
            self._server.their_state,
        )
        if (
            exchange.closes_connection
            or has_excess_data
            or any(state is not h11.DONE for state in states)
        ):
            return False
        self._client.start_next_cycle()
        self._server.start_next_cycle()
        return True
