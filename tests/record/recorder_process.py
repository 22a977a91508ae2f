"""Runs commands behind the recorder as a client does, and reads the recorded events."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

PYTHON = [sys.executable, "-I", "-B"]
"""-B: with a limit on file sizes, Python would write truncated bytecode, which later runs
import."""
TIMEOUT_SECONDS = 60.0
"""Seconds after which a test stops waiting for a process; only a failing test waits this long."""


def script(source):
    """The command that runs the Python code `source`."""
    return [*PYTHON, "-c", source]


ECHO = script(
    "import os\nwhile data := os.read(0, 65536):\n    while data: data = data[os.write(1, data):]"
)
"""Writes back each chunk that it reads; ends at end of file."""


def recorder(out, *options):
    """The recorder's command; it waits for the disk without limit, so that no events are lost."""
    wait = ["--disk-wait", "off"]
    return [*PYTHON, "-m", "mcptally", "record", "--out", str(out), *wait, *map(str, options), "--"]


def segments(out):
    """Names and decompressed bytes of the segments, in order, without `.part` files."""
    found = {}
    for path in sorted(Path(out).glob("*.jsonl*")):
        data = None
        # A background thread may just replace a finished segment by its compressed copy.
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
        if data is None or path.name.endswith(".part"):
            continue
        if path.name.endswith(".zst"):
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(data) as reader:
                data = reader.read()
        found[path.name.removesuffix(".zst")] = data
    return list(found.items())


def events(out, *, ended=True):
    """Return all events in the folder `out`, in the order of their files.

    With `ended` false the recording may still run, so an incomplete last line is ignored.
    """
    found = []
    for name, data in segments(out):
        *lines, tail = data.split(b"\n")
        assert not tail or not ended, f"{name} has a torn tail"
        found += map(json.loads, lines)
    return found


def of(found, *kinds, **fields):
    """Return the events of the given kinds whose fields have the given values."""
    return [
        event
        for event in found
        if event["event"] in kinds and all(event.get(k) == v for k, v in fields.items())
    ]


class PipedProcess(contextlib.AbstractContextManager):
    """A command with its three streams on pipes of the test."""

    def __init__(self, command, **popen):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            **popen,
        )
        self._unread = {}

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()
            self.process.stderr.close()

    def send(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.process.stdin.fileno(), view) :]

    def read(self, size, *, stream="stdout"):
        """Read `size` bytes, or fewer if the stream ends."""
        return self._until(lambda data: len(data) >= size, stream, size)

    def line(self, *, stream="stdout"):
        """Read the next line and return it without its newline."""
        data = self._until(lambda data: b"\n" in data, stream, None)
        line, _, rest = data.partition(b"\n")
        self._unread[stream] = rest
        return line

    def read_to_end(self, *, stream="stdout"):
        """Read up to the end of the stream."""
        return self._until(lambda _: False, stream, None)

    def end(self):
        """Close stdin and read both streams to their end: (stdout, stderr, exit code)."""
        self.process.stdin.close()
        out = self.read_to_end()
        err = self.read_to_end(stream="stderr")
        return out, err, self.process.wait(TIMEOUT_SECONDS)

    def _until(self, enough, stream, size):
        fd = getattr(self.process, stream).fileno()
        data = bytearray(self._unread.pop(stream, b""))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not enough(data):
            ready, _, _ = select.select([fd], [], [], deadline - time.monotonic())
            assert ready, f"timeout: no more data on {stream} after {bytes(data[-200:])!r}"
            chunk = os.read(fd, 1 << 20)
            if not chunk:
                break
            data += chunk
        if size is not None and len(data) > size:
            self._unread[stream] = bytes(data[size:])
            del data[size:]
        return bytes(data)


class RecordedServer(PipedProcess):
    """A command behind the recorder."""

    def __init__(self, out, command, *options, **popen):
        super().__init__([*recorder(out, *options), *command], **popen)


def eventually(condition):
    """Wait until `condition()` is true, and return its value."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (answer := condition()):
        assert time.monotonic() < deadline, "timed out"
        select.select([], [], [], 0.005)
    return answer


def writer_of(pid):
    """The process that writes the recordings of the recorder `pid`: the leader of a session."""
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(child) == child:
                return child
    return None


def alive(pid):
    """Return whether a process runs and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"
