"""One client connection and the server connection that belongs to it, and what passes between.

Each read is worked off in three steps: understand (http_turn.py), record what became complete,
pass on. What is left here is who reads and writes when, and what follows when a side ends.
"""

import errno
import functools
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec

import h11

from mcptally.record import http_head
from mcptally.record.http_connect import Server
from mcptally.record.http_guard import HEAD_SECONDS, HeadGuard
from mcptally.record.http_loop import Loop, Timer
from mcptally.record.http_scribe import Scribe
from mcptally.record.http_sessions import Headers, Sessions
from mcptally.record.http_turn import Turn
from mcptally.record.http_uplink import Uplink
from mcptally.record.http_wire import Wire
from mcptally.record.kept import Pool

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
        pool: Pool,
        own_names_only: bool,
        gone: "Callable[[Relay], None]",
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._upstream = upstream
        self._sessions = sessions
        self._scribe = scribe
        self._loop = loop
        self._cap = cap
        self._pool = pool
        self._own_names_only = own_names_only
        self._guard = HeadGuard(loop, self._late)
        self.waiting_since = loop.time()
        """When the last exchange ended, or the connection began, on the loop's clock."""
        self._gone = gone
        self._client: Wire | None = None
        self._uplink = Uplink(upstream, loop=loop, end=self, made=self._connected)
        self._down = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._up = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._timer: Timer | None = None
        self._over = False
        self._last = False
        self._lingering = -1
        self._client_eof = False
        self._server_eof = False
        self._ahead = 0
        self._turn: Turn | None = None

    def start(self, client: Wire) -> None:
        """Begin to serve the client."""
        self._client = client
        client.start()

    @property
    def idle(self) -> bool:
        """Whether no exchange is under way."""
        return self._turn is None and self._lingering < 0

    def finish(self, why: str) -> None:
        """End the connection from our side as soon as nobody waits for an answer on it."""
        self._last = True
        if self.idle or (self._turn is not None and self._turn.exchange.method == "GET"):
            self.stop(why)

    def stop(self, why: str) -> None:
        """End the connection from our side, now."""
        self._torn("proxy", why=why)
        self._drop()

    def failed(self, error: Exception) -> None:
        """Give the connection up for a mistake of ours."""
        self._say(f"a connection was given up: {error!r}; please report this")
        self.stop("internal error")

    # --- from the client ------------------------------------------------------------------------

    @_contained
    def received(self, wire: Wire, data: bytes) -> None:
        """Bytes, or the end of them, from either side."""
        if self._over:
            return
        if wire is self._uplink.wire:
            self._from_server(data)
        elif self._lingering >= 0:
            self._lingering += len(data)
            if not data or self._lingering > _LINGER_BYTES:
                self._drop()
        elif not data:
            self._client_ended()
        else:
            self._from_client(data)

    def _from_client(self, data: bytes) -> None:
        if self._down.their_state is h11.IDLE and not self._head_grows(data):
            return
        self._down.receive_data(data)
        if self._down.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._ahead += len(data)
            if self._ahead > _PIPELINED and self._client is not None:
                self._client.pause()
        else:
            self._read_client()

    def _head_grows(self, data: bytes) -> bool:
        """Whether the head of the next request may still become one that is understood."""
        try:
            self._guard.look(data)
        except http_head.RefusedError as refused:
            self._refuse(refused.status, refused.why)
            return False
        return True

    @_contained
    def _late(self) -> None:
        """A request's head did not come in time."""
        if not self._over and self._turn is None and self._lingering < 0:
            self._refuse(408, f"its head took longer than {HEAD_SECONDS:.0f} s")

    def _read_client(self) -> None:
        out: list[bytes] = []
        while True:
            try:
                event = self._down.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint or 400, str(error))
                return
            try:
                if isinstance(event, h11.Request):
                    out.append(self._begin(event))
                elif isinstance(event, h11.Data) and self._turn is not None:
                    out.append(self._turn.request_data(event))
                elif isinstance(event, h11.EndOfMessage) and self._turn is not None:
                    out.append(self._turn.request_end(event))
                    self._ahead = len(self._down.trailing_data[0])
                    break
                else:
                    break
            except http_head.RefusedError as refused:
                self._refuse(refused.status, refused.why)
                return
        if self._turn is None and not self._guard.running and self._down.trailing_data[0]:
            self._guard.incomplete()
        data = b"".join(out)
        self._commit(lambda: self._write_server(data))

    def _begin(self, request: h11.Request) -> bytes:
        self._guard.complete()
        head = http_head.head_of(request)
        extra: dict[str, Any] = {}
        if request.http_version != b"1.1":
            extra["http_version"] = request.http_version.decode()
        turn = self._new_turn(
            method=request.method.decode("latin-1"),
            path=request.target.decode("latin-1"),
            headers=head.text,
            **extra,
        )
        if self._own_names_only:
            http_head.check_host(head)
        return turn.begin(request, head)

    def _new_turn(self, *, method: str, path: str, headers: Headers, **extra: Any) -> Turn:
        exchange = self._sessions.begin(method=method, path=path, headers=headers, **extra)
        self._turn = Turn(
            exchange,
            client=self._down,
            server=self._up,
            upstream=self._upstream,
            cap=self._cap,
            pool=self._pool,
        )
        return self._turn

    def _write_server(self, data: bytes) -> None:
        if data and not self._over:
            self._uplink.write(data)
            if self._uplink.full and self._client is not None:
                self._client.pause()
        self._maybe_cycle()

    @_contained
    def _connected(self, error: OSError | None) -> None:
        if error is not None:
            self._unreachable(error)
        elif self._client_eof:
            self._uplink.finish()
        elif self._client is not None and not self._uplink.full:
            self._client.resume()

    # --- from the server ------------------------------------------------------------------------

    def _from_server(self, data: bytes) -> None:
        if not data:
            self._server_ended(None)
            return
        turn = self._turn
        if turn is None:
            # Nothing was asked: whatever this is, it ends the connection, as it would without us.
            self._drop()
        elif turn.blind is not None:
            turn.blind.feed(data)
            self._write_client(data)
        else:
            if not turn.head_seen:
                turn.unframed += data
            self._up.receive_data(data)
            self._read_server(turn)

    def _read_server(self, turn: Turn) -> None:
        out: list[bytes] = []
        finished = False
        while not finished:
            try:
                event = self._up.next_event()
            except h11.RemoteProtocolError as error:
                self._not_http(turn, error, out)
                return
            if isinstance(event, h11.Data):
                out.append(turn.response_data(event))
            elif isinstance(event, h11.Response):
                out.append(turn.response_head(event))
            elif isinstance(event, h11.InformationalResponse):
                if self._down.our_state is h11.SEND_RESPONSE:
                    out.append(self._down.send(http_head.informational(event)) or b"")
            elif isinstance(event, h11.EndOfMessage):
                out.append(turn.response_end(event))
                finished = True
            else:
                break
        data = b"".join(out)
        self._commit(lambda: self._pass_response(turn, data, finished=finished))

    def _pass_response(self, turn: Turn, data: bytes, *, finished: bool) -> None:
        self._write_client(data)
        if finished:
            turn.answered = True
            turn.exchange.end("server")
            self._scribe.later(turn.exchange.take())
            self._maybe_cycle()

    def _not_http(self, turn: Turn, error: h11.RemoteProtocolError, out: list[bytes]) -> None:
        """The server says something that is no HTTP: the client sees it as it is."""
        if not turn.head_seen:
            data = turn.go_blind(str(error))
            self._commit(lambda: self._write_client(data))
            return
        self._write_client(b"".join(out))
        if not turn.answered:
            self._torn("server", why="closed" if self._server_eof else f"not HTTP: {error}")
        self._drop()

    def _write_client(self, data: bytes) -> None:
        if self._client is None or not data:
            return
        self._client.write(data)
        if self._client.full and self._uplink.wire is not None:
            self._uplink.wire.pause()

    def _commit(self, then: Callable[[], None]) -> None:
        """Record what became complete, then go on: the last thing a callback does."""
        self._scribe.write([] if self._turn is None else self._turn.exchange.take(), then)

    # --- from one exchange to the next ----------------------------------------------------------

    def _maybe_cycle(self) -> None:
        """Go on to the next request once this one and its response are through."""
        turn = self._turn
        if turn is None or not turn.answered or self._over:
            return
        if self._down.their_state is h11.SEND_BODY:
            # Answered before the request was complete: go on sending it, if the server still reads.
            if self._server_eof or self._uplink.broken:
                self._linger()
            return
        turn.exchange.done()
        self._turn = None
        self.waiting_since = self._loop.time()
        if self._up.trailing_data[0]:
            self._last = True  # more than was asked for: nothing on this connection is certain
        states = (
            self._down.our_state,
            self._down.their_state,
            self._up.our_state,
            self._up.their_state,
        )
        if (
            turn.ends_after
            or self._last
            or self._client_eof
            or any(state is not h11.DONE for state in states)
        ):
            self._drop()
            return
        self._down.start_next_cycle()
        self._up.start_next_cycle()
        ahead, self._ahead = self._ahead, 0
        if self._client is not None:
            self._client.resume()
        if ahead and self._head_grows(self._down.trailing_data[0]):
            self._read_client()

    def drained(self, wire: Wire) -> None:
        """One side has taken what waited for it: the other may be read again."""
        other = self._uplink.wire if wire is self._client else self._client
        if other is not None and not self._over and self._ahead <= _PIPELINED:
            other.resume()

    # --- ends -----------------------------------------------------------------------------------

    @_contained
    def lost(self, wire: Wire, error: OSError) -> None:
        """A side cannot be read any more."""
        if self._over:
            return
        if wire is self._uplink.wire:
            self._server_ended(error)
        elif self._turn is not None and self._lingering < 0:
            self._torn("client", why=_why(error))
            self._drop(reset=True)
        else:
            self._drop()

    @_contained
    def unwritable(self, wire: Wire, error: OSError) -> None:
        """A side cannot be written any more."""
        if self._over or wire is self._uplink.wire:
            # What the server still says is worth hearing: reading it will tell its end.
            return
        self._torn("client", why=_why(error))
        self._drop(reset=True)

    def _client_ended(self) -> None:
        """The client will send nothing more; mostly that means that it has gone."""
        self._client_eof = True
        turn = self._turn
        if turn is None:
            self._drop()
            return
        if not turn.answered:
            turn.request_torn()
            turn.exchange.end("client")
        if self._uplink.wire is not None and self._uplink.wire.is_tls:
            self._finish(turn)
            return
        # What the server does now is up to it: without us, too, it would see one side closed.
        self._uplink.finish()
        self._timer = self._loop.call_later(HALF_OPEN_SECONDS, lambda: self.stop("half open"))
        self._scribe.later(turn.exchange.take())

    def _server_ended(self, error: OSError | None) -> None:
        """The server will send nothing more."""
        self._server_eof = True
        turn = self._turn
        if turn is None:
            # An idle connection ends for the client when it ends for us: as it would without us.
            self._drop(reset=error is not None)
            return
        if turn.blind is not None:
            self._end_blindly(turn, error)
        elif turn.answered and self._down.their_state is h11.SEND_BODY and not self._client_eof:
            self._linger()
        elif turn.answered:
            self._finish(turn)
        elif error is None and turn.head_seen:
            # It may have been a body that ends with the connection.
            self._up.receive_data(b"")
            self._read_server(turn)
        elif turn.unframed:
            # A head that never ended: the client is to see what there is of it.
            self._write_client(turn.go_blind("the head never ended"))
            self._end_blindly(turn, error)
        else:
            self._torn("server", why=_why(error))
            self._drop(reset=error is not None)

    def _end_blindly(self, turn: Turn, error: OSError | None) -> None:
        turn.end_blindly()
        self._finish(turn, reset=error is not None)

    def _finish(self, turn: Turn, *, reset: bool = False) -> None:
        self._over_with(turn)
        self._drop(reset=reset)

    def _over_with(self, turn: Turn) -> None:
        self._scribe.later(turn.exchange.take())
        turn.exchange.done()
        self._turn = None

    def _torn(self, closed_by: str, *, why: str) -> None:
        """Record that the exchange ended in the middle, if one was under way."""
        if self._turn is not None:
            self._turn.torn(closed_by, why=why)
            self._over_with(self._turn)

    def _linger(self) -> None:
        """Let a client that is still sending read its answer before the connection goes."""
        if self._turn is not None:
            self._turn.request_torn()
            self._over_with(self._turn)
        self._lingering = 0
        self._uplink.abort()
        if self._client is not None:
            self._client.finish()
            self._client.resume()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._drop)

    def _drop(self, *, reset: bool = False) -> None:
        if self._over:
            return
        self._over = True
        self._guard.stop()
        self._torn("proxy", why="closed")
        if self._timer is not None:
            self._timer.cancel()
        if self._client is not None:
            if reset:
                self._client.abort(reset=True)
            else:
                self._client.close()
        self._uplink.abort(reset=reset)
        self._gone(self)

    # --- answers of our own ---------------------------------------------------------------------

    def _unreachable(self, error: OSError) -> None:
        if self._over or self._turn is None:
            return
        self._answer(502, f"mcptally: no connection to the server: {_why(error)}\n", _why(error))

    def _refuse(self, status: int, why: str) -> None:
        """Answer a request that is not passed on."""
        if self._turn is None:
            # Its head could not be read; the text is not kept, for it may hold credentials.
            self._new_turn(method="", path="", headers=(), why=why)
        self._answer(status, f"mcptally: request refused: {why}\n", why)

    def _answer(self, status: int, text: str, why: str) -> None:
        if self._turn is None:
            return
        out = self._turn.answer(status, text, why)
        if out is None:
            # The answer has begun, and now the request turns out to be broken.
            self._torn("proxy", why=why)
            self._drop(reset=True)
            return
        self._commit(lambda: self._last_words(out))

    def _last_words(self, data: bytes) -> None:
        self._write_client(data)
        self._linger()


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
