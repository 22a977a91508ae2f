"""Parsed heads of ordinary requests and responses, kept because peers repeat them.

h11 parses, checks and serializes a head once. A message with the same head, byte for byte, whose
body has a Content-Length, then needs no parser: its body is the given number of bytes.
"""

import functools
from typing import Final, NamedTuple

import h11

from mcptally.record.http import headers as http_headers
from mcptally.record.http.head import Head, parse_head

MAX_KNOWN_HEAD: Final = 4096
"""Maximum length of a head that is kept, in bytes."""

_KEPT: Final = 512


class KnownRequest(NamedTuple):
    """The head of a POST whose body has a Content-Length, and which keeps the connection open."""

    raw: bytes
    head: Head
    path: str
    length: int
    forwarded: h11.Request
    forwarded_bytes: bytes


class KnownResponse(NamedTuple):
    """The head of a successful response that is forwarded unchanged, with a Content-Length."""

    raw: bytes
    head: Head
    status: int
    length: int
    forwarded: h11.Response
    forwarded_bytes: bytes


def split_head(data: bytes) -> tuple[bytes, bytes]:
    """A complete head at the start of `data`, or nothing, and the rest."""
    end = data.find(b"\r\n\r\n", 0, MAX_KNOWN_HEAD) + 4
    return (data[:end], data[end:]) if end > 3 else (b"", data)


@functools.lru_cache(_KEPT)
def known_request(
    raw: bytes, *, host: bytes | None, authorization: bytes | None, require_loopback_host: bool
) -> KnownRequest | None:
    """The request with this head; None if it needs the parser, for example to be refused."""
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
    forwarded = http_headers.forward_request(request, head, host=host, authorization=authorization)
    sent = h11.Connection(h11.CLIENT).send(forwarded) or b""
    path = request.target.decode("latin-1")
    return KnownRequest(raw, head, path, int(length), forwarded, sent)


@functools.lru_cache(_KEPT)
def known_response(raw: bytes) -> KnownResponse | None:
    """The response with this head to a known request; None if it needs the parser."""
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
    forwarded = http_headers.forward_response(response, head)
    sent = client.send(forwarded) or b""
    return KnownResponse(raw, head, response.status_code, int(length), forwarded, sent)


class KnownExchange:
    """An exchange whose request, and perhaps whose response, has a known head."""

    def __init__(self, request: KnownRequest) -> None:
        self.request: Final = request
        self.request_left = request.length
        """Bytes of the request that are still to come."""
        self.response: KnownResponse | None = None
        self.response_left = 0
        """Bytes of the response that are still to come."""
        self.has_excess_data = False
        """The server sent more than the response."""

    def replay(self, client: h11.Connection, server: h11.Connection) -> None:
        """Bring the parsers into the state that the exchange has reached.

        Bodies are replaced by zero bytes: the parsers only count them.
        """
        request, response = self.request, self.response
        client.receive_data(request.raw + bytes(request.length - self.request_left))
        while isinstance(event := client.next_event(), h11.Request | h11.Data | h11.EndOfMessage):
            server.send(request.forwarded if isinstance(event, h11.Request) else event)
            if isinstance(event, h11.EndOfMessage):
                break
        if response is None:
            return
        server.receive_data(response.raw + bytes(response.length - self.response_left))
        while isinstance(event := server.next_event(), h11.Response | h11.Data | h11.EndOfMessage):
            client.send(response.forwarded if isinstance(event, h11.Response) else event)
            if isinstance(event, h11.EndOfMessage):
                break
