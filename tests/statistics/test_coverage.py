"""The simulation of docs/explanation/statistics.md runs on the current SQL, with few draws."""

import numpy as np

from tests.benchmarks import coverage


def test_every_part_of_the_simulation_runs_on_the_current_sql():
    random = np.random.default_rng(1)
    *cell, covered, width = next(coverage.coverage(random, 50))
    assert cell == ["6 calls a session", 0.02, 0.05, 8]
    assert covered > 0.8
    assert 0 < width < 1
    _, _, _, sessions, texts = next(coverage.slow(random, 20))
    assert sessions == 30
    assert [text == "none" for text in texts] == [False, True, True]
    _, true, there = coverage.discoveries(random, 8, change=1.0)
    assert 0 < true <= there == 32
