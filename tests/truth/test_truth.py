"""The labels of the servers with injected faults belong to their recordings."""

import json
from pathlib import Path

import polars as pl
import pytest
import zstandard

from mcptally.pipeline import run
from mcptally.store.manifest import live_files, read_manifest

FOLDER = Path(__file__).parent
RECORDINGS = FOLDER / "recordings"
ROWS = [
    json.loads(line) for line in (FOLDER / "labels.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.fixture(scope="module")
def calls(tmp_path_factory) -> dict[tuple[str, str], dict]:
    store = tmp_path_factory.mktemp("truth") / "store"
    run.score([RECORDINGS], out=store)
    rows = pl.read_parquet(live_files(store, read_manifest(store))["calls"])
    return {(row["recording"], row["request_id"]): row for row in rows.iter_rows(named=True)}


@pytest.mark.slow
def test_each_label_is_of_a_recorded_call(calls):
    for row in ROWS:
        call = calls[row["recording"], json.dumps(row["id"])]
        assert (call["server"], call["tool"]) == (f"{row['server']}-{row['sdk']}", row["tool"])
        assert (call["outcome"] in {"tool_error", "protocol_error"}) == row["is_error"]


def test_all_labels_of_a_server_belong_to_one_part():
    parts = {(row["server"], row["part"]) for row in ROWS}
    assert len(parts) == len({server for server, _ in parts}) == 18


def test_the_causes_of_masked_errors_are_in_the_recorded_stderr():
    (recording,) = RECORDINGS.glob("orders-mcp2*")
    lines = zstandard.decompress(recording.read_bytes()).decode().splitlines()
    events = [json.loads(line) for line in lines]
    stderr = "\n".join(event["text"] for event in events if event["event"] == "stderr")
    assert "KeyError: 'vat'" in stderr
    assert "AssertionError" in stderr
