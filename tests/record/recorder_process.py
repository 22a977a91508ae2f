"""Runs programs behind the real recorder, as a client would, and reads what it recorded."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

PYTHON = [sys.executable, "-I", "-B"]
"""Writes no bytecode: under a limit on file sizes Python keeps half a module, for all to import."""
TIMEOUT_SECONDS = 60.0
"""Seconds after which a test gives up on a process; none waits that long when all is well."""


def script(source):
    """A command that runs `source`."""
    return [*PYTHON, "-c", source]


def recorder(out, *options):
    """The recorder's command; a disk that a loaded machine holds up costs no events."""
    wait = ["--disk-wait", "off"]
    return [*PYTHON, "-m", "mcptally", "record", "--out", str(out), *wait, *map(str, options), "--"]


def segments(out):
    """Names and bytes of the segments, in order. Work in progress (`.part`) is nobody's."""
    found = {}
    for path in sorted(Path(out).iterdir()):
        data = None
        # A background thread may be replacing a finished segment by its compressed copy.
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
    """All events below `out` in the order of their files, each line read strictly.

    While it is still recorded (`ended` is false), a reader may see a part of the last line.
    """
    found = []
    for name, data in segments(out):
        *lines, tail = data.split(b"\n")
        assert not tail or not ended, f"{name} has a torn tail"
        found += map(json.loads, lines)
    return found


def of(found, *kinds, **fields):
    """Those events of the given kinds whose fields are as given."""
    return [
        event
        for event in found
        if event["event"] in kinds and all(event.get(k) == v for k, v in fields.items())
    ]


class RecordedServer(contextlib.AbstractContextManager):
    """A command behind the recorder, with its three streams on pipes of ours."""

    def __init__(self, out, command, *options, **popen):
        self.out = out
        self.process = subprocess.Popen(
            [*recorder(out, *options), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            **popen,
        )
        self._kept = {}

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
        """Exactly `size` bytes, or what came before the end."""
        return self._until(lambda kept: len(kept) >= size, stream, size)

    def line(self, *, stream="stdout"):
        """The next line, without its end."""
        kept = self._until(lambda kept: b"\n" in kept, stream, None)
        line, _, rest = kept.partition(b"\n")
        self._kept[stream] = rest
        return line

    def rest(self, *, stream="stdout"):
        """Everything up to the end."""
        return self._until(lambda _: False, stream, None)

    def end(self):
        """Close stdin and read both streams to their end: (stdout, stderr, exit code)."""
        self.process.stdin.close()
        out = self.rest()
        err = self.rest(stream="stderr")
        return out, err, self.process.wait(TIMEOUT_SECONDS)

    def _until(self, enough, stream, size):
        fd = getattr(self.process, stream).fileno()
        kept = bytearray(self._kept.pop(stream, b""))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not enough(kept):
            ready, _, _ = select.select([fd], [], [], deadline - time.monotonic())
            assert ready, f"nothing more on {stream} after {bytes(kept[-200:])!r}"
            chunk = os.read(fd, 1 << 20)
            if not chunk:
                break
            kept += chunk
        if size is not None and len(kept) > size:
            self._kept[stream] = bytes(kept[size:])
            del kept[size:]
        return bytes(kept)


def eventually(holds, *, seconds=TIMEOUT_SECONDS):
    """Wait until `holds()`; the last answer."""
    deadline = time.monotonic() + seconds
    while not (answer := holds()) and time.monotonic() < deadline:
        select.select([], [], [], 0.01)
    return answer


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"
