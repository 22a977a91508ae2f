"""Whether calls with the same arguments work, fail, or do both, asked of a store."""

from datetime import timedelta

import pytest

from tests.analytics.built_stores import BEGAN, FAILED, OK, Servers, call

SERVERS = Servers()


def case(outcomes, **fields):
    """Return calls to a server with these arguments and outcomes, in order of time."""
    return SERVERS.add(
        call(
            number % 3,
            call_id=f"{number:04}",
            arguments=arguments,
            requested_at=BEGAN + timedelta(minutes=number),
            **(outcome | fields),
        )
        for number, (arguments, outcome) in enumerate(outcomes)
    )


A, B, C = '{"a":1}', '{"a":2}', '{"a":3}'
CANCELLED = {"outcome": "cancelled"}
MIXED = case([(A, FAILED), (B, OK), (A, FAILED), (B, FAILED), (C, OK), (B, OK), (A, CANCELLED)])
FIXED = case([(A, FAILED), (A, FAILED), (A, OK), (A, OK)])
BROKEN = case([(A, FAILED), (A, FAILED), (B, FAILED)])
UNKNOWN = case([(None, FAILED), (None, OK), ('{"t":"[redacted:token]"}', OK)] * 2)
ELSEWHERE = case([(A, OK), (A, OK)], tool="other")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return SERVERS.build(tmp_path_factory.mktemp("repeatability") / "s")


def test_each_call_says_what_calls_with_the_same_arguments_did(answers):
    rows = sorted(answers.of(MIXED, "repeatability"), key=lambda row: row["call_id"])
    found = [(row["repeatability"], row["same_failed"], row["same_calls"]) for row in rows]
    always, sometimes = ("always_fails", 2, 2), ("sometimes_fails", 1, 3)
    assert found == [always, sometimes, always, sometimes, ("alone", 0, 1), sometimes]


def test_calls_that_work_again_never_fail(answers):
    rows = answers.of(ELSEWHERE, "repeatability")
    assert [row["repeatability"] for row in rows] == ["never_fails"] * 2
    assert answers.of(ELSEWHERE, "flaky") == []


def test_arguments_that_are_not_known_are_not_the_same(answers):
    assert answers.of(UNKNOWN, "repeatability") == []


def test_arguments_that_fail_always_or_sometimes_are_listed_with_their_numbers(answers):
    always, sometimes = answers.of(MIXED, "flaky")
    names = ("repeatability", "failed", "calls", "changes", "sessions", "arguments")
    assert tuple(always[name] for name in names) == ("always_fails", 2, 2, 0, 2, A)
    assert (always["other_worked"], always["other_calls"]) == (3, 4)
    assert tuple(sometimes[name] for name in names) == ("sometimes_fails", 1, 3, 2, 3, B)
    assert always["since"] == BEGAN
    assert always["last_failure"] == BEGAN + timedelta(minutes=2)


def test_a_lasting_change_is_one_change(answers):
    [row] = answers.of(FIXED, "flaky")
    assert (row["repeatability"], row["changes"]) == ("sometimes_fails", 1)


def test_a_tool_that_never_worked_is_not_flaky(answers):
    assert answers.of(BROKEN, "flaky") == []
