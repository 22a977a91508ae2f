"""Failure rates over time, and their alarms."""

import pytest

from tests.analytics.built_stores import build, days


def trend(tmp_path, rates, period="day"):
    rows = [
        row
        for day, rate in enumerate(rates)
        for row in days(day, [(rate, 10)] * 4 + [(max(0, rate - 1), 10)] * 4)
    ]
    store = build(tmp_path / "s", rows)
    return store.sql(
        f"SELECT * FROM failure_trend WHERE period = '{period}' AND level = 'tool' ORDER BY start"
    ).pl()


def test_each_day_has_its_rate_with_an_interval(tmp_path):
    found = trend(tmp_path, [1] * 6)
    assert found.get_column("failure_rate").to_list() == pytest.approx([0.05] * 6)
    assert (found["failure_rate_low"] < 0.05).all()
    assert (found["failure_rate_high"] > 0.05).all()
    assert found.get_column("sessions").to_list() == [8] * 6


def test_two_bad_days_of_three_alarm_and_one_does_not(tmp_path):
    assert trend(tmp_path / "1", [1] * 8 + [5] + [1] * 4)["alarm"].sum() == 0
    found = trend(tmp_path / "2", [1] * 8 + [5, 5, 1, 1])
    assert found["breach"].to_list() == [False] * 8 + [True, True] + [False] * 2
    assert found["alarm"].to_list() == [False] * 9 + [True] + [False] * 2


def test_a_rise_below_five_points_raises_no_alarm(tmp_path):
    assert trend(tmp_path, [4] * 8 + [4, 4, 4])["alarm"].sum() == 0


def test_without_a_baseline_there_is_no_comparison(tmp_path):
    found = trend(tmp_path, [0, 9, 9])
    assert found["alarm"].sum() == 0
    assert not found["comparable"].fill_null(value=False).any()


def test_there_are_periods_of_hours_and_weeks(tmp_path):
    assert trend(tmp_path, [1] * 8, "week").height == 2
    assert trend(tmp_path / "h", [1] * 3, "hour").height == 3
