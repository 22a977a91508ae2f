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
    assert tally.context == {"also in the server's span": 36}
    assert tally.used == 37  # including the notification, for which clients create no span


SIDES = ("client", "server")


@pytest.mark.parametrize(
    "sample", ["mcphawk.db", "mitmproxy.har.gz", "spans-server.jsonl.gz", "spans-client.jsonl.gz"]
)
def test_the_format_of_a_sample_is_detected_from_its_content(sample, tmp_path):
    copy = tmp_path / f"x{''.join(Path(sample).suffixes[1:])}"
    copy.write_bytes((SAMPLES / sample).read_bytes())
    done = import_logs(copy, tmp_path / "t")
    expected = {"mcphawk": "mcphawk", "mitmproxy": "har"}.get(sample.split(".")[0], "otlp")
    assert done.files[0].format == expected
