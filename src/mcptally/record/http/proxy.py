"""Forwards bytes between one client connection and its server connection.

Each read is handled in three steps: parse (protocol.py), record complete items (write_queue.py),
forward. This module decides when each side is read or written, and what happens when a side closes.
The table `_HANDLERS` at the end of the module defines these actions.
"""

import contextlib
import functools
import socket
from asyncio import Task, TimerHandle
from collections.abc import Callable
from typing import ClassVar, Concatenate, Final, NamedTuple, ParamSpec

from mcptally.record.http.error_text import describe_error
from mcptally.record.http.exchange import ProxiedExchange, State
from mcptally.record.http.headers import RefusedError
from mcptally.record.http.protocol import HttpProtocol, NotHttpError
from mcptally.record.http.request_limits import HEAD_SECONDS
from mcptally.record.http.shared import Shared
from mcptally.record.http.socket import Socket
from mcptally.record.http.tls import TlsStream
from mcptally.transcript.format import NOT_CONNECTED, REFUSED

P = ParamSpec("P")

_MAX_PIPELINED_BYTES: Final = 256 * 1024
"""Maximum bytes a client may pipeline while it waits for the current response."""

LINGER_SECONDS: Final = 2.0
"""Time for a client to read an early response while it is still sending its request."""

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


class _Handlers(NamedTuple):
    """A connection's handlers for the events in one state."""

    client_data: Callable[["ProxyConnection", bytes], None]
    client_end: Callable[["ProxyConnection"], None]
    client_error: Callable[["ProxyConnection", OSError], None]
    server_data: Callable[["ProxyConnection", bytes], None]
    server_end: Callable[["ProxyConnection", OSError | None], None]


class ProxyConnection:
    """A client's connection and the corresponding connection to the server."""

    def __init__(self, shared: Shared, on_closed: "Callable[[ProxyConnection], None]") -> None:
        self._shared = shared
        self._protocol = HttpProtocol(shared, self._on_head_timeout)
        self.idle_since = shared.loop.time()
        """Loop time at which the last exchange ended or the connection began."""
        self._on_closed = on_closed
        self._client = Socket(self, loop=shared.loop)
        self._server = Socket(self, loop=shared.loop)
        self._connecting: Task[None] | None = None
        """Connects to the server, from the first bytes for it on."""
        self._timer: TimerHandle | None = None
        self._final_state: State | None = None
        """LINGERING or CLOSED at the end of the connection; before that None, and the exchange
        determines the state."""
        self._is_stopping = False
        """Whether the connection closes after the current response."""
        self._lingered_bytes = 0

    def start(self, client: socket.socket) -> None:
        """Start reading from the client."""
        self._client.start(client)

    @property
    def _current(self) -> ProxiedExchange:
        """The current exchange. The connection must be in a state that has an exchange."""
        if self._protocol.exchange is None:
            raise LookupError(f"no exchange in state {self._state.name}")
        return self._protocol.exchange

    @property
    def _exchange(self) -> ProxiedExchange | None:
        return self._protocol.exchange

    @property
    def _state(self) -> State:
        if self._final_state is not None:
            return self._final_state
        exchange = self._protocol.exchange
        return State.IDLE if exchange is None else exchange.state

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is in progress."""
        return self._state is State.IDLE

    def close_when_idle(self, why: str) -> None:
        """Close the connection after the current response; streams opened by GET close at once."""
        self._is_stopping = True
        if self.is_idle or (self._exchange is not None and self._exchange.record.method == "GET"):
            self.close(why)

    def close(self, why: str) -> None:
        """Close the connection at once."""
        self._truncate("proxy", why=why)
        self._close_now()

    def fail(self, error: Exception) -> None:
        """Log an internal error and close the connection."""
        self._shared.log(
            f"internal error, one connection was closed: {error!r}; please report this"
        )
        self.close("internal error")

    # --- from the client ------------------------------------------------------------------------

    def on_data(self, sock: Socket, data: bytes) -> None:
        """Handle bytes from the client or the server; empty `data` means end of stream."""
        try:
            self._on_data(sock, data)
        except Exception as error:  # noqa: BLE001 - see `_close_on_exception`, which costs more
            self.fail(error)

    def _on_data(self, sock: Socket, data: bytes) -> None:
        handlers = self._HANDLERS[self._state]
        if sock is self._server:
            if data:
                handlers.server_data(self, data)
            else:
                handlers.server_end(self, None)
        elif data:
            handlers.client_data(self, data)
        else:
            handlers.client_end(self)

    def _from_client(self, data: bytes | None) -> None:
        """Parse `data` (None stands for pipelined bytes) and forward the request to the server."""
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
        elif self._protocol.pipelined_bytes > _MAX_PIPELINED_BYTES:
            self._client.pause()

    @_close_on_exception
    def _on_head_timeout(self) -> None:
        """Respond with status 408, because the request head did not arrive in time."""
        if self._state is State.IDLE:
            self._refuse(408, f"its head took longer than {HEAD_SECONDS:.0f} s")

    def _write_server(self, data: bytes) -> None:
        if data and self._state is not State.CLOSED:
            self._server.write(data)
            if self._connecting is None:
                self._connecting = self._shared.loop.create_task(self._connect())
            if self._server.is_full:
                self._client.pause()
        self._start_next_request()

    async def _connect(self) -> None:
        try:
            self._on_connected(*await self._shared.upstream.connect(self._shared.loop))
        except OSError as error:
            self._respond_unreachable(error)
        except Exception as error:  # noqa: BLE001 - see `_close_on_exception`
            self.fail(error)

    def _on_connected(self, sock: socket.socket, tls: TlsStream | None) -> None:
        self._server.start(sock, tls)
        if self._client.ended:
            if self._exchange is not None:
                self._shut_down_upstream(self._exchange)
        elif not self._server.is_full:
            self._client.resume()

    # --- from the server ------------------------------------------------------------------------

    def _forward_raw(self, data: bytes) -> None:
        """Forward a part of a non-HTTP response."""
        self._current.record_response_data(data)
        self._write_client(data)

    def _from_server(self, data: bytes) -> None:
        """Forward a part of a response; empty `data` means its end."""
        exchange = self._current
        try:
            forwarded, finished = self._protocol.receive_from_server(exchange, data)
        except NotHttpError as error:
            self._forward_non_http(exchange, error)
            return
        if finished:
            exchange.state = State.ANSWERED
            exchange.record.end("server")
        self._record()
        self._write_client(forwarded)
        if finished:
            self._start_next_request()

    def _forward_non_http(self, exchange: ProxiedExchange, error: NotHttpError) -> None:
        """Forward non-HTTP bytes from the server to the client unchanged."""
        if exchange.state is State.REQUESTED:
            data = exchange.switch_to_raw(str(error))
            self._record()
            self._write_client(data)
            return
        self._write_client(error.forwarded)
        if exchange.state is not State.ANSWERED:
            self._truncate("server", why="closed" if self._server.ended else f"not HTTP: {error}")
        self._close_now()

    def _write_client(self, data: bytes) -> None:
        self._client.write(data)
        if self._client.is_full:
            self._server.pause()

    def _record(self) -> None:
        """Record all events that are complete."""
        self._shared.write_queue.write(
            [] if self._exchange is None else self._exchange.record.take_events()
        )

    # --- the next exchange ----------------------------------------------------------------------

    def _start_next_request(self) -> None:
        """Start the next request if the current request and its response are complete."""
        exchange = self._exchange
        if exchange is None or self._state is not State.ANSWERED:
            return
        if self._protocol.is_receiving_request:
            # The response came before the end of the request. Keep sending the request while the
            # server reads it.
            if self._server.ended or self._server.is_broken:
                self._linger()
            return
        exchange.record.release()
        self._protocol.exchange = None
        self.idle_since = self._shared.loop.time()
        if self._is_stopping or self._client.ended or not self._protocol.start_next_cycle(exchange):
            self._close_now()
            return
        self._client.resume()
        if self._protocol.pipelined_bytes:
            self._from_client(None)

    def on_drained(self, sock: Socket) -> None:
        """Resume reading one side after the send buffer of the other side has drained."""
        if self._state is State.CLOSED:
            return
        if sock is self._client:
            self._server.resume()
        elif self._protocol.pipelined_bytes <= _MAX_PIPELINED_BYTES:
            self._client.resume()

    # --- ends -----------------------------------------------------------------------------------

    @_close_on_exception
    def on_read_error(self, sock: Socket, error: OSError) -> None:
        """Handle a read error on either side."""
        handlers = self._HANDLERS[self._state]
        if sock is self._server:
            handlers.server_end(self, error)
        else:
            handlers.client_error(self, error)

    def _on_client_error(self, error: OSError) -> None:
        self._truncate("client", why=describe_error(error))
        self._close_now(reset=True)

    @_close_on_exception
    def on_write_error(self, sock: Socket, error: OSError) -> None:
        """Handle a write error on either side."""
        # Keep reading from the server: it may have sent a response, and only a read reports its
        # end.
        if self._state is not State.CLOSED and sock is not self._server:
            self._on_client_error(error)

    def _on_client_end(self) -> None:
        """Handle end of file from the client, which usually means that it has disconnected."""
        exchange = self._current
        if exchange.state is not State.ANSWERED:
            exchange.truncate_request()
            exchange.record.end("client")
        self._shut_down_upstream(exchange)
        self._timer = self._shared.loop.call_later(
            HALF_OPEN_SECONDS, lambda: self.close("half open")
        )
        self._shared.write_queue.enqueue(exchange.record.take_events())

    def _shut_down_upstream(self, exchange: ProxiedExchange) -> None:
        """Half-close the connection to the server, unless the response would then be lost.

        Over TCP, the server sees the same half-close as without the recorder. Over TLS, many
        servers treat a half-close as the end of the connection and send no response; the sending
        side is therefore closed only if the request is incomplete or the response is streaming.
        """
        if (
            not self._shared.upstream.is_tls
            or self._protocol.is_receiving_request
            or exchange.is_streaming
        ):
            self._server.finish_sending()

    def _end_idle(self, error: OSError | None) -> None:
        """Close the idle client connection after the server has closed its connection."""
        self._close_now(reset=error is not None)

    def _end_without_head(self, error: OSError | None) -> None:
        exchange = self._current
        if exchange.unparsed:
            # The response head is incomplete. Forward the bytes received so far.
            self._write_client(exchange.switch_to_raw("incomplete head"))
            self._end_raw(error)
        else:
            self._end_early(error)

    def _end_body(self, error: OSError | None) -> None:
        if error is None:
            self._from_server(b"")  # a body without a length ends when the connection ends
        else:
            self._end_early(error)

    def _end_answered(self, _error: OSError | None) -> None:
        if self._protocol.is_receiving_request and not self._client.ended:
            self._linger()
        else:
            self._finish_exchange()

    def _end_early(self, error: OSError | None) -> None:
        self._truncate("server", why=describe_error(error))
        self._close_now(reset=error is not None)

    def _end_raw(self, error: OSError | None) -> None:
        self._current.end_raw()
        self._finish_exchange(reset=error is not None)

    def _finish_exchange(self, *, reset: bool = False) -> None:
        self._release_exchange(self._current)
        self._close_now(reset=reset)

    def _release_exchange(self, exchange: ProxiedExchange) -> None:
        self._shared.write_queue.enqueue(exchange.record.take_events())
        exchange.record.release()
        self._protocol.exchange = None

    def _truncate(self, closed_by: str, *, why: str) -> None:
        """Record that the current exchange, if any, ended prematurely."""
        if self._exchange is not None:
            self._exchange.truncate(closed_by, why=why)
            self._release_exchange(self._exchange)

    def _linger(self) -> None:
        """Keep the connection open until a client that is still sending has read its response."""
        self._release_received()
        self._final_state = State.LINGERING
        self._abort_server()
        self._client.finish_sending()
        self._client.resume()
        self._timer = self._shared.loop.call_later(LINGER_SECONDS, self._close_now)

    def _discard(self, data: bytes) -> None:
        """Only record the client's data. It is read so that the client can read its response."""
        self._lingered_bytes += len(data)
        if self._lingered_bytes > _MAX_LINGER_BYTES:
            self._close_now()
        elif self._exchange is not None:
            with contextlib.suppress(RefusedError):
                self._protocol.receive_from_client(data)
            self._release_received()

    def _release_received(self) -> None:
        """Release the current exchange unless a part of its request is still expected."""
        if self._exchange is not None and not self._protocol.is_receiving_request:
            self._exchange.truncate_request()
            self._release_exchange(self._exchange)

    def _ignore(self, _event: object = None) -> None:
        """Do nothing."""

    def _close_now(self, _event: object = None, *, reset: bool = False) -> None:
        if self._final_state is State.CLOSED:
            return
        self._final_state = State.CLOSED
        self._protocol.stop()
        self._truncate("proxy", why="closed")
        if self._timer is not None:
            self._timer.cancel()
        if reset:
            self._client.abort(reset=True)
        else:
            self._client.close()
        self._abort_server(reset=reset)
        self._on_closed(self)

    def _abort_server(self, *, reset: bool = False) -> None:
        """Close the connection to the server, or cancel the attempt to connect."""
        if self._connecting is not None:
            self._connecting.cancel()
        self._server.abort(reset=reset)

    # --- responses of the recorder --------------------------------------------------------------

    @_close_on_exception
    def _respond_unreachable(self, error: OSError) -> None:
        self._respond(
            502,
            f"{NOT_CONNECTED}: {describe_error(error)}\n",
            describe_error(error),
        )

    def _refuse(self, status: int, why: str) -> None:
        """Respond to a request that is not forwarded."""
        self._protocol.refused_exchange(why)
        self._respond(status, f"{REFUSED}: {why}\n", why)

    def _respond(self, status: int, text: str, why: str) -> None:
        if self._exchange is None:
            return
        self._protocol.resume_parsing()
        out = self._exchange.respond(status, text, why)
        if out is None:
            # The response had already begun when the request turned out to be invalid.
            self._truncate("proxy", why=why)
            self._close_now(reset=True)
            return
        self._record()
        self._write_client(out)
        self._linger()

    # --- the table ------------------------------------------------------------------------------

    _CLIENT: Final = (_from_client, _on_client_end, _on_client_error)
    """The handlers for the client's data, end and error, which are the same in each state of an
    exchange."""

    _HANDLERS: ClassVar[dict[State, _Handlers]] = {
        # Columns: client data, end and error; server data and end. If a server sends data without a
        # request, its connection is closed, as a client would do.
        State.IDLE: _Handlers(_from_client, _close_now, _close_now, _close_now, _end_idle),
        State.REQUESTED: _Handlers(*_CLIENT, _from_server, _end_without_head),
        State.RESPONDING: _Handlers(*_CLIENT, _from_server, _end_body),
        State.RAW: _Handlers(*_CLIENT, _forward_raw, _end_raw),
        State.ANSWERED: _Handlers(*_CLIENT, _from_server, _end_answered),
        State.LINGERING: _Handlers(_discard, _close_now, _close_now, _ignore, _ignore),
        State.CLOSED: _Handlers(_ignore, _ignore, _ignore, _ignore, _ignore),
    }
