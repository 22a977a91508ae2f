"""If the recording cannot be written, traffic continues and a gap reports the loss later."""

import os
import select
import sys

import pytest

from tests.record.recorder_process import (
    ECHO,
    PipedProcess,
    RecordedServer,
    eventually,
    script,
)

if sys.platform != "linux":
    pytest.skip("changes the limits of a running process", allow_module_level=True)

import fcntl

pytestmark = pytest.mark.slow


def call(recorded_server, number):
    recorded_server.send(b'{"id":%d}\n' % number)
    assert recorded_server.line() == b'{"id":%d}' % number


def test_traffic_continues_when_the_folder_cannot_be_written():
    with RecordedServer("/proc/mcptally-traces", ECHO) as recorded_server:
        for number in range(20):
            call(recorded_server, number)
        _, err, code = recorded_server.end()
    assert code == 0
    no_journal, cannot, could_not = err.splitlines()
    assert b"cannot keep a journal in /proc/mcptally-traces" in no_journal
    assert b"cannot record to" in cannot
    assert b"events could not be recorded" in could_not


def test_a_blocked_disk_delays_traffic_only_until_the_stall_limit(tmp_path):
    # A pipe instead of the segment: when it is full, a write blocks as on a failed disk.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    command = script(
        "import os, sys\n"
        "from mcptally.transcript.writer.limits import Limits\n"
        "from mcptally.record.stdio import session\n"
        "from mcptally.transcript.writer import segment\n"
        "from mcptally.transcript.writer.process import WriterProcess\n"
        "class OnPipe(segment.Segment):\n"
        "    def __init__(self, folder, name):\n"
        "        super().__init__(folder, name)\n"
        f"        os.dup2(os.open({str(pipe)!r}, os.O_WRONLY), self._fd)\n"
        "from mcptally.transcript.writer import segment_writer\n"
        "segment_writer.Segment = OnPipe\n"
        "def archive():\n"
        f"    return WriterProcess({str(tmp_path / 't')!r}, policy='default', \n"
        "                         limits=Limits(stall_seconds=0.2), queue_bytes=1 << 12)\n"
        f"os._exit(session.run({ECHO!r}, archive=archive))"
    )

    with PipedProcess(command) as recorded_server:
        number = 0
        logged = b""

        def stalled():
            nonlocal number, logged
            call(recorded_server, number)
            number += 1
            if number % 10 == 0 and select.select([recorded_server.process.stderr], [], [], 0)[0]:
                logged += recorded_server.line(stream="stderr")
            return logged

        assert eventually(stalled)
        assert b"traffic goes on without recording" in logged
        for _ in range(100):
            call(recorded_server, number)
            number += 1
        data = bytearray()

        def gap_in_pipe():
            nonlocal number
            while True:
                try:
                    chunk = os.read(reader, 1 << 20)
                except BlockingIOError:
                    break
                data.extend(chunk)
            call(recorded_server, number)
            number += 1
            return b'"event":"gap"' in data

        assert eventually(gap_in_pipe)
        assert recorded_server.end()[2] == 0
    os.close(reader)
    assert b"was too slow" in data
