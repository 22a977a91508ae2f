"""The Windows relay, tested on this platform without the parts that need Windows."""

import subprocess

import pytest

from tests.record.recorder_process import RecordedServer, events, of, script

ECHO = script(
    "import os\nwhile data := os.read(0, 65536):\n    while data: data = data[os.write(1, data):]"
)


class ServerOnThreads(RecordedServer):
    """A command run by `windows.run`."""

    def __init__(self, out, command):
        self.out = out
        source = (
            "import os\n"
            "from mcptally.record.stdio import windows\n"
            "from mcptally.redaction import policy\n"
            "from mcptally.transcript.writer.archive import Archive\n"
            f"make = lambda: Archive({str(out)!r}, policy=policy.policy('none'))\n"
            f"os._exit(windows.run({command!r}, archive=make))"
        )
        self.process = subprocess.Popen(
            script(source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._unread = {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"a":1.50}\r\n\xff\n\n{"b":2}',
        b'{"id":1}\n' * 15_000,
        pytest.param(b'"' + b"x" * 3_000_000 + b'"\n', marks=pytest.mark.slow),
    ],
    ids=["nothing", "unusual bytes", "many", "large"],
)
def test_bytes_are_relayed_unchanged_and_recorded(data, tmp_path):
    with ServerOnThreads(tmp_path, ECHO) as recorded_server:
        if len(data) > 60_000:
            import threading

            sender = threading.Thread(target=recorded_server.send, args=(data,))
            sender.start()
            assert recorded_server.read(len(data)) == data
            sender.join()
            assert recorded_server.end_with_noise() == (b"", b"", 0)
        else:
            recorded_server.send(data)
            assert recorded_server.end_with_noise() == (data, b"", 0)
    found = events(tmp_path)
    frames = len(data.split(b"\n")) - (not data or data.endswith(b"\n"))
    for way in ("c2s", "s2c"):
        assert len(of(found, "message", "raw", dir=way)) == frames
    assert found[-1]["event"] == "close"
    assert [e["seq"] for e in found] == list(range(len(found)))


def test_stderr_the_exit_code_and_the_last_output_reach_the_client(tmp_path):
    server = script(
        "import os\nos.write(2, b'one\\r\\ntwo'); os.write(1, b'x' * 60000); os._exit(7)"
    )
    with ServerOnThreads(tmp_path, server) as recorded_server:
        end = recorded_server.end_with_noise()
        assert end == (b"x" * 60000, b"one\r\ntwo", 7)
    found = events(tmp_path)
    assert [e["text"] for e in of(found, "stderr")] == ["one", "two"]
    assert (found[-1]["reason"], found[-1]["exit_code"]) == ("server_exited", 7)


def test_a_server_that_cannot_start_is_recorded_as_not_started(tmp_path):
    with ServerOnThreads(tmp_path, ["no-such-server"]) as recorded_server:
        _, err, code = recorded_server.end()
    assert code == 127
    assert b"PATH searched" in err
    assert events(tmp_path)[-1]["reason"] == "not_started"
