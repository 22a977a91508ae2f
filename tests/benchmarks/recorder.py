"""Measures the stdio recorder, direct calls and a bare pipe relay in one run.

    python -m tests.benchmarks recorder [--calls 2000] [--starts 7]

Every variant keeps its server running; the variants take turns of 20 calls, so that a busy machine
affects all equally. Linux only. CPU is what the processes between client and server used (their
threads' schedstat). Start-up is `-- true` over `python -c "import asyncio"`. Memory (PSS) is that
after 50,000 calls and after 500,000, which are sent without waiting.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

BLOCK: Final = 20
FLOOD: Final = 50_000

SERVER: Final = """
import os
text = b'x' * 216
rest = b''
while data := os.read(0, 65536):
    *lines, rest = (rest + data).split(b'\\n')
    out = b''.join(b'{"jsonrpc":"2.0","id":' + line[line.rfind(b':') + 1 : -1] +
                   b',"result":{"content":[{"type":"text","text":"' + text +
                   b'"}],"isError":false}}\\n' for line in lines)
    while out:
        out = out[os.write(1, out):]
"""

RELAY: Final = """
import os, subprocess, sys, threading
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def pump(source, target):
    while data := os.read(source, 65536):
        while data:
            data = data[os.write(target, data):]
    os.close(target)
for a, b in ((0, p.stdin.fileno()), (p.stdout.fileno(), 1)):
    threading.Thread(target=pump, args=(a, b), daemon=True).start()
sys.exit(p.wait())
"""


def request(number: int) -> bytes:
    """A call, whose id is the last number of the line."""
    return (
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo","arguments":'
        b'{"message":"hello"}},"id":%d}\n' % number
    )


class Variant:
    """One way to the server: a running process, and what was measured through it."""

    def __init__(self, prefix: Sequence[str]) -> None:
        command = [*prefix, sys.executable, "-I", "-S", "-c", SERVER]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, bufsize=0, **pipes)
        self.times: list[int] = []
        self.cpu_ns = 0
        self.call(0)
        # The last process that was started is the server.
        self.between = list(_tree(self.process.pid))[:-1]

    def call(self, number: int) -> int:
        """Nanoseconds of a call."""
        began = time.perf_counter_ns()
        os.write(self.process.stdin.fileno(), request(number))
        while not os.read(self.process.stdout.fileno(), 1 << 20).endswith(b"\n"):
            pass
        return time.perf_counter_ns() - began

    def block(self, first: int) -> None:
        """Measure a block of calls."""
        before = _cpu_ns(self.between)
        self.times += [self.call(first + n) for n in range(BLOCK)]
        self.cpu_ns += _cpu_ns(self.between) - before

    def flood(self, count: int) -> float:
        """Send calls without waiting for replies; the memory afterwards, in MB."""
        data = b"".join(request(n) for n in range(count))
        sender = threading.Thread(target=self._send, args=(data,))
        sender.start()
        while count > 0:
            count -= os.read(self.process.stdout.fileno(), 1 << 20).count(b"\n")
        sender.join()
        return sum(map(_pss_mb, self.between))

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.process.stdin.fileno(), view[:65536]) :]

    def close(self) -> None:
        """End the server, and the processes between it and the client."""
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def _tree(pid: int) -> Iterator[int]:
    """A process and those that it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))


def _cpu_ns(pids: Sequence[int]) -> int:
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("Pss:")[1].split()[0]) / 1024


def start_up(prefixes: Sequence[Sequence[str]], rounds: int) -> list[float]:
    """Seconds of `import asyncio` and of each prefix with `true`: medians, in turns."""
    commands = [[sys.executable, "-c", "import asyncio"], *([*each, "true"] for each in prefixes)]
    times: list[list[float]] = [[] for _ in commands]
    for number in range(1 + rounds):  # the first writes bytecode
        for command, found in zip(commands, times, strict=True):
            began = time.perf_counter()
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
            if number:
                found.append(time.perf_counter() - began)
    return [statistics.median(each) for each in times]


def main() -> None:
    """Measure and print one table (Markdown)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--starts", type=int, default=7)
    options = parser.parse_args()
    # An installed program has its bytecode: measure that, not the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as out, contextlib.ExitStack() as stack:
        record = [sys.executable, "-m", "mcptally", "record", "--out", out]
        prefixes = {
            "direct": [],
            "pipe relay": [sys.executable, "-c", RELAY],
            "mcptally": [*record, "--"],
            "mcptally --redact none": [*record, "--redact", "none", "--"],
        }
        least, *starts = start_up([each for each in prefixes.values() if each], options.starts)
        variants = {name: Variant(prefix) for name, prefix in prefixes.items()}
        for variant in variants.values():
            stack.callback(variant.close)
            for number in range(100):
                variant.call(number)
        for first in range(0, options.calls, BLOCK):
            for variant in variants.values():
                variant.block(first)
        direct = statistics.median(variants["direct"].times)
        print(f"`import asyncio`: {least * 1000:.0f} ms\n")
        print("| variant | p50 us | added | CPU us per call | start x | MB at first | at the end |")
        print("|---|---|---|---|---|---|---|")
        for (name, variant), start in zip(variants.items(), [0.0, *starts], strict=True):
            middle = statistics.median(variant.times)
            begin, *_, end = [variant.flood(FLOOD) for _ in range(10)]
            print(
                f"| {name} | {middle / 1e3:.0f} | {(middle - direct) / 1e3:+.0f} "
                f"| {variant.cpu_ns / len(variant.times) / 1e3:.0f} | {start / least:.2f} "
                f"| {begin:.1f} | {end:.1f} |"
            )


if __name__ == "__main__":
    main()
