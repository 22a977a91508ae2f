"""Standard messages of network and API errors in results that are not marked as errors."""

from pathlib import Path

import pytest

import mcptally as mt
from tests.transcripts import c2s, call, opened, s2c, text, write


def outcome_and_findings(folder: Path, said: str, **members) -> tuple[str, int]:
    events = [opened(), c2s(1, call(1, "list")), s2c(2, text(1, said, **members))]
    mt.score([write(folder / "a.jsonl", events)], out=folder / "store")
    store = mt.open_store(folder / "store")
    ((outcome,),) = store.sql("SELECT outcome FROM calls").fetchall()
    ((findings,),) = store.sql(
        "SELECT count(*) FROM findings WHERE rule = 'content.error_without_is_error'"
    ).fetchall()
    return outcome, findings


@pytest.mark.parametrize(
    "said",
    [
        "Network error",
        "network error!",
        "API error: 500 Internal server error",
        "Internal server error",
        "429 Too Many Requests",
        '{"error": "Network error"}',
        '{"message": "Internal server error", "issues": []}',
    ],
)
def test_a_standard_message_is_a_finding_and_a_failure(tmp_path: Path, said: str):
    assert outcome_and_findings(tmp_path, said) == ("hidden_error", 1)


@pytest.mark.parametrize(
    "said",
    ["Network error codes: 1, 2", "All about network errors", '{"message": "Network error logs"}'],
)
def test_a_text_about_such_messages_is_neither(tmp_path: Path, said: str):
    assert outcome_and_findings(tmp_path, said) == ("ok", 0)


def test_an_error_that_is_marked_is_a_tool_error(tmp_path: Path):
    assert outcome_and_findings(tmp_path, "Network error", isError=True) == ("tool_error", 0)
