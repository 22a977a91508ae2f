"""The test of a change of a rate by permuting sessions."""

import itertools

import numpy as np
import pytest

from mcptally.statistics import permutation
from mcptally.statistics.permutation import rate_change


def change(base, new):
    return rate_change(
        *(np.array(x, float) for side in (base, new) for x in zip(*side, strict=True))
    )


def test_with_one_call_per_session_the_p_value_is_that_of_all_permutations():
    # 0 of 6 sessions fail before and 5 of 7 after. All sums over 7 of the 13 sessions are counted.
    hits = np.array([0] * 6 + [1] * 5 + [0] * 2)
    sums = [hits[list(some)].sum() for some in itertools.combinations(range(13), 7)]
    centred = np.abs(np.array(sums) - 7 * 5 / 13)
    exact = (centred >= 5 - 7 * 5 / 13 - 1e-9).mean()
    found = change([(0, 1)] * 6, [(1, 1)] * 5 + [(0, 1)] * 2)
    assert found.p_value == pytest.approx(exact, rel=0.15)


def test_the_order_of_sessions_changes_nothing():
    random = np.random.default_rng(3)
    base = [(int(n // 3), int(n)) for n in random.geometric(1 / 6, 30)]
    new = [(int(n // 2), int(n)) for n in random.geometric(1 / 6, 20)]
    assert change(base, new) == change(base[::-1], new[::-1])


def test_one_long_failing_session_is_no_evidence_of_a_change():
    many = change([(0, 10)] * 20, [(0, 10)] * 19 + [(200, 200)])
    assert many.p_value > 0.3
    assert many.low < 0


def test_a_long_session_does_not_hide_a_change_of_the_others():
    # Sessions of one call each fail in 1 of 30 before and in 15 of 30 after.
    short = [(1, 1)] + [(0, 1)] * 29, [(1, 1)] * 15 + [(0, 1)] * 15
    both = change([*short[0], (0, 60)], [*short[1], (0, 60)])
    assert both.p_value < 0.005
    assert both.low > 0


def test_a_p_value_can_be_smaller_than_the_number_of_permutations_allows():
    found = change([(0, 5)] * 40, [(4, 5), (5, 5)] * 20)
    assert found.p_value < 0.01 / permutation.PERMUTATIONS


def test_with_many_sessions_the_p_value_is_close_to_that_of_permutations(monkeypatch):
    random = np.random.default_rng(4)
    base, new = ([(int(k), 5) for k in random.binomial(5, p, 150)] for p in (0.2, 0.25))
    exact = change(base, new).p_value
    monkeypatch.setattr(permutation, "MAX_SESSIONS", 10)
    assert 0.001 < exact < 0.1
    assert change(base, new).p_value == pytest.approx(exact, rel=0.2)


def test_one_session_on_a_side_gives_an_interval():
    found = change([(3, 9)], [(0, 4), (1, 9), (2, 5)])
    assert found.low < 0 < found.high
    assert found.p_value > 0.2
