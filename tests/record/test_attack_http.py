"""Attacks on the HTTP recorder: resources per peer are limited, and other peers are unaffected."""

import contextlib
import json
import re
import resource
import socket
import tempfile
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.record.http import capacity, request_limits
from mcptally.record.http.capacity import Capacity
from tests.record.http_rig import (
    CALL,
    Rig,
    ScriptedServer,
    chunk,
    echo,
    json_response,
    proxied,
    sse_head,
)
from tests.record.recorder_process import TIMEOUT_SECONDS, eventually, of

POST = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"


def can_call(client):
    return client.call(CALL)[2] == CALL


# --- framing --------------------------------------------------------------------------------------

AMBIGUOUS = {
    "both": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length with a sign": b"Content-Length: +3\r\n\r\nabc",
    "length of 64 bits and more": b"Content-Length: 18446744073709551619\r\n\r\nabc",
    "length of 5000 digits": b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nabc",
    "length that is empty": b"Content-Length:\r\n\r\n",
    "blank before the colon": b"Content-Length : 3\r\n\r\nabc",
    "coding in quotes": b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "a coding besides chunked": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "coding identity": b"Transfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
    "coding folded": b"Transfer-Encoding: x\r\n chunked\r\n\r\n0\r\n\r\n",
    "coding with an underscore": b"Transfer_Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    "length with an underscore": b"Content_Length: 3\r\n\r\nabc",
    "a bare CR in a value": b"X: a\rContent-Length: 3\r\n\r\nabc",
    "a header that begins the head": b" Content-Length: 3\r\n\r\nabc",
    "no colon": b"No-Colon\r\n\r\n",
    "two hosts": b"Host: other\r\nContent-Length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("rest", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_requests_that_parsers_may_read_differently_are_not_forwarded(tmp_path, rest):
    with proxied(tmp_path, lambda conn: conn.rest()) as (rig, client):
        client.send(POST.replace(b"Host", b"Authorization: Bearer hush\r\nHost") + rest)
        status, _, body = client.response()
        assert status in (400, 501)
        assert body.startswith(b"mcptally: request refused")
        assert client.rest() == b""
        assert rig.server.connections == 0
        (end,) = rig.eventually(lambda records: of(records, "http", phase="end"))
        assert (end["closed_by"], bool(end["why"])) == ("proxy", True)
    assert b"hush" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


BROKEN_BODIES = {
    "size with a sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "size that is empty": b"\r\nhello\r\n0\r\n\r\n",
    "data longer than its size": b"4\r\nhello\r\n0\r\n\r\n",
    "a length among the trailers": b"0\r\nContent-Length: 5\r\n\r\n",
    "a host among the trailers": b"0\r\nHost: other\r\n\r\n",
    "credentials among the trailers": b"0\r\nAuthorization: Bearer x\r\n\r\n",
}


@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES)
def test_an_ambiguous_chunked_body_is_never_completed(tmp_path, body):
    got = []
    with proxied(tmp_path, lambda conn: got.append(conn.rest())) as (rig, client):
        client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        assert client.response()[0] == 400
        assert client.rest() == b""
        client.close()
        eventually(lambda: len(got) == rig.server.connections)
    for bytes_seen in got:
        assert not bytes_seen.endswith(b"0\r\n\r\n")
        assert b"other" not in bytes_seen


ACCEPTED = {
    "the same length twice": (b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "the same length in a list": (b"Content-Length: 5, 5\r\n\r\nhello", b"hello"),
    "chunked in capitals": (
        b"Transfer-Encoding:CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "chunk extensions": (
        b'Transfer-Encoding: chunked\r\n\r\n5;a="b";c\r\nhello\r\n0;x\r\n\r\n', b"hello"),
    "sizes with zeros before": (
        b"Transfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n00\r\n\r\n", b"hello"),
    "line feeds alone in the head": (
        b"X: y\nContent-Length: 5\n\nhello", b"hello"),
    "a folded header": (b"X: a\r\n\tb\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
}  # fmt: skip


@pytest.mark.parametrize(("rest", "body"), ACCEPTED.values(), ids=ACCEPTED)
def test_forwarded_requests_have_exactly_one_framing(tmp_path, rest, body):
    got = []

    def script(conn):
        got.append(conn.request())
        conn.send(json_response(b"{}"))
        conn.rest()

    with proxied(tmp_path, script) as (_, client):
        client.send(POST + rest)
        assert client.response()[0] == 200
    head, seen = got[0]
    assert seen == body
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line]
    assert names.count(b"content-length") + names.count(b"transfer-encoding") == 1
    assert names.count(b"host") == 1
    assert b"\n" not in head.replace(b"\r\n", b"")
    assert not re.search(rb"^[ \t]", head, re.MULTILINE)
    assert b";" not in seen


@given(st.lists(st.sampled_from(
    [b"Content-Length: 5", b"Content-Length:6", b"Transfer-Encoding: chunked", b"\r\n", b"\n",
     b"\r", b" ", b"\t", b"5\r\nhello\r\n", b"0\r\n\r\n", b"hello", b"X: y", b"Connection: close",
     b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x0b", b";a=b", b"_", b"\0"]
), max_size=12))  # fmt: skip
def test_the_server_receives_only_requests_that_were_recorded(pieces):
    requests = []

    def script(conn):
        for request in conn.requests():
            requests.append(request)
            conn.send(json_response(b"{}"))

    with tempfile.TemporaryDirectory() as folder, proxied(folder, script) as (rig, client):
        with contextlib.suppress(OSError):
            client.send(POST + b"".join(pieces))
            client.sock.shutdown(socket.SHUT_WR)
            client.rest()
        rig.stop()
        records = rig.events()
    recorded = of(records, "http", phase="request")
    assert len(requests) <= len(recorded)
    for (head, _), event in zip(requests, recorded, strict=False):
        assert head.split(b" ")[:2] == [event["method"].encode(), event["path"].encode()]


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "logged"),
    [
        (b"X: y\r\n" * 5_000, b"more than 1000 header fields"),
        (b":\r\n" * 5_000, b"more than 1000 header fields"),
        (b"".join(b"X-%d: \r\n" % n for n in range(1_200)), b"more than 1000 header fields"),
        (b"X: " + b"y" * 600_000, b""),
        (b"y" * 600_000, b""),
    ],
    ids=["many", "nameless", "all different", "one long value", "one long name"],
)
@pytest.mark.parametrize("cut", [False, True], ids=["at once", "in pieces"])
def test_a_flood_of_headers_is_refused_and_not_stored(tmp_path, head, logged, cut):
    with proxied(tmp_path, echo) as (rig, good), rig.client() as bad:
        assert can_call(good)
        with contextlib.suppress(OSError):
            data = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n"
            for at in range(0, len(data), 1000 if cut else len(data)):
                bad.send(data[at : at + 1000] if cut else data)
        status, _, body = bad.response()
        assert status == 431
        assert logged in body
        assert can_call(good)
        assert rig.server.connections == 1
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20_000


def test_a_request_with_a_thousand_headers_is_accepted_in_any_pieces(tmp_path):
    body = b"\n" * 5_000
    with proxied(tmp_path, echo) as (_, client):
        for size in (100_000, 7, 1):
            many = [f"X-{n}: {n}" for n in range(990)]
            lines = ["POST / HTTP/1.1", "Host: x", *many, f"Content-Length: {len(body)}", "", ""]
            data = "\r\n".join(lines).encode() + body
            for at in range(0, len(data), size):
                client.send(data[at : at + size])
            assert client.response()[2] == body


@pytest.mark.slow
def test_a_slow_head_is_refused_without_affecting_other_clients(tmp_path, monkeypatch):
    monkeypatch.setattr(request_limits, "HEAD_SECONDS", 0.2)
    with (
        proxied(tmp_path, echo) as (rig, good),
        rig.client() as silent,
        contextlib.ExitStack() as stack,
    ):
        slow = [stack.enter_context(rig.client()) for _ in range(20)]
        for client in slow:
            client.send(b"POST /mcp HTTP/1.1\r\nHost: loc")
        for client in slow:
            assert can_call(good)
            assert client.response()[0] == 408
            assert client.rest() == b""
        # A silent connection is not a slow head: browsers and pools connect in advance.
        assert can_call(silent)
        assert rig.server.connections == 2
        # The time limit restarts with each request.
        for _ in range(3):
            assert can_call(good)
        rig.stop()
        late = of(rig.events(), "http", phase="response", status=408)
    assert len(late) == 20
    assert "loc" not in json.dumps(late)


@pytest.mark.slow
def test_a_client_that_never_reads_does_not_delay_other_clients(tmp_path):
    endless = b": " + b"x" * 100_000 + b"\n\n"
    stopped = []

    def script(conn):
        head, body = conn.request()
        if b"/endless" in head:
            with contextlib.suppress(ConnectionError):  # a timeout must fail the test
                conn.send(sse_head())
                while True:
                    conn.send(chunk(endless))
            stopped.append(True)
        else:
            conn.send(json_response(body))
            echo(conn)

    with proxied(tmp_path, script) as (rig, good), contextlib.ExitStack() as stack:
        for _ in range(4):
            unread = stack.enter_context(rig.client())
            unread.get(path="/endless")
        for _ in range(50):
            assert can_call(good)
        stack.close()
        # The disconnect reaches their servers at once.
        eventually(lambda: len(stopped) == 4)


@pytest.mark.slow
def test_a_client_that_pipelines_much_before_it_reads_gets_all_responses(tmp_path):
    go = threading.Event()
    large = json_response(b'"%b"' % bytes(b"x" * 12_000_000))

    def script(conn):
        conn.request()
        assert go.wait(TIMEOUT_SECONDS)
        conn.send(large)
        echo(conn)

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        client.post(b"%400000d" % 1)
        (connection,) = eventually(lambda: list(rig.service._connections))
        eventually(lambda: connection._protocol.pipelined_bytes > 256 * 1024)
        go.set()
        eventually(lambda: not connection._server._reading)
        assert len(client.exactly(len(large))) == len(large)
        assert client.response()[2] == b"%400000d" % 1


@pytest.mark.slow
def test_a_server_that_never_reads_does_not_delay_other_clients(tmp_path):
    released = threading.Event()

    def script(conn):
        if b"/never-read" in conn.until(b"\r\n\r\n"):
            released.wait(TIMEOUT_SECONDS)
        else:
            conn.send(json_response(conn.exactly(len(CALL))))
            echo(conn)

    with proxied(tmp_path, script) as (rig, good), contextlib.ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(rig.client())
            client.sock.setblocking(False)
            head = (
                b"POST /never-read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
            )
            client.send(head)
            with contextlib.suppress(BlockingIOError):
                while True:
                    client.sock.send(bytes(100_000))
        for _ in range(50):
            assert can_call(good)
        released.set()


def test_unrequested_server_data_cannot_answer_the_next_request(tmp_path):
    planted = json_response(b'{"planted":true}')

    def script(conn):
        _, body = conn.request()
        conn.send(json_response(body) + planted)
        with contextlib.suppress(AssertionError, OSError):
            conn.request()

    with ScriptedServer(script) as server, Rig(tmp_path, server) as rig:
        with rig.client() as client:
            assert can_call(client)
            assert client.rest() == b""
        with rig.client() as client:
            assert can_call(client)


# --- capacity -------------------------------------------------------------------------------------


@contextlib.contextmanager
def busy_clients(folder, monkeypatch, count, capacity):
    """Clients whose calls the server answers when the event `go` is set: (rig, clients, go)."""
    monkeypatch.setattr(Capacity, "for_this_process", classmethod(lambda _: Capacity(capacity, 8)))
    asked = threading.Semaphore(0)
    go = threading.Event()

    def script(conn):
        for head, body in conn.requests():
            if b"/wait" in head:
                asked.release()
                assert go.wait(TIMEOUT_SECONDS)
            conn.send(json_response(body))

    with (
        ScriptedServer(script) as server,
        Rig(folder, server) as rig,
        contextlib.ExitStack() as stack,
    ):
        clients = [stack.enter_context(rig.client()) for _ in range(count)]
        for client in clients:
            client.post(CALL, path="/wait")
            assert asked.acquire(timeout=TIMEOUT_SECONDS)
        yield rig, clients, go


def test_at_capacity_the_client_idle_for_longest_is_closed(tmp_path, monkeypatch):
    with (
        busy_clients(tmp_path, monkeypatch, 3, capacity=8) as (rig, busy, go),
        contextlib.ExitStack() as stack,
    ):
        idle = [stack.enter_context(rig.client()) for _ in range(40)]
        with rig.client() as late:
            assert can_call(late)
        assert idle[0].rest() == b""
        go.set()
        assert [client.response()[2] for client in busy] == [CALL] * 3


def test_at_capacity_new_clients_wait_while_all_clients_are_active(tmp_path, monkeypatch):
    with (
        busy_clients(tmp_path, monkeypatch, 4, capacity=4) as (rig, busy, go),
        rig.client() as other,
    ):
        other.post(CALL)
        eventually(lambda: any("active at once" in logged for logged in rig.messages))
        go.set()
        assert [client.response()[2] for client in busy] == [CALL] * 4
        # The first idle client is closed for the waiting client.
        assert other.response()[2] == CALL


def test_capacity_follows_the_limit_on_descriptors(monkeypatch):
    capacities = []
    for limit in (64, 256, 1024, 4096, 16_384, 1 << 20, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        capacities.append(Capacity.for_this_process())
    for limit, value in zip((64, 256, 1024, 4096), capacities, strict=False):
        assert 2 * value.clients + value.recordings <= limit
    assert [value.clients for value in capacities] == sorted(value.clients for value in capacities)
    assert capacities[-1] == Capacity(capacity.MAX_CLIENTS, 512)
    assert capacities[2].clients >= 200


# --- names and headers from peers -----------------------------------------------------------------

HOSTS = {
    "127.0.0.1:9000": True, "localhost": True, "LOCALHOST:1": True, "[::1]:9000": True,
    "127.9.9.9": True, "mcp.localhost:80": True,
    "evil.example:9000": False, "evil.example": False, "127.0.0.1.evil.example": False,
    "localhost.evil.example:80": False, "[::2]:9000": False, "10.0.0.1": False,
    "0.0.0.0": False, "[::]:80": False,  # noqa: S104
    "evil.example@localhost": False, "localhost@evil.example": False, "": False,
}  # fmt: skip


@pytest.mark.parametrize(("host", "good"), HOSTS.items())
def test_dns_rebinding_cannot_reach_a_remote_server(tmp_path, monkeypatch, host, good):
    # A remote server receives its own Host, so it cannot check the client's.
    with ScriptedServer(echo) as server:
        remote = "server.example"
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo",
            lambda name, *args, **kw: real("127.0.0.1" if name == remote else name, *args, **kw),
        )  # fmt: skip
        with Rig(tmp_path, server, host=remote) as rig, rig.client() as client:
            client.send(b"POST / HTTP/1.1\r\nHost: %b\r\n" % host.encode())
            client.send(b"Origin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}")
            status, _, body = client.response()
            assert status == (200 if good else 403)
            assert good or b"is not a loopback name" in body
            assert server.connections == good
