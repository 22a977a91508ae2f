"""One request and its response: understood, observed, and written anew for the other side.

h11 frames both sides: what the server gets was written by us from what was understood, so the
two can never disagree where a request ends. Bytes in, bytes out; sockets and times are the
relay's.
"""

from collections.abc import Sequence
from typing import Any, Final

import h11

from mcptally.record.http import headers as http_headers
from mcptally.record.http.body import Body, Seen
from mcptally.record.http.recordings import Exchange
from mcptally.record.http.sse_endpoint import EndpointFilter, rewritten
from mcptally.record.http.upstream import Server
from mcptally.wire.byte_pool import Pool

_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
"""Of the answers that are ours."""


class RelayedExchange:
    """The request that is under way on a connection, and what came of it."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        client: h11.Connection,
        server: h11.Connection,
        upstream: Server,
        cap: int,
        pool: Pool,
    ) -> None:
        self.exchange: Final = exchange
        self.head_seen = False
        """The response's head has come."""
        self.answered = False
        """The response is complete."""
        self.ends_after = False
        """The connection ends with this response."""
        self.blind: Body | None = None
        """What the server says is no HTTP: it is only looked at, as a whole."""
        self.unframed = b""
        """The server's bytes as long as they may turn out to be no HTTP at all."""
        self._down = client
        self._up = server
        self._upstream = upstream
        self._cap = cap
        self._pool = pool
        self._request: Body | None = None
        self._response: Body | None = None
        self._filter: EndpointFilter | None = None
        self._ours = b""

    # --- the request ----------------------------------------------------------------------------

    def begin(self, request: h11.Request, head: http_headers.Head) -> bytes:
        """The request's head as the server gets it.

        Raises:
            RefusedError: it is not to be passed on.
        """
        http_headers.check(request, head)
        passed = http_headers.to_server(
            request, head, host=self._upstream.host, authorization=self._upstream.authorization
        )
        self._request = self._observed(head)
        self._ours = b"http://" + (head.get(b"host") or "").encode("latin-1")
        return self._up.send(passed) or b""

    def request_data(self, event: h11.Data) -> bytes:
        """A part of the request's body."""
        if self._request is not None:
            data = bytes(event.data)
            self.exchange.request_bytes(len(data), self._request.feed(data))
        return self._to_server(event)

    def request_end(self, event: h11.EndOfMessage) -> bytes:
        """The end of the request.

        Raises:
            RefusedError: a trailer would change what the request is.
        """
        http_headers.check_trailers(event)
        if self._request is not None:
            self.exchange.request_bytes(0, self._request.end())
            self.exchange.request_over()
            self._request = None
        return self._to_server(event)

    def request_torn(self) -> None:
        """The request's body will not be completed."""
        if self._request is not None:
            self.exchange.request_bytes(0, self._request.end(torn=True))
            self._request = None

    def _to_server(self, event: h11.Data | h11.EndOfMessage) -> bytes:
        if self._up.our_state is not h11.SEND_BODY:
            return b""  # the server has gone; what the client still sends is only read
        return self._up.send(event) or b""

    # --- the response ---------------------------------------------------------------------------

    @property
    def is_streaming(self) -> bool:
        """Whether the response is an event stream, which may have no end of its own."""
        return self._response is not None and self._response.is_event_stream

    def response_head(self, response: h11.Response) -> bytes:
        """The response's head as the client gets it."""
        self.head_seen = True
        self.unframed = b""
        head = http_headers.head_of(response)
        self.exchange.response_head(response.status_code, head.text)
        self._response = self._observed(head)
        self.ends_after = http_headers.ends_connection(response, head)
        if self.exchange.legacy and b"content-encoding" not in head:
            self._filter = EndpointFilter(server=self._upstream.origins, ours=self._ours)
        return self._down.send(http_headers.to_client(response, head)) or b""

    def response_data(self, event: h11.Data) -> bytes:
        """A part of the response's body."""
        data = bytes(event.data)
        if self._response is not None:
            self._seen(self._response.feed(data))
        if self._filter is None:
            return self._down.send(event) or b""
        data = self._filter.feed(data)
        if self._filter.done:
            self._filter = None
        return (self._down.send(h11.Data(data=data)) or b"") if data else b""

    def response_end(self, event: h11.EndOfMessage) -> bytes:
        """The end of the response."""
        out = b""
        if self._filter is not None and (held := self._filter.end()):
            out = self._down.send(h11.Data(data=held)) or b""
        if self._response is not None:
            self._seen(self._response.end())
            self._response = None
        if event.headers and self._down.their_http_version != b"1.1":
            event = h11.EndOfMessage()  # trailers need chunks, and those need HTTP/1.1
        return out + (self._down.send(event) or b"")

    def torn(self, closed_by: str, *, why: str) -> None:
        """It ended in the middle."""
        self.request_torn()
        if self._response is not None:
            self._seen(self._response.end(torn=True))
        self.exchange.end(closed_by, why=why)

    def _seen(self, seen: Sequence[Seen]) -> None:
        if seen:
            self.exchange.response_seen(seen, rewrite=self._rewritten if self._filter else None)

    def _rewritten(self, url: bytes) -> bytes | None:
        return rewritten(url, server=self._upstream.origins, ours=self._ours)

    def _observed(self, head: http_headers.Head) -> Body:
        return Body(
            content_type=head.get(b"content-type"),
            content_encoding=head.get(b"content-encoding"),
            cap=self._cap,
            pool=self._pool,
        )

    # --- answers of our own ---------------------------------------------------------------------

    def answer(self, status: int, text: str, why: str) -> bytes | None:
        """A whole response from the recorder itself; None where the server's has begun."""
        if self._down.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return None
        body = text.encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        lower = tuple((name.lower(), text) for name, text in headers)
        self.exchange.response_head(status, lower, why=why)
        self.exchange.end("proxy", why=why)
        events: tuple[Any, ...] = (
            h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, "")),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        return b"".join(self._down.send(event) or b"" for event in events)

    # --- a server that does not speak HTTP ------------------------------------------------------

    def go_blind(self, why: str) -> bytes:
        """Understand nothing more of this connection; gives what came of it so far."""
        data, self.unframed = self.unframed, b""
        self.blind = Body(cap=self._cap, pool=self._pool)
        self.blind.feed(data)
        self.ends_after = True
        self.exchange.response_head(None, (), why=f"not HTTP: {why}")
        return data

    def end_blindly(self) -> None:
        """The server has said all it had to say."""
        for seen in self.blind.end() if self.blind is not None else []:
            head = seen.piece if isinstance(seen.piece, bytes) else seen.piece.head
            if head.startswith(b"HTTP/"):
                # Nearly HTTP: its headers cannot be picked apart, and may hold credentials.
                size = len(head) if isinstance(seen.piece, bytes) else seen.piece.size
                self._seen([Seen(b"", {"why": "not_http", "withheld": "head"}, size)])
            else:
                self._seen([seen])
        self.exchange.end("server", why="not HTTP")
