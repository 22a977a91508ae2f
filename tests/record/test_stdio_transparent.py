"""Bytes are relayed unchanged and recorded unchanged."""

import base64
import hashlib
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.record.recorder_process import (
    ECHO,
    TIMEOUT_SECONDS,
    RecordedServer,
    events,
    eventually,
    of,
    recorder,
    script,
    segments,
)

ODD = {
    "odd number forms": b'{"a":[1.50,1E+2,-0,1e-999,0.10]}\n',
    "a 23-digit integer": b'{"id":12345678901234567890123}\n',
    "duplicate keys": b'{"id":1,"id":2}\n',
    "spaces and escapes": b' { "a" : "\\u00e9\\/" }\t\n',
    "line separators": '{"a":"\u2028\u2029\x85"}\n'.encode(),
    "CRLF": b'{"a":1}\r\n{"b":2}\r\n',
    "a lone CR between tokens": b'{"a":\r1}\n',
    "a batch": b'[{"id":1},{"id":2}]\n',
    "a byte order mark": b'\xef\xbb\xbf{"a":1}\n',
    "invalid UTF-8": b'{"a":"\xff\xfe"}\n',
    "a lone surrogate": b'{"a":"\\ud800"}\n',
    "NaN": b'{"a":NaN}\n',
    "deep nesting": b"[" * 700 + b"]" * 700 + b"\n",
    "two objects on a line": b"{}{}\n",
    "pretty JSON": b'{\n  "a": 1\n}\n',
    "banners and blank lines": b"Server running!\n\n   \n\r\n\x1b[1mwelcome\x1b[0m\n",
    "a print glued to a frame": b'loading...{"id":1}\n',
    "a NUL byte": b"\x00\n",
}


ENDS = {
    "no newline at the end": b'{"a":1}\n{"b":2}',
    "a torn frame at the end, and blank lines": b'\n{"a":1}\n\n \n{"b":',
    "nothing at all": b"",
}


@pytest.mark.parametrize("data", [b"".join(ODD.values()), *ENDS.values()], ids=["lines", *ENDS])
def test_bytes_are_relayed_unchanged_and_every_frame_is_recorded(data, tmp_path):
    options = ("--redact", "none", "--name", "my server")
    with RecordedServer(tmp_path, ECHO, *options) as recorded_server:
        recorded_server.send(data)
        out, err, code = recorded_server.end()
    assert (out, code) == (data, 0)
    assert (b"bytes that are not lines of JSON" in err) == (data not in ENDS.values())
    ((_, written),) = segments(tmp_path)
    found = events(tmp_path)
    assert (found[0]["transport"], found[0]["server"]) == ("stdio", "my server")
    *lines, tail = data.split(b"\n")
    wanted = [line.removesuffix(b"\r") for line in lines] + ([tail] if tail else [])
    for way in ("c2s", "s2c"):
        recorded = of(found, "message", "raw", dir=way)
        assert [event["bytes"] for event in recorded] == [len(frame) for frame in wanted]
        assert [bool(event.get("unterminated")) for event in recorded] == [
            *[False] * len(lines),
            *[True] * bool(tail),
        ]
        for event, frame in zip(recorded, wanted, strict=True):
            if event["event"] == "raw" and "text" in event:
                assert event["text"].encode() == frame
            if event["event"] == "message" and "reflowed" not in event:
                assert b'"msg":%b}\n' % frame in written
    assert [event["seq"] for event in found] == list(range(len(found)))
    stamps = [event["ts_ns"] for event in found]
    assert stamps == sorted(stamps)


def peak_kb(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


@pytest.mark.slow
def test_a_64_mb_frame_is_relayed_without_being_held_in_memory(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("reads memory from /proc")
    sha = hashlib.sha256()
    sent = 64 * 1024 * 1024
    block = b"x" * (1024 * 1024)
    with RecordedServer(tmp_path, ECHO, "--max-frame", "4M", "--redact", "none") as recorded_server:

        def send():
            recorded_server.send(b'"')
            for _ in range(sent // len(block)):
                recorded_server.send(block)
            recorded_server.send(b'"\n')

        sender = threading.Thread(target=send)
        sender.start()
        sha.update(recorded_server.read(len(block) + 1))
        # The beginning arrives before the frame is complete.
        for _ in range(sent // len(block) - 1):
            sha.update(recorded_server.read(len(block)))
        peak = peak_kb(recorded_server.process.pid)
        sha.update(recorded_server.read(1))
        sender.join()
        assert recorded_server.end() == (b"\n", b"", 0)
    assert peak < 70 * 1024
    raws = of(events(tmp_path), "raw")
    assert [(e["bytes"], e["why"], e["sha256"]) for e in raws] == [
        (sent + 2, "too_large", sha.hexdigest())
    ] * 2
    assert all(len(e["text"]) <= 65536 for e in raws)


@pytest.mark.slow
def test_a_client_that_sends_without_reading_loses_nothing(tmp_path):
    data = b'{"id":1}\n' * 80_000
    with RecordedServer(tmp_path, ECHO, "--no-compress", "--redact", "none") as recorded_server:
        sender = threading.Thread(target=recorded_server.send, args=(data,))
        sender.start()
        sender.join(0.3)
        assert sender.is_alive()  # pipes are full in both directions
        assert recorded_server.read(len(data)) == data
        sender.join()
        assert recorded_server.end() == (b"", b"", 0)
    counts = events(tmp_path)[-1]["counts"]
    assert counts["message"] == 160_000


@pytest.mark.slow
def test_sockets_as_streams_work_like_pipes(tmp_path):
    # node starts servers with sockets as standard streams.
    ours, theirs = socket.socketpair()
    out_ours, out_theirs = socket.socketpair()
    process = subprocess.Popen(
        [*recorder(tmp_path, "--redact", "none"), *ECHO], stdin=theirs, stdout=out_theirs
    )
    theirs.close()
    out_theirs.close()
    data = b'{"id":1}\n' * 100_000
    sender = threading.Thread(target=lambda: (ours.sendall(data), ours.shutdown(socket.SHUT_WR)))
    sender.start()
    out_ours.settimeout(TIMEOUT_SECONDS)
    got = bytearray()
    while chunk := out_ours.recv(65536):
        got += chunk
    sender.join()
    assert process.wait(TIMEOUT_SECONDS) == 0
    assert got == data
    ours.close()
    out_ours.close()


@pytest.mark.slow
def test_files_as_streams_work_like_pipes(tmp_path):
    data = b'{"id":1}\n' * 10_000
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"before\n")
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("ab") as target:
        command = [*recorder(tmp_path / "traces"), *ECHO]
        assert subprocess.run(command, stdin=source, stdout=target, check=False).returncode == 0
    assert (tmp_path / "out").read_bytes() == b"before\n" + data


def test_stderr_is_relayed_live_and_recorded_by_line(tmp_path):
    server = script(
        "import sys\n"
        "sys.stderr.buffer.write(b'first\\r\\n'); sys.stderr.flush()\n"
        "sys.stdin.read()\n"
        "sys.stderr.buffer.write(b'\\xff\\nno newline'); sys.stderr.flush()"
    )
    with RecordedServer(tmp_path, server) as recorded_server:
        assert recorded_server.line(stream="stderr") == b"first\r"
        assert eventually(lambda: of(events(tmp_path, ended=False), "stderr", text="first"))
        assert recorded_server.end() == (b"", b"\xff\nno newline", 0)
    found = of(events(tmp_path), "stderr")
    assert [e.get("text", e.get("b64")) for e in found] == ["first", "/w==", "no newline"]


@pytest.mark.slow
def test_unread_stderr_never_blocks_the_server(tmp_path):
    server = script(
        "import sys\n"
        "for n in range(8): sys.stderr.write('x' * (1 << 20) + '\\n')\n"
        "sys.stderr.flush()\n"
        "print('{\"id\":1}', flush=True)\n"
        "sys.stdin.read()"
    )
    with RecordedServer(tmp_path, server) as recorded_server:
        assert recorded_server.line() == b'{"id":1}'
        recorded_server.process.stdin.close()
        relayed = recorded_server.read_to_end(stream="stderr")
        assert relayed.startswith(b"x" * (1 << 19))
        assert b"bytes of stderr were not read in time" in relayed
    recorded = of(events(tmp_path), "stderr")
    assert sum(len(e["text"]) for e in recorded) == 8 << 20


def test_the_server_gets_the_environment_arguments_and_folder_unchanged(tmp_path):
    server = script(
        "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.argv[1:], os.getcwd()]))"
    )
    env = {"ODD NAME": "a\nb", "PATH": os.environ["PATH"], "MCPTALLY_X": "1", "E": ""}
    arguments = ["--out", "x", "--", "-h", "", "ü\n"]
    direct = subprocess.run(
        [*server, *arguments], env=env, cwd=tmp_path, capture_output=True, check=True
    )
    with RecordedServer(
        tmp_path / "t", [*server, *arguments], env=env, cwd=tmp_path
    ) as recorded_server:
        out, _, code = recorded_server.end()
    assert (out, code) == (direct.stdout, 0)
    (opened,) = of(events(tmp_path / "t"), "open")
    assert opened["command"][-len(arguments) :] == arguments


def test_the_home_folder_is_replaced_as_clients_start_servers_without_a_shell(tmp_path):
    server = script("import sys; sys.stdin.read()")
    env = os.environ | {"HOME": str(tmp_path)}
    subprocess.run([*recorder("~/traces"), *server], env=env, cwd=tmp_path, input=b"", check=True)
    assert of(events(tmp_path / "traces"), "open")


HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"".join(
    b"\x00%c%c\x00\x00\x00\x00\x00%c" % (*divmod(len(data), 256), number) + data
    for number in range(1, 40)
    for data in [b'{"jsonrpc":"2.0","id":%d}' % number + bytes(range(number))]
)


@pytest.mark.parametrize("data", [HTTP_2, bytes(range(256)) * 1000], ids=["http2", "binary"])
def test_bytes_that_are_no_json_lines_are_relayed_recorded_counted_and_reported_once(
    data, tmp_path
):
    with RecordedServer(tmp_path, ECHO, "--redact", "none") as recorded_server:
        recorded_server.send(data)
        out, err, code = recorded_server.end()
    assert (out, code) == (data, 0)
    client, server = sorted(err.decode().splitlines())
    assert client.startswith("mcptally: the client sends bytes that are not lines of JSON")
    assert server.startswith("mcptally: the server sends bytes that are not lines of JSON")
    found = events(tmp_path)
    for way in ("c2s", "s2c"):
        raw = of(found, "raw", dir=way)
        lines = [
            event["text"].encode() if "text" in event else base64.b64decode(event["b64"])
            for event in raw
        ]
        assert b"\n".join(lines) == data.replace(b"\r\n", b"\n").removesuffix(b"\n")
        assert sum(event["bytes"] for event in raw) == sum(map(len, lines))
    assert found[-1]["counts"] == {"open": 1, "raw": len(of(found, "raw")), "lost": 0}
