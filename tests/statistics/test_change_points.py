"""The test for changes of a rate: comparison with direct computations, and false alarms."""

from typing import Any

import numpy as np
import pytest
from scipy.special import betaincinv

from mcptally.statistics import change_points

SECONDS = 100_000
"""Time of an archive."""
CORRELATION = 0.3
"""Of the failures within a session."""


def simulated(
    random: np.random.Generator,
    *,
    sessions: int,
    mean: float = 6,
    rate: float = 0.1,
    length: float = 60,
    later: float | None = None,
    clients: int = 0,
) -> change_points.Series:
    """Calls to one tool, in sessions of geometric size with correlated failures.

    Args:
        random: source of random numbers.
        sessions: number of sessions, spread over the archive.
        mean: mean number of calls of a session.
        rate: share of calls that fail.
        length: seconds that a session takes.
        later: share of calls that fail in the second half of the archive.
        clients: if given, number of clients whose rates differ, and whose sessions come in runs of
            five; failures are then correlated within the calls of a client.
    """
    session = np.repeat(np.arange(sessions), random.geometric(1 / mean, sessions))
    began = np.arange(sessions) / sessions * max(0, SECONDS - length)
    second = began[session] + random.random(len(session)) * length
    place = random.random(sessions)  # a session's place in the distribution of rates
    if clients:
        client = random.integers(0, clients, -(-sessions // 5)).repeat(5)[:sessions]
        place = random.random(clients)[client]

    def chances(mean_rate: float) -> np.ndarray:
        total = 1 / CORRELATION - 1
        return betaincinv(mean_rate * total, (1 - mean_rate) * total, place)[session]

    chance = chances(rate)
    if later is not None:
        chance = np.where(second >= SECONDS / 2, chances(later), chance)
    failed = random.random(len(session)) < chance
    return series(second, failed, session, np.argsort(second))


def series(
    at: np.ndarray, failed: np.ndarray, session: np.ndarray, order: Any = slice(None)
) -> change_points.Series:
    """Return calls to one tool in this order."""
    ones, zeros = np.ones(len(at)), np.zeros(len(at), np.int64)
    columns = at, ones, failed.astype(float), zeros, session
    return change_points.Series(*(column[order] for column in columns))


def test_the_order_of_calls_at_one_time_does_not_matter():
    random = np.random.default_rng(3)
    at = np.repeat(np.arange(40.0), 5)
    hits = (at >= 20) * (random.random(200) < 0.9)
    session = np.arange(200) // 10
    expected = change_points.change_points(series(at, hits, session))
    assert [change.at for change in expected] == [20]
    shuffled = np.lexsort((random.random(200), at))
    found = change_points.change_points(series(at, hits, session, shuffled))
    assert [tuple(change) for change in found] == [pytest.approx(tuple(c)) for c in expected]


@pytest.mark.slow
def test_a_change_whose_p_value_rounds_to_zero_is_found_where_it_is():
    at = np.arange(6000.0)
    hits = np.random.default_rng(6).random(6000) < np.where(at < 4500, 0.1, 1)
    [change] = change_points.change_points(series(at, hits, np.arange(6000)))
    assert change.p_value == 0
    assert change.at == pytest.approx(4500, abs=3)


@pytest.mark.slow
def test_series_without_a_change_seldom_show_one():
    random = np.random.default_rng(4)
    found = 0
    for _ in range(300):
        found += bool(change_points.change_points(simulated(random, sessions=40)))
    # Of 300 tests with an error probability of 1 %, 10 or more fail in 0.1 % of the cases.
    assert found < 10


def test_clients_with_rates_of_their_own_in_runs_are_permuted_in_blocks():
    length = []
    for clients in (0, 4):
        random = np.random.default_rng(7)
        sessions = [
            change_points._sessions(simulated(random, sessions=60, rate=0.2, clients=clients))
            for _ in range(40)
        ]
        length.append([change_points._block_length(each, 30, 60) for each in sessions])
    alone, runs = (np.array(each) > 1 for each in length)
    assert alone.mean() < 0.25
    assert runs.mean() > 0.6


@pytest.mark.slow
def test_long_sessions_one_after_the_other_seldom_show_a_change():
    random = np.random.default_rng(8)
    options: dict[str, Any] = {"sessions": 12, "mean": 60, "rate": 0.2, "length": SECONDS / 12}
    found = [change_points.change_points(simulated(random, **options)) for _ in range(200)]
    assert sum(map(bool, found)) < 8


@pytest.mark.slow
def test_most_changes_from_40_to_80_percent_over_60_sessions_are_found():
    random = np.random.default_rng(9)
    options: dict[str, Any] = {"sessions": 60, "rate": 0.4, "later": 0.8}
    found = [change_points.change_points(simulated(random, **options)) for _ in range(60)]
    assert np.mean([min((c.p_value for c in each), default=1) <= 0.005 for each in found]) > 0.65
