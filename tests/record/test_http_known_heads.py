"""Known heads, which are not parsed again, and how the parsers take over an exchange."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.record.http import known_heads
from mcptally.record.http.known_heads import (
    ANY_LENGTH,
    KnownExchange,
    known_request,
    known_response,
    split_head,
)

REQUEST = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:9\r\n"
    b"Connection: keep-alive\r\nContent-Length: 10\r\n\r\n"
)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"


def request(raw, *, host=None, authorization=None, require_loopback_host=False):
    return known_request(
        raw, host=host, authorization=authorization, require_loopback_host=require_loopback_host
    )


def test_an_ordinary_head_is_known_and_forwarded_as_the_parser_forwards_it():
    known = request(REQUEST, host=b"example.com", authorization=b"Basic eA==")
    assert (known.path, known.length) == ("/mcp", 10)
    assert b"Host: example.com\r\n" in known.forwarded_bytes
    assert b"Authorization: Basic eA==\r\n" in known.forwarded_bytes
    response = known_response(RESPONSE)
    assert (response.status, response.length) == (200, 7)
    assert response.forwarded_bytes == RESPONSE


LENGTHS = st.one_of(
    st.integers(0, 10**20).map(b"%d".__mod__),
    st.sampled_from(
        [b"", b"007", b"+7", b"7 ", b" 7", b"7,7", b"0x7", b"7_0", b"7;q=1", ANY_LENGTH]
    ),
    st.sampled_from(
        [b"7\r\nContent-Length: 7", b"7\r\ncontent-length:8", b"7\n\nX: y", b"7\r\n y"]
    ),
)


@given(
    LENGTHS,
    st.sampled_from(
        [b"Content-Length: ", b"content-length:", b"CONTENT-LENGTH: ", b"Content-Length : "]
    ),
    st.sampled_from([b"", b"X: 817263549\r\n", b"X: content-length\r\n", b"X: y\r\n "]),
)
def test_heads_that_differ_in_the_length_alone_are_known_as_if_each_were_parsed(
    number, name, before
):
    raw = REQUEST.replace(b"Content-Length: 10", before + name + number)
    options = {"host": b"h", "authorization": None, "require_loopback_host": False}
    assert_same(known_request(raw, **options), known_heads._known_request(raw, **options))
    raw = RESPONSE.replace(b"Content-Length: 7", before + name + number)
    assert_same(known_response(raw), known_heads._known_response(raw))


def assert_same(known, parsed):
    assert (known is None) == (parsed is None)
    if known is not None:
        assert (known.raw, known.length) == (parsed.raw, parsed.length)
        assert known.forwarded_bytes == parsed.forwarded_bytes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"POST", b"GET"),
        (b"POST", b"CONNECT"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"keep-alive", b"close"),
        (b"keep-alive", b"upgrade\r\nUpgrade: websocket"),
        (b"Content-Length: 10", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 10", b"Content-Length: 10\r\nTransfer-Encoding: chunked"),
        (b"Content-Length: 10", b"Content-Length: 10\r\nContent-Length: 11"),
        (b"Content-Length: 10", b"Content-Length: 99999999999999999999"),
        (b"Content-Length: 10", b"Content-Length: 10\r\nExpect: 100-continue"),
        (b"Content-Length: 10", b"Content-Length: 10\r\nContent_Length: 11"),
        (b"Content-Length: 10", b"X: y"),
        (b"Host: 127.0.0.1:9", b"X: y"),
        (b"Host: 127.0.0.1:9", b"Host : x"),
        (b"Host: 127.0.0.1:9", b"Host: example.com"),
        (b"Content-Length: 10", b"Content-Length: 10\n\nX: y"),  # the head ends before `X`
        (b"POST", b"\r\n\r\nPOST"),
    ],
)
def test_other_requests_need_the_parser(old, new):
    assert request(REQUEST, require_loopback_host=True) is not None
    raw = REQUEST.replace(old, new)
    assert raw != REQUEST
    assert request(raw, require_loopback_host=True) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"200 OK", b"204 No Content"),
        (b"200 OK", b"404 Not Found"),
        (b"200 OK", b"100 Continue"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"HTTP/1.1", b"HTTQ/1.1"),
        (b"Content-Length: 7", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 7", b"Content-Length: 7\r\nConnection: close"),
        (b"Content-Length: 7", b"X: y"),
        (b"Content-Length: 7", b"Content-Length: 7\n\nX: y"),
    ],
)
def test_other_responses_need_the_parser(old, new):
    raw = RESPONSE.replace(old, new)
    assert raw != RESPONSE
    assert known_response(raw) is None


@pytest.mark.parametrize(
    ("request_left", "response_left", "states"),
    [
        (10, None, (h11.SEND_BODY, h11.SEND_RESPONSE, h11.SEND_RESPONSE, h11.SEND_BODY)),
        (3, None, (h11.SEND_BODY, h11.SEND_RESPONSE, h11.SEND_RESPONSE, h11.SEND_BODY)),
        (0, None, (h11.DONE, h11.SEND_RESPONSE, h11.SEND_RESPONSE, h11.DONE)),
        (0, 7, (h11.DONE, h11.SEND_BODY, h11.SEND_BODY, h11.DONE)),
        (0, 2, (h11.DONE, h11.SEND_BODY, h11.SEND_BODY, h11.DONE)),
    ],
)
def test_the_parsers_take_over_an_exchange_where_it_is(request_left, response_left, states):
    exchange = KnownExchange(request(REQUEST))
    exchange.request_left = request_left
    if response_left is not None:
        exchange.response, exchange.response_left = known_response(RESPONSE), response_left
    client, server = h11.Connection(h11.SERVER), h11.Connection(h11.CLIENT)
    exchange.replay(client, server)
    assert (client.their_state, client.our_state, server.their_state, server.our_state) == states
    if request_left:
        client.receive_data(b"x" * request_left)
        assert server.send(client.next_event()) == b"x" * request_left
        assert isinstance(client.next_event(), h11.EndOfMessage)
    if response_left:
        server.receive_data(b"y" * response_left)
        assert client.send(server.next_event()) == b"y" * response_left
        assert isinstance(server.next_event(), h11.EndOfMessage)


@pytest.mark.parametrize(
    ("data", "head"),
    [(REQUEST + b"body", REQUEST), (REQUEST[:-1], b""), (b"x" * 5000 + b"\r\n\r\n", b"")],
)
def test_only_a_complete_and_short_head_is_split_off(data, head):
    assert split_head(data) == (head, data[len(head) :])
