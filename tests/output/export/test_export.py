"""Exports: what each format contains and leaves out, and what an import of it gives."""

import json
import os
import threading
from base64 import b64decode, b64encode
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from mcptally.errors import QueryError, UsageError
from mcptally.importers import import_logs
from mcptally.output.export import Exported, export
from mcptally.output.formats import EXPORTS, ExportFormat
from mcptally.pipeline.run import score
from tests.commands import run
from tests.importers.imported_logs import calls_of, facts
from tests.transcripts import (
    c2s,
    call,
    error,
    exchange,
    opened,
    request,
    result,
    s2c,
    text,
    write,
)

pytestmark = pytest.mark.slow

TRACES = Path(__file__).parents[3] / "sample_traces"


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    traces = [TRACES / "time.jsonl", TRACES / "sqlite.jsonl.zst", TRACES / "everything.jsonl.zst"]
    score(traces, out=folder / "store")
    return folder / "store"


def rows(store: Path) -> pl.DataFrame:
    return pl.read_parquet(store / "calls" / "*.parquet").sort("recording", "seq", "index", "dir")


def exported(folder: Path, events: list[dict], form: str = "otlp") -> Exported:
    """Write, score and export events: the store and the file are in the folder."""
    write(folder / "t.jsonl", events)
    score(folder / "t.jsonl", out=folder / "store")
    return export(folder / "store", to=form, out=folder / "calls.jsonl")


# What a format can hold of a call; the rest is not in it. Timeouts and cancellations come without
# a reply, and without a time for its absence.
HELD = {
    "har": ("method", "tool", "prompt", "arguments", "resource_uri", "outcome", "error_text"),
    "otlp": ("dir", "method", "tool", "prompt", "resource_uri", "error_code", "request_id"),
}


@pytest.fixture(scope="module")
def again(store, tmp_path_factory):
    """Per format, the export's message, and the folder with the store of its import."""
    found = {}
    for form, name in (("har", "calls.har"), ("otlp", "calls.jsonl")):
        folder = tmp_path_factory.mktemp(form)
        done = export(store, to=form, out=folder / name)
        import_logs(folder / name, folder / "t", redaction="none")
        found[form] = (done, calls_of(folder / "t", folder / "again"), folder / "again")
    return found


@pytest.mark.parametrize("form", HELD)
def test_what_is_exported_and_imported_again_is_the_same_calls(store, again, form):
    done, back, _ = again[form]
    kept = rows(store)
    if form == "har":
        kept = kept.filter(pl.col("dir") == "c2s")
        # A cancellation is a message of its own, and a HAR of calls has none.
        none = dict.fromkeys(("cancelled", "timeout"), "no_response")
        kept = kept.with_columns(pl.col("outcome").replace(none))
    else:
        # OpenTelemetry writes every id as text.
        as_text = '"' + pl.col("request_id").str.strip_chars('"') + '"'
        kept = kept.with_columns(request_id=as_text)
    assert back.height == kept.height == done.rows - sum(done.left_out.values())
    assert facts(back, *HELD[form]) == facts(kept, *HELD[form])
    latency = [f.get_column("latency_ms").drop_nulls().sort() for f in (back, kept)]
    assert latency[0].len() <= latency[1].len()


def test_editors_complete_the_names_of_all_formats():
    assert get_args(ExportFormat) == tuple(EXPORTS)


def test_every_outcome_survives_opentelemetry(tmp_path):
    def asked(id_, tool):
        version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        return request(id_, "tools/call", name=tool, arguments={}, _meta=version)

    stop = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}
    messages = [
        request(0, "tools/list"),
        request("i", "initialize", capabilities={}),
        result(0, tools=[]),  # after an `initialize` that does not start a session
        *(asked(1, "add"), text(1)),
        *(asked(2, "add"), text(2, "no such file", isError=True)),
        asked(3, "ask"),
        result(3, resultType="input_required", inputRequests={}, requestState="s"),
        *(asked(4, "long"), result(4, task={"taskId": "7", "status": "working"})),
        *(asked(5, ""), text(5, "Unknown tool: ", isError=True)),
        *(asked(6, "add"), error(6, -32603, "no")),
        asked(7, "never"),
    ]
    of_server = [s2c(17, request(8, "roots/list")), s2c(18, stop)]
    exported(tmp_path, [opened(), *exchange(*messages), *of_server])
    import_logs(tmp_path / "calls.jsonl", tmp_path / "t", redaction="none")
    back = calls_of(tmp_path / "t", tmp_path / "again")
    names = ("server", "dir", "method", "tool", "outcome", "error_text", "protocol_version")
    kept = rows(tmp_path / "store")
    assert facts(back, *names[:-1]) == facts(kept, *names[:-1])
    tools = [frame.filter(pl.col("arguments").is_not_null()) for frame in (back, kept)]
    assert facts(tools[0], *names) == facts(tools[1], *names)
    assert {"ok", "tool_error", "protocol_error", "no_response", "input_required", "task"} < set(
        kept["outcome"]
    )
    findings = pl.read_parquet(tmp_path / "again" / "findings" / "*.parquet")
    assert "protocol.meta_missing" not in findings["rule"].to_list()


def test_outcomes_and_definitions_of_tools_survive_opentelemetry(store, again):
    _, back, folder = again["otlp"]
    is_held = pl.col("tool").is_not_null() & (pl.col("outcome") != "cancelled")
    calls = [frame.filter(is_held) for frame in (back, rows(store))]
    names = ("tool", "arguments", "outcome", "error_text", "verdict", "reason")
    for columns in (names, ("tool", "input_schema_state", "output_schema_state")):
        assert facts(calls[0], *columns) == facts(calls[1], *columns)
    columns = ("server", "tool", "definition", "input_schema", "output_schema", "description")
    tools = [pl.read_parquet(at / "tools" / "*.parquet") for at in (store, folder)]
    assert facts(tools[1], *columns) == facts(tools[0], *columns) != []


def test_a_listing_in_pages_is_exported_whole_to_opentelemetry(tmp_path):
    def listed(id_, name, **more):
        tool = {"name": name, "inputSchema": {"type": "object"}}
        return request(id_, "tools/list"), result(id_, tools=[tool], **more)

    pages = exchange(*listed(1, "a", nextCursor="2"), *listed(2, "b"))
    exported(tmp_path, [opened(), *pages])
    found = spans(tmp_path / "calls.jsonl")
    given = [{a["key"]: a["value"].get("stringValue") for a in s["attributes"]} for s in found]
    definitions = [attributes.get("gen_ai.tool.definitions") for attributes in given]
    assert definitions[0] is None
    assert [tool["name"] for tool in json.loads(definitions[1])] == ["a", "b"]


def test_durations_are_exported_as_the_metric_of_the_conventions(tmp_path):
    url = "https://tools.example.com:8443/mcp"
    about = {"transport": "streamable_http", "url": url, "command": None}
    messages = [
        opened(**about),
        *(c2s(1, call(1, "add")), s2c(2, text(1))),
        *(c2s(3, call(2, "add")), s2c(63, text(2))),
        *(c2s(70, call(3, "add")), s2c(71, error(3, -32000, "late"))),
        c2s(80, call(4, "add")),
    ]
    done = exported(tmp_path, messages, "otlp-metrics")
    assert done.left_out == {"calls without a reply or cancellation": 1}
    [group] = json.loads((tmp_path / "calls.jsonl").read_text())["resourceMetrics"]
    [metric] = group["scopeMetrics"][0]["metrics"]
    assert (metric["name"], metric["unit"]) == ("mcp.server.operation.duration", "s")
    points = {
        next(
            (a["value"]["stringValue"] for a in point["attributes"] if a["key"] == "error.type"), ""
        ): point
        for point in metric["histogram"]["dataPoints"]
    }
    assert points.keys() == {"", "-32000"}
    good = points[""]
    assert (good["count"], good["sum"], good["min"], good["max"]) == ("2", 0.061, 0.001, 0.06)
    assert good["bucketCounts"] == ["1", "0", "0", "1", *["0"] * 11]
    known = {a["key"]: next(iter(a["value"].values())) for a in good["attributes"]}
    assert known["server.address"] == "tools.example.com"
    assert known["server.port"] == "8443"
    assert known["network.protocol.name"] == "http"


def with_ids(value, convert):
    """Return `value` with its trace and span ids converted."""
    if isinstance(value, dict):
        ids = ("traceId", "spanId", "parentSpanId")
        return {k: convert(v) if k in ids else with_ids(v, convert) for k, v in value.items()}
    return [with_ids(each, convert) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("form", "module", "name"),
    [
        ("otlp", "trace.v1.trace_service_pb2", "ExportTraceServiceRequest"),
        ("otlp-metrics", "metrics.v1.metrics_service_pb2", "ExportMetricsServiceRequest"),
    ],
)
def test_otlp_is_the_json_encoding_of_its_protocol_buffers(store, tmp_path, form, module, name):
    """Every name is known, and protobuf's encoder writes the same JSON, in which 64-bit integers
    are strings and enums are numbers. Only the ids differ: OTLP writes them in hexadecimal.
    """
    collector = pytest.importorskip(f"opentelemetry.proto.collector.{module}")
    json_format = pytest.importorskip("google.protobuf.json_format")
    export(store, to=form, out=tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert lines
    for line in lines:
        ours = json.loads(line)
        base64_ids = with_ids(ours, lambda hexed: b64encode(bytes.fromhex(hexed)).decode())
        message = json_format.ParseDict(base64_ids, getattr(collector, name)())
        theirs = json_format.MessageToDict(message, use_integers_for_enums=True)
        assert with_ids(theirs, lambda text: b64decode(text).hex()) == ours


def spans(path: Path) -> list[dict]:
    return [
        span
        for line in path.read_text().splitlines()
        for group in json.loads(line)["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]


def test_spans_have_opentelemetry_s_names(store, tmp_path):
    path = tmp_path / "spans.jsonl"
    export(store, to="otlp", out=path, where="outcome = 'tool_error' AND tool = 'convert_time'")
    found = spans(path)
    assert found
    for span in found:
        known = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
        assert span["name"] == "tools/call convert_time"
        assert (len(span["traceId"]), len(span["spanId"]), span["kind"]) == (32, 16, 2)
        assert int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"])
        assert span["status"]["code"] == 2
        assert known["mcp.method.name"] == "tools/call"
        assert known["gen_ai.operation.name"] == "execute_tool"
        assert known["gen_ai.tool.name"] == "convert_time"
        assert known["error.type"] == "tool_error"
        assert known["network.transport"] == "pipe"
        assert known["mcptally.outcome"] == "tool_error"
        assert known["mcptally.verdict"]


def test_a_span_has_the_trace_and_the_parent_that_the_request_names(tmp_path):
    def asked(id_, parent):
        message = call(id_, "add")
        message["params"]["_meta"] = {"traceparent": parent}
        return message

    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    good = f"00-{trace}-{span}-01"
    parents = [good, f"00-{'0' * 32}-{span}-01", "unknown", 7]
    messages = [each for n, parent in enumerate(parents) for each in (asked(n, parent), text(n))]
    exported(tmp_path, [opened(), *exchange(*messages)])
    assert rows(tmp_path / "store")["traceparent"].to_list() == [*parents[:3], None]
    found = spans(tmp_path / "calls.jsonl")
    assert [each.get("parentSpanId") for each in found] == [span, None, None, None]
    assert [each["traceId"] == trace for each in found] == [True, False, False, False]


def test_json_lines_hold_what_is_known_of_each_row(store, tmp_path):
    export(store, to="jsonl", out=tmp_path / "calls.jsonl")
    found = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().split("\n")[:-1]]
    kept = rows(store)
    assert len(found) == kept.height
    assert all(value is not None for row in found for value in row.values())
    assert sorted(row["call_id"] for row in found) == sorted(kept.get_column("call_id"))
    assert found[0]["requested_at"].endswith("+00:00")


def test_a_har_is_one_document_and_says_what_it_left_out(store, tmp_path):
    done = export(store, to="har", out=tmp_path / "x.har")
    log = json.loads((tmp_path / "x.har").read_text())["log"]
    assert log["version"] == "1.2"
    asked = rows(store).filter(pl.col("dir") == "s2c").height
    assert done.left_out == {"requests of the server": asked}
    assert len(log["entries"]) == done.rows - asked


@pytest.mark.parametrize("form", EXPORTS)
def test_nothing_to_export_is_an_empty_file_of_that_format(store, tmp_path, form):
    done = export(store, to=form, out=tmp_path / "x", where="false")
    assert done.rows == 0
    if form == "har":
        assert json.loads((tmp_path / "x").read_text())["log"]["entries"] == []
    assert not list(tmp_path.glob("*.part"))


def test_a_link_stays_one_and_a_pipe_is_written_into(store, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    export(store, to="csv", out=tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    found: list[bytes] = []
    reader = threading.Thread(
        target=lambda: found.append((tmp_path / "pipe").read_bytes()), daemon=True
    )
    reader.start()
    export(store, to="csv", out=tmp_path / "pipe")
    reader.join(60)
    assert found == [(tmp_path / "file").read_bytes()]


def test_a_mistake_leaves_no_file(store, tmp_path):
    with pytest.raises(UsageError, match="no format is called 'odt'"):
        export(store, to="odt", out=tmp_path / "x")
    with pytest.raises(QueryError):
        export(store, to="csv", out=tmp_path / "x", where="no_such_column = 1")
    with pytest.raises(UsageError, match="cannot be written"):
        export(store, to="csv", out=tmp_path / "no" / "folder" / "x.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", [(), ("-o", "-")], ids=len)
def test_the_command_writes_to_stdout_and_talks_on_stderr(store, out):
    done = run("export", store, "--to", "har", *out)
    assert done.returncode == 0
    assert json.loads(done.stdout)["log"]["creator"]["name"] == "mcptally"
    assert "rows left out: requests of the server" in done.stderr


def test_an_operation_has_one_span_and_a_callers_mistake_is_no_error_of_the_server(tmp_path):
    def asked(id_, **params):
        return request(id_, "tools/call", **params)

    ask = {"city": {"method": "elicitation/create", "params": {}}}
    failed = {"taskId": "t", "status": "failed", "error": {"code": -32603, "message": "boom"}}
    first = exchange(
        asked(1, name="ask"), result(1, resultType="input_required", inputRequests=ask)
    )
    others = exchange(
        *(asked(2, name="ask", inputResponses={"city": {}}), text(2)),
        *(asked(3, name="long"), result(3, resultType="task", taskId="t")),
        *(request(4, "tasks/get", taskId="t"), result(4, **failed)),
        *(asked(5, name="gone"), error(5, -32602, "Unknown tool: gone")),
        first=9,
    )
    of_server = [s2c(17, request(0, "roots/list")), c2s(18, error(0, -32601, "no roots"))]
    done = exported(tmp_path, [opened(), *first, *others, *of_server])
    assert done.left_out == {"requests that are part of the operation of another one": 2}
    found = {
        span["name"]: (
            span["kind"],
            span["status"].get("code"),
            (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e6,
        )
        for span in spans(tmp_path / "calls.jsonl")
    }
    assert found == {
        "tools/call ask": (2, None, 9.0),
        "tools/call long": (2, 2, 3.0),
        "tools/call gone": (2, None, 1.0),
        "roots/list": (3, 2, 1.0),
    }
