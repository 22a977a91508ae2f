"""The HTTP recorder forwards traffic unchanged and records it before it forwards it."""

import base64
import gzip
import json
import socket
import tempfile
import threading
import zlib

import pytest
import zstandard
from hypothesis import given, settings

from tests.record.http_rig import (
    CALL,
    RESULT,
    answering,
    chunk,
    echo,
    json_response,
    proxied,
    recordings,
    sse_head,
)
from tests.record.recorder_process import TIMEOUT_SECONDS, eventually, of
from tests.strategies import PLACES, cut


def test_a_call_and_its_response_are_recorded_and_then_forwarded(tmp_path):
    heads = []

    def script(conn):
        head, body = conn.request()
        heads.append(head)
        assert body == CALL
        assert len(of(rig.events(), "message", dir="c2s")) == 1
        conn.send(json_response(RESULT, "X-Odd-Case: Yes"))
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        status, headers, body = client.call(CALL, "X-MiXeD: kept", "Origin: http://a.example")
        assert (status, headers["x-odd-case"], body) == (200, "Yes", RESULT)
        assert len(of(rig.events(), "message", dir="s2c")) == 1
        rig.stop()
    assert b"\r\nX-MiXeD: kept\r\n" in heads[0]
    assert b"\r\nOrigin: http://a.example\r\n" in heads[0]
    assert b"\r\nHost: 127.0.0.1:%d\r\n" % rig.port in heads[0]
    (recording,) = recordings(rig.events())
    kinds = [(e["event"], e.get("dir"), e.get("phase")) for e in recording]
    assert kinds == [
        ("open", None, None),
        ("http", "c2s", "request"),
        ("message", "c2s", None),
        ("http", "s2c", "response"),
        ("message", "s2c", None),
        ("http", "s2c", "end"),
        ("close", None, None),
    ]
    assert recording[0]["transport"] == "streamable_http"
    assert recording[1]["method"] == "POST"
    assert recording[1]["path"] == "/mcp"
    assert recording[2]["bytes"] == len(CALL)
    assert recording[3]["status"] == 200
    assert recording[5]["closed_by"] == "server"
    assert recording[6]["reason"] == "stopped"
    assert {e["scope"] for e in recording[1:6]} == {"x1"}


def test_each_event_is_recorded_and_then_forwarded_immediately(tmp_path):
    go = threading.Semaphore(0)

    def script(conn):
        conn.request()
        conn.send(sse_head())
        for number in range(5):
            conn.send(chunk(b"id: %d\ndata: {" % number))
            assert go.acquire(timeout=TIMEOUT_SECONDS)
            conn.send(chunk(b'"n":%d}\n\n' % number))
            assert go.acquire(timeout=TIMEOUT_SECONDS)
        conn.send(b"0\r\n\r\n")
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        client.until(b"\r\n\r\n")
        for number in range(5):
            client.until(b"data: {")  # incomplete events are forwarded
            assert len(of(rig.events(), "message", dir="s2c")) == number
            go.release()
            client.until(b'"n":%d}\n\n' % number)
            (event,) = of(rig.events(), "message", sse_id=str(number))
            assert event["msg"] == {"n": number}
            go.release()
        assert client.until(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("coding", "pack", "recorded"),
    [
        ("gzip", gzip.compress, True),
        ("deflate", zlib.compress, True),
        ("zstd", zstandard.compress, True),
        ("br", lambda data: b"\x8b" + data, False),
        ("br", bytes, False),  # wrong Content-Encoding: the body is not compressed
    ],
)
def test_a_compressed_response_is_forwarded_unchanged(tmp_path, coding, pack, recorded):
    wire = pack(RESULT)
    response = json_response(wire, f"Content-Encoding: {coding}")
    with proxied(tmp_path, answering(response)) as (rig, client):
        _, headers, body = client.call(CALL)
        assert (headers["content-encoding"], body) == (coding, wire)
        records = rig.events()
    if recorded:
        (message,) = of(records, "message", dir="s2c")
        assert (message["bytes"], message["msg"]["id"]) == (len(wire), 1)
    else:
        (raw,) = of(records, "raw", dir="s2c")
        assert (raw["bytes"], raw["why"]) == (len(wire), "content coding: br")


def test_a_chunked_request_is_forwarded_chunk_by_chunk(tmp_path):
    half = threading.Event()

    def script(conn):
        head = conn.until(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head.lower()
        assert b"content-length" not in head.lower()
        conn.until(CALL[:10])
        half.set()
        conn.until(b"0\r\n\r\n")
        conn.send(json_response(RESULT))
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        client.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(chunk(CALL[:10]))
        assert half.wait(TIMEOUT_SECONDS)
        client.send(chunk(CALL[10:]) + b"0\r\n\r\n")
        assert client.response()[2] == RESULT
        assert of(rig.events(), "message", dir="c2s")[0]["bytes"] == len(CALL)


def test_pipelined_requests_are_answered_in_order(tmp_path):
    bodies = [b'{"id":%d}' % n for n in range(20)]
    with proxied(tmp_path, echo) as (rig, client):
        for body in bodies:
            client.post(body)
        assert [client.response()[2] for _ in bodies] == bodies
        assert rig.server.connections == 1


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "GET"])
def test_other_methods_are_forwarded(tmp_path, method):
    def script(conn):
        head, _ = conn.request()
        assert head.startswith(method.encode() + b" /x?y=1 HTTP/1.1\r\n")
        conn.send(b"HTTP/1.1 405 No Way\r\nAllow: POST\r\nContent-Length: 5\r\n\r\n")
        if method != "HEAD":
            conn.send(b"never")
        conn.request()
        conn.send(json_response(RESULT))
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        status, headers, body = client.call(None, method=method, path="/x?y=1")
        assert (status, headers["allow"], headers["content-length"]) == (405, "POST", "5")
        assert body == (b"" if method == "HEAD" else b"never")
        assert client.call(CALL)[2] == RESULT
        assert of(rig.events(), "http", phase="request")[0]["method"] == method


def test_an_http_1_0_client_gets_a_response_without_chunks(tmp_path):
    head = []

    def script(conn):
        head.append(conn.request()[0])
        conn.send(sse_head() + chunk(b"data: {}\n\n") + b"0\r\n\r\n")
        conn.rest()

    with proxied(tmp_path, script) as (_, client):
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        got = client.rest()
    head_got, _, body = got.partition(b"\r\n\r\n")
    assert body == b"data: {}\n\n"
    assert b"chunked" not in head_got.lower()
    assert b"\r\nConnection: close\r\n" in head[0]


@pytest.mark.parametrize("framing", [b"", b"Content-Length: 48\r\n"])
def test_an_http_1_0_server_is_supported(tmp_path, framing):
    assert len(RESULT) == 48

    def script(conn):
        conn.request()
        conn.send(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n" + framing + b"\r\n")
        conn.send(RESULT[:9])
        conn.send(RESULT[9:])

    with proxied(tmp_path, script) as (rig, client):
        status, headers, body = client.call(CALL)
        assert (status, headers["connection"], body) == (200, "close", RESULT)
        assert client.rest() == b""
        rig.stop()
    assert of(rig.events(), "message", dir="s2c")[0]["msg"]["id"] == 1
    assert of(rig.events(), "http", phase="end")[0]["closed_by"] == "server"


def test_the_100_continue_of_the_server_is_forwarded(tmp_path):
    asked = threading.Event()

    def script(conn):
        head = conn.until(b"\r\n\r\n")
        assert b"expect: 100-continue" in head.lower()
        assert asked.wait(TIMEOUT_SECONDS)
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert conn.exactly(len(CALL)) == CALL
        conn.send(json_response(RESULT))
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(CALL)}\r\n"
        client.send(head.encode() + b"Expect: 100-continue\r\n\r\n")
        asked.set()
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        client.send(CALL)
        assert client.response()[2] == RESULT
        assert len(of(rig.events(), "message")) == 2


def test_trailers_are_forwarded(tmp_path):
    response = sse_head("Trailer: X-End") + chunk(b"data: {}\n\n") + b"0\r\nX-End: yes\r\n\r\n"
    with proxied(tmp_path, answering(response)) as (_, client):
        client.post(CALL)
        assert client.until(b"0\r\nX-End: yes\r\n\r\n")


@pytest.mark.slow
def test_a_slow_client_slows_the_server_down_without_buffering(tmp_path):
    sent, stuck = [], []

    def script(conn):
        conn.request()
        conn.send(sse_head())
        conn.sock.settimeout(0.5)
        try:
            for _ in range(1000):
                conn.send(chunk(b": " + b"x" * 100_000 + b"\n\n"))
                sent.append(100_000)
        except TimeoutError:
            stuck.append(True)

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        client.until(b"\r\n\r\n")
        eventually(lambda: stuck)
        client.close()
        rig.eventually(lambda records: of(records, "http", phase="end"))
    assert sum(sent) < 30_000_000


@pytest.mark.slow
def test_a_slow_server_slows_the_client_down(tmp_path):
    go = threading.Event()

    def script(conn):
        conn.until(b"\r\n\r\n")
        assert go.wait(TIMEOUT_SECONDS)
        got = len(conn._buffer)
        while got < 80_000_000:
            got += len(conn.sock.recv(1_000_000))
        conn.send(json_response(RESULT))
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 80000000\r\n\r\n")
        client.sock.settimeout(0.5)
        sent = 0
        try:
            while sent < 80_000_000:
                sent += client.sock.send(bytes(min(1_000_000, 80_000_000 - sent)))
        except TimeoutError:
            pass
        assert sent < 30_000_000
        go.set()
        client.sock.settimeout(TIMEOUT_SECONDS)
        client.send(bytes(80_000_000 - sent))
        assert client.response()[2] == RESULT
        raw = rig.eventually(lambda records: of(records, "raw", dir="c2s"))[0]
        assert (raw["why"], raw["bytes"], raw["truncated"]) == ("too_large", 80_000_000, True)


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(PLACES, PLACES)
def test_the_recorded_events_do_not_depend_on_how_bytes_are_split(ask, answer):
    response = (
        sse_head("Mcp-Session-Id: s")
        + chunk(b"id: 1\ndata:\n\n: ping\n\nevent: message\r\nda")
        + chunk(b"ta: " + RESULT + b"\r\n\r\ndata: {}\n")
        + chunk(b"\n")
        + b"0\r\n\r\n"
    )

    def script(conn):
        conn.request()
        for piece in cut(response, answer):
            conn.send(piece)
        conn.rest()

    request = (
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(CALL[:20])
        + chunk(CALL[20:])
        + b"0\r\n\r\n"
    )
    with tempfile.TemporaryDirectory() as folder, proxied(folder, script) as (rig, client):
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in cut(request, ask):
            client.send(piece)
        assert client.response()[2].endswith(RESULT + b"\r\n\r\ndata: {}\n\n")
        rig.stop()
        (own,) = recordings(rig.events())
    told = [
        (e["event"], e.get("phase") or e.get("why"), e.get("msg"), e.get("text"), e.get("sse_id"))
        for e in own[1:-1]
    ]
    assert told == [
        ("http", "request", None, None, None),
        ("message", None, json.loads(CALL), None, None),
        ("http", "response", None, None, None),
        ("raw", "empty", None, "", "1"),
        ("raw", "comment", None, ": ping", None),
        ("message", None, json.loads(RESULT), None, None),
        ("message", None, {}, None, None),
        ("http", "end", None, None, None),
    ]


@pytest.mark.parametrize(
    ("userinfo", "query", "own", "expected"),
    [
        ("admiral:p%40ss@", "", (), "Basic " + base64.b64encode(b"admiral:p@ss").decode()),
        ("admiral@", "", (), "Basic " + base64.b64encode(b"admiral:").decode()),
        ("user:hush@", "?api_key=hushhush", ("Authorization: Bearer mine",), "Bearer mine"),
        ("", "", (), None),
    ],
)
def test_credentials_of_the_url_are_sent_unless_the_client_sends_authorization(
    tmp_path, userinfo, query, own, expected
):
    heads = []

    def script(conn):
        head, body = conn.request()
        heads.append(head.decode())
        conn.send(json_response(body))

    url = {"host": f"{userinfo}127.0.0.1", "query": query}
    policy = "default" if query else "none"
    with proxied(tmp_path, script, policy=policy, **url) as (rig, client):
        rig.service.log_addresses()
        assert client.call(b"{}", *own)[0] == 200
        rig.stop()
    sent = [line for line in heads[0].split("\r\n") if line.lower().startswith("authorization")]
    assert sent == ([] if expected is None else [f"Authorization: {expected}"])
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in ("p%40ss", "p@ss", "hush", "mine", "admiral", "Basic"):
        assert secret not in "".join(rig.messages)
        assert secret.encode() not in written
