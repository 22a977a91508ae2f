"""If the recording cannot be written, traffic continues and a gap reports the loss later."""

import os
import subprocess
import sys

import pytest

from tests.record.recorder_process import (
    RecordedServer,
    events,
    eventually,
    of,
    script,
    writer_of,
)

if sys.platform != "linux":
    pytest.skip("changes the limits of a running process", allow_module_level=True)

import fcntl
import resource

pytestmark = pytest.mark.slow

ECHO = script("import os\nwhile data := os.read(0, 65536): os.write(1, data)")


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


def test_a_disk_that_fills_up_and_empties_again_leaves_a_gap(tmp_path):
    with RecordedServer(tmp_path, ECHO) as recorded_server:
        call(recorded_server, 0)
        pid = eventually(lambda: writer_of(recorded_server.process.pid))
        assert eventually(lambda: len(of(events(tmp_path, ended=False), "message")) == 2)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        for number in range(1, 50):
            call(recorded_server, number)
        assert b"traffic goes on" in recorded_server.line(stream="stderr")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        number = 50

        def gap_written():
            nonlocal number
            call(recorded_server, number)
            number += 1
            return of(events(tmp_path, ended=False), "gap")

        assert eventually(gap_written)
        out, err, code = recorded_server.end()
        assert (out, code) == (b"", 0)
    found = events(tmp_path)
    # Several messages if a gap was written before the disk was full again.
    assert all(b"traffic goes on" in line for line in err.splitlines())
    gaps = of(found, "gap")
    ids = [(e["dir"], e["msg"]["id"]) for e in of(found, "message")]
    sent = [(way, n) for n in range(number) for way in ("c2s", "s2c")]
    lost = [pair for pair in sent if pair not in ids]
    assert lost
    assert sum(gap["lost"] for gap in gaps) == len(lost) == found[-1]["counts"]["lost"]
    seqs = {event["seq"] for event in found}
    assert len(set(range(found[-1]["seq"])) - seqs) == len(lost)


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

    with PlainProcess(command) as recorded_server:
        number = 0
        logged = b""

        def stalled():
            nonlocal number, logged
            call(recorded_server, number)
            number += 1
            if number % 10 == 0 and recorded_server.ready("stderr"):
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


class PlainProcess(RecordedServer):
    """A command without a recorder, with the same methods."""

    def __init__(self, command):

        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._unread = {}

    def ready(self, stream):
        import select

        return bool(select.select([getattr(self.process, stream)], [], [], 0)[0])
