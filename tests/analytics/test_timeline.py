"""Calls over time by cause, and the times at which the success rate changed."""

import re
from datetime import timedelta

import polars as pl
import pytest

from mcptally.output.html.answers import Asked
from mcptally.output.html.charts import over_time
from tests.analytics.built_stores import (
    BEGAN,
    FAILED,
    NO_NETWORK,
    OK,
    REFUSED,
    UNCLEAR,
    Servers,
    build,
    call,
)

CANCELLED = {"outcome": "cancelled"}


def at(minutes, kind=OK, tool="t", session=0, **fields):
    moment = None if minutes is None else BEGAN + timedelta(minutes=minutes)
    return call(session, tool, **(kind | {"requested_at": moment} | fields))


def outage(minutes=range(120), *, since=60, until=10**6, tool="t", kind=NO_NETWORK, length=4):
    """Return a call per minute, in sessions of `length` calls; all fail from `since` to `until`."""
    return [
        at(
            minute,
            kind | {"template": "connection refused"} if since <= minute < until else OK,
            tool,
            f"{tool}{minute // length}",
        )
        for minute in minutes
    ]


SERVERS = Servers()
"""Cases whose evidence is far from any limit, so that the number of tools does not matter."""


def further(*case):
    """Return a case marked slow, of a test whose other cases are in the fast tier."""
    return pytest.param(*case, marks=pytest.mark.slow)


def timeline(tmp_path, rows, **filters):
    return build(tmp_path / "s", rows).ask("timeline", **filters).pl()


def changes(tmp_path, rows, level="tool", **filters):
    found = build(tmp_path / "s", rows).ask("change_points", **filters).pl()
    return found.filter(level=level).to_dicts()


def test_each_period_counts_successes_and_failures_by_cause(tmp_path):
    kinds = [OK, OK, FAILED, NO_NETWORK, REFUSED, UNCLEAR, CANCELLED]
    rows = [at(0, kind) for kind in kinds] + [at(30, FAILED)]
    found = timeline(tmp_path, rows).filter(level="tool")
    first, second = found.to_dicts()
    counts = ["tool_failures", "infrastructure", "ambiguous", "business", "cancelled"]
    assert [first[name] for name in ["calls", "ok", *counts]] == [7, 2, 1, 1, 1, 1, 1]
    assert [second[name] for name in ["calls", "ok", *counts]] == [1, 0, 1, 0, 0, 0, 0]
    # Cancelled calls are no evidence.
    assert first["success_rate"] == pytest.approx(2 / 6)
    assert first["start"] == BEGAN
    assert second["start"] == BEGAN + timedelta(minutes=30)


@pytest.mark.parametrize(
    ("last", "period"),
    [
        (timedelta(minutes=59), timedelta(minutes=1)),
        (timedelta(minutes=60), timedelta(minutes=5)),
        further(timedelta(hours=6), timedelta(minutes=15)),
        further(timedelta(hours=20), timedelta(hours=1)),
        further(timedelta(days=3), timedelta(hours=6)),
        further(timedelta(days=20), timedelta(days=1)),
        further(timedelta(days=60), timedelta(weeks=1)),
        (timedelta(days=3000), timedelta(weeks=1)),
    ],
)
def test_the_time_of_all_calls_determines_the_period(tmp_path, last, period):
    rows = [at(0), at(last.total_seconds() / 60, tool="u")]
    found = timeline(tmp_path, rows).to_dicts()
    assert {row["seconds"] for row in found} == {period.total_seconds()}
    assert all(row["start"] <= BEGAN + last for row in found)
    assert len(found) == 4


@pytest.mark.slow
def test_calls_without_a_time_are_in_a_row_without_a_start(tmp_path):
    found = timeline(tmp_path, [at(None), at(None, FAILED), at(0)]).filter(level="tool")
    assert dict(zip(found["start"], found["calls"], strict=True)) == {None: 2, BEGAN: 1}
    only = timeline(tmp_path / "2", [at(None), at(None, FAILED)]).filter(level="tool")
    assert only.select("start", "calls", "ok").rows() == [(None, 2, 1)]


def test_few_calls_have_a_wide_interval_and_are_marked(tmp_path):
    [row] = timeline(tmp_path, [at(0), at(0, FAILED)]).filter(level="tool").to_dicts()
    assert row["insufficient_data"]
    assert row["success_rate_low"] < 0.2
    assert row["success_rate_high"] > 0.8


def test_a_filter_of_time_determines_the_period_by_the_calls_that_count(tmp_path):
    rows = [at(0), at(60 * 24 * 30), at(60 * 24 * 30 + 5)]
    found = timeline(tmp_path, rows, since=BEGAN + timedelta(days=29)).filter(level="tool")
    assert found.height == 2
    assert set(found["seconds"]) == {60}


NO_CHANGES = pl.DataFrame(schema={"changed_at": pl.Datetime("us", "UTC"), "direction": pl.String})


def test_a_chart_stacks_the_calls_of_a_period_by_cause(tmp_path):
    rows = [at(0), at(0, FAILED), at(0, CANCELLED), at(None), at(30, REFUSED)]
    chart = over_time(timeline(tmp_path, rows).filter(level="tool"), NO_CHANGES)
    assert (chart.first, chart.period, chart.most) == (BEGAN, "minute", 3)
    height = re.compile(r"M([\d.]+) \S+?h[\d.]+v([\d.]+)")
    bars = {kind: height.findall(path) for kind, path in chart.paths}
    assert bars == {
        "ok": [("0.0", "33.3")],
        "tool_failure": [("0.0", "33.3")],
        "open": [("0.0", "33.3")],
        "business": [("967.7", "33.3")],
    }


@pytest.mark.parametrize(
    ("filters", "level"),
    [
        ({}, "server"),
        ({"tool": "u"}, "tool"),
        further({"server": "s"}, "server"),
        further({"since": BEGAN + timedelta(minutes=30)}, "server"),
        further({"tool": "u", "until": BEGAN + timedelta(minutes=30)}, "tool"),
    ],
)
def test_the_page_counts_the_calls_of_each_period_as_timeline_does(tmp_path, filters, level):
    rows = [at(0), at(None), at(20, FAILED, "u"), at(20, CANCELLED, "u"), at(95, NO_NETWORK, "u")]
    rows += [at(7, REFUSED, "u"), at(300, UNCLEAR)]
    asked = Asked(build(tmp_path / "s", rows), filters)
    expected = over_time(asked("timeline").filter(level=level), NO_CHANGES)
    assert expected is not None
    assert over_time(asked.periods(), NO_CHANGES) == expected


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The changes of a server and of its tools."""
    answers = SERVERS.build(tmp_path_factory.mktemp("changes") / "s")

    def of(server, level="tool"):
        return [row for row in answers.of(server, "change_points") if row["level"] == level]

    return of


OUTAGE = SERVERS.add(outage())


def test_an_outage_is_dated_by_its_first_failed_call(found):
    [change] = found(OUTAGE)
    assert change["changed_at"] == BEGAN + timedelta(minutes=60)
    assert (change["success_rate_before"], change["success_rate_after"]) == (1, 0)
    assert (change["calls_before"], change["calls_after"]) == (60, 60)
    assert (change["sessions_before"], change["sessions_after"]) == (15, 15)
    assert (change["direction"], change["cause"]) == ("worse", "infrastructure")
    assert change["template"] == "connection refused"
    assert change["next_change"] is None


ENDED = SERVERS.add(outage(range(240), since=100, until=140))


def test_an_outage_that_ended_has_a_second_change(found):
    worse, better = found(ENDED)
    assert worse["changed_at"] == BEGAN + timedelta(minutes=100)
    assert worse["next_change"] == better["changed_at"] == BEGAN + timedelta(minutes=140)
    assert (worse["direction"], better["direction"]) == ("worse", "better")
    assert (better["success_rate_before"], better["success_rate_after"]) == (0, 1)
    assert better["cause"] == "infrastructure"


ONE_SESSION = SERVERS.add(outage(length=1000))
LONG_SESSIONS = SERVERS.add(outage(range(200), since=100, length=50))


@pytest.mark.parametrize("server", [ONE_SESSION, LONG_SESSIONS])
def test_a_change_needs_three_sessions_on_each_side(found, server):
    assert found(server) == []


AT_ONCE = SERVERS.add(
    at(minute, FAILED if minute >= 7 else OK, session=session)
    for session in range(12)
    for minute in range(10)
)


def test_an_outage_of_sessions_at_the_same_time_is_found(found):
    [change] = found(AT_ONCE)
    assert change["changed_at"] == BEGAN + timedelta(minutes=7)


WORKS = outage(range(60), since=10**6, tool="works")
FAILS = outage(range(60, 120), since=0, tool="fails")
MIX = SERVERS.add(WORKS + FAILS)


def test_a_change_of_the_mix_of_tools_is_no_change_of_the_server(found):
    assert found(MIX, level="server") == []


SERVER = SERVERS.add(row for tool in "tuv" for row in outage(tool=tool))


def test_an_outage_of_a_server_is_a_change_of_the_server(found):
    [change] = found(SERVER, level="server")
    assert change["tool"] is None
    assert change["changed_at"] == BEGAN + timedelta(minutes=60)
    assert change["calls_after"] == 180


def test_a_burst_of_failures_in_one_session_is_no_change(tmp_path):
    assert changes(tmp_path, outage(range(400), since=396)) == []


@pytest.mark.parametrize(("calls", "found"), [(4, 0), (8, 1)])
def test_few_calls_show_no_change(tmp_path, calls, found):
    rows = outage(range(2 * calls), since=calls, length=1)
    assert len(changes(tmp_path, rows)) == found


SAME_TIME = [row | {"requested_at": BEGAN} for row in outage()]
NO_TIME = [row | {"requested_at": None} for row in outage(tool="u")]
TIMELESS = SERVERS.add(SAME_TIME + NO_TIME)


def test_calls_at_one_time_or_without_time_show_no_change(found):
    assert found(TIMELESS) == []


@pytest.mark.slow
def test_one_change_among_many_tools_needs_more_evidence(tmp_path):
    changed = outage(range(44), since=22)
    others = [row for i in range(60) for row in outage(range(44), since=10**6, tool=f"o{i}")]
    assert len(changes(tmp_path / "1", changed)) == 1
    assert changes(tmp_path / "61", changed + others) == []


@pytest.mark.slow
def test_filters_choose_the_calls_and_the_rows(tmp_path):
    rows = outage() + outage(tool="u")
    assert changes(tmp_path / "1", rows, until=BEGAN + timedelta(minutes=60)) == []
    [change] = changes(tmp_path / "2", rows, tool="u")
    assert change["tool"] == "u"
