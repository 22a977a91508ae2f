"""The cost of the HTTP recorder, compared with direct calls and a bare tap.

    python -m tests.benchmarks recorder_http [--calls 2000]

All variants stand before one server and are measured in turns of 20 calls within one run, over
keep-alive raw sockets: read ratios and differences, not absolute numbers. `first event` is the time
until the first of five events of a stream arrives, which the server sends 0.2 s apart. Linux only.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

TURN: Final = 20
STREAM_EVENTS: Final = 5
STREAM_SECONDS: Final = 0.2
REPLY: Final = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%b"}]}}'
EVENT: Final = b'data: {"jsonrpc":"2.0","method":"n","params":{"n":%d}}\n\n'


class Peer(asyncio.Protocol):
    """The server of the calls."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are complete."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            size = int(self.buffer[:end].lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.buffer) < end + 4 + size:
                return
            asked = json.loads(self.buffer[end + 4 : end + 4 + size])
            self.buffer = self.buffer[end + 4 + size :]
            if asked["params"]["arguments"]:
                asyncio.get_running_loop().create_task(self.stream())
                continue
            body = REPLY % (asked["id"], b"x" * 216)
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            self.transport.write(head % len(body) + body)

    async def stream(self) -> None:
        """Send events one after the other."""
        head = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.transport.write(b"HTTP/1.1 200 OK\r\n" + head)
        for number in range(STREAM_EVENTS):
            data = EVENT % number
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            await asyncio.sleep(STREAM_SECONDS)
        self.transport.write(b"0\r\n\r\n")


async def serve(port: int) -> None:
    """Run the server."""
    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


async def tap(port: int, upstream: int, file: IO[bytes]) -> None:
    """Run a bare recorder: asyncio streams that relay bytes and append them to a file, unparsed."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                file.write(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(pump(reader, server_writer), pump(server_reader, writer))
        writer.close()
        server_writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


class Variant:
    """One way to the server: its process, a connection, and what was measured through it."""

    def __init__(self, port: int, command: list[object]) -> None:
        self.times: list[float] = []
        self.process = None
        self.port = port
        if command:
            words = [str(word) for word in command]
            silent = subprocess.DEVNULL
            self.process = subprocess.Popen(words, stdout=silent, stderr=silent)
        until = time.monotonic() + 60
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), 30)
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                break
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, number: int, **arguments: object) -> Iterator[bytes]:
        """Send a call, and yield what was received until the reply is complete."""
        params = {"name": "echo", "arguments": arguments}
        asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        body = json.dumps(asked).encode()
        self.socket.sendall(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Accept: application/json, text/event-stream\r\nAccept-Encoding: identity\r\n"
            b"Connection: keep-alive\r\nUser-Agent: bench/1\r\n"
            b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (self.port, len(body), body)
        )
        end = b"0\r\n\r\n" if arguments else b"}]}}"
        received = b""
        while not received.endswith(end):
            data = self.socket.recv(65536)
            if not data:
                raise SystemExit("a connection was closed")
            received += data
            yield received

    def call(self, number: int) -> float:
        """Seconds of a call."""
        began = time.perf_counter()
        for _ in self.ask(number):
            pass
        return time.perf_counter() - began

    def first_event(self) -> float:
        """Seconds until the first event of a stream arrives."""
        began = time.perf_counter()
        seen = [
            time.perf_counter() - began for data in self.ask(1, stream=True) if b"data:" in data
        ]
        return seen[0]

    def cpu_seconds(self) -> float:
        """CPU seconds of the process and of its children."""
        pids = [self.process.pid] if self.process else []
        for pid in pids:
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def close(self) -> None:
        """End the connection and the process."""
        self.socket.close()
        if self.process:
            self.process.terminate()
            self.process.wait(30)


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def settle(variants: list[Variant]) -> list[float]:
    """Wait until no variant uses CPU time: the writer may be behind the recorder."""
    seen = None
    while seen != (seen := [variant.cpu_seconds() for variant in variants]):
        time.sleep(0.1)
    return seen


def measure(calls: int) -> None:
    """Measure and print one table (Markdown)."""
    server, *ports = (free_port() for _ in range(3))
    me = [sys.executable, Path(__file__).resolve()]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        record = [sys.executable, "-m", "mcptally", "record", "--out", f"{folder}/traces"]
        listen = ["--url", f"http://127.0.0.1:{server}/mcp", "--listen", f"127.0.0.1:{ports[1]}"]
        stack.callback(Variant(server, [*me, "--serve", server]).close)
        variants = {
            "direct": Variant(server, []),
            "asyncio tap": Variant(ports[0], [*me, "--tap", ports[0], server, f"{folder}/tap"]),
            "mcptally": Variant(ports[1], [*record, *listen]),
        }
        for variant in variants.values():
            stack.callback(variant.close)
            for number in range(50):
                variant.call(number)
        before = settle([*variants.values()])
        for first in range(0, calls, TURN):
            for variant in variants.values():
                variant.times += [variant.call(first + n) for n in range(TURN)]
        after = settle([*variants.values()])
        direct = statistics.median(variants["direct"].times)
        print("| variant | p50 us | added | p95 us | CPU us per call | first event ms |")
        print("|---|---|---|---|---|---|")
        for (name, variant), begin, end in zip(variants.items(), before, after, strict=True):
            ordered = sorted(variant.times)
            middle = statistics.median(ordered)
            print(
                f"| {name} | {middle * 1e6:.0f} | {(middle - direct) * 1e6:+.0f} "
                f"| {ordered[-len(ordered) // 20] * 1e6:.0f} "
                f"| {(end - begin) / len(ordered) * 1e6:.0f} | {variant.first_event() * 1e3:.1f} |"
            )


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tap", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
    elif options.tap:
        port, upstream, path = options.tap
        with Path(path).open("ab", buffering=0) as file:
            asyncio.run(tap(int(port), int(upstream), file))
    else:
        measure(options.calls)


if __name__ == "__main__":
    main()
