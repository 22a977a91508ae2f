"""One client connection and the server connection that belongs to it, and what passes between.

h11 frames both sides: what the server gets was written by us from what was understood, so the
two can never disagree where a request ends. Each read is worked off in three steps: understand,
record what became complete, pass on.
"""

import errno
import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, ParamSpec

import h11

from mcptally.record import http_head
from mcptally.record.http_body import Body, Seen
from mcptally.record.http_connect import Connecting, Server
from mcptally.record.http_endpoint import EndpointFilter, rewritten
from mcptally.record.http_loop import Loop, Timer
from mcptally.record.http_scribe import Scribe
from mcptally.record.http_sessions import Exchange, Sessions
from mcptally.record.http_wire import Wire

P = ParamSpec("P")

MAX_HEAD: Final = 256 * 1024
"""Bytes of the longest head understood; servers' own limits are at 16 to 64 KB."""

_PIPELINED: Final = 256 * 1024
"""Bytes a client may send ahead of the response it waits for."""

LINGER_SECONDS: Final = 2.0
"""How long a client that is still sending gets to read an answer given early."""

_LINGER_BYTES: Final = 64 << 20

HALF_OPEN_SECONDS: Final = 300.0
"""How long a response may still come for a client that has closed its sending side."""


_REASONS: Final = {
    400: "Bad Request",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    505: "HTTP Version Not Supported",
}
"""Of the answers that are ours."""


def _contained(
    entry: Callable[Concatenate["Relay", P], None],
) -> Callable[Concatenate["Relay", P], None]:
    """A mistake of ours costs one connection, and is said, but stops no other."""

    @functools.wraps(entry)
    def contained(relay: "Relay", /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            entry(relay, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - see above
            relay.failed(error)

    return contained


class Relay:
    """A client connection, from its first byte to its last."""

    def __init__(
        self,
        *,
        upstream: Server,
        sessions: Sessions,
        scribe: Scribe,
        loop: Loop,
        cap: int,
        gone: "Callable[[Relay], None]",
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._upstream = upstream
        self._sessions = sessions
        self._scribe = scribe
        self._loop = loop
        self._cap = cap
        self._gone = gone
        self._client: Wire | None = None
        self._server: Wire | None = None
        self._down = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._up = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._connecting: Connecting | None = None
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._timer: Timer | None = None
        self._over = False
        self._last = False
        self._lingering = -1
        self._client_eof = False
        self._server_eof = False
        self._ahead = 0
        self._begin_cycle()

    def start(self, client: Wire) -> None:
        """Begin to serve the client."""
        self._client = client
        client.start()

    @property
    def idle(self) -> bool:
        """Whether no exchange is under way."""
        return self._exchange is None and self._lingering < 0

    def finish(self, why: str) -> None:
        """End the connection from our side as soon as nobody waits for an answer on it."""
        self._last = True
        if self.idle or (self._exchange is not None and self._exchange.method == "GET"):
            self.stop(why)

    def stop(self, why: str) -> None:
        """End the connection from our side, now."""
        if self._exchange is not None:
            self._torn("proxy", why=why)
        self._drop()

    def failed(self, error: Exception) -> None:
        """Give the connection up for a mistake of ours."""
        self._say(f"a connection was given up: {error!r}; please report this")
        self.stop("internal error")

    def _begin_cycle(self) -> None:
        self._exchange: Exchange | None = None
        self._request: Body | None = None
        self._response: Body | None = None
        self._filter: EndpointFilter | None = None
        self._ours = b""
        self._head_seen = False
        self._answered = False
        # The server's bytes as long as they may turn out to be no HTTP at all.
        self._unframed = b""
        self._blind: Body | None = None
        self._ends_after = False

    # --- from the client ------------------------------------------------------------------------

    @_contained
    def received(self, wire: Wire, data: bytes) -> None:
        """Bytes, or the end of them, from either side."""
        if self._over:
            return
        if wire is self._server:
            self._from_server(data)
        elif self._lingering >= 0:
            self._lingering += len(data)
            if not data or self._lingering > _LINGER_BYTES:
                self._drop()
        elif not data:
            self._client_ended()
        else:
            self._down.receive_data(data)
            if self._down.their_state in (h11.DONE, h11.MUST_CLOSE):
                self._ahead += len(data)
                if self._ahead > _PIPELINED and self._client is not None:
                    self._client.pause()
            else:
                self._read_client()

    def _read_client(self) -> None:
        out: list[bytes] = []
        while True:
            try:
                event = self._down.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint or 400, str(error))
                return
            if isinstance(event, h11.Request):
                try:
                    out.append(self._begin(event))
                except http_head.RefusedError as refused:
                    self._refuse(refused.status, refused.why)
                    return
            elif isinstance(event, h11.Data):
                out.append(self._request_data(event))
            elif isinstance(event, h11.EndOfMessage):
                out.append(self._request_end(event))
                self._ahead = len(self._down.trailing_data[0])
                break
            else:
                break
        data = b"".join(out)
        self._commit(lambda: self._write_server(data))

    def _begin(self, request: h11.Request) -> bytes:
        head = http_head.head_of(request)
        extra: dict[str, Any] = {}
        if request.http_version != b"1.1":
            extra["http_version"] = request.http_version.decode()
        self._exchange = self._sessions.begin(
            method=request.method.decode("latin-1"),
            path=request.target.decode("latin-1"),
            headers=head.text,
            **extra,
        )
        passed = http_head.to_server(request, head, host=self._upstream.host)
        self._request = self._observe(head)
        self._ours = b"http://" + (head.get(b"host") or "").encode("latin-1")
        return self._up.send(passed) or b""

    def _observe(self, head: http_head.Head) -> Body:
        return Body(
            content_type=head.get(b"content-type"),
            content_encoding=head.get(b"content-encoding"),
            cap=self._cap,
        )

    def _request_data(self, event: h11.Data) -> bytes:
        if self._exchange is not None and self._request is not None:
            data = bytes(event.data)
            self._exchange.request_bytes(len(data), self._request.feed(data))
        return self._to_server(event)

    def _request_end(self, event: h11.EndOfMessage) -> bytes:
        if self._exchange is not None and self._request is not None:
            self._exchange.request_bytes(0, self._request.end())
            self._exchange.request_over()
            self._request = None
        return self._to_server(event)

    def _to_server(self, event: h11.Data | h11.EndOfMessage) -> bytes:
        if self._up.our_state is not h11.SEND_BODY:
            return b""  # the server has gone; what the client still sends is only read
        return self._up.send(event) or b""

    def _write_server(self, data: bytes) -> None:
        if data and not self._over:
            if self._server is not None:
                self._server.write(data)
                if self._server.full and self._client is not None:
                    self._client.pause()
            else:
                self._wait_for_server(data)
        self._maybe_cycle()

    def _wait_for_server(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._waiting_size > _PIPELINED and self._client is not None:
            self._client.pause()
        if self._connecting is None:
            self._connecting = self._upstream.connect(self._loop, self, self._connected)

    @_contained
    def _connected(self, wire: Wire | OSError) -> None:
        self._connecting = None
        if isinstance(wire, OSError):
            self._unreachable(wire)
            return
        self._server = wire
        wire.start()
        data, self._waiting, self._waiting_size = b"".join(self._waiting), [], 0
        wire.write(data)
        if self._client_eof:
            wire.finish()
        elif self._client is not None and not wire.full:
            self._client.resume()

    # --- from the server ------------------------------------------------------------------------

    def _from_server(self, data: bytes) -> None:
        if not data:
            self._server_ended(None)
            return
        if self._blind is not None:
            self._pass_blindly(data)
            return
        if self._exchange is None:
            # Nothing was asked: whatever this is, it ends the connection, as it would without us.
            self._drop()
            return
        if not self._head_seen:
            self._unframed += data
        self._up.receive_data(data)
        self._read_server()

    def _read_server(self) -> None:
        out: list[bytes] = []
        finished = False
        exchange = self._exchange
        if exchange is None:
            return
        while True:
            try:
                event = self._up.next_event()
            except h11.RemoteProtocolError as error:
                self._not_http(error, out)
                return
            if isinstance(event, h11.Data):
                out.append(self._response_data(exchange, event))
            elif isinstance(event, h11.Response):
                out.append(self._response_head(exchange, event))
            elif isinstance(event, h11.InformationalResponse):
                if self._down.our_state is h11.SEND_RESPONSE:
                    out.append(self._down.send(http_head.informational(event)) or b"")
            elif isinstance(event, h11.EndOfMessage):
                out.append(self._response_end(exchange, event))
                finished = True
                break
            else:
                break
        data = b"".join(out)
        self._commit(lambda: self._pass_response(exchange, data, finished=finished))

    def _pass_response(self, exchange: Exchange, data: bytes, *, finished: bool) -> None:
        self._write_client(data)
        if finished:
            self._answered = True
            exchange.end("server")
            self._scribe.later(exchange.take())
            self._maybe_cycle()

    def _response_head(self, exchange: Exchange, response: h11.Response) -> bytes:
        self._head_seen = True
        self._unframed = b""
        head = http_head.head_of(response)
        exchange.response_head(response.status_code, head.text)
        self._response = self._observe(head)
        self._ends_after = http_head.ends_connection(response, head)
        if exchange.legacy and b"content-encoding" not in head:
            self._filter = EndpointFilter(server=self._upstream.origins, ours=self._ours)
        return self._down.send(http_head.to_client(response, head)) or b""

    def _response_data(self, exchange: Exchange, event: h11.Data) -> bytes:
        data = bytes(event.data)
        if self._response is not None:
            self._seen(exchange, self._response.feed(data))
        if self._filter is None:
            return self._down.send(event) or b""
        data = self._filter.feed(data)
        if self._filter.done:
            self._filter = None
        return (self._down.send(h11.Data(data=data)) or b"") if data else b""

    def _response_end(self, exchange: Exchange, event: h11.EndOfMessage) -> bytes:
        out = b""
        if self._filter is not None and (held := self._filter.end()):
            out = self._down.send(h11.Data(data=held)) or b""
        if self._response is not None:
            self._seen(exchange, self._response.end())
            self._response = None
        if event.headers and self._down.their_http_version != b"1.1":
            event = h11.EndOfMessage()  # trailers need chunks, and those need HTTP/1.1
        return out + (self._down.send(event) or b"")

    def _seen(self, exchange: Exchange, seen: Sequence[Seen]) -> None:
        if seen:
            exchange.response_seen(seen, rewrite=self._rewritten if self._filter else None)

    def _rewritten(self, url: bytes) -> bytes | None:
        return rewritten(url, server=self._upstream.origins, ours=self._ours)

    def _write_client(self, data: bytes) -> None:
        if self._client is None or not data:
            return
        self._client.write(data)
        if self._client.full and self._server is not None:
            self._server.pause()

    def _commit(self, then: Callable[[], None]) -> None:
        """Record what became complete, then go on: the last thing a callback does."""
        self._scribe.write([] if self._exchange is None else self._exchange.take(), then)

    # --- from one exchange to the next ----------------------------------------------------------

    def _maybe_cycle(self) -> None:
        """Go on to the next request once this one and its response are through."""
        exchange = self._exchange
        if exchange is None or not self._answered or self._over:
            return
        if self._down.their_state is h11.SEND_BODY:
            # Answered before the request was complete: go on sending it, if the server still reads.
            if self._server_eof or (self._server is not None and self._server.broken):
                self._linger()
            return
        exchange.done()
        if self._up.trailing_data[0]:
            self._last = True  # more than was asked for: nothing on this connection is certain
        states = (
            self._down.our_state,
            self._down.their_state,
            self._up.our_state,
            self._up.their_state,
        )
        if (
            self._ends_after
            or self._last
            or self._client_eof
            or any(state is not h11.DONE for state in states)
        ):
            self._begin_cycle()
            self._drop()
            return
        self._begin_cycle()
        self._down.start_next_cycle()
        self._up.start_next_cycle()
        ahead, self._ahead = self._ahead, 0
        if self._client is not None:
            self._client.resume()
        if ahead:
            self._read_client()

    def drained(self, wire: Wire) -> None:
        """One side has taken what waited for it: the other may be read again."""
        other = self._server if wire is self._client else self._client
        if other is not None and not self._over and self._ahead <= _PIPELINED:
            other.resume()

    # --- ends -----------------------------------------------------------------------------------

    @_contained
    def lost(self, wire: Wire, error: OSError) -> None:
        """A side cannot be read any more."""
        if self._over:
            return
        if wire is self._server:
            self._server_ended(error)
        elif self._exchange is not None and self._lingering < 0:
            self._torn("client", why=_why(error))
            self._drop(reset=True)
        else:
            self._drop()

    @_contained
    def unwritable(self, wire: Wire, error: OSError) -> None:
        """A side cannot be written any more."""
        if self._over or wire is self._server:
            # What the server still says is worth hearing: reading it will tell its end.
            return
        if self._exchange is not None:
            self._torn("client", why=_why(error))
        self._drop(reset=True)

    def _client_ended(self) -> None:
        """The client will send nothing more; mostly that means that it has gone."""
        self._client_eof = True
        exchange = self._exchange
        if exchange is None:
            self._drop()
            return
        if not self._answered:
            self._request_torn(exchange)
            exchange.end("client")
        if self._server is not None and self._server.is_tls:
            self._finish(exchange)
            return
        # What the server does now is up to it: without us, too, it would see one side closed.
        if self._server is not None:
            self._server.finish()
        self._timer = self._loop.call_later(HALF_OPEN_SECONDS, lambda: self.stop("half open"))
        self._scribe.later(exchange.take())

    def _request_torn(self, exchange: Exchange) -> None:
        if self._request is not None:
            exchange.request_bytes(0, self._request.end(torn=True))
            self._request = None

    def _server_ended(self, error: OSError | None) -> None:
        """The server will send nothing more."""
        self._server_eof = True
        exchange = self._exchange
        if exchange is None:
            # An idle connection ends for the client when it ends for us: as it would without us.
            self._drop(reset=error is not None)
            return
        if self._blind is not None:
            self._end_blindly(exchange, error)
        elif self._answered and self._down.their_state is h11.SEND_BODY and not self._client_eof:
            self._linger()
        elif self._answered:
            self._finish(exchange)
        elif error is None and self._head_seen:
            # It may have been a body that ends with the connection.
            self._up.receive_data(b"")
            self._read_server()
        elif self._unframed:
            # A head that never ended: the client is to see what there is of it.
            self._write_client(self._go_blind(exchange, "the head never ended"))
            self._end_blindly(exchange, error)
        else:
            self._torn("server", why=_why(error))
            self._drop(reset=error is not None)

    def _finish(self, exchange: Exchange, *, reset: bool = False) -> None:
        self._scribe.later(exchange.take())
        exchange.done()
        self._begin_cycle()
        self._drop(reset=reset)

    def _torn(self, closed_by: str, *, why: str) -> None:
        """Record that the exchange ended in the middle."""
        exchange = self._exchange
        if exchange is None:
            return
        self._request_torn(exchange)
        if self._response is not None:
            self._seen(exchange, self._response.end(torn=True))
        exchange.end(closed_by, why=why)
        self._scribe.later(exchange.take())
        exchange.done()
        self._begin_cycle()

    def _linger(self) -> None:
        """Let a client that is still sending read its answer before the connection goes."""
        exchange = self._exchange
        if exchange is not None:
            self._request_torn(exchange)
            self._scribe.later(exchange.take())
            exchange.done()
            self._begin_cycle()
        self._lingering = 0
        if self._server is not None:
            self._server.abort()
        if self._client is not None:
            self._client.finish()
            self._client.resume()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._drop)

    def _drop(self, *, reset: bool = False) -> None:
        if self._over:
            return
        self._over = True
        if self._exchange is not None:
            self._torn("proxy", why="closed")
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._client is not None:
            if reset:
                self._client.abort(reset=True)
            else:
                self._client.close()
        if self._server is not None:
            self._server.abort(reset=reset)
        self._gone(self)

    # --- answers of our own ---------------------------------------------------------------------

    def _unreachable(self, error: OSError) -> None:
        if self._over or self._exchange is None:
            return
        self._answer(502, f"mcptally: no connection to the server: {_why(error)}\n", _why(error))

    def _refuse(self, status: int, why: str) -> None:
        """Answer a request that is not passed on."""
        if self._exchange is None:
            # Its head could not be read; the text is not kept, for it may hold credentials.
            self._exchange = self._sessions.begin(method="", path="", headers=(), why=why)
        self._answer(status, f"mcptally: request refused: {why}\n", why)

    def _answer(self, status: int, text: str, why: str) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        body = text.encode()
        if self._down.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # The answer has begun, and now the request turns out to be broken.
            self._torn("proxy", why=why)
            self._drop(reset=True)
            return
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        lower = tuple((name.lower(), text) for name, text in headers)
        exchange.response_head(status, lower, why=why)
        exchange.end("proxy", why=why)
        out = (
            self._down.send(
                h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, ""))
            )
            or b""
        )
        out += self._down.send(h11.Data(data=body)) or b""
        out += self._down.send(h11.EndOfMessage()) or b""
        self._commit(lambda: self._last_words(out))

    def _last_words(self, data: bytes) -> None:
        self._write_client(data)
        self._linger()

    def _not_http(self, error: h11.RemoteProtocolError, out: list[bytes]) -> None:
        """The server says something that is no HTTP: the client sees it as it is."""
        exchange = self._exchange
        if exchange is None:
            self._drop()
            return
        if not self._head_seen:
            data = self._go_blind(exchange, str(error))
            self._commit(lambda: self._write_client(data))
            return
        self._write_client(b"".join(out))
        if not self._answered:
            self._torn("server", why="closed" if self._server_eof else f"not HTTP: {error}")
        self._drop()

    def _go_blind(self, exchange: Exchange, why: str) -> bytes:
        """Understand nothing more of this connection; gives what came of it so far."""
        data, self._unframed = self._unframed, b""
        self._blind = Body(cap=self._cap)
        self._blind.feed(data)
        self._ends_after = True
        exchange.response_head(None, (), why=f"not HTTP: {why}")
        return data

    def _pass_blindly(self, data: bytes) -> None:
        if self._blind is not None:
            self._blind.feed(data)
            self._write_client(data)

    def _end_blindly(self, exchange: Exchange, error: OSError | None) -> None:
        for seen in self._blind.end() if self._blind is not None else []:
            head = seen.piece if isinstance(seen.piece, bytes) else seen.piece.head
            if head.startswith(b"HTTP/"):
                # Nearly HTTP: its headers cannot be picked apart, and may hold credentials.
                size = len(head) if isinstance(seen.piece, bytes) else seen.piece.size
                self._seen(exchange, [Seen(b"", {"why": "not_http", "withheld": "head"}, size)])
            else:
                self._seen(exchange, [seen])
        exchange.end("server", why="not HTTP")
        self._finish(exchange, reset=error is not None)


def _why(error: OSError | None) -> str:
    if error is None:
        return "closed"
    if (untrusted := getattr(error, "verify_message", None)) is not None:
        return f"certificate not trusted: {untrusted}"
    if isinstance(error, TimeoutError):
        return "timed out"
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return "reset"
    return (error.strerror or str(error) or type(error).__name__).lower()
