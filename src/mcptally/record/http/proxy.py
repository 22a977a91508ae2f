"""One client connection and the server connection that belongs to it, and what passes between.

Each read is worked off in three steps: understand (http_dialogue.py), record what became complete,
pass on. What is left here is who reads and writes when, and what follows when a side ends.
"""

import functools
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec

from mcptally.record.http.error_text import in_words
from mcptally.record.http.event_loop import EventLoop, Timer
from mcptally.record.http.exchange import RelayedExchange
from mcptally.record.http.headers import RefusedError
from mcptally.record.http.protocol import Dialogue, NotHttpError
from mcptally.record.http.recordings import Sessions
from mcptally.record.http.request_limits import HEAD_SECONDS
from mcptally.record.http.socket import Socket
from mcptally.record.http.upstream import Server
from mcptally.record.http.upstream_connection import Uplink
from mcptally.record.http.write_queue import WriteQueue
from mcptally.wire.byte_pool import Pool

P = ParamSpec("P")

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
        scribe: WriteQueue,
        loop: EventLoop,
        cap: int,
        pool: Pool,
        own_names_only: bool,
        gone: "Callable[[Relay], None]",
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._scribe = scribe
        self._loop = loop
        self._dialogue = Dialogue(
            upstream=upstream,
            sessions=sessions,
            loop=loop,
            cap=cap,
            pool=pool,
            own_names_only=own_names_only,
            late=self._late,
        )
        self.waiting_since = loop.time()
        """When the last exchange ended, or the connection began, on the loop's clock."""
        self._gone = gone
        self._upstream = upstream
        self._client: Socket | None = None
        self._uplink = Uplink(upstream, loop=loop, end=self, made=self._connected)
        self._timer: Timer | None = None
        self._over = False
        self._last = False
        self._lingering = -1
        self._client_eof = False
        self._server_eof = False

    def start(self, client: Socket) -> None:
        """Begin to serve the client."""
        self._client = client
        client.start()

    @property
    def _turn(self) -> RelayedExchange | None:
        return self._dialogue.turn

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
    def received(self, wire: Socket, data: bytes) -> None:
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
        self._pass_request(lambda: self._dialogue.client_says(data))

    def _pass_request(self, understood: Callable[[], bytes | None]) -> None:
        try:
            passed = understood()
        except RefusedError as refused:
            self._refuse(refused.status, refused.why)
            return
        if passed is not None:
            self._commit(lambda: self._write_server(passed))
        elif self._dialogue.ahead > _PIPELINED and self._client is not None:
            self._client.pause()

    @_contained
    def _late(self) -> None:
        """A request's head did not come in time."""
        if not self._over and self._turn is None and self._lingering < 0:
            self._refuse(408, f"its head took longer than {HEAD_SECONDS:.0f} s")

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
            if self._turn is not None:
                self._end_uplink(self._turn)
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
            self._read_server(turn, data)

    def _read_server(self, turn: RelayedExchange, data: bytes) -> None:
        try:
            passed, finished = self._dialogue.server_says(turn, data)
        except NotHttpError as error:
            self._not_http(turn, error)
            return
        self._commit(lambda: self._pass_response(turn, passed, finished=finished))

    def _pass_response(self, turn: RelayedExchange, data: bytes, *, finished: bool) -> None:
        self._write_client(data)
        if finished:
            turn.answered = True
            turn.exchange.end("server")
            self._scribe.later(turn.exchange.take())
            self._maybe_cycle()

    def _not_http(self, turn: RelayedExchange, error: NotHttpError) -> None:
        """The server says something that is no HTTP: the client sees it as it is."""
        if not turn.head_seen:
            data = turn.go_blind(str(error))
            self._commit(lambda: self._write_client(data))
            return
        self._write_client(error.passed)
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
        if self._dialogue.asking:
            # Answered before the request was complete: go on sending it, if the server still reads.
            if self._server_eof or self._uplink.broken:
                self._linger()
            return
        turn.exchange.done()
        self._dialogue.turn = None
        self.waiting_since = self._loop.time()
        if self._last or self._client_eof or not self._dialogue.may_go_on(turn):
            self._drop()
            return
        if self._client is not None:
            self._client.resume()
        self._pass_request(self._dialogue.said_ahead)

    def drained(self, wire: Socket) -> None:
        """One side has taken what waited for it: the other may be read again."""
        other = self._uplink.wire if wire is self._client else self._client
        if other is not None and not self._over and self._dialogue.ahead <= _PIPELINED:
            other.resume()

    # --- ends -----------------------------------------------------------------------------------

    @_contained
    def lost(self, wire: Socket, error: OSError) -> None:
        """A side cannot be read any more."""
        if self._over:
            return
        if wire is self._uplink.wire:
            self._server_ended(error)
        elif self._turn is not None and self._lingering < 0:
            self._torn("client", why=in_words(error))
            self._drop(reset=True)
        else:
            self._drop()

    @_contained
    def unwritable(self, wire: Socket, error: OSError) -> None:
        """A side cannot be written any more."""
        if self._over or wire is self._uplink.wire:
            # What the server still says is worth hearing: reading it will tell its end.
            return
        self._torn("client", why=in_words(error))
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
        self._end_uplink(turn)
        self._timer = self._loop.call_later(HALF_OPEN_SECONDS, lambda: self.stop("half open"))
        self._scribe.later(turn.exchange.take())

    def _end_uplink(self, turn: RelayedExchange) -> None:
        """Tell the server that the client will send nothing more, unless its answer would be lost.

        Over TCP it sees what it would see without us. Over TLS, many servers take the end of one
        direction as that of both, and answer no more: it is told only where it would wait for
        more, of a request or to send in a stream.
        """
        if not self._upstream.is_tls or self._dialogue.asking or turn.is_streaming:
            self._uplink.finish()

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
        elif turn.answered and self._dialogue.asking and not self._client_eof:
            self._linger()
        elif turn.answered:
            self._finish(turn)
        elif error is None and turn.head_seen:
            # It may have been a body that ends with the connection.
            self._read_server(turn, b"")
        elif turn.unframed:
            # A head that never ended: the client is to see what there is of it.
            self._write_client(turn.go_blind("the head never ended"))
            self._end_blindly(turn, error)
        else:
            self._torn("server", why=in_words(error))
            self._drop(reset=error is not None)

    def _end_blindly(self, turn: RelayedExchange, error: OSError | None) -> None:
        turn.end_blindly()
        self._finish(turn, reset=error is not None)

    def _finish(self, turn: RelayedExchange, *, reset: bool = False) -> None:
        self._over_with(turn)
        self._drop(reset=reset)

    def _over_with(self, turn: RelayedExchange) -> None:
        self._scribe.later(turn.exchange.take())
        turn.exchange.done()
        self._dialogue.turn = None

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
        self._dialogue.stop()
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
        self._answer(
            502, f"mcptally: no connection to the server: {in_words(error)}\n", in_words(error)
        )

    def _refuse(self, status: int, why: str) -> None:
        """Answer a request that is not passed on."""
        self._dialogue.refused(why)
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
