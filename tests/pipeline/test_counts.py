from collections import Counter
from pathlib import Path

import pytest

from tests import corpus
from tests.second_opinion import differences, of_pipeline, of_reference
from tests.transcripts import write

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted(corpus.SAMPLES.glob("*.jsonl*"))


def by(*parts):
    """A function that counts calls by some of recording, direction, method and outcome."""

    def count(calls):
        names = ("recording", "dir", "method", "outcome")
        rows = (
            dict(zip(names, (place[0], place[1], told[0], told[1]), strict=True))
            for place, told in calls.items()
        )
        return Counter(tuple(row[part] for part in parts) for row in rows)

    return count


@pytest.mark.slow
@pytest.mark.parametrize("folder", corpus.FOLDERS, ids=lambda folder: folder.name)
def test_recordings_have_the_calls_replies_and_counts_of_the_reference(folder):
    assert differences([path for path in corpus.recordings() if path.parent == folder]) == []


@pytest.mark.slow
def test_all_sample_traces_together_count_as_they_do_apart():
    together, counts = of_pipeline(SAMPLES)
    calls, messages = of_reference(SAMPLES)
    for parts in (("recording", "outcome"), ("recording", "method"), ("dir",)):
        assert by(*parts)(together) == by(*parts)(calls)
    assert counts == messages
    assert len(calls) > 1000


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
