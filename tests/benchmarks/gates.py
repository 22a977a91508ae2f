"""Decisions of the gate `failure_rate > 5%` in simulated archives.

`python -m tests.benchmarks.gates [--archives N]` prints the table of
docs/explanation/statistics.md. An archive has ten tools with sessions of geometric size (mean 6)
and correlated failures. A decision is wrong if the tool's true rate is on the other side of 5 %.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from mcptally.statistics import intervals
from tests.benchmarks.coverage import failures

TOOLS = 10
LIMIT = 0.05
MEAN_SIZE = 6
SESSIONS = (3, 25, 50, 75)
CORRELATIONS = (0.05, 0.3, 0.6)
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
        y[:, tool] = size * int(rate) if rate in {0, 1} else failures(random, size, rate, rho)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archives", type=int, default=400)
    given = parser.parse_args()
    random = np.random.default_rng(20261123)
    print("| tools | sessions | correlation | coverage | failed | passed | wrong |")
    print("|---|---|---|---|---|---|---|")
    for name, rates in SETS.items():
        true = np.array(rates)
        for sessions in SESSIONS:
            for rho in CORRELATIONS:
                found = rates_of(*drawn(random, rates, sessions, rho, given.archives))
                failed, passed = found.low > LIMIT, found.high <= LIMIT
                wrong = (failed & (true <= LIMIT)) | (passed & (true >= LIMIT))
                covered = (found.low <= true) & (true <= found.high)
                shares = (covered.mean(), failed.mean(), passed.mean(), wrong.mean())
                print(f"| {name} | {sessions} | {rho} | ", end="")
                print(" | ".join(f"{share:.3f}" for share in shares), "|")


if __name__ == "__main__":
    main()
