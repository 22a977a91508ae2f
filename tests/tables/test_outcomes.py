"""The vocabulary of outcomes, verdicts, reasons and faults."""

import duckdb
import pytest

from mcptally.tables import outcomes
from mcptally.verdict import classify


def test_every_reason_of_a_rule_is_declared_with_the_verdict_of_the_rule():
    rules = {(rule.reason, rule.verdict) for rule in classify.failure_rules()}
    declared = {(name, reason.verdict) for name, reason in outcomes.REASONS.items()}
    assert rules <= declared
    assert {name for name, _ in declared - rules} == {"unclear"}


def test_every_outcome_of_a_call_has_worked_failed_is_unfinished_or_unknown():
    parts = [("ok", "poll", "unknown"), outcomes.FAILED, outcomes.UNFINISHED]
    assert sorted(name for part in parts for name in part) == sorted(outcomes.OUTCOMES)


@pytest.mark.parametrize(
    ("reason", "own", "fault"),
    [
        ("auth_rejected", "", "account"),
        ("server_killed", "", None),
        ("not_connected", "", None),
        ("timeout_or_cancel", "unknown", None),
        ("timeout_or_cancel", "network", "network"),
        ("a reason of a user's rule", "", None),
    ],
)
def test_the_fault_follows_from_the_reason_unless_the_rule_says_otherwise(reason, own, fault):
    assert outcomes.fault_of(reason, own) == fault


def test_the_macros_test_for_the_members_of_their_group():
    with duckdb.connect() as connection:
        for name, text in outcomes.sql_macros().items():
            _, takes, value = text.split("\n")
            connection.execute(f"CREATE MACRO {name}({takes.split(': ')[1]}) AS {value}")
        for name, members in outcomes.GROUPS.items():
            rows = connection.execute(
                f"SELECT o FROM (SELECT unnest($1) AS o) WHERE _{name}(o)",
                [list(outcomes.OUTCOMES)],
            ).fetchall()
            assert {value for (value,) in rows} == set(members)


def test_a_tool_that_its_host_set_up_wrongly_is_not_said_to_have_failed_itself():
    assert outcomes.meaning_of("tool_failure", "tool") == "the tool itself failed"
    assert "host application" in outcomes.meaning_of("tool_failure", "client")
