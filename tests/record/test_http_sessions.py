"""Tests of assigning exchanges to recordings, and of what is never written."""

import pytest

from mcptally.record.http.sse_endpoint import EndpointFilter, origins, rewrite_url
from tests.record.http_rig import (
    Rig,
    ScriptedServer,
    answering,
    chunk,
    json_response,
    proxied,
    recordings,
    sse_head,
)
from tests.record.recorder_process import of

INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
INITIALIZED = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'
REFUSED = b'{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no"}}'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def stateful(conn):
    """A server that opens a new session for every `initialize`, over JSON or SSE."""
    count = 0
    for head, body in conn.requests():
        session = f"Mcp-Session-Id: sid-{conn.sock.getpeername()[1]}-{count}"
        if b'"initialize"' in body and b"refuse" in head:
            conn.send(json_response(REFUSED, session, status="400 Bad"))
        elif b'"initialize"' in body and b"fail" in head:
            conn.send(json_response(INITIALIZED, session, status="500 Odd"))
        elif b'"initialize"' in body and b"json" in head.split(b"\r\n")[0]:
            conn.send(json_response(INITIALIZED, session))
        elif b'"initialize"' in body:
            conn.send(sse_head(session) + chunk(b"id: 1\ndata:\n\n"))
            conn.send(chunk(b"data: " + INITIALIZED + b"\n\n") + b"0\r\n\r\n")
            count += 1
        elif head.startswith(b"DELETE"):
            conn.send(b"HTTP/1.1 204 Gone\r\n\r\n")
        else:
            conn.send(json_response(RESULT))


def stateless(conn):
    for _, body in conn.requests():
        conn.send(json_response(INITIALIZED if b'"initialize"' in body else RESULT))


def methods(recording):
    return [
        event["msg"].get("method", "reply" if "result" in event["msg"] else "error")
        for event in of(recording, "message")
    ]


def open_session(client, path="/mcp"):
    _, headers, _ = client.call(INITIALIZE, path=path)
    return f"Mcp-Session-Id: {headers['mcp-session-id']}"


@pytest.mark.parametrize("path", ["/mcp", "/mcp?json"])
def test_each_session_has_a_recording_that_begins_with_its_initialize(tmp_path, path):
    with ScriptedServer(stateful) as server, Rig(tmp_path, server) as rig:
        clients = [rig.client() for _ in range(3)]
        sessions = [open_session(client, path) for client in clients]
        for _ in range(2):
            for client, session in zip(clients, sessions, strict=True):
                client.call(CALL, session)
        # A session is not bound to a connection.
        clients[0].call(CALL, sessions[1])
        for client in clients:
            client.close()
        rig.stop()
        records = recordings(rig.events())
    calls = ["initialize", "reply", "tools/call", "reply", "tools/call", "reply"]
    assert sorted(map(methods, records), key=len) == [calls, calls, [*calls, "tools/call", "reply"]]
    assert {own[0]["transport"] for own in records} == {"streamable_http"}


def test_requests_without_a_known_session_go_to_the_shared_recording(tmp_path):
    with proxied(tmp_path, stateful) as (rig, client):
        client.call(CALL, "Mcp-Method: tools/call")
        session = open_session(client)
        client.call(CALL, session)
        client.call(CALL)
        client.call(CALL, "Mcp-Session-Id: never-heard-of")
        rig.stop()
        shared, own = recordings(rig.events())
    assert methods(shared) == ["tools/call", "reply"] * 3
    assert methods(own) == ["initialize", "reply", "tools/call", "reply"]


@pytest.mark.parametrize(
    ("outcome", "status", "answer"), [("refuse", 400, "error"), ("fail", 500, "reply")]
)
def test_a_failed_initialize_opens_no_session(outcome, status, answer, tmp_path):
    with proxied(tmp_path, stateful) as (rig, client):
        for _ in range(5):
            actual_status, headers, _ = client.call(INITIALIZE, f"X: {outcome}")
            assert actual_status == status
        client.call(CALL, f"Mcp-Session-Id: {headers['mcp-session-id']}")
        open_session(client)
        rig.stop()
        records = recordings(rig.events())
    # Failed attempts are in the recording of the success; the id of an error is not a session.
    assert sorted(map(methods, records), key=len) == [
        ["tools/call", "reply"],
        [*["initialize", answer] * 5, "initialize", "reply"],
    ]


def test_a_stateless_server_has_one_recording_with_its_initialize(tmp_path):
    with ScriptedServer(stateless) as server, Rig(tmp_path, server) as rig:
        for _ in range(3):
            with rig.client() as client:
                client.call(INITIALIZE)
                client.call(CALL)
        rig.stop()
        (only,) = recordings(rig.events())
    assert methods(only) == ["initialize", "reply", "tools/call", "reply"] * 3


def test_a_request_before_initialize_does_not_separate_initialize_and_calls(tmp_path):
    probe = b'{"jsonrpc":"2.0","id":0,"method":"server/discover"}'
    with proxied(tmp_path, stateless) as (rig, client):
        client.call(probe)
        client.call(INITIALIZE)
        client.call(CALL)
        rig.stop()
        first, rest = recordings(rig.events())
    assert methods(first) == ["server/discover", "reply"]
    assert first[-1]["reason"] == "continued"
    assert methods(rest) == ["initialize", "reply", "tools/call", "reply"]


def test_the_recording_of_a_deleted_session_closes_after_its_last_exchange(tmp_path):
    with proxied(tmp_path, stateful) as (rig, client):
        session = open_session(client)
        assert client.call(None, session, method="DELETE")[0] == 204
        (own,) = rig.eventually(lambda records: of(records, "close") and recordings(records))
        assert own[-1]["reason"] == "session_deleted"
        client.call(CALL, session)
        rig.stop()
        assert len(recordings(rig.events())) == 2


def test_an_idle_session_is_closed_and_gets_a_new_recording_when_used_again(tmp_path):
    with proxied(tmp_path, stateful) as (rig, client):
        session = open_session(client)
        rig.service.loop.call_soon_threadsafe(lambda: rig.service._sessions.close_idle(-1))
        (close,) = rig.eventually(lambda records: of(records, "close"))
        assert close["reason"] == "idle"
        client.call(CALL, session)
        rig.stop()
        first, second = recordings(rig.events())
    assert methods(first) == ["initialize", "reply"]
    assert methods(second) == ["tools/call", "reply"]
    hashed = {e["headers"].get("mcp-session-id") for e in of(first, "http", phase="response")}
    assert {of(second, "http", phase="request")[0]["headers"]["mcp-session-id"]} == hashed


def test_with_too_many_sessions_the_one_idle_for_longest_is_closed(tmp_path):
    with ScriptedServer(stateful) as server, Rig(tmp_path, server) as rig:
        rig.service._sessions._max_open = 3
        with rig.client() as client:
            sessions = [open_session(client) for _ in range(5)]
            rig.eventually(lambda records: len(of(records, "close")) == 2)
            client.call(CALL, sessions[-1])
        rig.stop()
        records = recordings(rig.events())
    reasons = sorted(own[-1]["reason"] for own in records)
    assert reasons == ["idle", "idle", "stopped", "stopped", "stopped"]


def test_session_ids_and_credentials_are_not_written(tmp_path):
    private = "Mcp-Session-Id: sid-hush", "Set-Cookie: c=hush", "WWW-Authenticate: Basic realm=x"
    script = answering(json_response(INITIALIZED, *private), json_response(RESULT))
    secrets = ["Authorization: Bearer hush", "Cookie: a=hush", "X-Api-Key: hush",
               "Proxy-Authorization: Basic hush"]  # fmt: skip
    with proxied(tmp_path, script) as (rig, client):
        client.call(INITIALIZE, *secrets)
        client.call(CALL, "Mcp-Session-Id: sid-hush", *secrets,
                    path="/mcp?sessionId=sid-hush-long-enough")  # fmt: skip
        rig.stop()
        (own,) = recordings(rig.events())
    assert b"hush" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    answered, asked = (
        event["headers"]["mcp-session-id"]
        for event in of(own, "http")
        if "mcp-session-id" in event.get("headers", {})
    )
    assert answered == asked
    assert answered.startswith("[hashed:session-id:")


def legacy(endpoint, *, before=b""):
    """Return the script of a legacy server: one connection streams, the others post."""
    streams = []

    def script(conn):
        for head, _ in conn.requests():
            if head.startswith(b"GET"):
                url = endpoint() if callable(endpoint) else endpoint
                conn.send(sse_head() + before)
                streams.append(conn)  # before a client can post to it
                conn.send(chunk(b"event: endpoint\r\nda") + chunk(b"ta: " + url + b"\r\n\r\n"))
                conn.rest()
                return
            conn.send(b"HTTP/1.1 202 Accepted\r\nContent-Length: 8\r\n\r\nAccepted")
            streams[-1].send(chunk(b"event: message\ndata: " + RESULT + b"\n\n"))

    return script


def test_each_legacy_stream_has_a_recording_with_its_posts(tmp_path):
    numbers = iter(range(10))
    script = legacy(lambda: b"/messages/?session_id=number-%d" % next(numbers))
    with ScriptedServer(script) as server, Rig(tmp_path, server) as rig:
        for turn in range(2):
            with rig.client() as stream, rig.client() as poster:
                stream.get(path="/sse")
                stream.until(b"session_id=number-%d\r\n\r\n" % turn)
                path = f"/messages/?session_id=number-{turn}"
                assert poster.call(INITIALIZE, path=path)[0] == 202
                assert poster.call(CALL, path=path)[0] == 202
                stream.until(RESULT)
                stream.until(RESULT)
            rig.eventually(lambda records, turn=turn: len(of(records, "close")) == turn + 1)
        rig.stop()
        records = recordings(rig.events())
    assert len(records) == 2
    for own in records:
        assert own[0]["transport"] == "http_sse"
        assert sorted(methods(own)) == ["initialize", "reply", "reply", "tools/call"]
        assert own[-1]["reason"] == "stream_ended"
        (endpoint,) = of(own, "raw", sse_event="endpoint")
        assert endpoint["text"].startswith("/messages/?session_id=[hashed:session-id:")
        posted = {e["path"] for e in of(own, "http", phase="request", method="POST")}
        assert posted == {endpoint["text"]}
        assert "rewritten" not in endpoint
    assert b"number-" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])  # noqa: S104
@pytest.mark.parametrize("before", [b"", chunk(b": hello\n\n"), chunk(b"retry: 3\n\n: x\n")])
def test_an_absolute_endpoint_of_the_server_is_rewritten_and_both_are_recorded(
    tmp_path, host, before
):
    ports = []

    def endpoint():
        return f"http://{host}:{ports[0]}/messages?sessionId=0123456789ab".encode()

    script = legacy(endpoint, before=before)
    with proxied(tmp_path, script) as (rig, stream):
        ports.append(rig.server.port)
        stream.get(path="/sse")
        url = f"http://127.0.0.1:{rig.port}/messages?sessionId=0123456789ab"
        assert stream.until(b"\r\n\r\n")
        stream.until(url.encode())
        with rig.client() as poster:
            assert poster.call(CALL, path="/messages?sessionId=0123456789ab")[0] == 202
        stream.until(RESULT)
        rig.stop()
        (own,) = recordings(rig.events())
    (endpoint,) = of(own, "raw", sse_event="endpoint")
    assert endpoint["text"].startswith(
        f"http://{host}:{rig.server.port}/messages?sessionId=[hashed:"
    )
    assert endpoint["rewritten"].startswith(f"http://127.0.0.1:{rig.port}/messages?sessionId=[h")
    assert methods(own) == ["tools/call", "reply"]


def test_a_stream_of_a_stateless_server_is_not_a_legacy_stream(tmp_path):
    def script(conn):
        head, _ = conn.request()
        if head.startswith(b"GET"):
            conn.send(sse_head() + chunk(b"data: {}\n\n") + b"0\r\n\r\n")
        else:
            conn.send(json_response(RESULT))
        conn.rest()

    with ScriptedServer(script) as server, Rig(tmp_path, server) as rig:
        with rig.client() as client:
            client.call(CALL)
        for headers in ([], ["Mcp-Protocol-Version: 2025-11-25"], ["Last-Event-ID: 7"]):
            with rig.client() as client:
                client.get(*headers)
                client.response("GET")
        rig.stop()
        (own,) = recordings(rig.events())
    assert len(of(own, "http", phase="request", method="GET")) == 3


def test_a_resumed_stream_keeps_both_copies_of_a_message_in_its_session(tmp_path):
    event = b"id: 5\ndata: " + RESULT + b"\n\n"

    def script(conn):
        head, _ = conn.request()
        if head.startswith(b"POST"):
            conn.send(json_response(INITIALIZED, "Mcp-Session-Id: sid"))
            conn.request()
        else:
            assert (b"last-event-id" in head.lower()) == (rig.server.connections == 3)
        conn.send(sse_head() + chunk(event) + b"0\r\n\r\n")
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        session = open_session(client)
        client.get(session)
        client.response("GET")
        for headers in ([], ["Last-Event-ID: 4"]):
            with rig.client() as other:
                other.get(session, *headers)
                other.response("GET")
        rig.stop()
        (own,) = recordings(rig.events())
    assert [e["scope"] for e in of(own, "message", sse_id="5")] == ["x2", "x3", "x4"]
    requests = of(own, "http", phase="request")
    assert requests[-1]["headers"]["last-event-id"] == "4"


def test_only_absolute_urls_of_the_server_are_rewritten():
    local = origins("http", "127.0.0.1", 8000, loopback=True)
    remote = origins("https", "mcp.example", 443, loopback=False)
    own_origin = b"http://127.0.0.1:9000"
    cases = [
        (local, b"http://127.0.0.1:8000/m?x#y", own_origin + b"/m?x#y"),
        (local, b"HTTP://LocalHost:8000", own_origin),
        (local, b"http://[::1]:8000/m", own_origin + b"/m"),
        (local, b"http://127.0.0.1:8001/m", None),
        (local, b"http://127.0.0.1:8000.evil.example/m", None),
        (local, b"http://127.0.0.1:8000@evil.example/m", None),
        (local, own_origin + b"/m", None),
        *((local, url, None) for url in (b"/m", b"m?s=1", b"//127.0.0.1:1/m")),
        (local, b"https://elsewhere.example/m?s=1", None),
        (remote, b"https://mcp.example/m", own_origin + b"/m"),
        (remote, b"https://mcp.example:443/m", own_origin + b"/m"),
        (remote, b"http://mcp.example/m", None),
        (remote, b"https://localhost/m", None),
    ]
    for server, url, expected in cases:
        assert rewrite_url(url, server=server, own_origin=own_origin) == expected, url


def test_a_stream_without_endpoint_is_delayed_only_to_the_end_of_a_block():
    held = EndpointFilter(server=frozenset(), own_origin=b"")
    assert held.feed(b"data: a\n") == b""
    assert held.feed(b"\ndata") == b"data: a\n\n"
    assert held.feed(b"x" * 70_000) == b"data" + b"x" * 70_000
    assert held.feed(b"flows") == b"flows"
