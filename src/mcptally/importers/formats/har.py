"""Reads HAR 1.2: HTTP traffic saved by browsers and proxies, with JSON or event-stream bodies.

An entry is an exchange. HAR does not record when a stream's events arrived: a reply gets the time
at which the body ended, all other messages the time at which the body started. A body that was not
saved (mitmproxy's streamed bodies, browsers' event streams) becomes a `gap`, not a missing reply.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from mcptally.importers.items import Connection, Item
from mcptally.importers.json_array import elements
from mcptally.importers.source import Source
from mcptally.importers.timestamps import add_duration
from mcptally.wire.sse import SseParser

_MILLISECOND: Final = 10**6


class _Header(msgspec.Struct):
    name: str = ""
    value: str = ""


class _Body(msgspec.Struct):
    text: str | None = None
    encoding: str | None = None
    size: float | None = None


class _Request(msgspec.Struct):
    method: str = ""
    url: str = ""
    headers: list[_Header] = []
    post: _Body | None = msgspec.field(default=None, name="postData")


class _Response(msgspec.Struct):
    status: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] | None = None
    headers: list[_Header] = []
    content: _Body = msgspec.field(default_factory=_Body)


class _Timings(msgspec.Struct):
    blocked: float | None = None
    dns: float | None = None
    connect: float | None = None
    send: float | None = None
    wait: float | None = None


class _Event(msgspec.Struct):
    """A server-sent event as saved by Chromium, with its time of arrival."""

    time: float | None = None
    name: str = msgspec.field(default="", name="eventName")
    id: str = msgspec.field(default="", name="eventId")
    data: str = ""


class _Entry(msgspec.Struct):
    started: str | None = msgspec.field(default=None, name="startedDateTime")
    time: float | None = None
    request: _Request = msgspec.field(default_factory=_Request)
    response: _Response = msgspec.field(default_factory=_Response)
    timings: _Timings = msgspec.field(default_factory=_Timings)
    events: list[_Event] = msgspec.field(default=[], name="_eventSourceMessages")


_ENTRY: Final = msgspec.json.Decoder(_Entry, strict=False)


def read(source: Source) -> Iterator[Item]:
    """Yield the MCP exchanges in a HAR file; count other entries."""
    tally = source.tally
    endpoints: dict[str, str] = {}
    for number, element in enumerate(elements(source.read_pieces(), ("log", "entries"))):
        line = element.line
        tally.seen += 1
        if element.data is None:
            tally.skip(line, "an entry that is cut off, or too large")
            continue
        try:
            entry = _ENTRY.decode(element.data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            tally.skip(line, f"not a HAR entry: {error}"[:120])
            continue
        exchange = _Exchange(source, entry, line=line, scope=f"entry-{number}")
        if not exchange.is_mcp(endpoints):
            tally.context["not MCP traffic"] += 1
            continue
        tally.used += 1
        yield from exchange.items(endpoints)


class _Exchange:
    """A HAR entry with its bodies and times."""

    def __init__(self, source: Source, entry: _Entry, *, line: int, scope: str) -> None:
        self.source = source
        self.entry = entry
        self.line = line
        self.scope = scope
        self.request_body = _bytes(entry.request.post)
        self.response_body = _bytes(entry.response.content)
        start = source.at(entry.started)
        timings = entry.timings
        before = (timings.blocked, timings.dns, timings.connect, timings.send, timings.wait)
        lead = sum(value for value in before if value is not None and value > 0)
        total = entry.time if entry.time is not None and entry.time >= 0 else None
        self.start = start
        self.head = _after(start, lead if total is None else min(lead, total))
        self.end = _after(start, total)
        request = self.headers(entry.request.headers)
        response = self.headers(entry.response.headers)
        self.streams = response.get("content-type", "").startswith("text/event-stream")
        self.session = request.get("mcp-session-id") or response.get("mcp-session-id")
        self.has_mcp_header = "mcp-protocol-version" in request or "mcp-method" in request

    @staticmethod
    def headers(pairs: list[_Header]) -> dict[str, str]:
        return {pair.name.lower(): pair.value for pair in pairs}

    def is_mcp(self, endpoints: dict[str, str]) -> bool:
        """Return whether the entry is MCP traffic, judged by headers, bodies and earlier URLs."""
        url = self.url
        return (
            url in endpoints
            or self.session is not None
            or self.has_mcp_header
            or b'"jsonrpc"' in self.request_body
            or (
                self.streams
                and (b'"jsonrpc"' in self.response_body or b"event: endpoint" in self.response_body)
            )
            or any('"jsonrpc"' in event.data for event in self.entry.events)
        )

    @property
    def url(self) -> str:
        return self.entry.request.url.split("?", 1)[0].split("#", 1)[0]

    def items(self, endpoints: dict[str, str]) -> Iterator[Item]:
        entry = self.entry
        endpoint = endpoints.setdefault(self.url, self.url)
        parts = _split(endpoint)
        label = f"{parts.hostname or ''}{_port(parts)}{parts.path}"
        words = re.split(r"[^a-z]+", parts.path.rsplit("/", 1)[-1].lower())
        legacy = b"event: endpoint" in self.response_body or "sse" in words
        transport = "http_sse" if legacy else "streamable_http"
        connection = self.source.connection(endpoint, server=label, transport=transport)
        yield Item(
            "begin", self.line, connection, self.start, extra={"url": endpoint, "new": False}
        )
        path = _split(entry.request.url)
        yield self.http(
            connection,
            "c2s",
            self.start,
            phase="request",
            method=entry.request.method,
            path=path.path + (f"?{path.query}" if path.query else ""),
            headers=[(pair.name, pair.value) for pair in entry.request.headers],
        )
        if self.request_body:
            yield self.frame(connection, "c2s", self.start, self.request_body)
        status = entry.response.status
        if status:
            pairs = [(pair.name, pair.value) for pair in entry.response.headers]
            yield self.http(
                connection, "s2c", self.head, phase="response", status=status, headers=pairs
            )
        yield from self.replies(connection, endpoints)
        yield self.http(connection, "s2c", self.end, phase="end")

    def replies(self, connection: Connection, endpoints: dict[str, str]) -> Iterator[Item]:
        entry = self.entry
        if entry.events:
            for event in entry.events:
                at = self.source.at(event.time) or self.end
                extra = {"sse_event": event.name} if event.name else {}
                extra |= {"sse_id": event.id} if event.id else {}
                yield self.frame(
                    connection, "s2c", at, event.data.encode(errors="replace"), **extra
                )
        elif self.response_body and self.streams:
            yield from self.stream(connection, endpoints)
        elif self.response_body:
            yield self.frame(connection, "s2c", self.end, self.response_body)
        elif self.withheld:
            self.source.tally.notes["a body that is missing in the source"] += 1
            yield Item(
                "gap",
                self.line,
                connection,
                self.end,
                extra={"why": "this body is missing in the source"},
            )

    @property
    def withheld(self) -> bool:
        """Whether the response had a body that was not saved."""
        size = self.entry.response.content.size
        if size is not None and size > 0:
            return True
        # The stream that a GET opened may have been empty, but the reply to a POST cannot have
        # been.
        is_post = self.entry.request.method == "POST"
        return is_post and self.streams and self.entry.response.status == 200

    def stream(self, connection: Connection, endpoints: dict[str, str]) -> Iterator[Item]:
        parser = SseParser(cap=len(self.response_body) + 1)
        events = parser.feed(self.response_body)
        if (last := parser.end()) is not None:
            events.append(last)
        for event in events:
            if not isinstance(event.data, bytes) or not event.data:
                continue
            extra: dict[str, Any] = {}
            if event.name is not None:
                extra["sse_event"] = event.name.decode(errors="replace")
            if event.id is not None:
                extra["sse_id"] = event.id.decode(errors="replace")
            if event.torn:
                extra["unterminated"] = True
            if event.name == b"endpoint":
                # In the legacy SSE transport, the client sends its messages to this URL.
                there = event.data.decode(errors="replace").strip()
                with contextlib.suppress(ValueError):  # ignore data that is not a valid URL
                    target = urljoin(self.entry.request.url, there).split("?", 1)[0]
                    endpoints[target] = endpoints[self.url]
            # The reply ends the stream. Earlier messages arrived between the head and the end. Give
            # them the head's time, so that they precede the client's replies in other exchanges.
            at = self.head if b'"method"' in event.data else self.end
            yield self.frame(connection, "s2c", at, event.data, **extra)

    def frame(
        self, connection: Connection, direction: Any, at: int | None, data: bytes, **extra: Any
    ) -> Item:
        return Item(
            "message",
            self.line,
            connection,
            at,
            dir=direction,
            data=data,
            size=len(data),
            scope=self.scope,
            extra=extra,
        )

    def http(self, connection: Connection, direction: Any, at: int | None, **extra: Any) -> Item:
        return Item("http", self.line, connection, at, dir=direction, scope=self.scope, extra=extra)


def _bytes(body: _Body | None) -> bytes:
    if body is None or not body.text:
        return b""
    if body.encoding == "base64":
        try:
            return base64.b64decode(body.text, validate=True)
        except (binascii.Error, ValueError):
            pass
    return body.text.encode(errors="replace")


def _after(start: int | None, milliseconds: float | None) -> int | None:
    return add_duration(start, None if milliseconds is None else milliseconds * _MILLISECOND)


def _split(url: str) -> SplitResult:
    """Split a URL; an invalid URL becomes the path of the result."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")


def _port(parts: SplitResult) -> str:
    try:
        return f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return ""
