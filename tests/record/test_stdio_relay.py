"""The relay forwards everything, however slowly the client reads."""

import fcntl
import os
import sys

import pytest

from mcptally.record.stdio.relay import Relay, Stream
from mcptally.record.stdio.sink import Sink

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sets the size of a pipe")

OUTPUT = bytes(range(256)) * 1000


def ended_pipe(data: bytes) -> int:
    """Return the reading end of a pipe that contains `data` and is closed by its writer."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(writer, data)
    os.close(writer)
    return reader


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("size", [4096, 70_000])
def test_a_slow_client_gets_all_that_an_ended_server_has_written(steps: int, size: int):
    client, sink = os.pipe()
    to_server = os.pipe()
    os.set_blocking(client, False)
    os.set_blocking(sink, False)
    relay = Relay(
        from_client=Stream(ended_pipe(b""), Sink(to_server[1])),
        from_server=Stream(ended_pipe(OUTPUT), Sink(sink)),
        stderr=Stream(ended_pipe(b""), None, must_deliver=False),
    )
    received = b""
    for _ in range(1000):
        for _ in range(steps):
            relay.step(0)
        try:
            received += os.read(client, size)
        except BlockingIOError:
            continue
        if relay.done and len(received) >= len(OUTPUT):
            break
    os.close(client)
    os.close(to_server[0])
    assert received == OUTPUT
