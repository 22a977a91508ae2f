"""What the page lists at the top."""

from mcptally.output.html.answers import ask
from mcptally.output.html.priorities import priorities
from tests.analytics.built_stores import REFUSED, build
from tests.analytics.test_timeline import outage


def kinds(tmp_path, rows):
    return {one.kind: one for one in priorities(ask(build(tmp_path / "s", rows)))}


def test_a_tool_that_fails_since_a_time_is_listed_with_it(tmp_path):
    change = kinds(tmp_path, outage())["change"]
    assert change.statement == (
        "succeeds in 0% of its calls since 2026-03-02 01:00 UTC, and in 100% before"
    )
    assert "60 calls in 15 sessions since" in change.evidence
    assert change.impact == 60


def test_an_outage_that_ended_is_not_listed_as_a_change(tmp_path):
    assert "change" not in kinds(tmp_path, outage(range(240), since=100, until=140))


def test_refusals_since_a_time_are_not_listed_as_a_change(tmp_path):
    assert "change" not in kinds(tmp_path, outage(kind=REFUSED))
