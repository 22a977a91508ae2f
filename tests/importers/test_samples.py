"""Samples from the real programs, compared with our recording of the same traffic."""

from pathlib import Path

import polars as pl
import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import FACTS, SAMPLES, all_records_accounted_for, calls_of, facts


def both(sample: str, recorded: str, tmp_path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    done = import_logs(SAMPLES / sample, tmp_path / "t", redaction="none")
    assert done.lost == 0
    assert all_records_accounted_for(done)
    return (
        calls_of(tmp_path / "t", tmp_path / "imported"),
        calls_of(SAMPLES / recorded, tmp_path / "recorded"),
    )


def test_a_har_of_mitmproxy_has_the_calls_of_our_recording(tmp_path):
    imported, recorded = both("mitmproxy.har.gz", "recorded-mitmproxy.jsonl.gz", tmp_path)
    names = [name for name in FACTS if name != "response_tokens"]
    assert facts(imported, *names) == facts(recorded, *names)
    assert imported.get_column("http_status").to_list() == [200] * imported.height
    assert imported.get_column("session").n_unique() == recorded.get_column("session").n_unique()


@pytest.mark.parametrize(
    ("sample", "recorded_as"),
    [("mcphawk.db", "recorded-mcphawk.jsonl.gz"), ("inspector.db", "recorded-inspector.jsonl.gz")],
    ids=["a client of the Python SDK", "the Inspector"],
)
def test_a_database_of_mcphawk_has_the_calls_of_our_recording(tmp_path, sample, recorded_as):
    imported, recorded = both(sample, recorded_as, tmp_path)
    names = [name for name in FACTS if name not in {"arguments", "response_tokens"}]
    # The database has no stderr: of an error that only a stack trace explains, it says less.
    told = ("verdict", "reason", "fault", "retryable", "rule")
    explained = recorded.get_column("stderr_error").is_not_null()
    assert 0 < explained.sum() < recorded.height / 4
    assert set(imported.filter(explained).get_column("verdict")) == {"ambiguous"}
    imported, recorded = (
        frame.with_columns(pl.when(~explained).then(pl.col(*told)))
        for frame in (imported, recorded)
    )
    assert facts(imported, *names) == facts(recorded, *names)
    spaced = [
        frame.with_columns(
            pl.col("arguments").str.replace_all(r'": ', '":').str.replace_all(r", ", ",")
        )
        for frame in (imported, recorded)
    ]
    assert facts(spaced[0], "tool", "arguments") == facts(spaced[1], "tool", "arguments")


def test_spans_of_a_server_give_only_method_tool_outcome_and_time(tmp_path):
    imported, recorded = both("spans-server.jsonl.gz", "recorded-otlp.jsonl.gz", tmp_path)
    names = ("dir", "method", "tool", "prompt")
    assert facts(imported, *names) == facts(recorded, *names)
    # A hidden error is only visible in the text, which spans do not contain.
    seen = recorded.with_columns(pl.col("outcome").replace("hidden_error", "ok"))
    assert facts(imported, "tool", "outcome") == facts(seen, "tool", "outcome")
    for name in ("arguments", "response", "response_bytes", "response_tokens", "content_types"):
        assert imported.get_column(name).null_count() == imported.height
    # A server's span is shorter than the time that was measured outside of the server.
    total = [frame.get_column("latency_ms").sum() for frame in (imported, recorded)]
    assert 0 < total[0] < total[1]


def test_a_call_in_spans_of_both_sides_is_one_call(tmp_path):
    import gzip

    both_sides = tmp_path / "spans.jsonl"
    both_sides.write_bytes(
        b"".join(gzip.decompress((SAMPLES / f"spans-{s}.jsonl.gz").read_bytes()) for s in SIDES)
    )
    done = import_logs(both_sides, tmp_path / "t")
    assert all_records_accounted_for(done)
    tally = done.files[0].tally
    assert tally.context == {"also in another span of the same call": 36}
    assert tally.used == 37  # including the notification, for which clients create no span


OUTCOMES = ("method", "tool", "outcome", "error_code", "error_text")


def test_nested_spans_of_an_agent_and_its_clients_are_one_call_each(tmp_path):
    imported, recorded = both("spans-agent.jsonl.gz", "recorded-agent.jsonl.gz", tmp_path)
    names = (*OUTCOMES, "arguments")
    assert facts(imported, *names) == facts(recorded, *names)


def test_spans_of_traceloop_have_the_calls_of_our_recording(tmp_path):
    imported, recorded = both("spans-traceloop.jsonl.gz", "recorded-traceloop.jsonl.gz", tmp_path)
    calls = pl.col("method") == "tools/call"
    assert facts(imported, *OUTCOMES) == facts(recorded, *OUTCOMES)
    assert facts(imported.filter(calls), "tool", "arguments", "text") == facts(
        recorded.filter(calls), "tool", "arguments", "text"
    )


def test_spans_of_openinference_give_arguments_results_and_failures(tmp_path):
    done = import_logs(SAMPLES / "spans-openinference.jsonl.gz", tmp_path / "t")
    assert all_records_accounted_for(done)
    calls = calls_of(tmp_path / "t", tmp_path / "store").sort("requested_at")
    assert calls.select("tool", "arguments", "outcome", "text").rows() == [
        ("price", '{"item":"tea","count":3}', "ok", '{"item": "tea", "cents": 750}'),
        ("price", '{"item":"tea","count":4}', "ok", '{"item": "tea", "cents": 1000}'),
        ("order", '{"item":"tea","count":3}', "ok", "ordered 3 of tea"),
        ("order", '{"item":"tea","count":30}', "tool_error", "Quantity must be at most 10"),
    ]


SIDES = ("client", "server")


@pytest.mark.parametrize(
    "sample",
    [
        *("mcphawk.db", "mitmproxy.har.gz", "spans-server.jsonl.gz", "spans-client.jsonl.gz"),
        *("sentry.jsonl.gz", "spans-agent.jsonl.gz"),
    ],
)
def test_the_format_of_a_sample_is_detected_from_its_content(sample, tmp_path):
    copy = tmp_path / f"x{''.join(Path(sample).suffixes[1:])}"
    copy.write_bytes((SAMPLES / sample).read_bytes())
    done = import_logs(copy, tmp_path / "t")
    expected = {"mcphawk": "mcphawk", "mitmproxy": "har", "sentry": "sentry"}.get(
        sample.split(".")[0], "otlp"
    )
    assert done.files[0].format == expected


def test_sentry_s_spans_have_the_tool_arguments_and_result_but_not_whether_it_is_an_error(tmp_path):
    imported, recorded = both("sentry.jsonl.gz", "recorded-sentry.jsonl.gz", tmp_path)
    recorded = recorded.filter(pl.col("method").is_in(["tools/call", "prompts/get"]))
    assert imported.height == recorded.height == 16
    # The SDK does not record `isError`, so only the text shows a failure.
    said = recorded.with_columns(pl.col("outcome").replace("tool_error", "hidden_error"))
    names = ("method", "tool", "outcome", "error_text", "prompt")
    assert facts(imported, *names) == facts(said, *names)
    given = [
        frame.filter((pl.col("method") == "tools/call") & (pl.col("tool") != "nosuch"))
        for frame in (imported, recorded)
    ]
    assert facts(given[0], "tool", "arguments") == facts(given[1], "tool", "arguments")


SENTRY_SPANS = {
    "event_id": "e",
    "type": "transaction",
    "transaction": "GET /",
    "start_timestamp": 1790000000.0,
    "timestamp": 1790000009.0,
    "contexts": {"trace": {"op": "http.server", "span_id": "a"}},
    "spans": [
        {
            "span_id": "b",
            "parent_span_id": "a",
            "op": "mcp.server",
            "start_timestamp": 1790000001.0,
            "timestamp": 1790000002.5,
            "status": "internal_error",
            "data": {
                "mcp.tool.name": "search",
                "mcp.server.name": "docs",
                "mcp.tool.result.is_error": True,
                "mcp.tool.result.content": "no such index",
            },
        },
        "damaged",
    ],
}


def test_a_sentry_span_with_only_the_required_names_is_a_call_of_its_tool(tmp_path):
    import json

    source = tmp_path / "event.json"
    source.write_text(json.dumps(SENTRY_SPANS) + "\n")
    done = import_logs(source, tmp_path / "t")
    assert all_records_accounted_for(done)
    assert done.files[0].tally.unused["not a span of Sentry"].runs == [[1, 1]]
    calls = calls_of(tmp_path / "t", tmp_path / "store")
    names = ("server", "method", "tool", "outcome", "error_text", "latency_ms")
    assert calls.select(names).rows() == [
        ("docs", "tools/call", "search", "tool_error", "no such index", 1500.0)
    ]
