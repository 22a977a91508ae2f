"""Scoring a part of an archive: kept rows, left-out rows, and the summary."""

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import mcptally as mt
from mcptally.errors import UnreadableError
from mcptally.pipeline.run import score
from tests.commands import run
from tests.pipeline.golden import TRACES
from tests.transcripts import c2s, call, exchange, opened, request, result, s2c, text, write

pytestmark = pytest.mark.slow

START = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
FILES = sorted(TRACES.rglob("*.jsonl*"))


def at(hours: float) -> dict[str, int]:
    """The time of an event, in hours after `START`."""
    return {"ts_ns": int((START.timestamp() + 3600 * hours) * 1e9)}


def recording(
    name: str, server: str, calls: list[tuple[float, str]], *, segment: int = 0, first: int = 0
) -> Iterator[dict[str, Any]]:
    """Return the events of a segment with calls to these tools at these hours."""
    yield opened(name, server=server, segment=segment) | {"seq": first} | at(calls[0][0])
    for number, (hours, tool) in enumerate(calls):
        seq = first + 1 + 2 * number
        yield c2s(seq, call(seq, tool), name) | at(hours)
        yield s2c(seq + 1, text(seq), name) | at(hours)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    write(folder / "git.jsonl", recording("g", "git", [(1, "log"), (2, "diff"), (30, "log")]))
    write(folder / "time.jsonl", recording("t", "time", [(1, "now"), (2, "now")]))
    both = [*recording("m", "maps", [(3, "find")]), *recording("g2", "git", [(3, "log")])]
    write(folder / "both.jsonl", both)
    return folder


def kept(store: Path) -> list[tuple[str, str]]:
    """Recording and tool of each call in a store."""
    query = "SELECT recording, tool FROM calls ORDER BY requested_at, recording"
    return mt.open_store(store).sql(query).fetchall()


@pytest.mark.parametrize(
    ("selection", "calls"),
    [
        ({"servers": ["maps", "time"]}, [("t", "now"), ("t", "now"), ("m", "find")]),
        ({"tools": ["log"]}, [("g", "log"), ("g2", "log"), ("g", "log")]),
        (
            {"since": START + datetime.timedelta(hours=3)},
            [("g2", "log"), ("m", "find"), ("g", "log")],
        ),
        ({"until": "2026-11-21T02:00"}, [("g", "log"), ("t", "now")]),
        (
            {
                "servers": ["git"],
                "tools": ["log"],
                "since": "2026-11-21T02:30",
                "until": "2026-11-22",
            },
            [("g2", "log")],
        ),
    ],
)
def test_only_selected_calls_are_in_the_store(
    archive: Path, tmp_path: Path, selection: dict[str, Any], calls: list[tuple[str, str]]
):
    score([archive], out=tmp_path / "store", **selection)
    assert kept(tmp_path / "store") == calls


def test_calls_recordings_messages_and_findings_of_other_servers_are_left_out(
    archive: Path, tmp_path: Path
):
    score([archive], out=tmp_path / "store", servers=["git"])
    assert kept(tmp_path / "store") == [("g", "log"), ("g", "diff"), ("g2", "log"), ("g", "log")]
    store = mt.open_store(tmp_path / "store")
    for table in ("recordings", "messages", "findings"):
        found = store.sql(f"SELECT DISTINCT recording FROM {table} WHERE recording IS NOT NULL")
        assert {name for (name,) in found.fetchall()} <= {"g", "g2"}


def test_calls_are_judged_as_in_a_run_over_everything(tmp_path: Path, sample_store: mt.Store):
    score(FILES, out=tmp_path / "some", servers=["sqlite"])
    everything, some = (
        store.sql("SELECT * FROM calls ORDER BY call_id").pl()
        for store in (sample_store, mt.open_store(tmp_path / "some"))
    )
    assert some.height > 100
    assert_frame_equal(some, everything.filter(server="sqlite"))


def test_a_segment_outside_of_the_time_still_says_which_client_it_was(tmp_path: Path):
    hello = {"clientInfo": {"name": "tester", "version": "1"}, "capabilities": {}}
    messages = request(0, "initialize", **hello), result(0, protocolVersion="2025-06-18")
    first = [opened("r", segment=0), *exchange(*messages, recording="r")]
    write(tmp_path / "a.jsonl", [each | at(0) for each in first])
    write(tmp_path / "b.jsonl", recording("r", "demo", [(9, "echo")], segment=1, first=3))
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    score(files, out=tmp_path / "store", since="2026-11-21T08:00")
    rows = mt.open_store(tmp_path / "store").sql("SELECT tool, client FROM calls").fetchall()
    assert rows == [("echo", "tester")]


def test_the_summary_says_what_was_left_out(archive: Path, tmp_path: Path):
    done = run("score", archive, "-o", tmp_path / "store", "--server", "git", "--tool", "log")
    assert done.returncode == 0
    assert (
        "left out by the selection: 1 file, and 1 call of the files that were read" in done.stderr
    )


def test_a_server_that_the_archive_does_not_have_is_an_error_that_names_those_it_has(
    archive: Path, tmp_path: Path
):
    done = run("score", archive, "-o", tmp_path / "store", "--server", "gti")
    assert done.returncode == 3
    assert "server gti; servers in the archive: git, maps, time" in done.stderr
    assert not (tmp_path / "store" / "store.json").exists()


def test_a_selection_without_calls_leaves_the_store_as_it_was(
    archive: Path, sample_store: mt.Store, tmp_path: Path
):
    shutil.copytree(sample_store.path, tmp_path / "store")
    before = (tmp_path / "store" / "store.json").read_bytes()
    with pytest.raises(UnreadableError, match="tool nothing"):
        score([archive], out=tmp_path / "store", tools=["nothing"])
    assert (tmp_path / "store" / "store.json").read_bytes() == before


def test_rows_of_another_selection_are_not_reused(archive: Path, tmp_path: Path):
    store = tmp_path / "store"
    score([archive], out=store, servers=["git"])
    same = score([archive], out=store, servers=["git"])
    assert (same.reused, same.in_full) == (2, None)
    other = score([archive], out=store)
    assert other.in_full is not None
    assert "another selection" in other.in_full
    assert len(kept(store)) == 7


def calls_x(name: str, server: str) -> list[dict[str, Any]]:
    messages = exchange(call(1, "x", q=5), text(1), recording=name)
    return [opened(name, server=server), *messages]


def lists_x(kind: str) -> list[dict[str, Any]]:
    """Return a recording that lists the tool `x`, which has one argument, but does not call it."""
    tool = {"name": "x", "inputSchema": {"properties": {"q": {"type": kind}}}}
    messages = [request(1, "tools/list"), result(1, tools=[tool]), call(2, "y"), text(2)]
    return [opened("b"), *exchange(*messages, recording="b")]


def schema_states(store: Path) -> tuple[list[str], int]:
    """Return whether each call's arguments are valid, and the number of tool definitions."""
    opened_store = mt.open_store(store)
    states = opened_store.sql("SELECT input_schema_state FROM calls ORDER BY recording").fetchall()
    return [state for (state,) in states], opened_store.sql("FROM tools").pl().height


def test_evidence_from_calls_that_are_left_out_follows_changes_of_their_files(tmp_path: Path):
    def states() -> tuple[list[str], int]:
        score([*tmp_path.glob("*.jsonl")], out=tmp_path / "store", tools=["x"])
        return schema_states(tmp_path / "store")

    write(tmp_path / "a.jsonl", calls_x("a", "demo"))
    write(tmp_path / "b.jsonl", lists_x("string"))
    assert states() == (["invalid"], 1)
    write(tmp_path / "c.jsonl", calls_x("c", "other"))
    assert states() == (["invalid", "none"], 1)
    write(tmp_path / "b.jsonl", lists_x("integer"))
    assert states() == (["valid", "none"], 1)
    (tmp_path / "b.jsonl").unlink()
    assert states() == (["none", "none"], 0)


def test_calls_that_are_left_out_of_merged_stores_are_evidence(tmp_path: Path):
    files = [
        write(tmp_path / "a.jsonl", calls_x("a", "demo")),
        write(tmp_path / "b.jsonl", lists_x("string")),
        write(tmp_path / "c.jsonl", calls_x("c", "other")),
    ]
    stores = [tmp_path / "1", tmp_path / "2"]
    score(files[:1], out=stores[0], tools=["x"])
    score(files[1:], out=stores[1], tools=["x"])
    mt.merge_stores(stores, out=tmp_path / "both")
    assert schema_states(tmp_path / "both") == (["invalid", "none"], 1)


def test_the_open_events_in_payloads_name_no_server(tmp_path: Path):
    fake = {"event": "open", "server": "git"}
    events = [*recording("t", "time", [(1, "now")]), c2s(9, call(9, "now", at=fake), "t") | at(2)]
    write(tmp_path / "a.jsonl", events)
    with pytest.raises(UnreadableError, match="server git"):
        score([tmp_path / "a.jsonl"], out=tmp_path / "store", servers=["git"])


def test_every_partition_of_two_processes_uses_the_selection(archive: Path, tmp_path: Path):
    score([archive], out=tmp_path / "one", tools=["log"], partition_bytes=1)
    score([archive], out=tmp_path / "two", tools=["log"], partition_bytes=1, jobs=2)
    frames = [pl.read_parquet(tmp_path / name / "calls/*.parquet") for name in ("one", "two")]
    assert_frame_equal(*(frame.sort("call_id") for frame in frames))
