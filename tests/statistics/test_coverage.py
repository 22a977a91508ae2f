"""The simulation of docs/explanation/statistics.md runs on the current SQL, with few draws."""

import numpy as np
import pytest

from tests.benchmarks import coverage


@pytest.mark.slow
def test_every_part_of_the_simulation_runs_on_the_current_sql():
    random = np.random.default_rng(1)
    cells = [("geometric", 3, 0.3, 0.3, 20)]
    [cell] = coverage.coverage(random, 200, cells)
    [stored] = coverage.stored_coverage(random, 200, cells)
    assert cell[:5] == stored[:5] == cells[0]
    assert min(cell.covered, stored.covered) > 0.9
    [known] = coverage.known_coverage(random, 2000, cells)
    assert 0.93 < known < 0.97
    assert stored.width == pytest.approx(cell.width, rel=0.1)
    assert "1 cells: 0.9" in coverage.summary([stored])
    _, _, _, sessions, texts = next(coverage.slow(random, 20))
    assert sessions == 30
    assert [text == "none" for text in texts] == [False, True, True]
    _, true, there = coverage.discoveries(random, 8, change=1.0)
    assert 0 < true <= there == 32
    assert coverage.power(random, 0.05, 2, 1) == (0, 1)
