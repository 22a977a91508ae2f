"""Error groups: what they count, when they began, and whether they still happen."""

from datetime import timedelta

import pytest

from tests.analytics.built_stores import BEGAN, FAILED, OK, UNCLEAR, Servers, call


def at(minute, template=None, tool="t", **fields):
    """Return a call at a minute; it failed if it has a template."""
    kind = OK if template is None else FAILED | {"template": template, "error_text": template}
    return call(
        minute, tool, **(kind | {"requested_at": BEGAN + timedelta(minutes=minute)} | fields)
    )


SERVERS = Servers()


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """The error groups of a server by template."""
    answers = SERVERS.build(tmp_path_factory.mktemp("groups") / "s")
    return lambda server: {row["template"]: row for row in answers.of(server, "error_groups")}


TWO = SERVERS.add([at(0, "duplicate key"), at(1, "foreign key"), at(2, "foreign key")])


def test_errors_with_different_templates_are_different_groups(groups):
    assert {name: row["calls"] for name, row in groups(TWO).items()} == {
        "duplicate key": 1,
        "foreign key": 2,
    }


MIXED = SERVERS.add([at(0), at(1, "a"), at(2), at(3, "a"), at(4), at(5, "b")])


def test_a_group_has_the_time_of_its_first_and_last_failure(groups):
    found = groups(MIXED)["a"]
    assert found["first_seen"] == BEGAN + timedelta(minutes=1)
    assert found["last_seen"] == BEGAN + timedelta(minutes=3)
    assert found["calls_since"] == 2


# Four of ten calls fail; with one more in the divisor, (1 - 4/11)^6 = 0.066, ^7 = 0.042.
THIRD = [at(i, "a" if i % 3 == 0 else None) for i in range(10)]
LATER = {
    "six calls later": (THIRD + [at(i) for i in range(10, 16)], True),
    "seven calls later": (THIRD + [at(i) for i in range(10, 17)], False),
    "four calls after the only failure": ([at(0, "a"), *map(at, range(1, 5))], True),
    "five calls after the only failure": ([at(0, "a"), *map(at, range(1, 6))], False),
    "calls to another tool": ([at(0, "a"), *(at(i, tool="u") for i in range(1, 30))], True),
    "cancelled calls": ([at(0, "a"), *(at(i, outcome="cancelled") for i in range(1, 30))], True),
}


@pytest.mark.parametrize(
    ("server", "ongoing"),
    [(SERVERS.add(calls), ongoing) for calls, ongoing in LATER.values()],
    ids=LATER,
)
def test_an_error_is_over_after_more_calls_without_it_than_chance_explains(groups, server, ongoing):
    assert groups(server)["a"]["ongoing"] == ongoing


TIMELESS = SERVERS.add(at(i, "a" if i < 3 else None, requested_at=None) for i in range(9))


def test_without_times_it_is_unknown_whether_an_error_is_over(groups):
    found = groups(TIMELESS)["a"]
    assert found["calls"] == 3
    assert found["first_seen"] is found["last_seen"] is found["ongoing"] is None


TEXTLESS = SERVERS.add([call(1, **(UNCLEAR | {"outcome": "timeout"})), call(2, **UNCLEAR)])


def test_failures_without_a_text_are_grouped_by_outcome(groups):
    assert groups(TEXTLESS).keys() == {"(no text: timeout)", "(no text: protocol_error)"}
