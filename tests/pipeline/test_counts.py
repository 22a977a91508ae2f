from pathlib import Path

import pytest

from tests import corpus
from tests.second_opinion import differences, of_pipeline, of_reference
from tests.transcripts import write

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("folder", corpus.FOLDERS, ids=lambda folder: folder.name)
def test_recordings_have_the_calls_replies_and_counts_of_the_reference(folder):
    files = [path for path in corpus.recordings() if path.parent == folder]
    assert differences(files[::3]) == []


def test_a_lost_line_is_a_difference(tmp_path):
    lines = (ROOT / "sample_traces" / "time.jsonl").read_bytes().splitlines(keepends=True)
    whole = write(tmp_path / "whole.jsonl", lines)
    answer = next(i for i, line in enumerate(lines) if b'"isError":true' in line)
    short = write(tmp_path / "short.jsonl", lines[:answer] + lines[answer + 1 :])
    assert of_pipeline([whole]) == of_reference([whole])
    assert of_pipeline([short]) != of_reference([whole])


REAL = {
    ("sqlite.jsonl.zst", "read_query", "hidden_error"),
    ("git.jsonl.zst", "git_status", "ok"),
    ("git.jsonl.zst", "git_show", "tool_error"),
    ("git.jsonl.zst", "git_push", "protocol_error"),
    ("m2.jsonl.zst", "book", "input_required"),
    ("everything.jsonl.zst", "trigger-long-running-operation", "timeout"),
    ("excel-http.jsonl.zst", "write_range", "cancelled"),
    ("commands.jsonl.zst", "run_command", "no_response"),
}


@pytest.mark.slow
def test_each_outcome_occurs_in_a_real_call(corpus_store):
    query = "SELECT DISTINCT parse_filename(file), tool, outcome FROM calls"
    assert set(corpus_store.sql(query).fetchall()) >= REAL
