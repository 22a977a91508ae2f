"""A local web server whose paths fail in known ways: /503, /slow, /html, /truncated, /reset."""

import contextlib
import http.server
import socket
import struct
import threading
from collections.abc import Iterator


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        what = self.path.strip("/").partition("?")[0]
        if what == "slow":
            self.server.stopping.wait(5)
            return
        if what == "reset":
            # Linger 0 makes close() send RST.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
            return
        body = {
            "html": b"<!DOCTYPE html><html><head><title>Maintenance</title></head></html>",
            "truncated": b'{"items": [{"id": 1}, {"id"',
            "empty": b"",
        }.get(what, b'{"message": "see status"}')
        self.send_response(int(what) if what.isdigit() else 200)
        self.send_header("Content-Type", "text/html" if what == "html" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stopping = threading.Event()


@contextlib.contextmanager
def running() -> Iterator[dict[str, str]]:
    """Yield the environment variables that servers read, while the web server runs."""
    with (
        _Server() as server,
        socket.socket() as unused,
    ):
        # Bound but not listening: connections are refused, and nobody else can take the port.
        unused.bind(("127.0.0.1", 0))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield {
                "UPSTREAM": f"http://127.0.0.1:{server.server_port}",
                "CLOSED_PORT": str(unused.getsockname()[1]),
            }
        finally:
            server.stopping.set()
            server.shutdown()
