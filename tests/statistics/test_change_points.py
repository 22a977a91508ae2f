"""The test for changes of a rate: comparison with direct computations, and false alarms."""

import math

import numpy as np
import pytest

from mcptally.statistics import change_points
from tests.benchmarks import change_points as simulation


def made(random, calls=400, sessions=12, tools=3, rate=0.3):
    """A series of single calls."""
    return change_points.Series(
        np.sort(random.random(calls)),
        np.ones(calls),
        (random.random(calls) < rate).astype(float),
        random.integers(0, tools, calls),
        random.integers(0, sessions, calls),
    )


@pytest.mark.parametrize("cells", [1, 1 << 21])
def test_squares_of_sums_equal_a_direct_computation(monkeypatch, cells):
    monkeypatch.setattr(change_points, "_CELLS", cells)  # the number of clusters at a time
    random = np.random.default_rng(1)
    series, part = made(random), np.sort(random.integers(0, 6, 400))
    values = random.random(400)
    low, high = np.triu_indices(6, 1)
    share = random.random((3, len(low)))
    found = change_points._squares(series.session, series.tool, part, values, low, high, share)
    direct = []
    for column, (first, end) in enumerate(zip(low, high, strict=True)):
        inside = ((first <= part) & (part < end)) - share[series.tool, column]
        direct.append((np.bincount(series.session, inside * values) ** 2).sum())
    assert found == pytest.approx(np.array(direct))


def test_the_rank_test_is_fishers_exact_test():
    random = np.random.default_rng(2)
    for _ in range(20):
        high, late = random.random((2, 30)) < 0.4
        table = [
            [int((high & late).sum()), int((high & ~late).sum())],
            [int((~high & late).sum()), int((~high & ~late).sum())],
        ]
        [[both, only_high], [only_late, neither]] = table
        total, highs = both + only_high + only_late + neither, both + only_high
        lates = both + only_late
        ways = sum(
            math.comb(highs, n) * math.comb(total - highs, lates - n)
            for n in range(both, min(highs, lates) + 1)
        )
        exact = ways / math.comb(total, lates)
        assert change_points._rank_tail(high, late) == pytest.approx(min(1, 2 * exact))


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
        data = simulation.calls(random, tool, sessions=40).sort("second")
        series = change_points.Series(
            data["second"].to_numpy(),
            np.ones(data.height),
            data["failed"].cast(float).to_numpy(),
            np.zeros(data.height, np.int64),
            data["session"].rank("dense").cast(int).to_numpy() - 1,
        )
        found += bool(change_points.change_points(series))
    # Of 300 tests with an error probability of 1 %, 10 or more fail in 0.1 % of the cases.
    assert found < 10


def test_the_simulation_of_the_documentation_runs_on_the_current_sql():
    random = np.random.default_rng(5)
    changed = simulation.CHANGED["5 % to 50 %, 30 before and after"]
    found = simulation.changes(simulation.calls(random, 0, **changed))
    assert set(found["direction"]) == {"worse"}
