"""Validates request and response heads, and rewrites them for forwarding.

Header names keep their case and order. Hop-by-hop headers are removed.
"""

import re
from typing import Final

import h11

from mcptally.record.http.head import Head, parse_head
from mcptally.record.http.upstream import is_loopback

_CHUNKED: Final = (b"Transfer-Encoding", b"chunked")
_CLOSE: Final = (b"Connection", b"close")
_KEEP_ALIVE: Final = (b"Connection", b"keep-alive")

MAX_FIELDS: Final = 1000
"""Maximum number of header fields in a request; ordinary requests have fewer than fifty."""

_LARGEST_LENGTH: Final = 2**63 - 1
_UNDERSCORE_FRAMING: Final = frozenset({b"content_length", b"transfer_encoding"})
_FORBIDDEN_TRAILERS: Final = frozenset(
    {b"authorization", b"connection", b"content-encoding", b"content-length", b"content-type"}
    | {b"cookie", b"expect", b"host", b"proxy-authorization", b"te", b"trailer"}
    | {b"transfer-encoding", b"upgrade"}
)
_HOST: Final = re.compile(r"[^\s,/?#@\\<>\"]*")
_PORT: Final = re.compile(r"^[^:]*:\d*$")


class RefusedError(Exception):
    """Raised for a request that the recorder must answer itself because forwarding is unsafe."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def check_request(request: h11.Request, head: Head) -> None:
    """Reject requests that h11 accepts but other parsers may interpret differently.

    Raises:
        RefusedError: the framing is ambiguous, or the request is not HTTP/1, is a CONNECT, or
            requests a WebSocket.
    """
    if request.method == b"CONNECT":
        raise RefusedError(405, "CONNECT is not supported")
    if not request.http_version.startswith(b"1."):
        raise RefusedError(505, "the request is not HTTP/1")
    if "websocket" in (head.get(b"upgrade") or "").lower():
        # Refuse a WebSocket request: without the Upgrade header, which is not forwarded, the server
        # would see an ordinary GET.
        raise RefusedError(501, "WebSocket is not supported; MCP over HTTP needs no upgrade")
    chunked = b"transfer-encoding" in head
    length = head.get(b"content-length")
    if chunked and length is not None:
        # RFC 9112 section 6.1: a sign of request smuggling.
        raise RefusedError(400, "both Content-Length and Transfer-Encoding")
    if chunked and request.http_version < b"1.1":
        raise RefusedError(400, "Transfer-Encoding in an HTTP/1.0 request")
    if not _HOST.fullmatch(head.get(b"host") or ""):
        raise RefusedError(400, "the Host header is not a valid host")
    if length is not None and int(length) > _LARGEST_LENGTH:
        # A 64-bit counter would overflow.
        raise RefusedError(400, "Content-Length exceeds 64 bits")
    if not head.names.isdisjoint(_UNDERSCORE_FRAMING):
        # Servers that map headers to variables treat `_` and `-` alike.
        raise RefusedError(400, "a framing header with an underscore in its name")


def check_trailers(end: h11.EndOfMessage) -> None:
    """Reject trailers that are only valid in a head (RFC 9110 section 6.5.1).

    Raises:
        RefusedError: a trailer concerns framing, routing or authorization.
    """
    for name, _ in end.headers:
        if name in _FORBIDDEN_TRAILERS or name.replace(b"_", b"-") in _FORBIDDEN_TRAILERS:
            raise RefusedError(400, f"{name.decode('latin-1')} in a trailer")


def check_host(head: Head) -> None:
    """Reject requests whose `Host` is not a loopback name, to prevent DNS rebinding.

    Raises:
        RefusedError: `Host` is not a name for this machine.
    """
    host = head.get(b"host")
    if host is None:
        return
    host = host.lower()
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host
    if not is_loopback(name.rpartition(":")[0] if _PORT.search(name) else name):
        raise RefusedError(
            403,
            f"Host {host[:100]!r} is not a loopback name, but the recorder listens only on "
            "loopback addresses; connect to 127.0.0.1 or localhost, or change --listen",
        )


def request_for_server(
    request: h11.Request, head: Head, *, host: bytes | None, authorization: bytes | None = None
) -> h11.Request:
    """Return the request to send to the server.

    Args:
        request: the request of the client.
        head: its parsed headers.
        host: new value of `Host`; None keeps the client's value.
        authorization: value of `Authorization` if the request has none.
    """
    chunked = b"transfer-encoding" in head
    if b"authorization" in head:
        authorization = None
    forwardable = head.is_end_to_end and request.target.startswith(b"/") and b"host" in head
    unchanged = host is None and authorization is None
    if forwardable and unchanged and request.http_version == b"1.1":
        return request
    headers = head.forwarded()
    if host is not None:
        headers = [(n, host if n.lower() == b"host" else v) for n, v in headers]
    if b"host" not in head:
        # HTTP/1.0 requests may omit Host; the forwarded request is HTTP/1.1.
        headers.insert(0, (b"Host", host or b""))
    if authorization is not None:
        headers.append((b"Authorization", authorization))
    if chunked:
        headers.append(_CHUNKED)
    if b"close" in head.options or request.http_version < b"1.1":
        headers.append(_CLOSE)
    elif b"keep-alive" in head.options:
        headers.append(_KEEP_ALIVE)
    return h11.Request(method=request.method, target=_origin_form(request.target), headers=headers)


def _origin_form(target: bytes) -> bytes:
    """Return the target without scheme and authority, since there is only one server."""
    if target.startswith(b"/"):
        return target
    scheme, separator, rest = target.partition(b"://")
    if not separator or not scheme.isalpha():
        return target
    slash = rest.find(b"/")
    return rest[slash:] if slash >= 0 else b"/"


def response_for_client(response: h11.Response, head: Head) -> h11.Response:
    """Return the response to send to the client. h11 frames the body for its HTTP version."""
    closes = closes_connection(response, head)
    if head.is_end_to_end and not closes:
        return response
    # Transfer-Encoding overrides Content-Length, which must be removed (RFC 9112 section 6.3).
    has_both_framings = b"transfer-encoding" in head and b"content-length" in head
    headers = head.forwarded(
        without=frozenset({b"content-length"}) if has_both_framings else frozenset()
    )
    if closes:
        headers.append(_CLOSE)
    elif b"keep-alive" in head.options:
        headers.append(_KEEP_ALIVE)
    return h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)


def closes_connection(response: h11.Response, head: Head) -> bool:
    """Return whether the server closes the connection after this response."""
    if b"close" in head.options or response.http_version < b"1.1":
        return True
    if response.status_code in (204, 304):
        return False
    return b"content-length" not in head and b"transfer-encoding" not in head


def informational_for_client(response: h11.InformationalResponse) -> h11.InformationalResponse:
    """Return a 1xx response to send to the client."""
    return h11.InformationalResponse(
        status_code=response.status_code,
        headers=parse_head(response).forwarded(),
        reason=response.reason,
    )
