"""Recorded traffic of every feature gets its known outcomes, verdicts and faults."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

import mcptally as mt
from tests import sql_over_tables
from tests.fleet.record import FLEET, TRANSCRIPTS, TRUTH, record, run_directly, run_with_mock

pytestmark = pytest.mark.slow

KNOWN = json.loads(TRUTH.read_text())
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


@pytest.mark.parametrize("name", ["python-2-stdio", "python-2-http-2025"])
def test_clients_get_through_the_recorder_and_from_mock_what_they_get_directly(
    name: str, tmp_path: Path
) -> None:
    direct = run_directly(name)
    assert record(name, tmp_path) == direct
    steps = [step for step, _ in FLEET[name][3]]
    for step, line, mocked in zip(steps, direct, run_with_mock(name), strict=True):
        if step[1:2] == ["hang"]:  # mock gives no failures without a reply by default
            assert "mcptally mock" in mocked
        elif step[-1:] == ["cancel"]:  # servers word the message about the status in their own way
            assert ("error" in mocked) == ("error" in line)
        else:
            assert members(mocked) == members(line), step


def members(line: str) -> list[str]:
    """Return a client's output regardless of member order, without the server's name."""
    line = re.sub(r"('|\")io.modelcontextprotocol/serverInfo\1: ?\{[^}]*\}", "", line)
    line = re.sub(r"meta=(?:\{\}|None) ?", "", line)
    return sorted(re.findall(r"[\w.:/-]+", line))


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
