"""What the stdio recorder costs, beside direct calls and a bare pipe relay, in one run.

    python tests/benchmarks/recorder.py [--calls 2000] [--million]

Every variant keeps its server running; calls go round in blocks of 20, so that a busy machine is
as busy for all. Linux only.

CPU is what the processes between client and server used (their threads' schedstat). Flood is how
many answers a second come back when requests are sent without waiting. Start-up is the time from
start to the first answer less that of the direct server, and, for the whole of a recorder's own
start and end, `-- true` against `python -c "import asyncio"`.
"""

import argparse
import contextlib
import os
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BLOCK = 20

SERVER = """
import os
text = b'x' * 216
big = b'lorem ipsum dolor sit amet, ' * 37500
rest = b''
while data := os.read(0, 65536):
    *lines, rest = (rest + data).split(b'\\n')
    out = []
    for line in lines:
        number = line[line.rfind(b':') + 1 : -1]
        body = big if b'"name":"big"' in line else text
        out.append(b'{"jsonrpc":"2.0","id":' + number + b',"result":{"content":[{"type":"text",'
                   b'"text":"' + body + b'"}],"isError":false}}\\n')
    out = b''.join(out)
    while out:
        out = out[os.write(1, out):]
"""

RELAY = """
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


def request(number, name="echo"):
    return (
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"%b","arguments":'
        b'{"message":"hello"}},"id":%d}\n' % (name.encode(), number)
    )


def variants(out):
    python = [sys.executable]
    return {
        "direct": [],
        "pipe relay": [*python, "-c", RELAY],
        "mcptally": [*python, "-m", "mcptally", "record", "--out", f"{out}/a", "--"],
        "mcptally --redact none": [
            *[*python, "-m", "mcptally", "record", "--redact", "none", "--out", f"{out}/b", "--"]
        ],
    }


class Variant:
    """One way to the server: a running process and what was measured through it."""

    def __init__(self, prefix):
        self.command = [*prefix, sys.executable, "-I", "-S", "-c", SERVER]
        self.times = []
        self.big = []
        self.start = []
        self.cpu_ns = 0
        self.flood = None
        self.process = None

    def open(self):
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def call(self, data):
        began = time.perf_counter_ns()
        os.write(self.process.stdin.fileno(), data)
        self.read_line()
        return time.perf_counter_ns() - began

    def read_line(self):
        fd = self.process.stdout.fileno()
        while not (chunk := os.read(fd, 1 << 20)).endswith(b"\n"):
            if not chunk:
                raise SystemExit(f"{self.command} ended")

    def between(self):
        """The processes between us and the server."""
        tree = [self.process.pid]
        for pid in tree:
            for task in Path(f"/proc/{pid}/task").iterdir():
                tree += [int(word) for word in (task / "children").read_text().split()]
        last = [p for p in tree if SERVER.encode()[:40] in cmdline(p) and b"-S" in cmdline(p)]
        return [pid for pid in tree if pid not in last or own_server(pid, tree)]

    def measure_flood(self, count):
        data = b"".join(request(n) for n in range(count))
        fd = self.process.stdin.fileno()

        def send():
            view = memoryview(data)
            with contextlib.suppress(OSError):
                while view:
                    view = view[os.write(fd, view[:65536]) :]

        began = time.perf_counter()
        threading.Thread(target=send, daemon=True).start()
        answers = 0
        while answers < count:
            left = 60 - (time.perf_counter() - began)
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            answers += chunk.count(b"\n")
        return count / (time.perf_counter() - began)


def cmdline(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def own_server(pid, tree):
    """Whether the server's command line is only an argument of this process (a recorder)."""
    arguments = cmdline(pid).split(b"\0")
    return pid == tree[0] and arguments[1:4] != [b"-I", b"-S", b"-c"]


def cpu_ns(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
    return total


def rss_mb(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(text.split("Pss:")[1].split()[0])
    return total / 1024


def first_answer(variant):
    began = time.perf_counter()
    variant.open()
    os.write(variant.process.stdin.fileno(), request(0))
    variant.read_line()
    return time.perf_counter() - began


def run_time(command):
    began = time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)  # fmt: skip
    return time.perf_counter() - began


def start_up(all_variants, prefixes, rounds):
    asyncio_ = []
    bare = {name: [] for name in all_variants if name != "direct"}
    for prefix in prefixes.values():
        run_time([*prefix, "true"])  # writes bytecode, warms the disk
    for _ in range(rounds):
        asyncio_.append(run_time([sys.executable, "-c", "import asyncio"]))
        for name, variant in all_variants.items():
            variant.start.append(first_answer(variant))
            variant.close()
            if name in bare:
                bare[name].append(run_time([*prefixes[name], "true"]))
    base = statistics.median(asyncio_)
    return base, {name: statistics.median(times) / base for name, times in bare.items()}


def a_million(prefix, out):
    """Memory of our recorder over a million messages: at the beginning and at the end, in MB."""
    variant = Variant([*prefix[:-1], "--out", f"{out}/m", "--segment-size", "16M", "--"])
    variant.open()
    variant.measure_flood(5_000)
    pids = variant.between()
    seen = [rss_mb(pids)]
    for _ in range(10):
        variant.measure_flood(50_000)
        seen.append(rss_mb(pids))
    variant.close()
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--million", action="store_true", help="also memory over 10^6 messages")
    options = parser.parse_args()
    # An installed program has its bytecode: measure that, not the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as out:
        prefixes = variants(out)
        all_variants = {name: Variant(prefix) for name, prefix in prefixes.items()}
        base, ratios = start_up(all_variants, prefixes, options.starts)
        for variant in all_variants.values():
            variant.open()
            for number in range(100):
                variant.call(request(number))
        between = {
            name: v.between() if name != "direct" else [] for name, v in all_variants.items()
        }
        for block in range(max(1, options.calls // BLOCK)):
            for name, variant in all_variants.items():
                before = cpu_ns(between[name])
                variant.times += [variant.call(request(block * BLOCK + n)) for n in range(BLOCK)]
                variant.cpu_ns += cpu_ns(between[name]) - before
        for number in range(15):
            for variant in all_variants.values():
                variant.big.append(variant.call(request(number, "big")))
        for variant in all_variants.values():
            variant.flood = variant.measure_flood(10_000)
            if variant.flood is None:
                variant.process.kill()
        memory = {name: rss_mb(pids) for name, pids in between.items()}
        for variant in all_variants.values():
            variant.close()
        print(table(all_variants, ratios, memory))
        print(f"\nstart-up, `-- true` over `import asyncio` ({base * 1000:.0f} ms)")
        if options.million:
            seen = a_million(prefixes["mcptally"], out)
            print("memory over a million messages, MB: " + " ".join(f"{mb:.1f}" for mb in seen))


def table(all_variants, ratios, memory):
    head = [
        "variant", "p05 us", "p50 us", "added p50", "CPU us/call", "flood answers/s",
        "1 MB ms", "of direct", "start +ms", "start x", "PSS MB",
    ]  # fmt: skip
    direct = all_variants["direct"]
    p50 = statistics.median(direct.times) / 1e3
    big = statistics.median(direct.big) / 1e6
    start = statistics.median(direct.start)
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for name, variant in all_variants.items():
        times = sorted(variant.times)
        mid = statistics.median(times) / 1e3
        large = statistics.median(variant.big) / 1e6
        cells = [
            name,
            f"{times[len(times) // 20] / 1e3:.0f}",
            f"{mid:.0f}",
            f"{mid - p50:+.0f}",
            f"{variant.cpu_ns / len(times) / 1e3:.0f}",
            f"{variant.flood:,.0f}" if variant.flood else "stuck",
            f"{large:.1f}",
            f"{large / big:.1f}x",
            f"{(statistics.median(variant.start) - start) * 1e3:+.0f}",
            f"{ratios[name]:.2f}" if name in ratios else "",
            f"{memory[name]:.0f}" if memory[name] else "",
        ]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


if __name__ == "__main__":
    main()
