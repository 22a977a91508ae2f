"""Simulate sessions of calls, and print the coverage of intervals of a failure rate.

    python -m tests.benchmarks coverage [--replicates 4000]

The calls of a session are similar: a session's failure rate is drawn from a Beta distribution whose
mean is the tool's and whose intra-class correlation is rho (clustered Bernoulli).
"""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mcptally.statistics import intervals

SESSIONS = (5, 10, 20, 50, 100, 200)
RATES = (0.01, 0.05, 0.1, 0.3, 0.5, 0.9)
CORRELATIONS = (0.05, 0.3, 0.5)
MEAN_SIZES = (3, 15, 30)
SIZES = {
    "1 + Poisson": lambda random, mean, shape: 1 + random.poisson(mean - 1, shape),
    "geometric": lambda random, mean, shape: random.geometric(1 / mean, shape),
}


def failures(random, n, p, rho):
    """Failures per session of `n` calls each."""
    a, b = p * (1 - rho) / rho, (1 - p) * (1 - rho) / rho
    return random.binomial(n, random.beta(a, b, np.shape(n)))


class Cell(NamedTuple):
    """One cell of the design of `coverage`, with its results."""

    size: str
    mean_size: int
    rate: float
    correlation: float
    sessions: int
    covered: float
    """The share of intervals that contain the rate."""
    width: float
    """The mean width of an interval."""


def design() -> list[tuple[str, int, float, float, int]]:
    """Every cell: shape and mean of session sizes, rate, correlation, number of sessions."""
    return list(itertools.product(SIZES, MEAN_SIZES, RATES, CORRELATIONS, SESSIONS))


def coverage(random, replicates: int, cells) -> Iterator[Cell]:
    """The coverage of the intervals that `rate_interval` computes from sums over sessions."""
    for cell in cells:
        size, mean, p, rho, g = cell
        n = SIZES[size](random, mean, (replicates, g)).astype(float)
        y = failures(random, n.astype(int), p, rho).astype(float)
        mixed = np.round(1e6 * y * (n - y) / n) / 1e6
        sums = (x.sum(1) for x in (n, y, n * n, y * y, y * n, mixed))
        rarer = np.minimum((y > 0).sum(1), (y < n).sum(1))
        rate = intervals.rate_intervals(*sums, np.full(replicates, g), rarer)
        yield Cell(*cell, *covered(rate.low, rate.high, p))


def covered(low, high, p: float) -> tuple[float, float]:
    """The share of intervals that contain `p`, and their mean width."""
    return float(((low <= p) & (p <= high)).mean()), float((high - low).mean())


def summary(cells: Sequence[Cell]) -> str:
    """Return the range of the coverage, and how many cells are outside 93 to 97 %."""
    shares = np.array([cell.covered for cell in cells])
    return (
        f"{len(cells)} cells: {shares.min():.3f} to {shares.max():.3f}, mean {shares.mean():.3f}; "
        f"{(shares < 0.93).mean():.1%} below 0.93, {(shares > 0.97).mean():.1%} above 0.97, "
        f"{(shares > 0.98).mean():.1%} above 0.98"
    )


def main() -> None:
    """Print the coverage over all cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=4000)
    given = parser.parse_args()
    print(summary(list(coverage(np.random.default_rng(20261121), given.replicates, design()))))


if __name__ == "__main__":
    main()
