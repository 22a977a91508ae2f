"""The question `priorities`: which problems are listed, in which order, and with what evidence."""

import pytest

from mcptally.output.html.text import percent
from tests.analytics.built_stores import (
    BEGAN,
    FAILED,
    NO_NETWORK,
    OK,
    REFUSED,
    Answers,
    Servers,
    build,
    call,
)
from tests.analytics.test_timeline import at, outage

HIDDEN = {"outcome": "hidden_error", "verdict": "business", "hidden_certainty": 99.0}
SERVERS = Servers()


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> Answers:
    return SERVERS.build(tmp_path_factory.mktemp("priorities") / "s")


@pytest.fixture(scope="module")
def asked(answers):
    """The problems of a server."""
    return lambda server: answers.of(server, "priorities")


@pytest.fixture(scope="module")
def kinds(asked):
    """The problems of a server by kind."""
    return lambda server: {row["kind"]: row for row in asked(server)}


def traffic(tool, failed, calls=100, kind=FAILED, **fields):
    """Calls of a tool, one per session, the first `failed` of which failed."""
    return [
        call(f"{tool}{n}", tool, **(kind if n < failed else OK), **fields) for n in range(calls)
    ]


SINCE = SERVERS.add(outage())


@pytest.mark.slow
def test_a_tool_that_fails_since_a_time_is_listed_with_it(kinds):
    change = kinds(SINCE)["change"]
    assert change["what"] == (
        "succeeds in 0% of its calls since 2026-03-02 01:00 UTC, and in 100% before"
    )
    assert "60 calls in 15 sessions since" in change["evidence"]
    assert (change["affected"], change["impact"]) == (60, 60)
    assert change["since"].isoformat() == "2026-03-02T01:00:00+00:00"
    assert change["fault"] == "network or upstream"


ENDED = SERVERS.add(outage(range(240), since=100, until=140))


def test_an_outage_that_ended_is_not_listed_as_a_change(kinds):
    assert kinds(ENDED).keys() == {"lost"}


REFUSALS = SERVERS.add(outage(kind=REFUSED))


def test_refusals_since_a_time_are_not_listed_as_a_change(answers, asked):
    assert asked(REFUSALS) == []
    assert answers.of(REFUSALS, "change_points"), "the success rate changed"


TEXTS = {"error_text": "division by zero", "template": "division by zero", "certainty": 90.0}
HALF = SERVERS.add(
    at(
        minute,
        FAILED | TEXTS if minute % 2 else OK,
        "t",
        f"s{minute}",
        call_id=f"call {minute:02}",
        attempt_of=f"call {minute:02}",
    )
    for minute in range(3, 43)
)


def test_a_row_says_what_is_wrong_whose_fault_since_when_and_shows_one_call(asked):
    [row] = asked(HALF)
    assert row["what"] == "caused the failure of 20 of 40 calls; 20 worked"
    assert (row["tool"], row["kind"]) == ("t", "failing")
    assert (row["fault"], row["certainty"], row["affected"]) == ("tool", 90.0, 20)
    assert 10 < row["affected_low"] < 20
    assert row["affected_low"] == pytest.approx(row["rate_low"] * 40)
    assert (row["since"] - BEGAN).total_seconds() == 180
    assert (row["last_seen"] - BEGAN).total_seconds() == 41 * 60
    assert row["message"] == "division by zero"
    assert row["call_id"].endswith("-call 03")
    assert row["evidence"].endswith("; 40 calls in 40 sessions")
    assert not row["insufficient_data"]


# All of three calls are fewer than a tenth of thousands.
RANKED = SERVERS.add(traffic("few", 3, 3) + traffic("many", 60, 600) + traffic("some", 20))


def test_problems_are_ranked_by_the_calls_that_they_affect_at_least(asked):
    assert [row["tool"] for row in asked(RANKED)] == ["many", "some", "few"]


LITTLE_DATA = SERVERS.add(traffic("seldom", 3, 60) + traffic("always", 4, 4))


def test_little_data_lowers_the_rank_only_by_the_lower_bound(asked):
    always, seldom = asked(LITTLE_DATA)
    assert (always["tool"], always["insufficient_data"]) == ("always", True)
    assert (seldom["tool"], seldom["insufficient_data"]) == ("seldom", False)


REPEATED = SERVERS.add(
    [
        call(
            f"s{session}",
            "t",
            **FAILED | {"verdict": "ambiguous"},
            attempt_of=f"{session:016x}",
            attempt=attempt,
            attempt_why="retry" if attempt > 1 else None,
        )
        for session in range(40)
        for attempt in range(1, 9)
    ]
    + [call("s", "t", **OK)]
)


def test_repeated_calls_are_the_fault_of_the_caller_whoever_caused_the_failure(kinds):
    row = kinds(REPEATED)["retries"]
    assert (row["fault"], row["certainty"]) == ("caller", None)
    assert row["what"].startswith("was called again 280 times by its client")
    assert row["evidence"].endswith("cause of most of these failures: unknown")


FOUR_ALIKE = SERVERS.add(
    [row for n in range(4) for row in traffic(f"t{n}", 90 - n)] + traffic("hides", 30, kind=HIDDEN)
)


def test_the_fourth_problem_of_a_kind_comes_after_the_other_kinds(answers):
    rows = answers.of(FOUR_ALIKE, "priorities")
    assert [row["tool"] for row in rows] == ["t0", "t1", "t2", "hides", "t3"]


TWO_PROBLEMS = SERVERS.add(
    call(n, "t", **(FAILED if n < 60 else HIDDEN if n < 80 else OK)) for n in range(100)
)


def test_a_tool_is_listed_once_with_its_other_problems(asked):
    [row] = asked(TWO_PROBLEMS)
    assert row["kind"] == "failing"
    assert row["also"] == [
        "reported a failure in 20 of 100 calls without marking the result as an error"
    ]


UNMARKED = SERVERS.add(traffic("t", 30, kind=HIDDEN))


def test_an_unmarked_error_is_the_fault_of_the_tool_whoever_caused_it(asked):
    [row] = asked(UNMARKED)
    assert (row["fault"], row["condition"]) == ("tool", "outcome = 'hidden_error'")
    assert row["evidence"].endswith("cause of most of these failures: caller")


SCATTERED = SERVERS.add(
    call(n % 5, f"t{n % 150}", **(FAILED if n < 20 else OK)) for n in range(600)
)
ONE_TOOL = SERVERS.add(traffic("bad", 20) + traffic("good", 1))


def test_failures_scattered_over_the_tools_of_a_server_are_a_problem_of_the_server(asked):
    row = asked(SCATTERED)[0]
    assert (row["kind"], row["tool"], row["affected"]) == ("failing", None, 20)
    assert row["what"].startswith("had 20 of 600 calls fail because of 20 tools")
    assert (row["fault"], row["since"]) == ("tool", BEGAN)
    tools = {row["tool"] for row in asked(ONE_TOOL)}
    assert "bad" in tools
    assert None not in tools


TWO_TOOLS_LOST = SERVERS.add(traffic("a", 20, kind=NO_NETWORK) + traffic("b", 20, kind=NO_NETWORK))


def test_failures_of_the_network_are_a_problem_of_the_server(asked):
    [row] = asked(TWO_TOOLS_LOST)
    assert (row["kind"], row["tool"], row["affected"]) == ("lost", None, 40)
    assert row["since"] == BEGAN


WORKS = SERVERS.add(traffic("t", 0))


def test_a_tool_without_a_problem_is_not_listed(asked):
    assert asked(WORKS) == []


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (1, "100%"), (0.5, "50%"), (0.0123, "1.2%"), (0.00071, "0.07%"), (0.9999, "99.99%"),
     (0.00001, "<0.01%"), (0.99999, ">99.99%"), (0.00005, "0.01%"), (0.99995, ">99.99%"),
     (1e-16, "<0.01%"), (0.9996, "99.96%"), (0.0996, "10.0%"), (None, "\N{EN DASH}")],
)  # fmt: skip
def test_a_percentage_in_sql_is_written_as_on_the_page(answers, asked, share, text):
    asked(WORKS)  # creates the macro
    [(found,)] = answers.store.sql("SELECT _percent(?::DOUBLE)", [share]).fetchall()
    assert found == percent(share) == text


@pytest.fixture(scope="module")
def of_tools(tmp_path_factory):
    """A function that asks for problems: the tools of the answer, each with its rank."""
    late = [row | {"requested_at": BEGAN.replace(day=5)} for row in traffic("new", 50)]
    rare = [row | {"requested_at": BEGAN.replace(day=5)} for row in traffic("rare", 9, 10)]
    rows = [row for n in range(4) for row in traffic(f"t{n}", 90 - n)]
    rows += traffic("hides", 30, kind=HIDDEN) + late + rare
    store = build(tmp_path_factory.mktemp("filters") / "s", rows)

    def ask(**filters):
        found = store.ask("priorities", **filters).pl()
        return dict(found.select("tool", "rank").rows())

    return ask


@pytest.mark.slow
def test_filters_choose_rows_by_name_and_calls_by_time(of_tools):
    assert of_tools(tool="hides") == {"hides": 4}
    assert of_tools(since="2026-03-04", min_calls=11) == {"new": 1}
