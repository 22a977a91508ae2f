"""Whatever is killed at whatever moment: what a peer saw whole is recorded, and nobody is left."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.record.recorder_process import alive, eventually, recorder, script

if sys.platform != "linux":
    pytest.skip("looks for processes in /proc", allow_module_level=True)

# Keeps a journal of the frames it saw whole, answers each, some of them large, and tells its pid.
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

# Sends as fast as it can, journals what it has received whole.
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("who", ["client", "recorder", "server"])
def test_what_a_peer_saw_whole_is_recorded(who, seed, tmp_path):
    rng = random.Random(f"{who}{seed}")
    traces, at_server, at_client = (tmp_path / name for name in ("t", "server", "client"))
    server = [*script(SERVER), str(at_server)]
    size = "64K" if seed % 2 else "64M"  # also in the middle of many segments
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
    time.sleep(rng.random() * 0.3)  # the random moment itself
    os.kill(
        {"client": client.pid, "recorder": recorder_pid, "server": server_pid}[who], signal.SIGKILL
    )
    pids = (client.pid, recorder_pid, server_pid)
    gone = eventually(lambda: not any(alive(pid) for pid in pids))
    client.kill()
    client.wait()
    client.stdout.close()
    assert gone

    recorded = {"c2s": [], "s2c": []}
    segments = sorted(traces.glob("*.jsonl"))
    for path in segments:
        *lines, torn = path.read_bytes().split(b"\n")
        # Only a write that the kill itself cut may leave half a line, and only at the very end:
        # a signal that kills ends a write to a file between two pages.
        assert not torn or (who == "recorder" and path == segments[-1])
        for line in lines:
            event = json.loads(line)
            if event["event"] == "message" and not event.get("unterminated"):
                recorded[event["dir"]].append(line.partition(b'"msg":')[2][:-1])
    for way, journal in (("c2s", at_server), ("s2c", at_client)):
        seen = complete_lines(journal)
        assert len(seen) > 1
        assert recorded[way][: len(seen)] == seen


def test_many_recorders_killed_at_once_leave_nobody(tmp_path):
    crowd = [
        subprocess.Popen(
            [*recorder(tmp_path), *script("import os, time; print(os.getpid(), flush=True)\n"
                                          "while True: time.sleep(9)")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for _ in range(6)
    ]  # fmt: skip
    servers = [int(one.stdout.readline()) for one in crowd]
    threads = [threading.Thread(target=one.kill) for one in crowd]
    for thread in threads:
        thread.start()
    for one in crowd:
        one.wait()
        with contextlib.suppress(OSError):
            one.stdin.close()
        one.stdout.close()
    assert eventually(lambda: not any(alive(pid) for pid in servers))
    assert len(list(Path(tmp_path).glob("*.jsonl"))) == 6
