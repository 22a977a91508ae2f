"""Measures what the recorder adds to a call, beside direct calls and a bare relay, in one run.

    python -m tests.benchmarks recorder [--calls 2000] [--starts 7]

Every variant keeps its server running, over stdio or HTTP. The variants of a transport take turns
of 20 calls, so that a busy machine affects all equally: read differences and ratios. Start-up is
that of `-- true` over `python -c "import asyncio"`. Memory (PSS) is that after 50,000 calls and
after 500,000, which are sent without waiting. Linux only.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

TURN: Final = 20
FLOOD: Final = 50_000
ME: Final = [sys.executable, str(Path(__file__).resolve())]
RECORD: Final = [sys.executable, "-m", "mcptally", "record", "--out"]

STDIO_SERVER: Final = """
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
    params = {"name": "echo", "arguments": {"message": "hello"}}
    asked = {"jsonrpc": "2.0", "method": "tools/call", "params": params, "id": number}
    return json.dumps(asked, separators=(",", ":")).encode() + b"\n"


# --- over HTTP ------------------------------------------------------------------------------------


class Peer(asyncio.Protocol):
    """The server of the calls over HTTP."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        """Answer a request that is complete."""
        self.buffer += data
        if self.buffer.endswith(b"}\n"):
            self.buffer = b""
            body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"%b"}]}}' % (b"x" * 216)
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            self.transport.write(head % len(body) + body)


async def serve(port: int) -> None:
    """Run the server."""
    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", port)
    await server.serve_forever()


async def tap(port: int, upstream: int, file: IO[bytes]) -> None:
    """Run a bare recorder: asyncio streams that relay bytes and append them to a file, unparsed."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            file.write(data)
            writer.write(data)
            await writer.drain()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(pump(reader, server_writer), pump(server_reader, writer))

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    await server.serve_forever()


def connected(port: int) -> socket.socket:
    """Return a connection to a port, as soon as a process listens there."""
    until = time.monotonic() + 60
    while True:
        try:
            found = socket.create_connection(("127.0.0.1", port), 30)
        except ConnectionRefusedError:
            assert time.monotonic() < until, f"nothing listens on port {port}"
            time.sleep(0.01)
        else:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found


def post(connection: socket.socket, number: int) -> None:
    """Make a call over HTTP."""
    body = request(number)
    head = (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n"
        b"Connection: keep-alive\r\nUser-Agent: bench/1\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        b"Mcp-Method: tools/call\r\nMcp-Name: echo\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    connection.sendall(head % len(body) + body)
    received = b""
    while not received.endswith(b"}]}}"):
        received += connection.recv(65536)


@contextlib.contextmanager
def over_http(out: str) -> Iterator[dict[str, Callable[[int], None]]]:
    """Start the server, a tap and the recorder; return how to make a call through each."""
    with contextlib.ExitStack() as free:
        sockets = [free.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        server, tapped, recorded = (str(each.getsockname()[1]) for each in sockets)
    where = ["--url", f"http://127.0.0.1:{server}/mcp", "--listen", f"127.0.0.1:{recorded}"]
    commands = {
        server: [*ME, "--serve", server],
        tapped: [*ME, "--tap", tapped, server, f"{out}/tap"],
        recorded: [*RECORD, out, *where],
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, **quiet) for command in commands.values()]
    names = ("direct", "bare relay", "mcptally")
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
        connections = [stack.enter_context(connected(int(port))) for port in commands]
        yield {
            name: lambda number, own=own: post(own, number)  # type: ignore[misc]
            for name, own in zip(names, connections, strict=True)
        }


# --- over stdio -----------------------------------------------------------------------------------


class Pipes:
    """A server behind a command, with its streams on pipes."""

    def __init__(self, prefix: Sequence[str]) -> None:
        command = [*prefix, sys.executable, "-I", "-S", "-c", STDIO_SERVER]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, bufsize=0, **pipes)
        self.into, self.out = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.call(0)

    def call(self, number: int) -> None:
        """Make a call."""
        os.write(self.into, request(number))
        while not os.read(self.out, 1 << 20).endswith(b"\n"):
            pass

    def flood(self, count: int) -> float:
        """Send calls without waiting for replies; return the memory afterwards, in MB."""
        data = memoryview(b"".join(map(request, range(count))))

        def send(rest: memoryview) -> None:
            while rest:
                rest = rest[os.write(self.into, rest[:65536]) :]

        sender = threading.Thread(target=send, args=(data,))
        sender.start()
        while count > 0:
            count -= os.read(self.out, 1 << 20).count(b"\n")
        sender.join()
        *between, _ = _tree(self.process.pid)  # the last one is the server
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in between]
        return sum(int(text.split("Pss:")[1].split()[0]) for text in texts) / 1024

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


def started(command: Sequence[str], rounds: int) -> float:
    """Return the median seconds of a command."""
    times = []
    for _ in range(rounds + 1):  # the first writes bytecode
        began = time.perf_counter()
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def report(transport: str, ways: Mapping[str, Callable[[int], None]], calls: int) -> None:
    """Measure the ways in turns, and print a row for each."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(0, calls + TURN, TURN):
        for name, call in ways.items():
            for n in range(TURN):
                began = time.perf_counter()
                call(number + n)
                if number:  # the first turn is not counted
                    times[name].append(time.perf_counter() - began)
    p50 = {name: 1e6 * statistics.median(some) for name, some in times.items()}
    for name, middle in p50.items():
        ratio = (middle - p50["direct"]) / (p50["bare relay"] - p50["direct"])
        added = f"{middle - p50['direct']:+.0f} | {ratio:.2f}"
        print(f"| {transport} | {name} | {middle:.0f} | {added} |", flush=True)


def main() -> None:
    """Measure and print one table (Markdown), or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tap", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
    if options.tap:
        port, upstream, path = options.tap
        with Path(path).open("ab", buffering=0) as file:
            asyncio.run(tap(int(port), int(upstream), file))
    # An installed program has its bytecode: measure that, not the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print("| transport | variant | p50 us | added | times the bare relay |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as out, contextlib.ExitStack() as stack:
        prefixes = ([], [sys.executable, "-c", RELAY], [*RECORD, out, "--"])
        direct, relay, recorder = (Pipes(prefix) for prefix in prefixes)
        for each in (direct, relay, recorder):
            stack.callback(each.close)
        ways = {"direct": direct.call, "bare relay": relay.call, "mcptally": recorder.call}
        report("stdio", ways, options.calls)
        with over_http(out) as ways:
            report("HTTP", ways, options.calls)
        first, *_, last = [recorder.flood(FLOOD) for _ in range(10)]
        print(f"\nMemory over stdio: {first:.1f} MB, {last:.1f} MB at the end")
        least = started([sys.executable, "-c", "import asyncio"], options.starts)
        own = started([*RECORD, out, "--", "true"], options.starts)
        print(f"Start-up: {own / least:.2f} times `import asyncio` ({least * 1000:.0f} ms)")


if __name__ == "__main__":
    main()
