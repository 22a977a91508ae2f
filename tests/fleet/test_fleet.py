"""Recorded traffic of every feature gets its known outcomes, verdicts and faults."""

import json
from pathlib import Path

import polars as pl
import pytest

import mcptally as mt
from tests import sql_over_tables

pytestmark = pytest.mark.slow

TRANSCRIPTS = Path(__file__).parent / "transcripts"
KNOWN = json.loads(Path(__file__).with_name("truth.json").read_text())
"""Name of a server → outcome, verdict and fault of each call; the name says SDK and transport."""
ON_PURPOSE = ("definition.", "contracts.", "validation.", "schema.arguments_invalid")
"""Findings about definitions without descriptions, and about a call with wrong arguments."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    mt.score(TRANSCRIPTS, out=folder / "store")
    return folder / "store"


@pytest.mark.parametrize("name", KNOWN)
def test_each_operation_of_the_fleet_has_its_true_outcome_verdict_and_fault(
    store: Path, name: str
) -> None:
    found = sql_over_tables.ask(
        store,
        "SELECT tool, outcome, verdict, fault FROM calls "
        f"WHERE server = '{name}' AND tool IS NOT NULL "
        "AND continued_by IS NULL ORDER BY requested_at, seq",
    )
    tools = found.get_column("tool").to_list()
    rows = found.drop("tool").rows()
    wrong = [
        (tool, row, true)
        for tool, row, true in zip(tools, rows, KNOWN[name], strict=True)
        if any(value not in {None, row[place]} for place, value in enumerate(true))
        or (true[1] is None) != (row[1] is None)
    ]
    assert not wrong


def test_correct_traffic_has_no_finding_of_severity_warning_or_error(store: Path) -> None:
    found = sql_over_tables.ask(
        store,
        "SELECT r.server, rule, message FROM findings f LEFT JOIN recordings r USING (recording) "
        "WHERE severity <> 'info'",
    )
    of_rules = ~pl.any_horizontal(pl.col("rule").str.starts_with(each) for each in ON_PURPOSE)
    assert found.filter(of_rules).rows() == []


def test_tasks_and_chains_have_no_calls_of_their_own_in_rates(store: Path) -> None:
    counted = sql_over_tables.ask(store, "SELECT sum(calls) FROM usage").item()
    assert counted == sum(map(len, KNOWN.values()))


def test_elicitations_of_the_fleet_have_their_answers(store: Path) -> None:
    asked = sql_over_tables.ask(
        store, "SELECT tool, mode, action, answered_at > asked_at FROM input_requests"
    )
    elicited = asked.filter(pl.col("mode").is_not_null())
    assert set(elicited.rows()) == {
        *(("ask", "form", action, True) for action in ("accept", "decline", "cancel")),
        ("sign_in", "url", "accept", True),
        ("task_ask", "form", "accept", True),
    }
