"""Samples from the real programs, compared with our recording of the same traffic."""

from pathlib import Path

import polars as pl
import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import (
    FACTS,
    SAMPLES,
    WRITTEN,
    Logs,
    all_records_accounted_for,
    facts,
)

pytestmark = pytest.mark.slow

LOGS = Logs()
INSPECTOR = "inspector-protocol-bookshop-2026-11-28T11-35-34.907Z.json.gz"
"""What the Protocol tab of MCP Inspector 2.12 exported, with the demo's bookshop as the server."""


def add(sample: str, recorded: str) -> tuple[int, int]:
    """Add a sample and our recording of the same traffic."""
    return (
        LOGS.add(sample, SAMPLES / sample, redaction="none"),
        LOGS.add(recorded, SAMPLES / recorded, as_recorded=True),
    )


SAMPLE = {
    sample: add(sample, recorded)
    for sample, recorded in (
        ("mitmproxy.har.gz", "recorded-mitmproxy.jsonl.gz"),
        ("mcphawk.db", "recorded-mcphawk.jsonl.gz"),
        ("inspector.db", "recorded-inspector.jsonl.gz"),
        ("spans-server.jsonl.gz", "recorded-otlp.jsonl.gz"),
        ("spans-agent.jsonl.gz", "recorded-agent.jsonl.gz"),
        ("spans-traceloop.jsonl.gz", "recorded-traceloop.jsonl.gz"),
        ("sentry.jsonl.gz", "recorded-sentry.jsonl.gz"),
        (INSPECTOR, "recorded-inspector-export.jsonl.gz"),
    )
}


@pytest.fixture(scope="module")
def both(logs):
    """Return the calls of a sample and of the recording, after checking the import."""

    def calls(sample: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        imported, recorded = (logs[number] for number in SAMPLE[sample])
        assert imported.done.unused_lines == 0
        assert all_records_accounted_for(imported.done)
        return imported.calls, recorded.calls

    return calls


def test_a_har_of_mitmproxy_has_the_calls_of_our_recording(both):
    imported, recorded = both("mitmproxy.har.gz")
    names = [name for name in FACTS if name != "response_tokens"]
    assert facts(imported, *names) == facts(recorded, *names)
    assert imported.get_column("http_status").to_list() == [200] * imported.height
    assert imported.get_column("session").n_unique() == recorded.get_column("session").n_unique()


@pytest.mark.parametrize(
    "sample", ["mcphawk.db", "inspector.db"], ids=["a client of the Python SDK", "the Inspector"]
)
def test_a_database_of_mcphawk_has_the_calls_of_our_recording(both, sample):
    imported, recorded = both(sample)
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


def test_an_export_of_the_inspector_has_the_calls_of_our_recording(both):
    imported, recorded = both(INSPECTOR)
    names = [name for name in FACTS if name != "response_tokens"]  # spaces are lost
    assert facts(imported, *names) == facts(recorded, *names)
    assert set(imported.get_column("server")) == {"bookshop"}
    assert imported.get_column("outcome").to_list().count("tool_error") == 1


def test_spans_of_a_server_give_only_method_tool_outcome_and_time(both):
    imported, recorded = both("spans-server.jsonl.gz")
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


def test_spans_of_both_sides_in_files_of_their_own_are_one_call(tmp_path):
    files = [SAMPLES / f"spans-{side}.jsonl.gz" for side in SIDES]
    alone = [import_logs(file, tmp_path / "t").recordings for file in files]
    assert all(alone)
    done = import_logs([SAMPLES / "spans-agent.jsonl.gz", *files], tmp_path / "t")
    assert all_records_accounted_for(done)
    [_, both] = done.files
    assert [both.file, *both.more] == files
    assert both.tally.context["also in another span of the same call"] == 36
    assert both.tally.used == 37
    # Nothing is left of the files that were imported by themselves.
    written = {path for outcome in done.files for path in (*outcome.written, outcome.report)}
    assert set((tmp_path / "t").iterdir()) == written


OUTCOMES = ("method", "tool", "outcome", "error_code", "error_text")


def test_nested_spans_of_an_agent_and_its_clients_are_one_call_each(both):
    imported, recorded = both("spans-agent.jsonl.gz")
    names = (*OUTCOMES, "arguments")
    assert facts(imported, *names) == facts(recorded, *names)


def test_spans_of_traceloop_have_the_calls_of_our_recording(both):
    imported, recorded = both("spans-traceloop.jsonl.gz")
    calls = pl.col("method") == "tools/call"
    assert facts(imported, *OUTCOMES) == facts(recorded, *OUTCOMES)
    assert facts(imported.filter(calls), "tool", "arguments", "text") == facts(
        recorded.filter(calls), "tool", "arguments", "text"
    )


OPENINFERENCE = LOGS.add("spans.jsonl.gz", SAMPLES / "spans-openinference.jsonl.gz")


def test_spans_of_openinference_give_arguments_results_and_failures(logs):
    log = logs[OPENINFERENCE]
    assert all_records_accounted_for(log.done)
    calls = log.calls.sort("requested_at")
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


def test_sentry_s_spans_have_the_tool_arguments_and_result_but_not_whether_it_is_an_error(both):
    imported, recorded = both("sentry.jsonl.gz")
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


SENTRY = LOGS.add("event.json", WRITTEN / "sentry-event.json")


def test_a_sentry_span_with_only_the_required_names_is_a_call_of_its_tool(logs):
    log = logs[SENTRY]
    assert all_records_accounted_for(log.done)
    assert log.done.files[0].tally.unused["not a span of Sentry"].runs == [[1, 1]]
    names = ("server", "method", "tool", "outcome", "error_text", "latency_ms")
    assert log.calls.sort("requested_at").select(names).rows() == [
        ("docs", "tools/call", "search", "tool_error", "no such index", 1500.0),
        # Its status is no text of an error.
        ("docs", "tools/call", "price", "tool_error", None, 1500.0),
    ]
