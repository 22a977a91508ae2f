"""Forward bytes between one client connection and its server connection.

Each read is handled in three steps: parse (protocol.py), record what became complete
(write_queue.py), forward. This module decides when each side is read or written, and what happens
when a side closes.
"""

import functools
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec

from mcptally.record.http.error_text import describe_error
from mcptally.record.http.event_loop import EventLoop, Timer
from mcptally.record.http.exchange import ProxiedExchange
from mcptally.record.http.headers import RefusedError
from mcptally.record.http.protocol import HttpProtocol, NotHttpError
from mcptally.record.http.recordings import Sessions
from mcptally.record.http.request_limits import HEAD_SECONDS
from mcptally.record.http.socket import Socket
from mcptally.record.http.upstream import UpstreamServer
from mcptally.record.http.upstream_connection import UpstreamConnection
from mcptally.record.http.write_queue import WriteQueue
from mcptally.wire.byte_pool import BytePool

P = ParamSpec("P")

_MAX_PIPELINED_BYTES: Final = 256 * 1024
"""Most bytes that a client may pipeline before it has the response to its current request."""

LINGER_SECONDS: Final = 2.0
"""Seconds that a client, still sending its request, has to read an early response."""

_MAX_LINGER_BYTES: Final = 64 << 20

HALF_OPEN_SECONDS: Final = 300.0
"""Seconds to wait for a response after the client has closed its sending side."""


def _close_on_exception(
    handler_method: Callable[Concatenate["ProxyConnection", P], None],
) -> Callable[Concatenate["ProxyConnection", P], None]:
    """Log an unexpected exception and close only the connection it occurred on."""

    @functools.wraps(handler_method)
    def wrapper(connection: "ProxyConnection", /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            handler_method(connection, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - see above
            connection.fail(error)

    return wrapper


class ProxyConnection:
    """A client connection with its connection to the server."""

    def __init__(
        self,
        *,
        upstream: UpstreamServer,
        sessions: Sessions,
        write_queue: WriteQueue,
        loop: EventLoop,
        cap: int,
        pool: BytePool,
        require_loopback_host: bool,
        on_closed: "Callable[[ProxyConnection], None]",
        log: Callable[[str], None],
    ) -> None:
        self._log = log
        self._write_queue = write_queue
        self._loop = loop
        self._protocol = HttpProtocol(
            upstream=upstream,
            sessions=sessions,
            loop=loop,
            cap=cap,
            pool=pool,
            require_loopback_host=require_loopback_host,
            on_head_timeout=self._on_head_timeout,
        )
        self.idle_since = loop.time()
        """Loop time at which the last exchange ended or the connection began."""
        self._on_closed = on_closed
        self._upstream = upstream
        self._client: Socket | None = None
        self._upstream_connection = UpstreamConnection(
            upstream, loop=loop, handler=self, on_connected=self._on_connected
        )
        self._timer: Timer | None = None
        self._closed = False
        self._closing = False
        self._lingered_bytes = -1
        self._client_eof = False
        self._server_eof = False

    def start(self, client: Socket) -> None:
        """Start to read from the client."""
        self._client = client
        client.start()

    @property
    def _exchange(self) -> ProxiedExchange | None:
        return self._protocol.exchange

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is in progress."""
        return self._exchange is None and self._lingered_bytes < 0

    def close_when_idle(self, why: str) -> None:
        """Close the connection after the current response; streams opened by GET close at once."""
        self._closing = True
        if self.is_idle or (self._exchange is not None and self._exchange.record.method == "GET"):
            self.close(why)

    def close(self, why: str) -> None:
        """Close the connection at once."""
        self._truncate("proxy", why=why)
        self._close_now()

    def fail(self, error: Exception) -> None:
        """Log an internal error and close the connection."""
        self._log(f"internal error, one connection was closed: {error!r}; please report this")
        self.close("internal error")

    # --- from the client ------------------------------------------------------------------------

    def on_data(self, sock: Socket, data: bytes) -> None:
        """Handle bytes from the client or the server; empty `data` means end of stream."""
        try:
            self._on_data(sock, data)
        except Exception as error:  # noqa: BLE001 - see `_close_on_exception`, which costs more
            self.fail(error)

    def _on_data(self, sock: Socket, data: bytes) -> None:
        if self._closed:
            return
        if sock is self._upstream_connection.socket:
            self._from_server(data)
        elif self._lingered_bytes >= 0:
            self._lingered_bytes += len(data)
            if not data or self._lingered_bytes > _MAX_LINGER_BYTES:
                self._close_now()
        elif not data:
            self._on_client_eof()
        else:
            self._from_client(data)

    def _from_client(self, data: bytes | None) -> None:
        """Forward the request that `data`, or the pipelined bytes (None), begin or continue."""
        try:
            if data is None:
                forwarded = self._protocol.parse_pipelined()
            else:
                forwarded = self._protocol.receive_from_client(data)
        except RefusedError as refused:
            self._refuse(refused.status, refused.why)
            return
        if forwarded is not None:
            self._record()
            self._write_server(forwarded)
        elif self._protocol.pipelined_bytes > _MAX_PIPELINED_BYTES and self._client is not None:
            self._client.pause()

    @_close_on_exception
    def _on_head_timeout(self) -> None:
        """Answer 408: the request head did not arrive in time."""
        if not self._closed and self._exchange is None and self._lingered_bytes < 0:
            self._refuse(408, f"its head took longer than {HEAD_SECONDS:.0f} s")

    def _write_server(self, data: bytes) -> None:
        if data and not self._closed:
            self._upstream_connection.write(data)
            if self._upstream_connection.is_full and self._client is not None:
                self._client.pause()
        self._start_next_request()

    @_close_on_exception
    def _on_connected(self, error: OSError | None) -> None:
        if error is not None:
            self._respond_unreachable(error)
        elif self._client_eof:
            if self._exchange is not None:
                self._shut_down_upstream(self._exchange)
        elif self._client is not None and not self._upstream_connection.is_full:
            self._client.resume()

    # --- from the server ------------------------------------------------------------------------

    def _from_server(self, data: bytes) -> None:
        if not data:
            self._on_server_eof(None)
            return
        exchange = self._exchange
        if exchange is None:
            # No request is open: close, as the client would without the recorder.
            self._close_now()
        elif exchange.raw_body is not None:
            exchange.raw_body.feed(data)
            self._write_client(data)
        else:
            self._read_server(exchange, data)

    def _read_server(self, exchange: ProxiedExchange, data: bytes) -> None:
        try:
            forwarded, finished = self._protocol.receive_from_server(exchange, data)
        except NotHttpError as error:
            self._forward_non_http(exchange, error)
            return
        if finished:
            exchange.is_complete = True
            exchange.record.end("server")
        self._record()
        self._write_client(forwarded)
        if finished:
            self._start_next_request()

    def _forward_non_http(self, exchange: ProxiedExchange, error: NotHttpError) -> None:
        """Forward bytes that are not HTTP to the client unchanged."""
        if not exchange.has_response_head:
            data = exchange.switch_to_raw(str(error))
            self._record()
            self._write_client(data)
            return
        self._write_client(error.forwarded)
        if not exchange.is_complete:
            self._truncate("server", why="closed" if self._server_eof else f"not HTTP: {error}")
        self._close_now()

    def _write_client(self, data: bytes) -> None:
        if self._client is None or not data:
            return
        self._client.write(data)
        if self._client.is_full and self._upstream_connection.socket is not None:
            self._upstream_connection.socket.pause()

    def _record(self) -> None:
        """Hand over the events that are complete."""
        self._write_queue.write(
            [] if self._exchange is None else self._exchange.record.take_events()
        )

    # --- the next exchange ----------------------------------------------------------------------

    def _start_next_request(self) -> None:
        """Start the next request if the current request and its response are complete."""
        exchange = self._exchange
        if exchange is None or not exchange.is_complete or self._closed:
            return
        if self._protocol.is_receiving_request:
            # The response came before the request was complete: keep sending if the server reads.
            if self._server_eof or self._upstream_connection.is_broken:
                self._linger()
            return
        exchange.record.release()
        self._protocol.exchange = None
        self.idle_since = self._loop.time()
        if self._closing or self._client_eof or not self._protocol.start_next_cycle(exchange):
            self._close_now()
            return
        if self._client is not None:
            self._client.resume()
        if self._protocol.pipelined_bytes:
            self._from_client(None)

    def on_drained(self, sock: Socket) -> None:
        """Resume reading one side after the send buffer of the other side has drained."""
        other = self._upstream_connection.socket if sock is self._client else self._client
        if (
            other is not None
            and not self._closed
            and self._protocol.pipelined_bytes <= _MAX_PIPELINED_BYTES
        ):
            other.resume()

    # --- ends -----------------------------------------------------------------------------------

    @_close_on_exception
    def on_read_error(self, sock: Socket, error: OSError) -> None:
        """Handle a read error on either side."""
        if self._closed:
            return
        if sock is self._upstream_connection.socket:
            self._on_server_eof(error)
        elif self._exchange is not None and self._lingered_bytes < 0:
            self._truncate("client", why=describe_error(error))
            self._close_now(reset=True)
        else:
            self._close_now()

    @_close_on_exception
    def on_write_error(self, sock: Socket, error: OSError) -> None:
        """Handle a write error on either side."""
        if self._closed or sock is self._upstream_connection.socket:
            # Keep reading: the server may have sent a response, and reading reports its end.
            return
        self._truncate("client", why=describe_error(error))
        self._close_now(reset=True)

    def _on_client_eof(self) -> None:
        """Handle the end of the client's bytes; usually the client has disconnected."""
        self._client_eof = True
        exchange = self._exchange
        if exchange is None:
            self._close_now()
            return
        if not exchange.is_complete:
            exchange.truncate_request()
            exchange.record.end("client")
        self._shut_down_upstream(exchange)
        self._timer = self._loop.call_later(HALF_OPEN_SECONDS, lambda: self.close("half open"))
        self._write_queue.enqueue(exchange.record.take_events())

    def _shut_down_upstream(self, exchange: ProxiedExchange) -> None:
        """Close the sending side to the server, unless the response would be lost.

        Over TCP the server sees the same half-close as without the recorder. Over TLS many servers
        treat a half-close as the end of the connection and send no response: there the side is
        closed only for an incomplete request or a streaming response.
        """
        if (
            not self._upstream.is_tls
            or self._protocol.is_receiving_request
            or exchange.is_streaming
        ):
            self._upstream_connection.finish_sending()

    def _on_server_eof(self, error: OSError | None) -> None:
        """Handle the end of the server's bytes."""
        self._server_eof = True
        exchange = self._exchange
        if exchange is None:
            # Close an idle client connection too, as the server would without the recorder.
            self._close_now(reset=error is not None)
            return
        if exchange.raw_body is not None:
            self._end_raw(exchange, error)
        elif exchange.is_complete and self._protocol.is_receiving_request and not self._client_eof:
            self._linger()
        elif exchange.is_complete:
            self._finish_exchange(exchange)
        elif error is None and exchange.has_response_head:
            # A body without a length ends with the connection.
            self._read_server(exchange, b"")
        elif exchange.unparsed:
            # The head is incomplete: forward what there is of it.
            self._write_client(exchange.switch_to_raw("incomplete head"))
            self._end_raw(exchange, error)
        else:
            self._truncate("server", why=describe_error(error))
            self._close_now(reset=error is not None)

    def _end_raw(self, exchange: ProxiedExchange, error: OSError | None) -> None:
        exchange.end_raw()
        self._finish_exchange(exchange, reset=error is not None)

    def _finish_exchange(self, exchange: ProxiedExchange, *, reset: bool = False) -> None:
        self._release_exchange(exchange)
        self._close_now(reset=reset)

    def _release_exchange(self, exchange: ProxiedExchange) -> None:
        self._write_queue.enqueue(exchange.record.take_events())
        exchange.record.release()
        self._protocol.exchange = None

    def _truncate(self, closed_by: str, *, why: str) -> None:
        """Record that the current exchange, if any, ended before it was complete."""
        if self._exchange is not None:
            self._exchange.truncate(closed_by, why=why)
            self._release_exchange(self._exchange)

    def _linger(self) -> None:
        """Keep the connection open until a client that is still sending has read its response."""
        if self._exchange is not None:
            self._exchange.truncate_request()
            self._release_exchange(self._exchange)
        self._lingered_bytes = 0
        self._upstream_connection.abort()
        if self._client is not None:
            self._client.finish_sending()
            self._client.resume()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._close_now)

    def _close_now(self, *, reset: bool = False) -> None:
        if self._closed:
            return
        self._closed = True
        self._protocol.stop()
        self._truncate("proxy", why="closed")
        if self._timer is not None:
            self._timer.cancel()
        if self._client is not None:
            if reset:
                self._client.abort(reset=True)
            else:
                self._client.close()
        self._upstream_connection.abort(reset=reset)
        self._on_closed(self)

    # --- responses of the recorder --------------------------------------------------------------

    def _respond_unreachable(self, error: OSError) -> None:
        if self._closed or self._exchange is None:
            return
        self._respond(
            502,
            f"mcptally: no connection to the server: {describe_error(error)}\n",
            describe_error(error),
        )

    def _refuse(self, status: int, why: str) -> None:
        """Answer a request that is not forwarded."""
        self._protocol.refused_exchange(why)
        self._respond(status, f"mcptally: request refused: {why}\n", why)

    def _respond(self, status: int, text: str, why: str) -> None:
        if self._exchange is None:
            return
        self._protocol.resume_parsing()
        out = self._exchange.respond(status, text, why)
        if out is None:
            # The response has begun before the request turned out to be invalid.
            self._truncate("proxy", why=why)
            self._close_now(reset=True)
            return
        self._record()
        self._write_client(out)
        self._linger()
