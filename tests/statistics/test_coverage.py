"""Coverage of intervals of rates, and decisions of gates, in simulated archives."""

from collections.abc import Sequence

import numpy as np
import pytest

from mcptally.statistics import intervals
from tests.analytics import built_stores

TOOLS = 10
LIMIT = 0.05
MEAN_SIZE = 6
SETS = {
    "all fail in 5 % of their calls": [0.05] * TOOLS,
    "all fail in 0.5 %": [0.005] * TOOLS,
    "all fail in 10 %": [0.1] * TOOLS,
    "half never fail, half fail in 10 %": [0.0] * 5 + [0.1] * 5,
    "one always fails, the others never": [1.0] + [0.0] * 9,
}


def drawn(
    random: np.random.Generator, rates: Sequence[float], sessions: int, rho: float, archives: int
) -> tuple[np.ndarray, np.ndarray]:
    """Calls and failures of each session, by archive and tool."""
    n = random.geometric(1 / MEAN_SIZE, (archives, len(rates), sessions))
    y = np.zeros_like(n)
    for tool, rate in enumerate(rates):
        size = n[:, tool]
        if rate in {0, 1}:
            y[:, tool] = size * int(rate)
        else:
            a, b = rate * (1 - rho) / rho, (1 - rate) * (1 - rho) / rho
            y[:, tool] = random.binomial(size, random.beta(a, b, size.shape))
    return n.astype(float), y.astype(float)


def rates_of(n: np.ndarray, y: np.ndarray) -> intervals.RateInterval:
    """The intervals by archive and tool, as `_rates_per.sql` computes them in each archive."""
    calls, hits, sessions = n.sum(2), y.sum(2), n.shape[2]
    mixed = (y * (n - y) / n).sum(2)
    rarer = np.minimum((y > 0).sum(2), (y < n).sum(2)).astype(float)
    binomial = hits / calls * (1 - hits / calls)
    expected = ((calls - sessions) * binomial).sum(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        alike = 1 - mixed.sum(1, keepdims=True) / expected
    known = np.minimum(rarer, sessions - 1).sum(1, keepdims=True)
    every = np.full_like(calls, sessions)
    sums = (calls, hits, (n * n).sum(2), (y * y).sum(2), (y * n).sum(2), mixed, every, rarer)
    return intervals.rate_intervals(*sums, alike + 0 * calls, known + 0 * calls)


def test_the_intervals_of_this_simulation_are_those_of_a_store(tmp_path):
    n, y = drawn(np.random.default_rng(2), [0.0, 0.1, 0.3, 1.0], 12, 0.3, 1)
    counts = np.stack([y[0], n[0]], axis=-1).astype(int)
    calls = []
    for tool, pairs in enumerate(counts):
        calls += built_stores.sessions(pairs, f"t{tool}")
    scores = built_stores.build(tmp_path / "s", calls).ask("tool_scores").pl().sort("tool")
    found = rates_of(n, y)
    assert scores["failure_rate_low"].to_list() == pytest.approx(found.low[0].tolist())
    assert scores["failure_rate_high"].to_list() == pytest.approx(found.high[0].tolist())


@pytest.mark.parametrize("rates", SETS.values(), ids=SETS)
def test_gates_seldom_decide_wrongly_and_intervals_contain_the_rate(rates):
    random = np.random.default_rng(3)
    for sessions, rho in ((3, 0.3), (50, 0.05), (50, 0.6)):
        found = rates_of(*drawn(random, rates, sessions, rho, 100))
        assert ((found.low <= rates) & (rates <= found.high)).mean() > 0.93
        passed = (found.high <= LIMIT) & (np.array(rates) >= LIMIT)
        assert passed.mean() < 0.025
