"""Caches the parsed heads of ordinary requests and responses, because peers repeat them.

h11 parses, checks and serializes a head once. A later message with exactly the same head needs no
parser, because Content-Length gives the size of its body.

Only the value of Content-Length may differ. If a head has one Content-Length in the usual form, the
head is parsed with `ANY_LENGTH` in place of the value; the value is restored when the head is
forwarded and recorded. h11 and `headers` treat all numbers of 1 to 15 digits without leading zeros
alike.
"""

import functools
import re
from typing import Any, Final, NamedTuple

import h11

from mcptally.record.http import headers as http_headers
from mcptally.record.http.head import ANY_LENGTH, Head, Header, parse_head

MAX_KNOWN_HEAD: Final = 4096
"""Maximum length of a cached head in bytes."""

_KEPT: Final = 512

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?(0|[1-9][0-9]{0,14})\r\n")


class KnownRequest(NamedTuple):
    """The head of a POST that has a Content-Length and keeps the connection open."""

    raw: bytes
    head: Head
    path: str
    length: int
    forwarded: h11.Request
    forwarded_bytes: bytes
    length_text: bytes | None = None
    """The number that `ANY_LENGTH` replaces in `head` and `forwarded`; None if there is none."""


class KnownResponse(NamedTuple):
    """The head of a successful response with a Content-Length, which is forwarded unchanged."""

    raw: bytes
    head: Head
    status: int
    length: int
    forwarded: h11.Response
    forwarded_bytes: bytes
    length_text: bytes | None = None
    """The number that `ANY_LENGTH` replaces in `head`; None if there is none."""


def split_head(data: bytes) -> tuple[bytes, bytes]:
    """Return the complete head at the start of `data` (empty if none), and the bytes after it."""
    end = data.find(b"\r\n\r\n", 0, MAX_KNOWN_HEAD) + 4
    return (data[:end], data[end:]) if end > 3 else (b"", data)


@functools.lru_cache(_KEPT)
def known_request(
    raw: bytes,
    host: bytes | None,
    authorization: bytes | None,
    require_loopback_host: bool,  # noqa: FBT001 - the cache is faster without keywords
) -> KnownRequest | None:
    """Return the request that starts with the head `raw`.

    Returns None if the parser must handle the request, for example to refuse it.
    """
    any_length, number = _without_length(raw)
    known = _known_request(
        any_length,
        host=host,
        authorization=authorization,
        require_loopback_host=require_loopback_host,
    )
    if known is None or number is None:
        return known
    return known._replace(**_restored(raw, number, known.forwarded_bytes))


@functools.lru_cache(_KEPT)
def known_response(raw: bytes) -> KnownResponse | None:
    """Return the response that starts with the head `raw`; None if the parser must handle it."""
    any_length, number = _without_length(raw)
    known = _known_response(any_length)
    if known is None or number is None:
        return known
    return known._replace(**_restored(raw, number, known.forwarded_bytes))


def _without_length(raw: bytes) -> tuple[bytes, bytes | None]:
    """Return the head with `ANY_LENGTH` and the replaced number, or the unchanged head and None."""
    match = _LENGTH.search(raw)
    if match is None or ANY_LENGTH in raw or raw.lower().count(b"content-length") != 1:
        return raw, None
    start, end = match.span(1)
    return raw[:start] + ANY_LENGTH + raw[end:], match[1]


def _restored(raw: bytes, number: bytes, sent: bytes) -> dict[str, Any]:
    """Return the members of a known head with the number in place of `ANY_LENGTH`."""
    sent = sent.replace(ANY_LENGTH, number)
    return {"raw": raw, "length": int(number), "forwarded_bytes": sent, "length_text": number}


def _headers(message: h11.Request | h11.Response, number: bytes | None) -> list[Header]:
    """Return the headers with the recorded Content-Length in place of `ANY_LENGTH`."""
    return [
        (name, value if number is None else value.replace(ANY_LENGTH, number))
        for name, value in message.headers.raw_items()
    ]


@functools.lru_cache(_KEPT)
def _known_request(
    raw: bytes, *, host: bytes | None, authorization: bytes | None, require_loopback_host: bool
) -> KnownRequest | None:
    client = h11.Connection(h11.SERVER)
    client.receive_data(raw)
    try:
        request = client.next_event()
        if not isinstance(request, h11.Request) or client.trailing_data[0]:
            return None
        head = parse_head(request)
        http_headers.check_request(request, head)
        if require_loopback_host:
            http_headers.check_host(head)
    except (h11.RemoteProtocolError, http_headers.RefusedError):
        return None
    length = head.get(b"content-length")
    if (
        request.method != b"POST"
        or request.http_version != b"1.1"
        or not head.is_end_to_end
        or length is None
        or b"expect" in head
    ):
        return None
    forwarded = http_headers.request_for_server(
        request, head, host=host, authorization=authorization
    )
    sent = h11.Connection(h11.CLIENT).send(forwarded) or b""
    if sent.count(ANY_LENGTH) > 1:
        return None  # a host name may contain the digits of `ANY_LENGTH`
    path = request.target.decode("latin-1")
    return KnownRequest(raw, head, path, int(length), forwarded, sent)


@functools.lru_cache(_KEPT)
def _known_response(raw: bytes) -> KnownResponse | None:
    client, server = h11.Connection(h11.SERVER), h11.Connection(h11.CLIENT)
    request = server.send(h11.Request(method="POST", target="/", headers=[("Host", "x")])) or b""
    client.receive_data(request + (server.send(h11.EndOfMessage()) or b""))
    client.next_event()
    server.receive_data(raw)
    try:
        response = server.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(response, h11.Response) or server.trailing_data[0]:
        return None
    head = parse_head(response)
    length = head.get(b"content-length")
    if (
        not 200 <= response.status_code < 300
        or response.status_code == 204
        or not head.is_end_to_end
        or http_headers.closes_connection(response, head)
        or length is None
    ):
        return None
    forwarded = http_headers.response_for_client(response, head)
    sent = client.send(forwarded) or b""
    return KnownResponse(raw, head, response.status_code, int(length), forwarded, sent)


class KnownExchange:
    """An exchange whose request, and perhaps whose response, has a known head."""

    def __init__(self, request: KnownRequest) -> None:
        self.request: Final = request
        self.request_left = request.length
        """Number of request bytes still expected."""
        self.response: KnownResponse | None = None
        self.response_left = 0
        """Number of response bytes still expected."""
        self.has_excess_data = False
        """Whether the server sent more than the response."""

    def replay(self, client: h11.Connection, server: h11.Connection) -> None:
        """Advance the parsers to the exchange's current state.

        Zero bytes stand in for bodies, because the parsers only count the bytes.
        """
        request, response = self.request, self.response
        client.receive_data(request.raw + bytes(request.length - self.request_left))
        forwarded = h11.Request(
            method=request.forwarded.method,
            target=request.forwarded.target,
            headers=_headers(request.forwarded, request.length_text),
        )
        while isinstance(event := client.next_event(), h11.Request | h11.Data | h11.EndOfMessage):
            server.send(forwarded if isinstance(event, h11.Request) else event)
            if isinstance(event, h11.EndOfMessage):
                break
        if response is None:
            return
        server.receive_data(response.raw + bytes(response.length - self.response_left))
        answer = h11.Response(
            status_code=response.status,
            headers=_headers(response.forwarded, response.length_text),
            reason=response.forwarded.reason,
        )
        while isinstance(event := server.next_event(), h11.Response | h11.Data | h11.EndOfMessage):
            client.send(answer if isinstance(event, h11.Response) else event)
            if isinstance(event, h11.EndOfMessage):
                break
