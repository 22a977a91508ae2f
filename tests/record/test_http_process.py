"""Tests of the HTTP recorder as a process: listening, signals and kills."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from mcptally.errors import UsageError
from mcptally.record.http.server import bind
from mcptally.record.http.upstream import UpstreamServer
from tests.record.http_rig import (
    Client,
    ScriptedServer,
    echo,
    free_port,
    recordings,
)
from tests.record.recorder_process import (
    PYTHON,
    TIMEOUT_SECONDS,
    PipedProcess,
    alive,
    events,
    eventually,
    of,
    writer_of,
)

pytestmark = pytest.mark.slow


class Program(PipedProcess):
    """`mcptally record --url … --listen …` as a process."""

    def __init__(self, out, port, *options, listen="127.0.0.1:0", program=("-m", "mcptally")):
        super().__init__(
            [*PYTHON, *program, "record", "--out", str(out), "--no-compress", "--disk-wait", "off",
             "--url", f"http://127.0.0.1:{port}/mcp", "--listen", listen, *options]
        )  # fmt: skip
        said = self.line(stream="stderr")
        if b"cannot keep a journal" in said:
            said = self.line(stream="stderr")
        match = re.search(rb"clients connect to http://\S+:(\d+)/mcp", said)
        if not match:
            self.process.kill()
        assert match, said + self.read_to_end(stream="stderr")
        self.port = int(match[1])

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS), self.read_to_end(stream="stderr").decode()

    def __exit__(self, *_):
        self.process.kill()
        super().__exit__()


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


def own_address():
    """Return an address of this machine that is not a loopback address, or None."""
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # sends nothing
        address = sock.getsockname()[0]
        return None if address.startswith("127.") else address
    return None


OWN = own_address()
ANY = "0.0.0.0"  # noqa: S104 - bound for a moment by a recorder that refuses


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


@pytest.mark.parametrize(("host", "listen"), OWN_ADDRESSES)
def test_a_url_that_points_at_the_recorder_itself_is_recognised(host, listen):
    try:
        sockets = bind(f"{listen}:0")
    except UsageError:
        pytest.skip(f"this machine cannot listen on {listen}")
    with contextlib.ExitStack() as stack:
        for sock in sockets:
            stack.enter_context(sock)
        server = UpstreamServer(f"http://{host}:{sockets[0].getsockname()[1]}/mcp")
        with pytest.raises(UsageError, match="this is the recorder's own address") as refused:
            server.reject_own_addresses(sockets)
    assert "hush" not in str(refused.value)


def test_a_recorder_does_not_start_with_its_own_address_as_the_server(tmp_path):
    port = free_port()
    where = ["--url", f"http://localhost:{port}/mcp", "--listen", f"127.0.0.1:{port}"]
    command = [sys.executable, "-I", "-m", "mcptally", "record", "--out", str(tmp_path), *where]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert (done.returncode, "this is the recorder's own address" in done.stderr) == (2, True)


def test_the_same_port_at_another_address_is_accepted():
    (sock,) = bind("127.0.0.2:0")
    with sock:
        server = UpstreamServer(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp")
        server.reject_own_addresses([sock])
