"""After a kill at a random time, every frame that a peer received is recorded."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.record.recorder_process import alive, eventually, recorder, script, writer_of

pytestmark = pytest.mark.slow

if sys.platform != "linux":
    pytest.skip("looks for processes in /proc", allow_module_level=True)

# Logs each complete frame to a journal, answers it (some answers are large), prints its pid.
SERVER = """
import os, sys
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(1, b'{"pid":%d}\\n' % os.getpid())
rest = b""
while data := os.read(0, 65536):
    *lines, rest = (rest + data).split(b"\\n")
    if lines:
        os.write(journal, b"".join(line + b"\\n" for line in lines))
    answer = b"".join(b'{"answer":' + line + b',"x":"' + b"y" * (len(line) % 7 * 40) + b'"}\\n'
                      for line in lines)
    while answer:
        answer = answer[os.write(1, answer):]
"""

# Sends as fast as it can, and logs each complete line received to a journal.
CLIENT = """
import json, os, subprocess, sys, threading
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
p = subprocess.Popen(json.loads(sys.argv[2]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(p.pid, flush=True)
def send():
    n = 0
    try:
        while True:
            n += 1
            os.write(p.stdin.fileno(), b'{"id":%d}\\n' % n * (1 + n % 5))
    except OSError:
        pass
threading.Thread(target=send, daemon=True).start()
rest = b""
while data := os.read(p.stdout.fileno(), 65536):
    *lines, rest = (rest + data).split(b"\\n")
    os.write(journal, b"".join(line + b"\\n" for line in lines))
"""


def complete_lines(path):
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


@pytest.mark.parametrize(
    ("who", "seed"), [("client", 0), ("recorder", 1), ("server", 0), ("writer", 0), ("writer", 1)]
)
def test_every_complete_frame_that_a_peer_received_is_recorded(who, seed, tmp_path):
    rng = random.Random(f"{who}{seed}")
    traces, at_server, at_client = (tmp_path / name for name in ("t", "server", "client"))
    server = [*script(SERVER), str(at_server)]
    size = "64K" if seed % 2 else "64M"  # small: many segments
    options = ("--redact", "none", "--no-compress", "--segment-size", size)
    command = [*recorder(traces, *options), *server]
    client = subprocess.Popen(
        [*script(CLIENT), str(at_client), json.dumps(command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    recorder_pid = int(client.stdout.readline())
    assert eventually(lambda: len(complete_lines(at_client)) > 1)
    server_pid = json.loads(complete_lines(at_client)[0])["pid"]
    writer_pid = eventually(lambda: writer_of(recorder_pid))
    pids = [client.pid, recorder_pid, server_pid, writer_pid]
    time.sleep(rng.random() * 0.1)  # kill at a random time
    victim = dict(zip(("client", "recorder", "server", "writer"), pids, strict=True))[who]
    os.kill(victim, signal.SIGKILL)
    if who == "writer":
        assert eventually(lambda: writer_of(recorder_pid) not in (None, writer_pid))
        pids.append(writer_of(recorder_pid))
        until = len(complete_lines(at_client)) + 100
        assert eventually(lambda: len(complete_lines(at_client)) > until)
        client.kill()
    try:
        eventually(lambda: not any(alive(pid) for pid in pids))
    finally:
        client.kill()
        client.wait()
        client.stdout.close()

    recorded = {"c2s": [], "s2c": []}
    lost = 0
    segments = sorted(traces.glob("*.jsonl"))
    for path in segments:
        *lines, torn = path.read_bytes().split(b"\n")
        assert not torn
        for line in lines:
            event = json.loads(line)
            lost += event.get("lost", 0) if event["event"] == "gap" else 0
            if event["event"] == "message" and not event.get("unterminated"):
                recorded[event["dir"]].append(line.partition(b'"msg":')[2][:-1])
    for way, journal in (("c2s", at_server), ("s2c", at_client)):
        seen = complete_lines(journal)
        assert len(seen) > 1
        if who == "writer":
            # If a writer was killed while it executed a single call, the gap counts its events.
            rest = iter(seen)
            assert all(line in rest for line in recorded[way][: len(seen) - lost])
        else:
            assert not lost
            assert recorded[way][: len(seen)] == seen
