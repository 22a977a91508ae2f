"""Tests of the HTTP recorder as a process: listening, signals and kills."""

import base64
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from tests.record.http_rig import (
    Client,
    Connection,
    ScriptedServer,
    echo,
    free_port,
    json_response,
    recordings,
)
from tests.record.recorder_process import TIMEOUT_SECONDS, alive, events, eventually, of, writer_of

pytestmark = pytest.mark.slow


class Program(contextlib.AbstractContextManager):
    """`mcptally record --url … --listen …` as a process, with its first line on stderr."""

    def __init__(self, out, port, *options, listen="127.0.0.1:0", program=("-m", "mcptally")):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-B", *program, "record", "--out", str(out),
             "--no-compress", "--disk-wait", "off", "--url", f"http://127.0.0.1:{port}/mcp",
             "--listen", listen, *options],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.first_line = self.process.stderr.readline()
        if "cannot keep a journal" in self.first_line:
            self.first_line = self.process.stderr.readline()
        match = re.search(r"clients connect to http://(\S+):(\d+)/mcp", self.first_line)
        if not match:
            self.process.kill()
        assert match, self.first_line + self.process.stderr.read()
        self.port = int(match[2])

    def client(self):
        return Client(self.port)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS), self.process.stderr.read()

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


@pytest.mark.parametrize(
    "number",
    [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)],
)
def test_a_signal_ends_the_recorder_with_a_close_event_in_every_recording(tmp_path, number):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests were started with this signal ignored, as nohup does")
    with (
        ScriptedServer(echo) as server,
        Program(tmp_path, server.port) as program,
        Client(program.port) as client,
    ):
        assert client.call(b'{"id":1}')[2] == b'{"id":1}'
        assert program.end(number) == (0, "")
        assert client.rest() == b""
    (own,) = recordings(events(tmp_path))
    assert own[0]["server"] == f"127.0.0.1:{server.port}"
    assert own[0]["url"] == f"http://127.0.0.1:{server.port}/mcp"
    assert (own[-1]["event"], own[-1]["reason"]) == ("close", "stopped")


def test_a_second_signal_does_not_wait_for_active_calls(tmp_path):
    asked = threading.Event()
    program_with_long_grace = (
        "from mcptally.cli import main\n"
        "from mcptally.record.http import server\n"
        "server.GRACE_SECONDS = 100 * 3600\n"
        "main()"
    )

    def script(conn):
        conn.request()
        asked.set()
        with contextlib.suppress(OSError):
            conn.rest()

    with (
        ScriptedServer(script) as server,
        Program(tmp_path, server.port, program=("-c", program_with_long_grace)) as program,
        Client(program.port) as idle,
        Client(program.port) as client,
    ):
        client.post(b'{"id":1}')
        assert asked.wait(TIMEOUT_SECONDS)
        program.process.send_signal(signal.SIGINT)
        assert idle.rest() == b""  # simultaneous signals may be merged into one
        assert program.end(signal.SIGINT) == (0, "")
    (own,) = recordings(events(tmp_path))
    (end,) = of(own, "http", phase="end")
    assert (end["closed_by"], end["why"]) == ("proxy", "stopped")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.parametrize("calls", [1, 300])
def test_calls_answered_before_a_kill_are_in_the_file(tmp_path, calls):
    got = []
    with (
        ScriptedServer(echo) as server,
        Program(tmp_path, server.port, "--redact", "none") as program,
    ):
        clients = [Client(program.port) for _ in range(4)]
        for number in range(calls):
            client = clients[number % 4]
            body = b'{"id":%d}' % number
            assert client.call(body)[2] == body
            got.append(number)
        clients[0].post(b'{"id":"unanswered"}')
        writer = eventually(lambda: writer_of(program.process.pid))
        program.process.kill()
        program.process.wait()
        for client in clients:
            client.close()
    assert eventually(lambda: not alive(writer))
    records = [e for e in events(tmp_path) if e["event"] == "message"]
    for direction in ("c2s", "s2c"):
        ids = [e["msg"]["id"] for e in records if e["dir"] == direction]
        assert [i for i in ids if i != "unanswered"] == got


def test_listening_on_other_addresses_than_loopback_logs_a_warning(tmp_path):
    with Program(tmp_path, 9, listen="0.0.0.0:0") as program:
        code, err = program.end()
    assert code == 0
    assert err.startswith("mcptally: warning: 0.0.0.0 can be reached from other machines.")
    assert "Listen on 127.0.0.1" in err


RUN_EACH = """
import contextlib, io, json, sys
from mcptally.cli import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["mcptally", "record", *arguments]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


def run_in_turn(folder, cases):
    """Exit code and stderr of recorders by --url and --listen, run by one process in turn.

    A recorder that is not refused runs until the time limit, and has no entry.
    """
    given = [["--out", str(folder), "--url", url, "--listen", listen] for url, listen in cases]
    command = [sys.executable, "-I", "-c", RUN_EACH, json.dumps(given)]
    try:
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=False
        ).stdout
    except subprocess.TimeoutExpired as error:
        ended = error.stdout or b""
    return dict(zip(cases, map(json.loads, ended.splitlines()), strict=False))


def own_address():
    """Return an address of this machine that is not a loopback address, or None."""
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # sends nothing
        address = sock.getsockname()[0]
        return None if address.startswith("127.") else address
    return None


OWN = own_address()
ANY = "0.0.0.0"  # noqa: S104 - bound for a moment by a recorder that refuses


def can_listen(listen):
    """Whether this machine has the address."""
    with contextlib.suppress(OSError):
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        socket.create_server((listen.strip("[]") or "127.0.0.1", 0), family=family).close()
        return True
    return False


OWN_ADDRESSES = [
    ("127.0.0.1", "127.0.0.1"),
    ("localhost", "127.0.0.1"),
    ("127.0.0.1", "localhost"),
    (ANY, "127.0.0.1"),
    ("127.0.0.1", ANY),
    ("127.0.0.7", ANY),
    ("[::ffff:127.0.0.1]", "127.0.0.1"),
    ("user:hush@localhost", ""),
    *([] if OWN is None else [(OWN, ANY), (OWN, OWN), (ANY, ANY)]),
    *([("[::1]", "[::1]"), ("[::]", "[::1]"), ("[::1]", "[::]")] if socket.has_ipv6 else []),
]


@pytest.fixture(scope="module")
def at_own_addresses(tmp_path_factory):
    """Exit code and stderr of recorders whose URL is where they listen."""
    cases = {
        (host, listen): (f"http://{host}:{port}/mcp", f"{listen}:{port}")
        for host, listen in OWN_ADDRESSES
        if can_listen(listen)
        for port in [free_port()]
    }
    ended = run_in_turn(tmp_path_factory.mktemp("own"), list(cases.values()))
    return {case: ended.get(options) for case, options in cases.items()}


@pytest.mark.parametrize(("host", "listen"), OWN_ADDRESSES)
def test_a_url_that_points_at_the_recorder_itself_is_refused(at_own_addresses, host, listen):
    if (host, listen) not in at_own_addresses:
        pytest.skip(f"this machine cannot listen on {listen}")
    ended = at_own_addresses[host, listen]
    assert ended is not None, "the recorder was not refused"
    code, err = ended
    assert code == 2, err
    assert "this is the recorder's own address" in err
    assert "hush" not in err
    assert err.count("\n") == 1


def test_the_same_port_at_another_address_is_accepted(tmp_path):
    with (
        ScriptedServer(echo) as server,
        Program(tmp_path, server.port, listen=f"127.0.0.2:{server.port}") as program,
    ):
        sock = socket.create_connection(("127.0.0.2", program.port), TIMEOUT_SECONDS)
        with contextlib.closing(sock):
            client = Connection(sock)
            client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
            assert client.until(b"\r\n\r\n{}").startswith(b"HTTP/1.1 200")


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

    with (
        ScriptedServer(script) as server,
        Program(
            tmp_path, server.port, "--redact", "default" if query else "none",
            "--url", f"http://{userinfo}127.0.0.1:{server.port}/mcp{query}",
        ) as program,
        Client(program.port) as client,
    ):  # fmt: skip
        assert client.call(b"{}", *own)[0] == 200
        logged = program.first_line + program.end()[1]
    sent = [line for line in heads[0].split("\r\n") if line.lower().startswith("authorization")]
    assert sent == ([] if expected is None else [f"Authorization: {expected}"])
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert next(tmp_path.iterdir()).name.startswith("127.0.0.1_")
    for secret in ("p%40ss", "p@ss", "hush", "mine", "admiral", "Basic"):
        assert secret not in logged
        assert secret.encode() not in written
