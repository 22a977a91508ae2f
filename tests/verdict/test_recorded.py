"""Verdicts on public servers are right; labels of recorded servers belong to their recordings.

The transcripts are beside the first three labelled files, with what the servers wrote on stderr:

    recorded.jsonl  servers with missing and crashing programs, missing settings, corrupt and
                    unreadable files, and upstreams that refuse connections or return errors and
                    invalid data
    natural.jsonl   servers as installed: no fault was injected, but they had no network, no valid
                    keys, and few of the programs and services that they need
    repeated.jsonl  more servers as installed, whose tools were called with the same arguments
                    several times; one reader, before any verdict on them was seen
    held_out.jsonl  servers that are in no other file, without recordings: valid, missing, wrong and
                    unusual arguments; one reader, without seeing verdicts; texts of 300 characters

`part` is `read` if mistakes on that server may be used to improve rules, `held` if they are only
counted, `sealed` if they are not even counted before work on the verdict ends. Texts are cut to
700 characters; the recording has the rest. Calls of `natural.jsonl` with a member `agreed` were
labelled twice. Where the labels differ, `agreed` is false, the label is `ambiguous`, and `first`
and `second` are the two labels.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from mcptally.evaluation import hidden_rows, labels, measures, recorded_calls, verdict_rows

HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Labelled:
    """A labelled file, its recorded calls if there are any, and the least accuracy."""

    lines: list[dict[str, object]]
    calls: pl.DataFrame | None
    held: pl.DataFrame
    """The labels of held-out servers."""
    balanced: float
    accuracy: float


WITH_RECORDINGS = (
    ("recorded.jsonl", "recordings", 0.80, 0.75),
    ("natural.jsonl", "natural_recordings", 0.90, 0.90),
    ("repeated.jsonl", "repeated_recordings", 0.90, 0.90),
)
WITHOUT = ("held_out.jsonl", None, 0.90, 0.88)


@pytest.fixture(scope="module", params=[*WITH_RECORDINGS, WITHOUT], ids=lambda param: param[0])
def labelled(request) -> Labelled:
    name, folder, *least = request.param
    rows = labels.read(HERE / name)
    lines = [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]
    held = [number for number, row in enumerate(lines, start=1) if row["part"] != "read"]
    calls = folder and recorded_calls(HERE / folder, rows)
    with_calls = labels.with_traffic(rows, calls) if folder else rows
    return Labelled(lines, calls, with_calls.filter(pl.col("line").is_in(held)), *least)


@pytest.mark.parametrize("labelled", WITH_RECORDINGS, indirect=True, scope="module")
def test_each_label_is_of_a_recorded_call(labelled):
    # Requests of the client and of the server may have the same id.
    key = ("recording", "request_id", "method")
    calls = labelled.calls.select(*key, "outcome", "error_code").to_dicts()
    recorded = {tuple(row[name] for name in key): row for row in calls}
    for row in labelled.lines:
        call = recorded[row["recording"], json.dumps(row["id"]), row["method"]]
        # A server may confirm with an error that the client cancelled.
        marked = call["outcome"] in {"tool_error", "protocol_error", "cancelled"}
        assert marked == row["is_error"], row
        if call["outcome"] != "cancelled":
            assert call["error_code"] == row["code"], row


def test_verdicts_on_held_out_servers_are_right(labelled):
    rows = verdict_rows(labelled.held)
    business = rows["label"] == "business"
    tp, fn, fp, tn = measures.two_by_two(business, rows["verdict"] == "business")
    assert (tp / (tp + fn) + tn / (tn + fp)) / 2 >= labelled.balanced
    assert rows["correct"].mean() >= labelled.accuracy
    if labelled.calls is None:
        table = measures.reliability(rows["certainty"], rows["correct"])
        assert measures.calibration_error(table) <= 0.05


def test_hidden_errors_of_held_out_servers_are_found(labelled):
    rows = hidden_rows(labelled.held)
    tp, fn, fp, _ = measures.two_by_two(rows["is_hidden"], rows["hidden_error"])
    assert tp / (tp + fp) >= 0.90
    assert tp / (tp + fn) >= (0.85 if labelled.calls is None else 0.90)
