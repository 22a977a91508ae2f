"""Formats that contain messages score like a recording of the same traffic."""

import datetime
import json
import zoneinfo
from pathlib import Path

import polars as pl
import pytest

from mcptally.importers import Envelope, import_logs, timestamps
from tests.importers import styles
from tests.importers.imported_logs import (
    TRACES,
    WRITTEN,
    all_records_accounted_for,
    calls_of,
    events,
    facts,
    import_and_read,
)

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
OF_LINES = Envelope(
    time="at", direction="way", message="inner.frame", session="conn", c2s=("out",), s2c=("in",)
)

TOLD = {
    "claude desktop": ("mcp-server-time.log", styles.claude_desktop, {}),
    "vs code": ("time.log", styles.vscode, {"timezone": "UTC"}),
    "lines in an envelope": ("time.jsonl", styles.enveloped, {"envelope": OF_LINES}),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> pl.DataFrame:
    return calls_of(TRACES / "time.jsonl", tmp_path_factory.mktemp("recorded") / "store")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tell", "options"), TOLD.values(), ids=TOLD)
def test_the_same_traffic_gives_the_same_calls_outcomes_and_verdicts(
    recorded: pl.DataFrame, tmp_path: Path, name, tell, options
):
    source = tmp_path / name
    source.write_text(tell(events(TRACES / "time.jsonl")))
    form = "jsonrpc" if "envelope" in options else "auto"
    done = import_logs(source, tmp_path / "t", format=form, redaction="none", **options)
    assert done.unused_lines == 0
    assert all_records_accounted_for(done)
    imported = calls_of(tmp_path / "t", tmp_path / "store")
    assert facts(imported) == facts(recorded)
    # The sources write milliseconds.
    times = [frame.get_column("requested_at").sort() for frame in (imported, recorded)]
    assert ((times[0] - times[1]).dt.total_microseconds().abs() <= 1000).all()
    latency = [frame.get_column("latency_ms").drop_nulls().sort() for frame in (imported, recorded)]
    assert ((latency[0] - latency[1]).abs() <= 1.0).all()
    sessions = [frame.get_column("session").n_unique() for frame in (imported, recorded)]
    assert sessions[0] == sessions[1]


ALIKE = {
    "claude desktop, all servers in one": ("claude desktop", styles.claude_desktop_all, {}),
    "vs code, of 2025": ("vs code", styles.vscode_old, {"timezone": "UTC"}),
    "vs code, in Berlin": (
        "vs code",
        lambda e: styles.vscode(e, BERLIN),
        {"timezone": "Europe/Berlin"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("usual", "tell", "options"), ALIKE.values(), ids=ALIKE)
def test_variants_of_a_log_have_the_same_messages_and_times(tmp_path, usual, tell, options):
    name, usually, usual_options = TOLD[usual]
    found = []
    for place, (write, how) in enumerate(((usually, usual_options), (tell, options))):
        source = tmp_path / f"{place}" / ("mcp.log" if write is styles.claude_desktop_all else name)
        source.parent.mkdir()
        source.write_text(write(events(TRACES / "time.jsonl")))
        out = tmp_path / f"t{place}"
        done = import_logs(source, out, redaction="none", **how)
        assert done.unused_lines == 0
        assert all_records_accounted_for(done)
        messages = [event for event in events(out) if event["event"] == "message"]
        found.append([(event["dir"], event["msg"], event["ts_ns"]) for event in messages])
    assert found[0] == found[1]
    assert len(found[0]) > 200


@pytest.mark.slow
def test_bare_messages_have_no_times_and_get_directions_from_the_protocol(tmp_path, recorded):
    source = tmp_path / "bare.jsonl"
    source.write_text(styles.bare(events(TRACES / "time.jsonl")))
    _, found = import_and_read(source, tmp_path, redaction="none")
    assert {e["ts_ns"] for e in found} == {0}
    opened = [e for e in found if e["event"] == "open"]
    assert all("time" in e["source"]["missing"] for e in opened)
    imported = calls_of(tmp_path / "transcripts", tmp_path / "store")
    assert facts(imported) == facts(recorded)
    for name in ("requested_at", "answered_at", "latency_ms"):
        assert imported.get_column(name).null_count() == imported.height
    recordings = pl.read_parquet(tmp_path / "store" / "recordings" / "*.parquet")
    assert recordings.select("opened_at", "ended_at").null_count().row(0) == (12, 12)


def test_importing_again_gives_the_same_ids_and_files(tmp_path):
    source = tmp_path / "mcp-server-time.log"
    whole = styles.claude_desktop(events(TRACES / "time.jsonl"))
    source.write_text(whole[: len(whole) // 2].rsplit("\n", 1)[0] + "\n")
    _, first = import_and_read(source, tmp_path)
    source.write_text(whole)
    _, second = import_and_read(source, tmp_path)
    _, third = import_and_read(source, tmp_path)
    assert second == third
    ids = [list(dict.fromkeys(e["recording"] for e in found)) for found in (first, second)]
    assert len(ids[0]) < len(ids[1])
    assert ids[1][: len(ids[0])] == ids[0]


def test_the_open_event_names_the_source_and_what_it_lacks(tmp_path):
    source = tmp_path / "mcp-server-time.log"
    source.write_text(styles.claude_desktop(events(TRACES / "time.jsonl")))
    _, found = import_and_read(source, tmp_path)
    opened = found[0]
    assert opened["transport"] == "import"
    assert opened["server"] == "time"
    assert opened["command"][1:] == ["--local-timezone", "UTC"]
    assert opened["source"] == {
        "format": "claude-desktop",
        "file": "mcp-server-time.log",
        "faithful": "frames",
        "missing": ["bytes"],
        "transport": "stdio",
    }
    assert all(e["bytes"] is None for e in found if e["event"] == "message")


@pytest.mark.slow
def test_id_method_name_and_error_of_a_cut_message_are_known(tmp_path):
    source = tmp_path / "mcp-server-files.log"
    source.write_bytes((WRITTEN / "claude-desktop-cut.log").read_bytes())
    done, found = import_and_read(source, tmp_path)
    assert all_records_accounted_for(done)
    assert found[0]["source"]["faithful"] == "truncated"
    calls = calls_of(tmp_path / "transcripts", tmp_path / "store")
    row = calls.row(0, named=True)
    assert (row["method"], row["tool"], row["outcome"]) == ("tools/call", "write", "tool_error")
    assert (row["arguments"], row["response"], row["response_bytes"]) == (None, None, None)


def test_a_server_with_its_own_log_is_not_also_read_from_the_common_log(tmp_path):
    told = events(TRACES / "time.jsonl")
    logs = tmp_path / "Claude"
    logs.mkdir()
    (logs / "mcp-server-time.log").write_text(styles.claude_desktop(told))
    other = styles.claude_desktop_all(told).replace("[time]", "[other]")
    (logs / "mcp.log").write_text(styles.claude_desktop_all(told) + other)
    (logs / "notes.txt").write_text("nothing of interest\n")
    done, found = import_and_read(logs, tmp_path)
    assert all_records_accounted_for(done)
    assert [path.name for path in done.passed_over] == ["notes.txt"]
    servers = [e["server"] for e in found if e["event"] == "open"]
    assert servers.count("time") == servers.count("other")


def test_secrets_are_redacted_as_by_the_recorder(tmp_path):
    source = tmp_path / "wire.jsonl"
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    ask["params"] = {"name": "x", "arguments": {"password": "hunter2-hunter2", "t": secret}}
    source.write_text(json.dumps(ask) + "\n")
    import_and_read(source, tmp_path)
    written = json.dumps(events(tmp_path / "transcripts"))
    assert secret not in written
    assert "hunter2" not in written
    assert '"redaction": "default"' in written


def test_times_without_a_zone_have_this_machine_s_zone(tmp_path, monkeypatch):
    import time

    timestamps._seconds.cache_clear()
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        source = tmp_path / "x.log"
        source.write_text('2026-07-01 12:00:00.250 [info] [Client Says] {"jsonrpc":"2.0","id":1}\n')
        _, found = import_and_read(source, tmp_path)
    finally:
        monkeypatch.undo()
        time.tzset()
        timestamps._seconds.cache_clear()
    when = datetime.datetime.fromtimestamp(found[1]["ts_ns"] / 1e9, datetime.UTC)
    assert when.isoformat() == "2026-07-01T16:00:00.250000+00:00"
