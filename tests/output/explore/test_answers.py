"""Answers of a store: masked, and available at once if the first page needs them."""

import pytest

from mcptally.output.explore.answers import Answers
from mcptally.output.explore.state import State
from tests.output.html.stores import asked, defined, failed, scored, session

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@pytest.mark.slow
def test_the_first_page_waits_for_no_masked_copies_and_shows_no_secret(tmp_path):
    calls = [(asked("read", path="a"), failed(f"no login for {TOKEN}"))] * 5
    scored(tmp_path, session("one", "files", [defined("read")], calls))
    answers = Answers(State(tmp_path / "store"), 60)
    found = answers.ask("priorities")
    assert "no login for" in str(found.to_dicts())
    assert TOKEN not in str(found.to_dicts())
    copies = tmp_path / "store" / ".masked"
    assert not list(copies.rglob("*.parquet"))
    assert TOKEN not in str(answers.sql("SELECT * FROM calls").to_dicts())
    assert list(copies.rglob("*.parquet"))
