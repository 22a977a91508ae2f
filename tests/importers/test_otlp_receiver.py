"""`import otlp --listen`: received spans give the same transcripts as a file of these spans."""

import contextlib
import gzip
import http.client
import json
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.errors import UsageError
from mcptally.importers.otlp_receiver import require_library, trace_request
from tests.commands import run
from tests.importers.imported_logs import SAMPLES, calls_of

json_format = pytest.importorskip("google.protobuf.json_format")
ExportTraceServiceRequest = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
).ExportTraceServiceRequest

PROTOBUF, JSON = "application/x-protobuf", "application/json"
REQUESTS = sorted(SAMPLES.glob("otlp-request-*"))
IDS = ("traceId", "spanId", "parentSpanId")


def with_ids_in_base64(value):
    if isinstance(value, dict):
        return {
            k: b64encode(bytes.fromhex(v)).decode() if k in IDS else with_ids_in_base64(v)
            for k, v in value.items()
        }
    return [with_ids_in_base64(each) for each in value] if isinstance(value, list) else value


def as_protobuf(line: bytes) -> bytes:
    message = json_format.ParseDict(
        with_ids_in_base64(json.loads(line)), ExportTraceServiceRequest()
    )
    return message.SerializeToString()


def spans(request):
    return [
        ([span.get(name, "") for name in IDS], span["name"], span["startTimeUnixNano"])
        for group in request["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]


def lines(name: str) -> list[bytes]:
    return gzip.decompress((SAMPLES / name).read_bytes()).splitlines()


@pytest.mark.parametrize("name", ["spans-agent.jsonl.gz", "spans-contextforge.jsonl.gz"])
def test_spans_in_protobuf_have_the_ids_of_their_json(name):
    for line in lines(name):
        assert spans(trace_request(as_protobuf(line))) == spans(json.loads(line))


@given(st.binary(max_size=200) | st.just(REQUESTS[-1].read_bytes()), st.data())
def test_damaged_protobuf_is_refused_or_read(body, data):
    body = bytearray(body)
    for at in data.draw(st.lists(st.integers(0, max(len(body) - 1, 0)), max_size=5)):
        body[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
    with contextlib.suppress(ValueError):
        trace_request(bytes(body))


def test_without_the_library_the_receiver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None
    )
    with pytest.raises(UsageError, match=r"pip install 'mcptally\[otlp\]'"):
        require_library()


@contextlib.contextmanager
def receiving(out: Path, stop=signal.SIGINT):
    """The address of a receiver, which is stopped at the end."""
    command = [sys.executable, "-I", "-m", "mcptally", "import", "otlp"]
    command += ["--listen", "127.0.0.1:0", "-o", str(out)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            address = process.stderr.readline().split(" at ")[1].split()[0]
            yield address, process
            process.send_signal(stop)
            process.wait(60)
        finally:
            process.kill()


def post(address: str, body: bytes, kind: str, **headers: str) -> tuple[int, bytes]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    url = urlsplit(address)
    with contextlib.closing(http.client.HTTPConnection(url.netloc, timeout=30)) as connection:
        connection.request("POST", url.path, body, {"Content-Type": kind, **names})
        reply = connection.getresponse()
        return reply.status, reply.read()


@pytest.mark.slow
def test_spans_that_arrive_become_the_calls_that_their_files_hold(tmp_path):
    client, server = lines("spans-client.jsonl.gz"), lines("spans-server.jsonl.gz")
    with receiving(tmp_path / "received", signal.SIGTERM) as (address, process):
        for line in server:
            assert post(address, as_protobuf(line), PROTOBUF) == (200, b"")
        for line in client:
            body = json.dumps(json.loads(line), indent=1).encode()
            zipped = gzip.compress(body)
            assert post(address, zipped, JSON, Content_Encoding="gzip") == (200, b"{}")
    assert process.returncode == 0
    assert not [p for p in (tmp_path / "received").iterdir() if not p.name.startswith("otlp-")]
    files = [tmp_path / name for name in ("client.jsonl", "server.jsonl")]
    for path, found in zip(files, (client, server), strict=True):
        path.write_bytes(b"\n".join(found))
    assert run("import", "otlp", *files, "-o", tmp_path / "files").returncode == 0
    columns = ["method", "tool", "arguments", "outcome", "error_text", "latency_ms", "requested_at"]
    received, read = (
        calls_of(tmp_path / name, tmp_path / f"store-{name}").select(columns).sort(columns)
        for name in ("received", "files")
    )
    assert received.height > 20
    assert received.equals(read)


@pytest.mark.slow
def test_requests_of_the_sdks_are_taken_and_others_refused(tmp_path):
    with receiving(tmp_path / "t") as (address, process):
        for path in REQUESTS:
            kind = JSON if path.suffix == ".json" else PROTOBUF
            assert post(address, path.read_bytes(), kind)[0] == 200
        refused = [
            post(address, b"{}", "text/plain"),
            post(address, b"{}", JSON, Content_Encoding="br"),
            post(address, b"{", JSON),
            post(address, b"[]", JSON),
            post(address, b"abc", PROTOBUF),
            post(address, b"no gzip", JSON, Content_Encoding="gzip"),
            post(address, gzip.compress(b" " * (2**26 + 1)), JSON, Content_Encoding="gzip"),
            post(address.replace("traces", "metrics"), b"{}", JSON),
        ]
    assert [status for status, _ in refused] == [415, 415, 400, 400, 400, 400, 413, 404]
    assert process.returncode == 0
    calls = calls_of(tmp_path / "t", tmp_path / "store")
    assert sorted(calls["outcome"]) == ["ok"] * 12 + ["tool_error"] * 3
    assert calls["error_text"].drop_nulls().unique().to_list() == ["division by zero"]
    assert set(calls["tool"]) == {"add"}


@pytest.mark.slow
def test_a_receiver_without_spans_leaves_nothing_and_exits_3(tmp_path):
    with receiving(tmp_path / "t") as (_, process):
        pass
    assert process.returncode == 3
    assert not [p for p in (tmp_path / "t").iterdir() if p.suffix != ".json"]


def test_an_address_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("import", "otlp", "--listen", address, "-o", tmp_path / "t")
    assert done.returncode == 2
    assert "in use" in done.stderr
