"""The labels of recorded public servers belong to their recordings, and verdicts on them are right.

`recorded.jsonl` has errors and results of public servers that ran without network, with missing
and crashing programs, missing settings, corrupt and unreadable files, and upstreams that refuse
connections or return errors and invalid data; `recordings/` has their transcripts, with what the
servers wrote on stderr. `part` is `read` if mistakes on that server were used to improve rules,
`held` if they were only counted. Texts are cut to 700 characters; the recording has all of them.
"""

import json
from pathlib import Path

import polars as pl
import pytest

from mcptally.evaluation import hidden_rows, labels, measures, recorded_calls, verdict_rows

HERE = Path(__file__).parent
OURS = HERE / "recorded.jsonl"
LINES = [json.loads(line) for line in OURS.read_text(encoding="utf-8").splitlines()]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def calls() -> pl.DataFrame:
    return recorded_calls(HERE / "recordings", labels.read(OURS))


@pytest.fixture(scope="module")
def labelled(calls) -> pl.DataFrame:
    held = [number for number, row in enumerate(LINES, start=1) if row["part"] == "held"]
    rows = labels.with_traffic(labels.read(OURS), calls)
    return rows.filter(pl.col("line").is_in(held))


def test_each_label_is_of_a_recorded_call(calls):
    recorded = {(row["recording"], row["request_id"]): row for row in calls.to_dicts()}
    for row in LINES:
        call = recorded[row["recording"], json.dumps(row["id"])]
        assert (call["outcome"] in {"tool_error", "protocol_error"}) == row["is_error"], row
        assert call["error_code"] == row["code"], row


def test_verdicts_on_held_out_recordings_are_right(labelled):
    rows = verdict_rows(labelled)
    business = rows["label"] == "business"
    tp, fn, fp, tn = measures.two_by_two(business, rows["verdict"] == "business")
    assert (tp / (tp + fn) + tn / (tn + fp)) / 2 >= 0.80
    assert rows["correct"].mean() >= 0.75


def test_hidden_errors_in_held_out_recordings_are_found(labelled):
    rows = hidden_rows(labelled)
    tp, fn, fp, _ = measures.two_by_two(rows["is_hidden"], rows["hidden_error"])
    assert tp / (tp + fp) >= 0.90
    assert tp / (tp + fn) >= 0.90
