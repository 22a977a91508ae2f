"""The test for changes of a rate: comparison with direct computations, and false alarms."""

import numpy as np
import pytest

from mcptally.statistics import change_points
from tests.benchmarks import change_points as simulation


def test_the_order_of_calls_at_one_time_does_not_matter():
    random = np.random.default_rng(3)
    at = np.repeat(np.arange(40.0), 5)
    hits = (at >= 20) * (random.random(200) < 0.9)
    series = change_points.Series(
        at, np.ones(200), hits.astype(float), np.zeros(200, int), np.arange(200) // 10
    )
    shuffled = np.lexsort((random.random(200), at))
    other = change_points.Series(*(column[shuffled] for column in series))
    expected = change_points.change_points(series)
    assert [change.at for change in expected] == [20]
    found = change_points.change_points(other)
    assert [tuple(change) for change in found] == [pytest.approx(tuple(c)) for c in expected]


@pytest.mark.slow
def test_a_change_whose_p_value_rounds_to_zero_is_found_where_it_is():
    at = np.arange(6000.0)
    hits = np.random.default_rng(6).random(6000) < np.where(at < 4500, 0.1, 1)
    series = change_points.Series(
        at, np.ones(6000), hits.astype(float), np.zeros(6000, int), np.arange(6000)
    )
    [change] = change_points.change_points(series)
    assert change.p_value == 0
    assert change.at == pytest.approx(4500, abs=3)


@pytest.mark.slow
def test_series_without_a_change_seldom_show_one():
    random = np.random.default_rng(4)
    found = 0
    for tool in range(300):
        series = series_of(simulation.calls(random, tool, sessions=40))
        found += bool(change_points.change_points(series))
    # Of 300 tests with an error probability of 1 %, 10 or more fail in 0.1 % of the cases.
    assert found < 10


def test_the_simulation_of_the_documentation_runs_on_the_current_sql():
    random = np.random.default_rng(5)
    changed = simulation.CHANGED["5 % to 50 %, 30 before and after"]
    found = simulation.changes(simulation.calls(random, 0, **changed))
    assert set(found["direction"]) == {"worse"}


def series_of(data):
    """Return the series of simulated calls to one tool."""
    data = data.sort("second")
    return change_points.Series(
        data["second"].to_numpy(),
        np.ones(data.height),
        data["failed"].cast(float).to_numpy(),
        np.zeros(data.height, np.int64),
        data["session"].rank("dense").cast(int).to_numpy() - 1,
    )


def test_clients_with_rates_of_their_own_in_runs_are_permuted_in_blocks():
    length = []
    for clients in (0, 4):
        random = np.random.default_rng(7)
        sessions = [
            change_points._sessions(
                series_of(simulation.calls(random, 0, sessions=60, rate=0.2, clients=clients))
            )
            for _ in range(40)
        ]
        length.append([change_points._block_length(each, 30, 60) for each in sessions])
    alone, runs = (np.array(each) > 1 for each in length)
    assert alone.mean() < 0.25
    assert runs.mean() > 0.6


@pytest.mark.slow
def test_long_sessions_one_after_the_other_seldom_show_a_change():
    random = np.random.default_rng(8)
    options = simulation.CONSTANT["12 long sessions, one after the other"]
    found = [
        change_points.change_points(series_of(simulation.calls(random, 0, **options)))
        for _ in range(200)
    ]
    assert sum(map(bool, found)) < 8


@pytest.mark.slow
def test_most_changes_from_40_to_80_percent_over_60_sessions_are_found():
    random = np.random.default_rng(9)
    options = simulation.CHANGED["40 % to 80 %, 30 before and after"]
    found = [
        change_points.change_points(series_of(simulation.calls(random, 0, **options)))
        for _ in range(60)
    ]
    assert np.mean([min((c.p_value for c in each), default=1) <= 0.005 for each in found]) > 0.65
