"""The cost of the HTTP recorder, compared with direct calls and a bare tap.

    python tests/benchmarks/recorder_http.py [--calls 2000]

All variants stand before one server and are measured in turns of 20 calls within one run, over
keep-alive raw sockets: read ratios and differences, not absolute numbers. Loopback only; it ends
by itself.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TURN = 20
STREAM_EVENTS, STREAM_SECONDS = 5, 0.2
TEXT = "x" * 216
LARGE = b",".join(
    b'{"session_id":"%032x","token_count":%d}' % (number * 0x9E3779B97F4A7C15, number)
    for number in range(200_000)
)
"""13 MB in which redaction has much to check: keys that look like those of secrets."""


# --- the server ---------------------------------------------------------------------------------


class Peer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + size:
                return
            body = self.buffer[end + 4 : end + 4 + size]
            self.buffer = self.buffer[end + 4 + size :]
            self.answer(json.loads(body))

    def answer(self, request):
        arguments = request["params"]["arguments"]
        if arguments.get("stream"):
            asyncio.get_running_loop().create_task(self.stream())
            return
        if arguments.get("large"):
            self.transport.write(json_response(b'{"id":%d,"result":[%b]}' % (request["id"], LARGE)))
            return
        text = TEXT if "size" not in arguments else "y" * arguments["size"]
        self.transport.write(
            json_response(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%b"}]}}'
                % (request["id"], text.encode())
            )
        )

    async def stream(self):
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for number in range(STREAM_EVENTS):
            data = b'data: {"jsonrpc":"2.0","method":"n","params":{"n":%d}}\n\n' % number
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            await asyncio.sleep(STREAM_SECONDS)
        self.transport.write(b"0\r\n\r\n")


def json_response(body):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


async def serve(port):
    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


async def tap(port, upstream, file):
    """A bare recorder: asyncio streams that relay bytes and append them to a file, unparsed."""

    async def pump(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                file.write(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def handle(reader, writer):
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(pump(reader, server_writer), pump(server_reader, writer))
        writer.close()
        server_writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


# --- the client ---------------------------------------------------------------------------------


class Client:
    def __init__(self, port):
        self.port = port
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def send(self, number, **arguments):
        body = json.dumps(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call",
             "params": {"name": "echo", "arguments": arguments}},
        ).encode()  # fmt: skip
        self.sock.sendall(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Accept: application/json, text/event-stream\r\nAccept-Encoding: identity\r\n"
            b"Connection: keep-alive\r\nUser-Agent: bench/1\r\n"
            b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (self.port, len(body), body)
        )

    def receive(self):
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            self.more()
        head = self.buffer[:end].lower()
        if b"chunked" in head:
            while not self.buffer.endswith(b"0\r\n\r\n"):
                self.more()
            self.buffer = b""
            return
        need = end + 4 + int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        if len(self.buffer) < need:
            parts, have = [self.buffer], len(self.buffer)
            while have < need:
                parts.append(self.sock.recv(1 << 20))
                have += len(parts[-1])
                assert parts[-1], "closed"
            self.buffer = b"".join(parts)
        self.buffer = self.buffer[need:]

    def more(self):
        data = self.sock.recv(65536)
        assert data, "closed"
        self.buffer += data

    def call(self, number, **arguments):
        begin = time.perf_counter()
        self.send(number, **arguments)
        self.receive()
        return time.perf_counter() - begin

    def first_event(self):
        begin = time.perf_counter()
        self.send(1, stream=True)
        try:
            while b"data:" not in self.buffer:
                self.more()
            seen = time.perf_counter() - begin
            self.receive()
        except AssertionError:
            return float("nan")
        return seen

    def close(self):
        self.sock.close()


# --- what stands between ------------------------------------------------------------------------


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


class Variant:
    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.calls = []
        self.process = None
        begin = time.perf_counter()
        if command:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            if (self.process and self.process.poll()) or time.perf_counter() > begin + 60:
                raise RuntimeError(f"{name} did not start")
            time.sleep(0.002)
        self.started = time.perf_counter() - begin

    def tree(self):
        """The process and its children."""
        if self.process is None:
            return []
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                todo += map(int, children.split())
        return found

    def cpu_seconds(self, pids):
        taken = 0
        for pid in pids:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    taken += int((task / "schedstat").read_text().split()[0])
        return taken / 1e9

    def cpu_of_processes(self):
        """CPU seconds of the process itself, and of its children."""
        first, *others = self.tree() or [0]
        return self.cpu_seconds([first]), self.cpu_seconds(others) if others else 0.0

    def memory_mb(self):
        pages = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self):
        if self.process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def variants(folder, upstream):
    me = Path(__file__).resolve()
    url = f"http://127.0.0.1:{upstream}"
    yield "direct", None, upstream
    port = free_port()
    yield "asyncio tap", [sys.executable, me, "--tap", port, upstream, folder / "tap"], port
    port = free_port()
    record = [sys.executable, "-m", "mcptally", "record", "--out", folder / "traces"]
    yield "mcptally", [*record, "--url", f"{url}/mcp", "--listen", f"127.0.0.1:{port}"], port


def slowest_beside_a_large_body(variant):
    """The longest time in ms of small calls while a large body is relayed and recorded."""
    large, small = (Client(variant.port) for _ in range(2))
    thread = threading.Thread(target=large.call, args=(1,), kwargs={"large": True})
    thread.start()
    times = []
    until = time.monotonic() + 2
    while thread.is_alive() or time.monotonic() < until:
        times.append(small.call(len(times)))
    thread.join()
    for client in (large, small):
        client.close()
    return max(times) * 1e3


def settle(variants):
    """Wait until no variant uses CPU time: the writer may be behind the recorder."""
    seen = None
    while seen != (seen := [variant.cpu_of_processes() for variant in variants]):
        time.sleep(0.1)


def other_measures(variant):
    """Everything but the small calls, one after the other."""
    client = Client(variant.port)
    client.call(0)
    row = {
        "1 MB ms": statistics.median(client.call(n, size=10**6) for n in range(9)) * 1e3,
        "1st event ms": client.first_event() * 1e3,
        "beside ms": slowest_beside_a_large_body(variant),
        "MB end": variant.memory_mb(),
        "start ms": variant.started * 1e3,
    }
    client.close()
    return row


def measure(options):
    upstream = free_port()
    me = Path(__file__).resolve()
    rows = []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        server = Variant("server", [sys.executable, me, "--serve", upstream], upstream)
        stack.callback(server.stop)
        stands = []
        for label, command, port in variants(Path(name), upstream):
            variant = Variant(label, command, port)
            stack.callback(variant.stop)
            stands.append(variant)
        clients = {variant.name: Client(variant.port) for variant in stands}
        for variant in stands:
            for number in range(50):
                clients[variant.name].call(number)
        memory = {variant.name: variant.memory_mb() for variant in stands}
        settle(stands)
        cpu = {variant.name: variant.cpu_of_processes() for variant in stands}
        for turn in range(options.calls // TURN):
            for variant in stands:
                client = clients[variant.name]
                variant.calls += [client.call(turn * TURN + n) for n in range(TURN)]
        settle(stands)
        for variant in stands:
            begin, end = cpu[variant.name], variant.cpu_of_processes()
            variant.cpu = [(b - a) / len(variant.calls) for a, b in zip(begin, end, strict=True)]
        direct = statistics.median(stands[0].calls) * 1e6
        for variant in stands:
            clients[variant.name].close()
            ordered = sorted(variant.calls)
            row = {
                "variant": variant.name,
                "p05 us": ordered[len(ordered) // 20] * 1e6,
                "p50 us": statistics.median(ordered) * 1e6,
                "p95 us": ordered[-len(ordered) // 20] * 1e6,
                "added p50 us": statistics.median(ordered) * 1e6 - direct,
                "CPU us": variant.cpu[0] * 1e6,
                "children us": variant.cpu[1] * 1e6,
            }
            rows.append(row | other_measures(variant) | {"MB start": memory[variant.name]})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
        rows = measure(options)
        print(" | ".join(f"{key:>12}" for key in rows[0]))
        for row in rows:
            cells = (v if isinstance(v, str) else f"{v:.1f}" for v in row.values())
            print(" | ".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
