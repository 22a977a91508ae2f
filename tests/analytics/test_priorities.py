"""The question `priorities`: which problems are listed, in which order, and with what evidence."""

import pytest

from tests.analytics.built_stores import BEGAN, FAILED, NO_NETWORK, OK, REFUSED, build, call
from tests.analytics.test_timeline import at, outage

HIDDEN = {"outcome": "hidden_error", "verdict": "business", "hidden_confidence": 99.0}


def asked(tmp_path, rows, **filters):
    return build(tmp_path / "s", rows).ask("priorities", **filters).pl().to_dicts()


def kinds(tmp_path, rows):
    return {row["kind"]: row for row in asked(tmp_path, rows)}


def traffic(tool, failed, calls=100, kind=FAILED, **fields):
    """Calls of a tool, one per session, the first `failed` of which failed."""
    return [
        call(f"{tool}{n}", tool, **(kind if n < failed else OK), **fields) for n in range(calls)
    ]


def test_a_tool_that_fails_since_a_time_is_listed_with_it(tmp_path):
    change = kinds(tmp_path, outage())["change"]
    assert change["what"] == (
        "succeeds in 0% of its calls since 2026-03-02 01:00 UTC, and in 100% before"
    )
    assert "60 calls in 15 sessions since" in change["evidence"]
    assert (change["affected"], change["impact"]) == (60, 60)
    assert change["since"].isoformat() == "2026-03-02T01:00:00+00:00"
    assert change["fault"] == "network or upstream"


def test_an_outage_that_ended_is_not_listed_as_a_change(tmp_path):
    assert "change" not in kinds(tmp_path, outage(range(240), since=100, until=140))


def test_refusals_since_a_time_are_not_listed_as_a_change(tmp_path):
    assert "change" not in kinds(tmp_path, outage(kind=REFUSED))


def test_a_row_says_what_is_wrong_whose_fault_since_when_and_shows_one_call(tmp_path):
    rows = [
        at(minute, FAILED | TEXTS if minute % 2 else OK, "t", f"s{minute}")
        for minute in range(3, 43)
    ]
    [row] = asked(tmp_path, rows)
    assert row["what"] == "caused the failure of 20 of 40 calls; 20 worked"
    assert (row["rank"], row["server"], row["tool"], row["kind"]) == (1, "s", "t", "failing")
    assert (row["fault"], row["confidence"], row["affected"]) == ("tool", 90.0, 20)
    assert 10 < row["affected_low"] < 20
    assert row["affected_low"] == pytest.approx(row["rate_low"] * 40)
    assert (row["since"] - BEGAN).total_seconds() == 180
    assert (row["last_seen"] - BEGAN).total_seconds() == 41 * 60
    assert row["message"] == "division by zero"
    assert row["call_id"] == f"{0:016x}"
    assert row["evidence"].endswith("; 40 calls in 40 sessions")
    assert not row["insufficient_data"]


TEXTS = {"error_text": "division by zero", "template": "division by zero", "confidence": 90.0}


def test_problems_are_ranked_by_the_calls_that_they_affect_at_least(tmp_path):
    # All of three calls are fewer than a tenth of thousands.
    rows = traffic("few", 3, 3) + traffic("many", 60, 600) + traffic("some", 20)
    assert [row["tool"] for row in asked(tmp_path, rows)] == ["many", "some", "few"]


def test_little_data_lowers_the_rank_only_by_the_lower_bound(tmp_path):
    rows = traffic("seldom", 3, 60) + traffic("always", 4, 4)
    always, seldom = asked(tmp_path, rows)
    assert (always["tool"], always["insufficient_data"]) == ("always", True)
    assert (seldom["tool"], seldom["insufficient_data"]) == ("seldom", False)


def test_repeated_calls_are_the_fault_of_the_caller_whoever_caused_the_failure(tmp_path):
    rows = [
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
    row = kinds(tmp_path, [*rows, call("s", "t", **OK)])["retries"]
    assert (row["fault"], row["confidence"]) == ("caller", None)
    assert row["what"].startswith("was called again 280 times by its client")
    assert row["evidence"].endswith("cause of most of these failures: unknown")


def test_the_fourth_problem_of_a_kind_comes_after_the_other_kinds(tmp_path):
    rows = [row for n in range(4) for row in traffic(f"t{n}", 90 - n)]
    rows += traffic("hides", 30, kind=HIDDEN)
    assert [row["tool"] for row in asked(tmp_path, rows)] == ["t0", "t1", "t2", "hides", "t3"]


def test_a_tool_is_listed_once_with_its_other_problems(tmp_path):
    both = [call(n, "t", **(FAILED if n < 60 else HIDDEN if n < 80 else OK)) for n in range(100)]
    [row] = asked(tmp_path, both)
    assert row["kind"] == "failing"
    assert row["also"] == [
        "reported a failure in 20 of 100 calls without marking the result as an error"
    ]


def test_an_unmarked_error_is_the_fault_of_the_tool_whoever_caused_it(tmp_path):
    [row] = asked(tmp_path, traffic("t", 30, kind=HIDDEN))
    assert (row["fault"], row["condition"]) == ("tool", "outcome = 'hidden_error'")
    assert row["evidence"].endswith("cause of most of these failures: caller")


def test_failures_scattered_over_the_tools_of_a_server_are_a_problem_of_the_server(tmp_path):
    few = [call(n % 5, f"t{n % 150}", **(FAILED if n < 20 else OK)) for n in range(600)]
    row = asked(tmp_path, few)[0]
    assert (row["kind"], row["server"], row["tool"], row["affected"]) == ("failing", "s", None, 20)
    assert row["what"].startswith("had 20 of 600 calls fail because of 20 tools")
    assert (row["fault"], row["since"]) == ("tool", BEGAN)
    one_tool = traffic("bad", 20) + traffic("good", 1)
    assert "bad" in {row["tool"] for row in asked(tmp_path, one_tool)}
    assert None not in {row["tool"] for row in asked(tmp_path, one_tool)}


def test_failures_of_the_network_are_a_problem_of_the_server(tmp_path):
    rows = traffic("a", 20, kind=NO_NETWORK) + traffic("b", 20, kind=NO_NETWORK)
    [row] = asked(tmp_path, rows)
    assert (row["kind"], row["tool"], row["affected"]) == ("lost", None, 40)
    assert row["since"] == BEGAN


def test_filters_choose_rows_by_name_and_calls_by_time(tmp_path):
    late = [
        row | {"requested_at": row["requested_at"].replace(day=5)} for row in traffic("new", 50)
    ]
    store = build(tmp_path / "s", traffic("old", 50) + late)

    def tools(**filters):
        return {
            row["tool"]: row["rank"] for row in store.ask("priorities", **filters).pl().to_dicts()
        }

    assert tools() == {"new": 1, "old": 2}
    assert tools(tool="old") == {"old": 2}
    assert tools(since="2026-03-04") == {"new": 1}
    assert tools(min_calls=101) == {}


def test_a_store_without_a_problem_has_none(tmp_path):
    assert asked(tmp_path, traffic("t", 0)) == []


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (1, "100%"), (0.5, "50%"), (0.0123, "1.2%"), (0.00071, "0.07%"), (0.9999, "99.99%"),
     (0.00001, "<0.01%"), (0.99999, ">99.99%"), (0.00005, "0.01%"), (0.99995, ">99.99%"),
     (1e-16, "<0.01%"), (0.9996, "99.96%"), (0.0996, "10.0%"), (None, "\N{EN DASH}")],
)  # fmt: skip
def test_a_percentage_in_sql_is_written_as_on_the_page(tmp_path, share, text):
    from mcptally.output.html.text import percent

    store = build(tmp_path / "s", [])
    store.ask("priorities")
    [(found,)] = store.sql("SELECT _percent(?::DOUBLE)", [share]).fetchall()
    assert found == percent(share) == text
