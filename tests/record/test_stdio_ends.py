"""How a recording ends: exit codes, signals, end of file, and no process left running."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.recorder_process import (
    TIMEOUT_SECONDS,
    PipedProcess,
    RecordedServer,
    alive,
    events,
    eventually,
    of,
    recorder,
    script,
)

pytestmark = pytest.mark.slow

LINUX = sys.platform == "linux"

# Ignores all signals that can be ignored, and prints its pid.
STUBBORN = (
    "import os, signal, sys, time\n"
    "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
    "print(os.getpid(), flush=True)\n"
    "while True: time.sleep(60)"
)


@pytest.mark.parametrize("code", [0, 127])
def test_the_recorder_exits_with_the_servers_exit_code(code, tmp_path):
    with RecordedServer(tmp_path, script(f"import sys; sys.exit({code})")) as recorded_server:
        assert recorded_server.end() == (b"", b"", code)
    last = events(tmp_path)[-1]
    assert (last["reason"], last["exit_code"], last["signal"]) == ("server_exited", code, None)


def test_a_server_that_exits_with_0_while_its_client_is_connected_quit(tmp_path):
    with RecordedServer(tmp_path, script("input()")) as recorded_server:
        recorded_server.send(b"{}\n")
        assert recorded_server.process.wait(TIMEOUT_SECONDS) == 0
        last = events(tmp_path)[-1]
        assert (last["reason"], last["exit_code"]) == ("server_quit", 0)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGPIPE"])
def test_a_server_killed_by_a_signal_gives_exit_code_128_plus_the_signal(name, tmp_path):
    number = getattr(signal, name)
    server = script(
        f"import os, signal; signal.signal({number}, 0) if {number} != 9 else 0; "
        f"os.write(1, b'{{}}'); os.kill(os.getpid(), {number})"
    )
    with RecordedServer(tmp_path, server) as recorded_server:
        assert recorded_server.end() == (b"{}", b"", 128 + number)
    found = events(tmp_path)
    assert (found[-1]["exit_code"], found[-1]["signal"]) == (None, number)
    assert of(found, "message")[0]["unterminated"] is True


@pytest.mark.parametrize("command", [["no-such-server", "x"], ["/"], [""]])
def test_a_server_that_cannot_start_is_recorded_as_not_started(command, tmp_path):
    with RecordedServer(tmp_path, command, env={"PATH": "/searched:/here"}) as recorded_server:
        out, err, code = recorded_server.end()
    assert (out, code) == (b"", 127)
    assert b"cannot start %b" % repr(command[0]).encode() in err
    found = events(tmp_path)
    assert [event["event"] for event in found] == ["open", "close"]
    assert (found[1]["reason"], found[1]["exit_code"]) == ("not_started", 127)
    assert found[1]["path"] == "/searched:/here"
    if command[0] == "no-such-server":
        assert b"/searched:/here" in err
        assert "/searched:/here" in found[1]["detail"]


def test_a_relay_that_fails_ends_the_server_and_the_recorder(tmp_path):
    recorder = script(
        "import os\n"
        "from mcptally.record.stdio import relay, session\n"
        "from mcptally.transcript.writer.archive import Archive\n"
        "def broken(self, lane): raise MemoryError\n"
        "relay.Relay._read = broken\n"
        f"os._exit(session.run(['cat'], archive=lambda: Archive({str(tmp_path)!r})))"
    )
    with PipedProcess(recorder) as failing:
        failing.send(b"x\n")
        # stdin stays open, so only the failed relay can end the recorder.
        assert failing.process.wait(TIMEOUT_SECONDS) > 128


def test_a_script_without_a_shebang_starts_as_it_does_from_node(tmp_path):
    path = tmp_path / "server"
    path.write_text('echo "{}" $1\nexit 3\n')
    path.chmod(0o755)
    with RecordedServer(tmp_path / "t", [str(path), "x"]) as recorded_server:
        out, _, code = recorded_server.end()
    assert (out, code) == (b"{} x\n", 3)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_signals_are_passed_on_to_the_server_at_once(name, tmp_path):
    server = script(
        "import os, signal\n"
        f"awaited = [signal.{name}]\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, awaited)\n"
        "print('ready', flush=True)\n"
        "signal.sigwait(awaited)\n"
        "print('got', flush=True); os._exit(9)"
    )
    number = getattr(signal, name)
    # A test run in the background may have been started with some of them ignored.
    set_default = lambda: signal.signal(number, signal.SIG_DFL)  # noqa: E731
    with RecordedServer(tmp_path, server, preexec_fn=set_default) as recorded_server:
        assert recorded_server.line() == b"ready"
        recorded_server.process.send_signal(number)
        assert recorded_server.line() == b"got"
        assert recorded_server.process.wait(TIMEOUT_SECONDS) == 9
    last = events(tmp_path)[-1]
    assert (last["event"], last["exit_code"]) == ("close", 9)


def test_signals_that_the_client_ignores_stay_ignored(tmp_path):
    server = script(
        "import signal\n"
        "print([signal.getsignal(s) == signal.SIG_IGN for s in (1, 2, 15)], flush=True)"
    )

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    with RecordedServer(tmp_path, server, preexec_fn=ignore) as recorded_server:
        assert recorded_server.end()[0] == b"[True, False, False]\n"


def test_end_of_file_from_the_server_reaches_the_client_while_the_server_runs(tmp_path):
    server = script("import os, sys; print('{}', flush=True); os.close(1); sys.stdin.read()")
    with RecordedServer(tmp_path, server) as recorded_server:
        assert recorded_server.read_to_end() == b"{}\n"
        assert recorded_server.process.poll() is None
        assert recorded_server.end()[2] == 0


def test_a_server_that_stops_reading_breaks_the_clients_pipe(tmp_path):
    server = script("import os, signal\nos.close(0); print('closed', flush=True); signal.pause()")
    with RecordedServer(tmp_path, server) as recorded_server:
        assert recorded_server.line() == b"closed"

        def broken():
            try:
                os.write(recorded_server.process.stdin.fileno(), b"{}\n")
            except BrokenPipeError:
                return True
            return False

        assert eventually(broken)
        recorded_server.process.terminate()
        assert recorded_server.process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM


def test_a_client_that_stops_reading_is_noticed_before_the_server_writes(tmp_path):
    server = script(
        "import select, sys\n"
        "p = select.poll(); p.register(1, 0)\n"
        "print('ready', flush=True)\n"
        "p.poll(); sys.exit(5)"
    )
    with RecordedServer(tmp_path, server) as recorded_server:
        assert recorded_server.line() == b"ready"
        recorded_server.process.stdout.close()
        assert recorded_server.process.wait(TIMEOUT_SECONDS) == 5
        recorded_server.process.stdout = open(os.devnull, "rb")  # noqa: SIM115, PTH123 - closed on exit


@contextlib.contextmanager
def client_of(tmp_path, server):
    """Start a client with a server behind a recorder: (client, [recorder pid, server output])."""
    command = [*recorder(tmp_path), *server]
    source = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen({command!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(p.pid, p.stdout.readline().decode().strip(), flush=True)\n"
        "time.sleep(600)"
    )
    client = subprocess.Popen(script(source), stdout=subprocess.PIPE)
    try:
        pids = [int(word) for word in client.stdout.readline().split()]
        yield client, pids
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


needs_linux = pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")


@needs_linux
@pytest.mark.parametrize("who", ["client", "recorder", "supervisor"])
def test_a_stubborn_server_ends_after_a_kill_of(who, tmp_path):
    with client_of(tmp_path, script(STUBBORN)) as (client, pids):
        recorder_pid, server_pid = pids
        supervisor_pid = int(
            Path(f"/proc/{server_pid}/stat").read_text().rpartition(")")[2].split()[1]
        )
        victim = {"client": client.pid, "recorder": recorder_pid, "supervisor": supervisor_pid}[who]
        os.kill(victim, signal.SIGKILL)
        processes = [recorder_pid, supervisor_pid, server_pid]
        assert eventually(lambda: not any(alive(pid) for pid in processes))


@needs_linux
@pytest.mark.parametrize(
    ("who", "detached"),
    [("recorder", False), ("recorder", True), ("client", True), ("server", True)],
)
def test_child_processes_of_the_server_end_after_a_kill_of(who, detached, tmp_path):
    # Like a browser started by a server: ignores SIGTERM, and has its own session if detached.
    server = script(
        "import subprocess, sys, os\n"
        f"c = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], "
        f"stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session={detached})\n"
        "c.stdout.readline()\n"
        "print(os.getpid(), c.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    with client_of(tmp_path, server) as (client, pids):
        recorder_pid, server_pid, _ = pids
        victim = {"client": client.pid, "recorder": recorder_pid, "server": server_pid}[who]
        os.kill(victim, signal.SIGKILL)
        assert eventually(lambda: not any(alive(pid) for pid in pids))


@needs_linux
def test_a_client_can_end_a_stubborn_server_by_close_sigterm_and_sigkill(tmp_path):
    with RecordedServer(tmp_path, script(STUBBORN), start_new_session=True) as recorded_server:
        server = int(recorded_server.line())
        recorded_server.process.stdin.close()
        recorded_server.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            recorded_server.process.wait(
                0.5
            )  # the server ignores both, so it runs on as without a recorder
        assert alive(server)
        os.killpg(recorded_server.process.pid, signal.SIGKILL)  # as the Python SDK does
        assert eventually(lambda: not alive(server))


@needs_linux
def test_a_child_of_the_server_that_holds_stdout_does_not_delay_the_end(tmp_path):
    server = script(
        "import subprocess, sys\nsubprocess.Popen(['sleep', '600'])\nprint('{}', flush=True)\n"
    )
    with RecordedServer(tmp_path, server) as recorded_server:
        assert recorded_server.end() == (b"{}\n", b"", 0)
    assert events(tmp_path)[-1]["reason"] == "server_exited"
