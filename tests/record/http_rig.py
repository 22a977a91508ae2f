"""Test helper: a recorder in this process, between raw client sockets and a scripted server."""

import contextlib
import json
import queue
import random
import socket
import threading
from pathlib import Path

import h11

from mcptally.record.http.server import Service, bind
from mcptally.record.http.upstream import UpstreamServer
from mcptally.redaction import policy as redaction_policy
from mcptally.transcript.writer.archive import Archive
from mcptally.transcript.writer.limits import Limits
from tests.record.recorder_process import TIMEOUT_SECONDS, events, eventually, of

LIMITS = Limits(compress=False, keep_bytes=None, keep_seconds=None, stall_seconds=None)
"""No compression or deletion of files, and no lost events when the disk is slow."""


CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'


def echo(conn):
    """Answer each request of a connection with its own body."""
    for _, body in conn.requests():
        conn.send(json_response(body))


def answering(*responses):
    """A script that answers one request per response and then waits for the client to leave."""

    def script(conn):
        for response in responses:
            conn.request()
            conn.send(response)
        conn.rest()

    return script


def free_port():
    """Return an unused port outside the range of ephemeral ports."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


class ScriptedServer(contextlib.AbstractContextManager):
    """A server that runs `script(connection)` in a thread for every connection."""

    def __init__(self, script):
        self._script = script
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._sock.settimeout(TIMEOUT_SECONDS)
        self.port = self._sock.getsockname()[1]
        self.errors = queue.SimpleQueue()
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._sock.accept()
                sock.settimeout(TIMEOUT_SECONDS)
                self.connections += 1
                threading.Thread(target=self._handle, args=(sock,), daemon=True).start()

    def _handle(self, sock):
        try:
            self._script(Connection(sock))
        except (BrokenPipeError, ConnectionResetError):
            pass  # a client that needed more of the script fails by itself
        except Exception as error:  # noqa: BLE001 - raised at the end of the test
            self.errors.put(error)
        finally:
            sock.close()

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._thread.join(TIMEOUT_SECONDS)
        self._sock.close()
        if not self.errors.empty():
            raise self.errors.get()


class Connection:
    """A socket with the HTTP that a scripted peer needs."""

    def __init__(self, sock):
        self.sock = sock
        self._buffer = b""

    def more(self):
        data = self.sock.recv(65536)
        self._buffer += data
        return data

    def until(self, mark):
        """Return all bytes up to and including `mark`."""
        while mark not in self._buffer:
            assert self.more(), f"ended before {mark!r}: {self._buffer!r}"
        end = self._buffer.index(mark) + len(mark)
        taken, self._buffer = self._buffer[:end], self._buffer[end:]
        return taken

    def exactly(self, size):
        while len(self._buffer) < size:
            assert self.more(), "ended too early"
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def request(self):
        """Return head and body of one request, as received."""
        head = self.until(b"\r\n\r\n")
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            body = b""
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                self.until(b"\r\n")
            self.until(b"\r\n")
            return head, body
        size = 0
        if b"content-length:" in lower:
            size = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
        return head, self.exactly(size)

    def requests(self):
        """Yield head and body of each request until the client leaves."""
        with contextlib.suppress(AssertionError, OSError):
            while True:
                yield self.request()

    def send(self, data):
        self.sock.sendall(data)

    def rest(self):
        """Return all bytes until the peer closes."""
        while self.more():
            pass
        taken, self._buffer = self._buffer, b""
        return taken

    def reset(self):
        import struct

        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


class Client(Connection, contextlib.AbstractContextManager):
    """A client connection; h11 parses responses, not the code under test."""

    def __init__(self, port):
        self.port = port
        super().__init__(socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS))

    def __exit__(self, *_):
        self.sock.close()

    def post(self, body, *headers, path="/mcp", method="POST"):
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Accept: application/json, text/event-stream",
            *headers,
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.send("\r\n".join([*lines, "", ""]).encode() + (body or b""))

    def get(self, *headers, path="/mcp"):
        self.post(None, *headers, path=path, method="GET")

    def response(self, method="POST"):
        """Return status, headers (lower-case names) and body of the next response."""
        conn = h11.Connection(h11.CLIENT)
        conn.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        conn.send(h11.EndOfMessage())
        head, body = None, b""
        while True:
            event = conn.next_event()
            if event is h11.NEED_DATA:
                data, self._buffer = self._buffer, b""
                conn.receive_data(data or self.sock.recv(65536))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._buffer = conn.trailing_data[0]
                return head.status_code, {n.decode(): v.decode() for n, v in head.headers}, body

    def call(self, body, *headers, **options):
        self.post(body, *headers, **options)
        return self.response(options.get("method", "POST"))


class Rig(contextlib.AbstractContextManager):
    """A recorder that runs in a thread."""

    def __init__(self, out, upstream, *, host="127.0.0.1", policy="default", limits=LIMITS,
                 scheme="http", query="", ca_file=None):  # fmt: skip
        self.out, self.server = Path(out), upstream
        port = upstream if isinstance(upstream, int) else upstream.port
        sockets = bind("127.0.0.1:0")
        self.port = sockets[0].getsockname()[1]
        self.messages = []
        redaction_rules = redaction_policy.policy(policy)
        self.archive = Archive(out, policy=redaction_rules, limits=limits, log=self.messages.append)
        server = UpstreamServer(f"{scheme}://{host}:{port}/mcp{query}", ca_file=ca_file)
        self.service = Service(
            server, sockets, archive=self.archive, policy=redaction_rules, name="rig"
        )
        self.thread = threading.Thread(target=self.service.serve, daemon=True)
        self.thread.start()

    def client(self):
        return Client(self.port)

    def stop(self):
        self.service.loop.call_soon_threadsafe(self.service.stop)
        self.thread.join(TIMEOUT_SECONDS)
        assert not self.thread.is_alive()

    def __exit__(self, *_):
        if self.thread.is_alive():
            self.stop()
        self.service.loop.close()
        self.archive.close()  # otherwise its thread would run until the tests end

    def events(self):
        """Return all events written so far, recording by recording."""
        return events(self.out, ended=not self.thread.is_alive())

    def eventually(self, condition):
        return eventually(lambda: condition(self.events()))


@contextlib.contextmanager
def proxied(folder, script, **options):
    """A client's connection to a recorder in front of a server that runs `script`."""
    with (
        ScriptedServer(script) as server,
        Rig(folder, server, **options) as rig,
        rig.client() as client,
    ):
        yield rig, client


def recordings(recorded):
    """Return events by recording, in order of start, after checking that none is missing."""
    by = {}
    for event in recorded:
        by.setdefault(event["recording"], []).append(event)
    for own in by.values():
        own.sort(key=lambda event: event["seq"])
        assert [event["seq"] for event in own] == list(range(len(own)))
        times = [event["ts_ns"] for event in own]
        assert times == sorted(times)
    return sorted(by.values(), key=lambda own: own[0]["ts_ns"])


def checked_recordings(out):
    """Return the recordings in a folder, after checking that each request and its response share
    one."""
    records = recordings(events(out))
    for own in records:
        assert own[-1]["event"] == "close"
        asked = [json.dumps(e["msg"]["id"]) for e in of(own, "message", dir="c2s")
                 if "method" in e["msg"] and "id" in e["msg"]]  # fmt: skip
        answered = [json.dumps(e["msg"].get("id")) for e in of(own, "message", dir="s2c")
                    if "method" not in e["msg"]]  # fmt: skip
        assert sorted(asked) == sorted(answered)
        ends = [e["scope"] for e in of(own, "http", phase="end")]
        assert len(ends) == len(set(ends)) == len(of(own, "http", phase="request"))
    return records


def json_response(body, *headers, status="200 OK"):
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def sse_head(*headers):
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", *headers]
    return "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)
