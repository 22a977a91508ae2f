"""Misbehaving servers and clients: the other side is not affected, and the reason is recorded."""

import base64
import contextlib
import datetime
import functools
import ipaddress
import os
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.record.http import proxy, upstream
from mcptally.record.http import server as http_server
from mcptally.record.http.exchange import ProxiedExchange
from mcptally.record.http.upstream import UpstreamServer
from tests.record.http_rig import (
    CALL,
    RESULT,
    Connection,
    Rig,
    ScriptedServer,
    answering,
    chunk,
    echo,
    free_port,
    json_response,
    proxied,
    recordings,
    sse_head,
)
from tests.record.recorder_process import TIMEOUT_SECONDS, eventually, of


def end_of(rig):
    (end,) = rig.eventually(lambda records: of(records, "http", phase="end"))
    return end


def test_an_unreachable_server_gives_a_502_in_plain_text(tmp_path):
    with Rig(tmp_path, free_port()) as rig, rig.client() as client:
        status, headers, body = client.call(CALL)
        assert status == 502
        assert headers["content-type"] == "text/plain; charset=utf-8"
        assert headers["connection"] == "close"
        assert body == b"mcptally: no connection to the server: connection refused\n"
        assert client.rest() == b""
        end = end_of(rig)
        records = rig.events()
    assert (end["closed_by"], end["why"]) == ("proxy", "connection refused")
    (response,) = of(records, "http", phase="response")
    assert (response["status"], response["why"]) == (502, "connection refused")
    assert of(records, "message", dir="c2s")[0]["msg"]["id"] == 1


@pytest.mark.parametrize("framing", ["Content-Length: 71", "Transfer-Encoding: chunked"])
def test_a_body_that_arrives_after_the_502_is_recorded(tmp_path, framing):
    with Rig(tmp_path, free_port()) as rig, rig.client() as client:
        client.send(f"POST /mcp HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode())
        assert client.response()[0] == 502
        client.send(CALL if "Length" in framing else chunk(CALL) + chunk(b""))
        (message,) = rig.eventually(lambda records: of(records, "message"))
        assert message["msg"]["id"] == 1
        assert message["scope"] == end_of(rig)["scope"]


def test_the_part_of_a_body_that_arrives_after_the_502_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy, "LINGER_SECONDS", 0.2)
    with Rig(tmp_path, free_port()) as rig, rig.client() as client:
        client.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 71\r\n\r\n")
        assert client.response()[0] == 502
        client.send(CALL[:-1])
        (raw,) = rig.eventually(lambda records: of(records, "raw"))
    assert (raw["why"], raw["text"].encode()) == ("torn", CALL[:-1])


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_server_that_closes_before_it_answers(tmp_path, how):
    def script(conn):
        conn.request()
        getattr(conn, how)()

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        with pytest.raises(ConnectionResetError) if how == "reset" else contextlib.nullcontext():
            assert client.rest() == b""
        end = end_of(rig)
        assert (end["closed_by"], end["why"]) == ("server", {"close": "closed"}.get(how, how))
        assert len(of(rig.events(), "message")) == 1


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_server_that_closes_during_its_response(tmp_path, how, framing):
    go = threading.Event()

    def script(conn):
        conn.request()
        if framing == "chunked":
            conn.send(sse_head() + chunk(b'data: {}\n\ndata: {"torn":1}\n'))
        else:
            conn.send(json_response(RESULT)[:-7])
        assert go.wait(TIMEOUT_SECONDS)
        getattr(conn, how)()

    torn = b'{"torn":1}' if framing == "chunked" else RESULT[:-7]
    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        client.until(torn)
        go.set()
        with contextlib.suppress(ConnectionResetError):
            assert b"0\r\n\r\n" not in client.rest()
        end = end_of(rig)
        records = rig.events()
    assert (end["closed_by"], end["why"]) == ("server", {"close": "closed"}.get(how, how))
    raw = of(records, "raw", dir="s2c")[-1]
    assert raw["text"].encode() == torn
    assert (raw["why"], raw["unterminated"]) == ("torn", True)


def test_a_response_before_the_end_of_the_request_reaches_the_client(tmp_path):
    def script(conn):
        conn.until(b"\r\n\r\n")
        conn.send(b"HTTP/1.1 413 Too Much\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        # A reset could overtake the response on either side of any proxy (RFC 9112 section 9.6).
        conn.sock.shutdown(socket.SHUT_WR)
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n")
        with contextlib.suppress(OSError):
            client.send(bytes(5_000_000))
        status, headers, body = client.response()
        assert (status, headers["connection"], body) == (413, "close", b"big")
        assert end_of(rig)["closed_by"] == "server"
        (response,) = of(rig.events(), "http", phase="response")
        assert response["status"] == 413


@pytest.mark.parametrize(("stream", "how"), [(b"", "close"), (b"data: {}\n\n", "reset")])
def test_a_client_disconnect_is_passed_to_the_server_at_once(tmp_path, stream, how):
    gone = threading.Event()

    def script(conn):
        conn.request()
        conn.send(stream and sse_head() + chunk(stream))
        with contextlib.suppress(ConnectionResetError):
            assert conn.rest() == b""
        gone.set()

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        rig.eventually(lambda records: of(records, "message"))
        client.until(stream)
        getattr(client, how)()
        assert gone.wait(TIMEOUT_SECONDS)
        end = end_of(rig)
        assert (end["closed_by"], end.get("why")) == ("client", {"reset": "reset"}.get(how))


def test_a_half_closed_client_still_gets_the_response(tmp_path):
    def script(conn):
        conn.request()
        assert conn.rest() == b""
        conn.send(json_response(RESULT))

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        client.sock.shutdown(socket.SHUT_WR)
        assert client.response()[2] == RESULT
        rig.stop()
        (recording,) = recordings(rig.events())
    assert len(of(recording, "message")) == 2
    assert [e["closed_by"] for e in of(recording, "http", phase="end")] == ["client"]


def test_an_idle_connection_closed_by_the_server_is_closed_for_the_client(tmp_path):
    def script(conn):
        conn.send(json_response(conn.request()[1]))

    with proxied(tmp_path, script) as (rig, client):
        assert client.call(CALL)[2] == CALL
        assert client.rest() == b""
        rig.stop()
        assert len(of(rig.events(), "http", phase="end")) == 1


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/9 what\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad\r\n\r\n"],
)
def test_a_response_that_is_not_http_reaches_the_client_unchanged(tmp_path, answer):
    def script(conn):
        conn.request()
        conn.send(answer[:9])
        conn.send(answer[9:])
        conn.send(b"and more \xff")

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        assert client.rest() == answer + b"and more \xff"
        end = end_of(rig)
        assert (end["closed_by"], end["why"]) == ("server", "not HTTP")
        (raw,) = of(rig.events(), "raw", dir="s2c")
        assert raw["bytes"] == len(answer) + 10
        if b"HTTP" not in answer:
            assert base64.b64decode(raw["b64"]) == answer + b"and more \xff"
    assert b"hush" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())


def test_an_invalid_chunk_ends_the_response_at_that_point(tmp_path):
    def script(conn):
        conn.request()
        conn.send(sse_head() + chunk(b"data: {}\n\n"))
        conn.send(b"zz\r\n")
        conn.rest()

    with proxied(tmp_path, script) as (rig, client):
        client.post(CALL)
        assert client.rest().endswith(chunk(b"data: {}\n\n"))
        assert end_of(rig)["why"].startswith("not HTTP")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"CONNECT example.org:443 HTTP/1.1\r\nHost: x", 405),
        (b"GET / HTTP/2.0\r\nHost: x", 505),
        (b"GET /a b HTTP/1.1\r\nHost: x", 400),
        (b"GET / HTTP/1.1", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 600_000, 431),
    ],
)
def test_an_invalid_request_line_is_refused(tmp_path, request_line, status):
    with proxied(tmp_path, lambda conn: conn.rest()) as (rig, client):
        client.send(request_line + b"\r\n\r\n")
        assert client.response()[0] == status
        assert end_of(rig)["closed_by"] == "proxy"
        assert rig.server.connections == 0


@pytest.mark.parametrize("name", [b"websocket", b"WebSocket", b"h2c, websocket"])
def test_a_request_for_a_websocket_is_refused_with_a_sentence(tmp_path, name):
    with proxied(tmp_path, lambda conn: conn.rest()) as (rig, client):
        client.send(b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " + name)
        client.send(b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n")
        status, _, body = client.response()
        assert status == 501
        assert b"WebSocket is not supported" in body
        assert "WebSocket is not supported" in end_of(rig)["why"]
        assert rig.server.connections == 0


@settings(max_examples=3 * settings.default.max_examples // 5, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_arbitrary_bytes_from_either_side_do_not_stop_the_recorder(noise, whole_request):
    def garbage(conn):
        with contextlib.suppress(AssertionError):
            conn.until(b"\n")
            conn.send(noise)

    garbage_server = ScriptedServer(garbage)
    with garbage_server as server, contextlib.ExitStack() as stack:
        import tempfile

        folder = stack.enter_context(tempfile.TemporaryDirectory())
        rig = stack.enter_context(Rig(folder, server))
        with rig.client() as client, contextlib.suppress(OSError):
            client.send(json_response(noise) if whole_request else noise + b"\r\n\r\n")
            client.sock.shutdown(socket.SHUT_WR)
            client.rest()
        with rig.client() as client, contextlib.suppress(OSError):
            client.post(CALL)
            client.sock.shutdown(socket.SHUT_WR)
            client.rest()
        rig.stop()
        records = recordings(rig.events())
    ends = [e for own in records for e in of(own, "http", phase="end")]
    requests = [e for own in records for e in of(own, "http", phase="request")]
    assert len(ends) == len(requests) >= 1
    assert [m["msg"]["id"] for own in records for m in of(own, "message", dir="c2s")][-1] == 1


def test_stopping_lets_active_calls_finish_and_ends_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "GRACE_SECONDS", TIMEOUT_SECONDS)
    go = threading.Event()

    def script(conn):
        head, _ = conn.request()
        if head.startswith(b"GET"):
            conn.send(sse_head() + chunk(b": hi\n\n"))
            with contextlib.suppress(OSError):
                conn.rest()
        else:
            assert go.wait(TIMEOUT_SECONDS)
            conn.send(json_response(RESULT))

    with proxied(tmp_path, script) as (rig, idle), rig.client() as stream, rig.client() as client:
        stream.get()
        stream.until(b": hi\n\n\r\n")
        client.post(CALL)
        rig.eventually(lambda records: of(records, "message"))
        rig.service.loop.call_soon_threadsafe(rig.service.stop)
        assert idle.rest() == b""
        assert stream.rest() == b""
        go.set()
        assert client.response()[2] == RESULT
        assert client.rest() == b""
        rig.thread.join(TIMEOUT_SECONDS)
        records = recordings(rig.events())
    assert all(own[-1]["event"] == "close" for own in records)
    ends = sorted(e["closed_by"] for own in records for e in of(own, "http", phase="end"))
    assert ends == ["proxy", "server"]


def test_stopping_ends_an_attempt_to_connect(tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "GRACE_SECONDS", 0)
    with proxied(tmp_path, Connection.rest, scheme="https") as (rig, client):
        client.post(CALL)
        eventually(lambda: rig.server.connections)
        rig.stop()
        assert client.rest() == b""
        (own,) = recordings(rig.events())
    assert of(own, "http", phase="end")[0]["why"] == own[-1]["reason"] == "stopped"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, secret.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(secret, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    cert.write_bytes(signed.public_bytes(Encoding.PEM))
    return key, cert


def secure(certificates, script):
    key, cert = certificates
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    def wrapped(conn):
        with (
            contextlib.suppress(ssl.SSLError),
            context.wrap_socket(conn.sock, server_side=True) as sock,
        ):
            script(Connection(sock))

    return wrapped


def proxied_tls(folder, certificates, script):
    """The same as `proxied`, for a server with one of our certificates."""
    secured, ca_file = secure(certificates, script), certificates[1]
    return proxied(folder, secured, scheme="https", host="localhost", ca_file=ca_file)


def test_a_tls_server_with_a_custom_authority_is_supported(tmp_path, certificates):
    gone = threading.Event()
    large = b'{"text":"' + b"x" * 3_000_000 + b'"}'

    def script(conn):
        _, body = conn.request()
        conn.send(json_response(body))
        conn.request()
        conn.send(sse_head() + chunk(b"data: {}\n\n"))
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            conn.rest()
        gone.set()

    with proxied_tls(tmp_path, certificates, script) as (rig, client):
        assert client.call(large)[2] == large
        client.post(CALL)
        client.until(b"data: {}\n\n")
        client.close()
        assert gone.wait(TIMEOUT_SECONDS)
        rig.eventually(lambda records: of(records, "http", phase="end", closed_by="client"))
        assert of(rig.events(), "message", dir="s2c")[0]["bytes"] == len(large)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["refuses", "does not answer"])
def test_if_the_first_address_of_a_name_fails_the_next_is_tried(
    tmp_path, monkeypatch, certificates, first
):
    monkeypatch.setattr(upstream, "CONNECT_SECONDS", 2)
    real = socket.getaddrinfo
    with (
        ScriptedServer(Connection.rest) as silent,
        ScriptedServer(secure(certificates, answering(json_response(RESULT)))) as server,
    ):
        ports = [free_port() if first == "refuses" else silent.port, server.port]
        monkeypatch.setattr(
            socket, "getaddrinfo",
            lambda name, port, *args, **options: [
                found for each in (ports if name == "localhost" else [port])
                for found in real("127.0.0.1", each, *args, **options)
            ],
        )  # fmt: skip
        with (
            Rig(tmp_path, server, scheme="https", host="localhost", ca_file=certificates[1]) as rig,
            rig.client() as client,
        ):
            assert client.call(CALL)[2] == RESULT


def test_a_half_closed_client_of_a_tls_server_still_gets_the_response(tmp_path, certificates):
    half_closed = threading.Event()

    def script(conn):
        conn.request()
        assert half_closed.wait(TIMEOUT_SECONDS)
        # Like asyncio's TLS, and so uvicorn: a half-close ends the connection.
        conn.sock.setblocking(False)
        with contextlib.suppress(ssl.SSLWantReadError, BlockingIOError):
            assert conn.more(), "ended before the answer"
        conn.sock.setblocking(True)
        conn.send(json_response(RESULT))

    with proxied_tls(tmp_path, certificates, script) as (rig, client):
        client.post(CALL)
        client.sock.shutdown(socket.SHUT_WR)
        rig.eventually(lambda records: of(records, "http", phase="end", closed_by="client"))
        half_closed.set()
        assert client.response()[2] == RESULT
        assert client.rest() == b""
        rig.stop()
        (recording,) = recordings(rig.events())
    assert len(of(recording, "message")) == 2


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_a_client_disconnect_during_a_request_is_passed_to_the_server(tmp_path, certificates, tls):
    got = []

    def script(conn):
        got.append(conn.rest())

    connect = functools.partial(proxied_tls, certificates=certificates) if tls else proxied
    with connect(tmp_path, script=script) as (rig, client):
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + CALL[:-1])
        eventually(lambda: rig.server.connections)
        client.close()
        assert eventually(lambda: got)[0].endswith(CALL[:-1])
        assert end_of(rig)["closed_by"] == "client"
        (raw,) = of(rig.events(), "raw")
        assert (raw["why"], raw["text"].encode()) == ("torn", CALL[:-1])


def test_an_untrusted_certificate_gives_an_error_response(tmp_path, certificates):
    with proxied(
        tmp_path, secure(certificates, lambda conn: conn.rest()), scheme="https", host="localhost"
    ) as (rig, client):
        status, _, body = client.call(CALL)
        assert status == 502
        assert b"certificate not trusted" in body
        assert end_of(rig)["why"].startswith("certificate not trusted")


def test_closed_connections_release_their_descriptors(tmp_path):
    if not os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        pytest.skip("no /proc here to count descriptors in")

    script = answering(json_response(RESULT))
    with ScriptedServer(script) as server, Rig(tmp_path, server) as rig:

        def count():
            return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

        for number in range(30):
            with rig.client() as client:
                client.call(CALL)
            eventually(lambda: not rig.service._connections)
            if number == 5:
                before = count()
        # The threads of the server close its sockets a little later.
        eventually(lambda: count() <= before + 2)


@pytest.mark.parametrize(
    ("owner", "name"), [(ProxiedExchange, "record_request"), (UpstreamServer, "connect")]
)
def test_an_internal_error_is_logged_and_closes_only_one_connection(
    tmp_path, monkeypatch, owner, name
):
    def faulty(*_):
        raise RuntimeError("what is never true")

    with proxied(tmp_path, echo) as (rig, good):
        assert good.call(CALL)[2] == CALL
        with rig.client() as bad, monkeypatch.context() as patch:
            patch.setattr(owner, name, faulty)
            bad.post(CALL)
            assert bad.rest() == b""
        assert good.call(CALL)[2] == CALL
        (end,) = of(rig.events(), "http", phase="end", closed_by="proxy")
        assert end["why"] == "internal error"
    assert any("what is never true" in logged for logged in rig.messages)


def test_an_exception_in_a_callback_is_logged_in_one_line(tmp_path, capfd):
    with Rig(tmp_path, free_port()) as rig:
        rig.service.loop.call_soon_threadsafe(lambda: {}["what is never there"])
        (logged,) = eventually(lambda: rig.messages)
    assert logged == "internal error: KeyError('what is never there'); please report this"
    assert capfd.readouterr().err == ""
