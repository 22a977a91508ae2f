"""Intervals of quantiles depend on values and sessions, not on the order of calls."""

import numpy as np
import pytest

from mcptally.statistics import bootstrap


def found(values, owners):
    values, owners = np.asarray(values, float), np.asarray(owners, np.uint64)
    [result] = bootstrap.quantiles([bootstrap.Sample(values, owners)])
    return {q: tuple(result[3 * i : 3 * i + 3]) for i, q in enumerate(bootstrap.QUANTILES)}


def paced(sessions, calls, spread):
    """Latencies of sessions that each have their own mean."""
    dice = np.random.default_rng(3)
    owners = np.repeat(np.arange(sessions), calls)
    pace = dice.normal(0, spread, sessions)
    return np.exp(pace[owners] + dice.normal(0, 1, len(owners))), owners


def test_the_order_of_calls_changes_nothing():
    values, owners = paced(80, 30, 0.5)
    order = np.random.default_rng(1).permutation(len(values))
    assert found(values, owners) == found(values[order], owners[order])


def test_sessions_may_be_given_once_for_consecutive_calls():
    values, owners = paced(80, 30, 0.5)
    each = np.arange(80, dtype=np.uint64)
    short = bootstrap.Sample(values, each, np.full(80, 30))
    long = bootstrap.Sample(values, owners.astype(np.uint64))
    assert bootstrap.quantiles([short]) == bootstrap.quantiles([long])


def test_a_sample_has_the_same_interval_alone_and_among_others():
    samples = []
    for sessions in (2, 31, 90, 3, 700, 40):
        values, owners = paced(sessions, 25, 0.4)
        samples.append(bootstrap.Sample(values, owners.astype(np.uint64)))
    together = bootstrap.quantiles(samples * 8)
    assert together == [bootstrap.quantiles([sample])[0] for sample in samples] * 8
    assert [found[1] is None for found in together[:6]] == [True, False, False, True, False, False]


def test_independent_calls_have_the_interval_of_order_statistics():
    # 1,000 calls of 1,000 sessions: rank 500 +- 1.96 * sqrt(250), 950 +- 1.96 * sqrt(47.5).
    values = np.random.default_rng(8).permutation(1000) + 1.0
    _, low, high = found(values, np.arange(1000))[0.5]
    assert (low, high) == pytest.approx((469, 531), abs=6)
    _, low, high = found(values, np.arange(1000))[0.95]
    assert (low, high) == pytest.approx((936, 963), abs=5)


def test_slow_sessions_make_intervals_wider():
    values, owners = paced(200, 20, 0.3)
    alone = found(values, np.random.default_rng(2).permutation(owners))
    together = found(np.sort(values), owners)
    for q in (0.5, 0.95):
        (_, low, high), (_, lower, higher) = alone[q], together[q]
        assert higher - lower > 1.5 * (high - low)


@pytest.mark.parametrize("sessions", [2 * bootstrap.MAX_CLUSTERS - 1, 5000])
def test_very_many_sessions_are_resampled_in_groups(sessions):
    values = np.random.default_rng(4).permutation(sessions * 4) / (sessions * 4)
    names = np.random.default_rng(5).integers(0, 2**63, sessions, dtype=np.uint64)
    for q, (value, low, high) in found(values, np.repeat(names, 4)).items():
        expected = 1.96 * np.sqrt(q * (1 - q) / (sessions * 4))
        assert value - low == pytest.approx(expected, rel=0.35)
        assert high - value == pytest.approx(expected, rel=0.35)


def test_scaled_latencies_have_scaled_bounds():
    values, owners = paced(70, 12, 0.8)
    for q, ends in found(values, owners).items():
        assert found(values * 8, owners)[q] == tuple(end and end * 8 for end in ends)


def test_equal_latencies_have_an_interval_of_one_point():
    assert found([5.0] * 1200, np.repeat(np.arange(60), 20))[0.5] == (5.0, 5.0, 5.0)


def test_slow_calls_in_only_three_sessions_give_no_interval():
    owners = np.repeat(np.arange(80), [60] * 3 + [15] * 77)
    values = np.random.default_rng(6).lognormal(size=len(owners))
    values[owners < 3] *= 1000
    # One resample in twenty has none of the three: 0.95 could lie anywhere above.
    assert found(values, owners)[0.95][1:] == (None, None)
    assert found(values, owners)[0.5][1] is not None


def test_one_session_with_most_calls_leaves_no_interval():
    owners = np.concatenate([np.zeros(4000, int), np.repeat(np.arange(1, 60), 10)])
    values = np.random.default_rng(6).lognormal(size=len(owners))
    assert found(values, owners)[0.95][1:] == (None, None)
