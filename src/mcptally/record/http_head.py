"""Heads of requests and responses on their way through: what changes, and only that.

A head keeps its header names, their case and their order. What a connection, not a message, is
about (RFC 9110 section 7.6.1) ends here, except `close` and `Keep-Alive`: each client connection
has a server connection of its own that lives and dies with it, so these stay true.
"""

from typing import Final

import h11

_OF_THE_CONNECTION: Final = frozenset(
    {b"connection", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"}
)
_MESSAGE_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"host"})
"""Never taken away because `Connection` names them: that would let a client unframe a message."""

_CHUNKED: Final = (b"Transfer-Encoding", b"chunked")

Header = tuple[bytes, bytes]
Head = h11.Request | h11.Response | h11.InformationalResponse


class RefusedError(Exception):
    """A request that is answered here, because passing it on would not be safe."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def value(head: Head, name: bytes) -> str | None:
    """The first header of this (lower-case) name, as text."""
    for found, text in head.headers:
        if found == name:
            return text.decode("latin-1")
    return None


def _connection_options(head: Head) -> set[bytes]:
    options: set[bytes] = set()
    for name, text in head.headers:
        if name == b"connection":
            options.update(option.strip().lower() for option in text.split(b","))
    return options


def _passed_on(head: Head) -> tuple[list[Header], set[bytes]]:
    """The headers of the message itself, as written; and the connection's options."""
    options = _connection_options(head)
    dropped = _OF_THE_CONNECTION
    if options - {b"", b"close", b"keep-alive"}:
        dropped = dropped | (options - _MESSAGE_FRAMING - {b"close", b"keep-alive"})
    kept = [
        raw
        for raw, (name, _) in zip(head.headers.raw_items(), head.headers, strict=True)
        if name not in dropped
    ]
    return kept, options


def to_server(request: h11.Request, *, host: bytes | None) -> h11.Request:
    """The request as the server gets it; `host` replaces `Host` where it is given.

    Raises:
        RefusedError: its framing could be read in two ways, or it asks for a tunnel.
    """
    if request.method == b"CONNECT":
        raise RefusedError(405, "CONNECT asks for a tunnel")
    names = [name for name, _ in request.headers]
    chunked = b"transfer-encoding" in names
    if chunked and b"content-length" in names:
        # RFC 9112 section 6.1: the mark of request smuggling.
        raise RefusedError(400, "both Content-Length and Transfer-Encoding")
    if chunked and request.http_version < b"1.1":
        raise RefusedError(400, "Transfer-Encoding in an HTTP/1.0 request")
    headers, options = _passed_on(request)
    if host is not None:
        headers = [(n, host if n.lower() == b"host" else v) for n, v in headers]
    if b"host" not in names:
        # Only HTTP/1.0 may leave it out; what we send is HTTP/1.1.
        headers.insert(0, (b"Host", host or b""))
    if chunked:
        headers.append(_CHUNKED)
    if b"close" in options or request.http_version < b"1.1":
        headers.append((b"Connection", b"close"))
    return h11.Request(method=request.method, target=_origin_form(request.target), headers=headers)


def _origin_form(target: bytes) -> bytes:
    """The target without scheme and authority: all that we pass on goes to one server."""
    scheme, mark, rest = target.partition(b"://")
    if not mark or not scheme.isalpha():
        return target
    slash = rest.find(b"/")
    return rest[slash:] if slash >= 0 else b"/"


def to_client(response: h11.Response) -> h11.Response:
    """The response as the client gets it; h11 frames the body as its HTTP version allows."""
    headers, options = _passed_on(response)
    names = [name for name, _ in response.headers]
    if b"transfer-encoding" in names:
        headers = [(n, v) for n, v in headers if n.lower() != b"content-length"]
    if ends_connection(response, options):
        headers.append((b"Connection", b"close"))
    elif b"keep-alive" in options:
        headers.append((b"Connection", b"keep-alive"))
    return h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)


def ends_connection(response: h11.Response, options: set[bytes] | None = None) -> bool:
    """Whether the server closes the connection after this response."""
    if options is None:
        options = _connection_options(response)
    if b"close" in options or response.http_version < b"1.1":
        return True
    if response.status_code in (204, 304):
        return False
    names = [name for name, _ in response.headers]
    return b"content-length" not in names and b"transfer-encoding" not in names


def informational(response: h11.InformationalResponse) -> h11.InformationalResponse:
    """A 1xx response as the client gets it."""
    headers, _ = _passed_on(response)
    return h11.InformationalResponse(
        status_code=response.status_code, headers=headers, reason=response.reason
    )
