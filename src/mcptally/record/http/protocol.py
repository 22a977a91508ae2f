"""HTTP of one client and its server, without a socket: bytes of one in, bytes for the other out.

What the bytes of a request or response become is its turn's (http_turn.py); here is which turn
they belong to, and when the next one may begin.
"""

from collections.abc import Callable
from typing import Any, Final

import h11

from mcptally.record.http import headers as http_headers
from mcptally.record.http.event_loop import EventLoop
from mcptally.record.http.exchange import RelayedExchange
from mcptally.record.http.recordings import Headers, Sessions
from mcptally.record.http.request_limits import HeadGuard
from mcptally.record.http.upstream import Server
from mcptally.wire.byte_pool import Pool

MAX_HEAD: Final = 256 * 1024
"""Bytes of the longest head understood; servers' own limits are at 16 to 64 KB."""


class NotHttpError(Exception):
    """What the server says cannot be understood; `passed` is what came before."""

    def __init__(self, why: str, passed: bytes) -> None:
        super().__init__(why)
        self.passed = passed


class Dialogue:
    """Requests and responses of one client connection, one after the other."""

    def __init__(
        self,
        *,
        upstream: Server,
        sessions: Sessions,
        loop: EventLoop,
        cap: int,
        pool: Pool,
        own_names_only: bool,
        late: Callable[[], None],
    ) -> None:
        self._upstream = upstream
        self._sessions = sessions
        self._cap = cap
        self._pool = pool
        self._own_names_only = own_names_only
        self._guard = HeadGuard(loop, late)
        self._down = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._up = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self.turn: RelayedExchange | None = None
        """The request that is under way."""
        self.ahead = 0
        """Bytes the client has sent beyond the request that is under way."""

    def stop(self) -> None:
        """The connection is over: no head is waited for."""
        self._guard.stop()

    # --- the client's side ----------------------------------------------------------------------

    @property
    def asking(self) -> bool:
        """Whether the request under way is still being sent."""
        return self._down.their_state is h11.SEND_BODY

    def client_says(self, data: bytes) -> bytes | None:
        """What the server gets of the client's bytes; None while it has a request to answer first.

        Raises:
            RefusedError: they are not to be passed on.
        """
        if self._down.their_state is h11.IDLE:
            self._guard.look(data)
        self._down.receive_data(data)
        if self._down.their_state in (h11.DONE, h11.MUST_CLOSE):
            self.ahead += len(data)
            return None
        return self._understood()

    def said_ahead(self) -> bytes | None:
        """What the server gets of the next request, so far as it was sent ahead; or None.

        Raises:
            RefusedError: it is not to be passed on.
        """
        if not self.ahead:
            return None
        self.ahead = 0
        self._guard.look(self._down.trailing_data[0])
        return self._understood()

    def _understood(self) -> bytes:
        out: list[bytes] = []
        while True:
            try:
                event = self._down.next_event()
            except h11.RemoteProtocolError as error:
                raise http_headers.RefusedError(
                    error.error_status_hint or 400, str(error)
                ) from error
            if isinstance(event, h11.Request):
                out.append(self._begin(event))
            elif isinstance(event, h11.Data) and self.turn is not None:
                out.append(self.turn.request_data(event))
            elif isinstance(event, h11.EndOfMessage) and self.turn is not None:
                out.append(self.turn.request_end(event))
                self.ahead = len(self._down.trailing_data[0])
                break
            else:
                break
        if self.turn is None and not self._guard.running and self._down.trailing_data[0]:
            self._guard.incomplete()
        return b"".join(out)

    def _begin(self, request: h11.Request) -> bytes:
        self._guard.complete()
        head = http_headers.head_of(request)
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
            http_headers.check_host(head)
        return turn.begin(request, head)

    def refused(self, why: str) -> RelayedExchange:
        """The turn of a request that is answered here."""
        # Where its head could not be read, the text is not kept: it may hold credentials.
        return self.turn or self._new_turn(method="", path="", headers=(), why=why)

    def _new_turn(
        self, *, method: str, path: str, headers: Headers, **extra: Any
    ) -> RelayedExchange:
        exchange = self._sessions.begin(method=method, path=path, headers=headers, **extra)
        self.turn = RelayedExchange(
            exchange,
            client=self._down,
            server=self._up,
            upstream=self._upstream,
            cap=self._cap,
            pool=self._pool,
        )
        return self.turn

    # --- the server's side ----------------------------------------------------------------------

    def server_says(self, turn: RelayedExchange, data: bytes) -> tuple[bytes, bool]:
        """What the client gets of the server's bytes (none: its end), and whether it is all.

        Raises:
            NotHttpError: they are no HTTP.
        """
        if not turn.head_seen:
            turn.unframed += data
        self._up.receive_data(data)
        out: list[bytes] = []
        while True:
            try:
                event = self._up.next_event()
            except h11.RemoteProtocolError as error:
                raise NotHttpError(str(error), b"".join(out)) from error
            if isinstance(event, h11.Data):
                out.append(turn.response_data(event))
            elif isinstance(event, h11.Response):
                out.append(turn.response_head(event))
            elif isinstance(event, h11.InformationalResponse):
                if self._down.our_state is h11.SEND_RESPONSE:
                    out.append(self._down.send(http_headers.informational(event)) or b"")
            elif isinstance(event, h11.EndOfMessage):
                out.append(turn.response_end(event))
                return b"".join(out), True
            else:
                return b"".join(out), False

    # --- from one turn to the next --------------------------------------------------------------

    def may_go_on(self, turn: RelayedExchange) -> bool:
        """Whether both connections are ready for another request after this one."""
        # More than was asked for: nothing on this connection is certain.
        said_too_much = bool(self._up.trailing_data[0])
        states = (
            self._down.our_state,
            self._down.their_state,
            self._up.our_state,
            self._up.their_state,
        )
        if turn.ends_after or said_too_much or any(state is not h11.DONE for state in states):
            return False
        self._down.start_next_cycle()
        self._up.start_next_cycle()
        return True
