"""Answers of a store: masked, and available at once if the first page needs them."""

import pytest

import mcptally as mt
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.state import State
from tests.output.html.stores import session
from tests.transcripts import write

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@pytest.mark.slow
def test_the_first_page_waits_for_no_masked_copies_and_shows_no_secret(tmp_path):
    tools = [{"name": "read", "inputSchema": {"type": "object"}}]
    said = {"content": [{"type": "text", "text": f"no login for {TOKEN}"}], "isError": True}
    asked = {"method": "tools/call", "params": {"name": "read", "arguments": {"path": "a"}}}
    events = session("one", "files", tools, [(asked, {"result": said})] * 5)
    write(tmp_path / "traces.jsonl", list(events))
    mt.score([tmp_path / "traces.jsonl"], out=tmp_path / "store")
    answers = Answers(State(tmp_path / "store"), 60)
    found = answers.ask("priorities")
    assert "no login for" in str(found.to_dicts())
    assert TOKEN not in str(found.to_dicts())
    copies = tmp_path / "store" / ".masked"
    assert not list(copies.rglob("*.parquet"))
    assert TOKEN not in str(answers.sql("SELECT * FROM calls").to_dicts())
    assert list(copies.rglob("*.parquet"))
