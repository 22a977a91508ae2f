"""Which recording an HTTP exchange belongs to, and what is written of it.

The rules, in full in docs/explanation/http-recording.md: a session that an `initialize` opened
with an `Mcp-Session-Id` has a recording of its own, so has every legacy SSE stream, and all else
goes to the run's shared recording. The request that opens a session is recorded before anybody
knows what it opens: it begins a recording that becomes the session's.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec

from mcptally.record.http.body import Seen, is_event_stream
from mcptally.record.writer.recording import Archive, Recording
from mcptally.transcript.format import Dir, Transport
from mcptally.wire.framing import Piece

MAX_OPEN: Final = 512
"""Session recordings open at once; beyond it the longest idle one is closed."""

MAX_KNOWN: Final = 50_000
"""Session ids remembered after their recording was closed."""

_UNDECIDED: Final = 64 * 1024
"""A longer first request is no `initialize`."""

_SESSION_HEADER: Final = "mcp-session-id"


Headers = tuple[tuple[str, str], ...]
"""Names in lower case, values as text."""


class Hide(Protocol):
    """What of a head is recorded; mcptally.redaction.policy has the real one."""

    def headers(self, headers: Headers) -> dict[str, str]:
        """The allowed headers, session ids hashed."""

    def path(self, path: str) -> str:
        """A path and query with session ids hashed."""


class Log:
    """One recording as the event loop sees it; its file begins with its first event."""

    def __init__(self, recording: Recording, *, used: float) -> None:
        self._recording = recording
        self._gave_up = False
        self.exchanges = 0
        """Exchanges that have not ended."""
        self.used = used
        """When the last one ended, on the loop's clock."""
        self.ends: str | None = None
        """Why it is to be closed as soon as no exchange needs it."""

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        """Run one method of the recording; may wait for the disk."""
        if self._gave_up:
            self._gave_up = self._recording.stalled = False
        getattr(self._recording, name)(**arguments)

    def give_up(self, name: str, arguments: dict[str, Any]) -> None:
        """Have an event counted as lost, because the disk holds the thread that writes."""
        # A recording that is marked so counts what it is told, and touches no file.
        self._gave_up = self._recording.stalled = True
        getattr(self._recording, name)(**arguments)


Call = tuple[Log, str, dict[str, Any]]
"""A method of a recording, and its arguments, for the scribe to run."""


class _Envelope(msgspec.Struct):
    method: Any = None
    result: Any = None


_envelope: Final = msgspec.json.Decoder(_Envelope).decode


def _is_initialize(piece: Piece) -> bool:
    return (
        isinstance(piece, bytes) and b"initialize" in piece and _read(piece).method == "initialize"
    )


def _read(piece: Piece) -> _Envelope:
    try:
        return _envelope(piece) if isinstance(piece, bytes) else _Envelope()
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _Envelope()


class Exchange:
    """One request and its response; what is to be written of them gathers for `take`."""

    def __init__(
        self,
        sessions: "Sessions",
        *,
        scope: str,
        method: str,
        path: str,
        headers: Headers,
        extra: dict[str, Any],
    ) -> None:
        self._sessions = sessions
        self.scope = scope
        self.method = method
        self.path = path
        self.session = _first(headers, _SESSION_HEADER)
        """The session id that the request names."""
        self.log: Log | None = None
        """The recording it belongs to; None until that is known."""
        self.opening = False
        """Its `initialize` may open a session."""
        self.legacy = False
        """Its response is a legacy SSE stream."""
        self.status = 0
        """Of the response; 0 until it has come, or where it is no HTTP."""
        self.answered_session: str | None = None
        """The session id that the response's head names."""
        self.ended = False
        """Its `end` has been noted."""
        self._size = 0
        self._calls: list[tuple[str, dict[str, Any]]] = []
        hide = sessions.hide
        self._add(
            "http",
            dir="c2s",
            phase="request",
            method=method,
            path=hide.path(path),
            headers=hide.headers(headers),
            **extra,
        )
        sessions.place(self, headers)

    def take(self) -> list[Call]:
        """What has to be written now; nothing while it is not known where."""
        if self.log is None or not self._calls:
            return []
        log, calls, self._calls = self.log, self._calls, []
        return [(log, name, arguments) for name, arguments in calls]

    def request_bytes(self, size: int, seen: Sequence[Seen]) -> None:
        """Body bytes of the request went by."""
        self._size += size
        if self.log is None:
            if any(_is_initialize(s.piece) for s in seen):
                self._sessions.open_session(self)
            elif seen or self._size > _UNDECIDED:
                self._sessions.share(self)
        self._frames("c2s", seen)

    def request_over(self) -> None:
        """The request is complete."""
        if self.log is None and self.method != "GET":
            self._sessions.share(self)

    def response_head(self, status: int | None, headers: Headers, **extra: Any) -> None:
        """The response begins."""
        self.status = status or 0
        self.answered_session = _first(headers, _SESSION_HEADER)
        self._sessions.answered(self, _first(headers, "content-type"))
        self._add(
            "http",
            dir="s2c",
            phase="response",
            status=status,
            headers=self._sessions.hide.headers(headers),
            **extra,
        )

    def response_seen(
        self, seen: Sequence[Seen], *, rewrite: Callable[[bytes], bytes | None] | None = None
    ) -> None:
        """Something in the response is complete."""
        for one in seen:
            found = one
            if self.opening and _read(one.piece).result is not None:
                self._sessions.opened(self)
            if self.legacy and one.fields.get("sse_event") == "endpoint":
                found = self._endpoint(one, rewrite)
            self._frames("s2c", [found])

    def end(self, closed_by: str, **why: Any) -> None:
        """The exchange is over; only the first call says who ended it."""
        if self.ended:
            return
        self.ended = True
        if self.log is None:
            self._sessions.share(self)
        self._add("http", dir="s2c", phase="end", closed_by=closed_by, **why)

    def done(self) -> None:
        """Nothing more will be written of it."""
        self._sessions.done(self)

    def _endpoint(self, seen: Seen, rewrite: Callable[[bytes], bytes | None] | None) -> Seen:
        url = seen.piece if isinstance(seen.piece, bytes) else b""
        text = url.decode(errors="replace")
        self._sessions.legacy_endpoint(self, text)
        hide = self._sessions.hide
        fields = dict(seen.fields)
        if rewrite is not None and (new := rewrite(url)):
            fields["rewritten"] = hide.path(new.decode(errors="replace"))
        return Seen(hide.path(text).encode(), fields, len(url))

    def _frames(self, way: Dir, seen: Iterable[Seen]) -> None:
        for piece, fields, wire_bytes in seen:
            self._calls.append(
                (
                    "frame",
                    {
                        "piece": piece,
                        "dir": way,
                        "scope": self.scope,
                        "wire_bytes": wire_bytes,
                        **fields,
                    },
                )
            )

    def _add(self, name: str, **arguments: Any) -> None:
        self._calls.append((name, {"scope": self.scope, **arguments}))


def _first(headers: Headers, name: str) -> str | None:
    for found, text in headers:
        if found == name:
            return text
    return None


class Sessions:
    """All recordings of one run, and the exchanges' way to them."""

    def __init__(
        self,
        archive: Archive,
        *,
        server: str | None,
        url: str,
        hide: Hide,
        write_later: Callable[[Sequence[Call]], None],
        clock: Callable[[], float],
        max_open: int = MAX_OPEN,
    ) -> None:
        self.hide = hide
        self._archive = archive
        self._server = server
        self._url = url
        self._later = write_later
        self._clock = clock
        self._max_open = max_open
        self._scopes = itertools.count(1)
        self._shared: Log | None = None
        self._spare: Log | None = None
        self._stateless = False
        # Session id → its recording; None once that was closed for being idle.
        self._known: OrderedDict[str, Log | None] = OrderedDict()
        self._legacy: dict[str, Log] = {}
        self._streamable: set[str] = set()
        self._logs: dict[Log, None] = {}

    def begin(
        self,
        *,
        method: str,
        path: str,
        headers: Headers,
        **extra: Any,
    ) -> Exchange:
        """A request has come; `headers` have lower-case names."""
        scope = f"x{next(self._scopes)}"
        return Exchange(self, scope=scope, method=method, path=path, headers=headers, extra=extra)

    # --- where an exchange goes -----------------------------------------------------------------

    def place(self, exchange: Exchange, headers: Headers) -> None:
        """Find the recording by what the request's head says, if that is enough."""
        if exchange.session is not None and exchange.session in self._known:
            log = self._known[exchange.session]
            if log is None:
                log = self._known[exchange.session] = self._begin("streamable_http")
            self._known.move_to_end(exchange.session)
            self._into(exchange, log)
        elif exchange.method == "POST":
            if (legacy := self._legacy.get(exchange.path)) is not None:
                self._into(exchange, legacy)
            # Else its body has to be seen: it may be an `initialize`.
        elif not (
            exchange.method == "GET"
            and exchange.session is None
            and "text/event-stream" in (_first(headers, "accept") or "")
            and not any(_first(headers, n) for n in ("mcp-protocol-version", "last-event-id"))
            and _without_query(exchange.path) not in self._streamable
        ):
            self.share(exchange)
        # Else its response has to be seen: it may be a legacy stream.

    def share(self, exchange: Exchange) -> None:
        """The exchange belongs to no session."""
        if self._shared is None:
            self._shared = self._begin("streamable_http")
        self._into(exchange, self._shared)

    def open_session(self, exchange: Exchange) -> None:
        """The exchange asks for a session: it begins a recording."""
        if self._stateless:
            self.share(exchange)
            return
        log, self._spare = self._spare or self._begin("streamable_http"), None
        exchange.opening = True
        self._into(exchange, log)

    def opened(self, exchange: Exchange) -> None:
        """The `initialize` has succeeded: its recording is the session's, or the shared one."""
        log = exchange.log
        if log is None or not 200 <= exchange.status < 300:
            return
        exchange.opening = False
        if (session := exchange.answered_session) is not None:
            before, self._known[session] = self._known.get(session), log
            self._known.move_to_end(session)
            if before is not None and before is not log:
                self._retire(before, "replaced")
            while len(self._known) > MAX_KNOWN:
                _, old = self._known.popitem(last=False)
                if old is not None:
                    self._retire(old, "idle")
            return
        # The server keeps no sessions: what follows this `initialize` belongs with it.
        self._stateless = True
        before, self._shared = self._shared, log
        if before is not None and before is not log:
            self._retire(before, "continued")

    def answered(self, exchange: Exchange, content_type: str | None) -> None:
        """The response's head tells what the request's did not."""
        good = 200 <= exchange.status < 300
        if exchange.log is None:
            if exchange.method == "GET" and good and is_event_stream(content_type):
                exchange.legacy = True
                self._into(exchange, self._begin("http_sse"))
            else:
                self.share(exchange)
        if not good:
            return
        if exchange.method == "POST" and exchange.path not in self._legacy:
            if len(self._streamable) < 1000:
                self._streamable.add(_without_query(exchange.path))
        elif exchange.method == "DELETE" and exchange.session is not None:
            log = self._known.pop(exchange.session, None)
            if log is not None:
                self._retire(log, "session_deleted")

    def legacy_endpoint(self, exchange: Exchange, url: str) -> None:
        """A legacy stream says where its client will post."""
        if exchange.log is not None:
            at = urlsplit(urljoin(exchange.path, url))
            self._legacy[f"{at.path}?{at.query}" if at.query else at.path] = exchange.log

    def done(self, exchange: Exchange) -> None:
        """No more events of this exchange will come."""
        log = exchange.log
        if log is None:
            return
        log.exchanges -= 1
        log.used = self._clock()
        if exchange.legacy:
            self._legacy = {path: at for path, at in self._legacy.items() if at is not log}
            log.ends = log.ends or "stream_ended"
        if exchange.opening and log.ends is None and log.exchanges == 0:
            # Attempts that open nothing share one recording until one succeeds.
            if self._spare is None:
                self._spare = log
            else:
                log.ends = "no_session"
        self._close_if_over(log)

    # --- recordings -----------------------------------------------------------------------------

    def close_idle(self, seconds: float) -> None:
        """Close the session recordings that have been idle for so long."""
        before = self._clock() - seconds
        for log in [log for log in self._logs if log.exchanges == 0 and log.used < before]:
            self._rest(log)

    def close_all(self, reason: str) -> None:
        """Close every recording, with what is still going on in it."""
        for log in list(self._logs):
            self._close(log, reason)

    def _begin(self, transport: Transport) -> Log:
        if len(self._logs) >= self._max_open:
            idle = [log for log in self._logs if log.exchanges == 0 and self._may_rest(log)]
            if idle:
                self._rest(min(idle, key=lambda log: log.used))
        log = Log(
            self._archive.prepare(transport=transport, server=self._server, url=self._url),
            used=self._clock(),
        )
        self._logs[log] = None
        return log

    def _into(self, exchange: Exchange, log: Log) -> None:
        exchange.log = log
        log.exchanges += 1

    def _may_rest(self, log: Log) -> bool:
        return log is not self._shared and log is not self._spare

    def _rest(self, log: Log) -> None:
        if self._may_rest(log):
            self._known.update({s: None for s, at in self._known.items() if at is log})
            self._close(log, "idle")

    def _retire(self, log: Log, reason: str) -> None:
        log.ends = reason
        self._close_if_over(log)

    def _close_if_over(self, log: Log) -> None:
        if log.ends is not None and log.exchanges == 0:
            self._close(log, log.ends)

    def _close(self, log: Log, reason: str) -> None:
        if log in self._logs:
            del self._logs[log]
            self._later([(log, "close", {"reason": reason})])


def _without_query(path: str) -> str:
    return path.partition("?")[0]
