"""Tests of validating and rewriting the heads of requests and responses."""

import h11
import pytest

from mcptally.errors import UsageError
from mcptally.record.http.head import parse_head
from mcptally.record.http.headers import (
    RefusedError,
    check_request,
    closes_connection,
    request_for_server,
    response_for_client,
)
from mcptally.record.http.server import bind
from mcptally.record.http.upstream import UpstreamServer


def request(*headers, version="1.1", target="/mcp", method="POST"):
    pairs = [header.split(": ") for header in ("Host: client.example:9000", *headers)]
    return h11.Request(method=method, target=target, headers=pairs, http_version=version)


def response(*headers, version="1.1", status=200):
    return h11.Response(
        status_code=status, headers=[header.split(": ") for header in headers], http_version=version
    )


def lines(message):
    return [f"{name.decode()}: {value.decode()}" for name, value in message.headers.raw_items()]


def sent(message, host=None):
    check_request(message, parse_head(message))
    return request_for_server(message, parse_head(message), host=host)


def passed(message):
    return response_for_client(message, parse_head(message))


def test_a_head_without_hop_by_hop_headers_is_forwarded_unchanged():
    plain = request("X-B: 2", "x-a: 1", "Connection: keep-alive", "Content-Length: 5", "x-a: 3")
    assert sent(plain) is plain
    answer = response("ETag: x", "set-cookie: a", "Set-Cookie: b", "Content-Length: 0")
    assert passed(answer) is answer


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["Connection: close"], ["Connection: close"]),
        (["Connection: X-Mine", "X-Mine: 1", "X-Else: 2"], ["X-Else: 2"]),
        (["Connection: Content-Length, Host", "Content-Length: 5"], ["Content-Length: 5"]),
        (["TE: trailers", "Upgrade: h2c", "Proxy-Connection: x"], []),
        (["Keep-Alive: timeout=5"], ["Keep-Alive: timeout=5"]),
        (["transfer-encoding: chunked"], ["Transfer-Encoding: chunked"]),
        (["Expect: 100-continue"], ["Expect: 100-continue"]),
        (["X-Forwarded-For: 1.2.3.4"], ["X-Forwarded-For: 1.2.3.4"]),
    ],
)
def test_hop_by_hop_headers_are_removed(headers, expected):
    assert lines(sent(request(*headers))) == ["Host: client.example:9000", *expected]


def test_hop_by_hop_headers_of_a_response_are_removed():
    own = [
        "Connection: keep-alive, X-Hop",
        "Keep-Alive: timeout=5",
        "X-Hop: 1",
        "Content-Length: 0",
    ]
    kept = ["Keep-Alive: timeout=5", "Content-Length: 0", "Connection: keep-alive"]
    assert lines(passed(response(*own))) == kept


def test_host_is_replaced_for_remote_servers_and_origin_is_kept():
    headers = lines(sent(request("Origin: http://client.example"), host=b"mcp.example"))
    assert headers == ["Host: mcp.example", "Origin: http://client.example"]


def test_host_is_replaced_unless_the_server_is_on_loopback():
    for url in ("http://127.0.0.1:8000/mcp", "http://localhost/", "http://[::1]:80/x"):
        assert UpstreamServer(url).host is None
    assert UpstreamServer("http://mcp.example:8000/mcp").host == b"mcp.example:8000"
    assert UpstreamServer("https://user:pass@mcp.example/mcp").host == b"mcp.example"
    with pytest.raises(UsageError, match="port 0 is not a valid port"):
        UpstreamServer("http://127.0.0.1:0/mcp")


def test_an_ipv6_address_to_listen_on_is_named_with_its_brackets():
    with pytest.raises(UsageError, match=r"--listen \[2001:db8::1\]:9000: "):
        bind("[2001:db8::1]:9000")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/mcp?x=http://y/", "/mcp?x=http://y/"),
        ("*", "*"),
        ("http://other.example/path?q", "/path?q"),
        ("http://other.example", "/"),
        ("http+odd://x/y", "http+odd://x/y"),
    ],
)
def test_scheme_and_authority_are_removed_from_the_target(target, expected):
    assert sent(request(target=target)).target == expected.encode()


def test_a_request_without_host_is_given_one():
    old = h11.Request(method="GET", target="/", headers=[], http_version="1.0")
    assert lines(sent(old)) == ["Host: ", "Connection: close"]
    assert lines(sent(old, host=b"mcp.example"))[0] == "Host: mcp.example"


def test_a_request_with_both_framings_is_refused():
    with pytest.raises(RefusedError) as refused:
        sent(request("Content-Length: 5", "Transfer-Encoding: chunked"))
    assert refused.value.status == 400


def test_a_response_with_both_framings_loses_its_content_length():
    answer = response("Content-Length: 5", "Transfer-Encoding: chunked", "X: 1")
    assert lines(passed(answer)) == ["X: 1"]  # h11 adds the framing for the client's version


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response("Content-Length: 0"), False),
        (response("Transfer-Encoding: chunked"), False),
        (response("Content-Length: 0", "Connection: Close"), True),
        (response("Content-Length: 0", version="1.0"), True),
        (response(), True),
        (response(status=204), False),
        (response(status=304), False),
    ],
)
def test_the_response_head_tells_whether_the_connection_closes(answer, expected):
    assert closes_connection(answer, parse_head(answer)) is expected
    assert ("Connection: close" in lines(passed(answer))) is expected
