"""The simulation of docs/explanation/statistics.md runs on the current SQL, with few draws."""

import numpy as np
import pytest

from mcptally.analytics import views
from tests.benchmarks import coverage, gates


@pytest.mark.slow
def test_every_part_of_the_simulation_runs_on_the_current_sql():
    random = np.random.default_rng(1)
    cells = [("geometric", 3, 0.3, 0.3, 20)]
    [cell] = coverage.coverage(random, 200, cells)
    [stored] = coverage.stored_coverage(random, 200, cells)
    assert cell[:5] == stored[:5] == cells[0]
    assert min(cell.covered, stored.covered) > 0.9
    assert stored.width == pytest.approx(cell.width, rel=0.1)
    assert "1 cells: 0.9" in coverage.summary([stored])
    _, _, _, sessions, texts = next(coverage.slow(random, 20))
    assert sessions == 30
    assert [text == "none" for text in texts] == [False, True, True]
    _, true, there = coverage.discoveries(random, 8, change=1.0)
    assert 0 < true <= there == 32
    assert coverage.power(random, 0.05, 2, 1) == (0, 1)


def test_the_simulation_of_gates_computes_the_intervals_of_a_store():
    random = np.random.default_rng(2)
    n, y = gates.drawn(random, [0.0, 0.1, 0.3, 1.0], 12, 0.3, 1)
    with views.connect() as connection:
        coverage.rates_view(connection, coverage.sums("t", n[0].astype(int), y[0]))
        stored = connection.sql(
            "SELECT low, high FROM _rates_per('tool') WHERE metric = 'failure_rate' ORDER BY tool"
        ).fetchall()
    found = gates.rates_of(n, y)
    assert stored == [
        (pytest.approx(low), pytest.approx(high))
        for low, high in zip(found.low[0], found.high[0], strict=True)
    ]


@pytest.mark.parametrize("rates", gates.SETS.values(), ids=gates.SETS)
def test_gates_seldom_decide_wrongly_and_intervals_contain_the_rate(rates):
    random = np.random.default_rng(3)
    for sessions, rho in ((3, 0.3), (50, 0.05), (50, 0.6)):
        found = gates.rates_of(*gates.drawn(random, rates, sessions, rho, 100))
        assert ((found.low <= rates) & (rates <= found.high)).mean() > 0.93
        passed = (found.high <= gates.LIMIT) & (np.array(rates) >= gates.LIMIT)
        assert passed.mean() < 0.025
