"""Frames passed between stages have exactly the columns of their declared tables."""

import pytest

from mcptally.pipeline.partition import gather
from mcptally.pipeline.partition_summary import SUMMARY_TABLES, summary_frames
from mcptally.tables.stages import GatheredCalls, GatheredMessages, GatheredRecordings
from tests.transcripts import c2s, call, opened, s2c, text, write


@pytest.mark.parametrize("events", [[], [opened(), c2s(1, call(1)), s2c(2, text(1))]])
def test_a_gathered_partition_has_the_declared_tables(tmp_path, events):
    file = write(tmp_path / "a.jsonl", events)
    part = gather([file], [str(file)])
    assert part.calls.schema == GatheredCalls.schema()
    assert part.messages.schema == GatheredMessages.schema()
    assert part.recordings.schema == GatheredRecordings.schema()
    for kind, frame in summary_frames(part.summary, part.calls).items():
        assert frame.schema == SUMMARY_TABLES[kind].schema()
