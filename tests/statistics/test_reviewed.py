"""Rates from reviewed samples: unbiased, with intervals that hold where simpler ones do not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.statistics import reviewed
from mcptally.statistics.agreement import agreement
from mcptally.statistics.reviewed import Stratum

sizes = st.lists(st.integers(1, 500), min_size=1, max_size=60)


@given(sizes, st.integers(1, 200), st.integers(0, 9))
def test_a_draw_asks_for_as_many_calls_as_it_should(groups, n, seed):
    numbers = np.array(groups, dtype=np.int64)
    drawn = reviewed.draw(numbers, n, np.random.default_rng(seed))
    asked = [*drawn.certain, *drawn.rest]
    assert sum(k for _, k in asked) <= n
    assert len({group for group, _ in asked}) == len(asked)
    step = numbers.sum() / min(n, numbers.sum())
    assert {group for group, size in enumerate(groups) if size >= step} <= dict(asked).keys()


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), st.integers(20, 200))
def test_each_stratum_gets_three_answers_and_all_are_given_out(strata, n):
    given_ = reviewed.allocate(strata, n)
    assert sum(given_) == min(max(n, sum(min(3, s) for s in strata)), sum(strata))
    assert all(min(3, size) <= k <= size for size, k in zip(strata, given_, strict=True))


@given(
    st.lists(
        st.tuples(st.integers(4, 1000), st.lists(st.sampled_from([0.0, 1.0]), max_size=40)),
        min_size=1,
        max_size=3,
    )
)
def test_an_interval_contains_its_rate_and_stays_within_0_and_1(strata):
    found = reviewed.reviewed_rate([Stratum(size, (), rest) for size, rest in strata])
    assert 0 <= found.low <= found.high <= 1
    assert math.isnan(found.rate) or found.low <= found.rate <= found.high


@pytest.mark.parametrize("answer", [0.0, 1.0])
def test_an_interval_does_not_collapse_if_no_answer_disagrees_with_the_verdict(answer):
    found = reviewed.reviewed_rate([Stratum(1000, (), [answer] * 20)])
    assert found.high - found.low > 0.1


def test_a_stratum_without_an_answer_may_be_anything():
    found = reviewed.reviewed_rate([Stratum(900, (), [0.0] * 50), Stratum(100)])
    assert math.isnan(found.rate)
    assert found.high >= 0.1
    whole = reviewed.reviewed_rate([Stratum(100)])
    assert (whole.low, whole.high) == (0, 1)


def test_a_call_of_which_the_reviewer_cannot_tell_widens_the_interval_both_ways():
    known = [1.0] * 10 + [0.0] * 10
    plain = reviewed.reviewed_rate([Stratum(1000, (), [*known, 0.0])])
    doubtful = reviewed.reviewed_rate([Stratum(1000, (), [*known, math.nan])])
    assert doubtful.low == plain.low
    assert doubtful.high > plain.high


def groups(n, size=100.0, answers=(1.0, 1.0)):
    return [(size, list(answers))] * n


def test_groups_drawn_with_certainty_have_hardly_a_sampling_error_from_40_answers_on():
    few = reviewed.reviewed_rate([Stratum(1000, groups(10), [])])
    many = reviewed.reviewed_rate([Stratum(2000, groups(20), [])])
    assert few.low < 0.9
    assert many.low > 0.9
    assert many.low < 1, "a group may be mixed although two calls agree"


def test_a_large_group_whose_calls_differ_counts_with_its_own_interval():
    alike = reviewed.reviewed_rate([Stratum(2000, groups(20), [])])
    split = reviewed.reviewed_rate(
        [Stratum(2000, [*groups(18), *groups(2, answers=(1.0, 0.0))], [])]
    )
    assert split.rate == pytest.approx(0.95)
    assert split.high - split.low > 2 * (alike.high - alike.low)


def test_large_groups_are_asked_about_twice():
    drawn = reviewed.draw(np.array([500, *[1] * 100]), 10, np.random.default_rng(0))
    assert drawn.certain == [(0, 2)]


def simulated(rng, seeds, n, wrong, mistaken=0.0):
    """Coverage and bias of samples of an archive whose verdict is wrong in large groups.

    `mistaken` is the share of the reviewer's answers that are wrong.
    """

    def answers(truth, k=1):
        return [float(bool(truth) != (rng.random() < mistaken)) for _ in range(k)]

    failures = np.array([300, 120, *[4] * 20])
    others = np.array([600, 200, 100, *[3] * 60])
    truth = [
        rng.random(len(each)) < share for each, share in ((failures, 1 - wrong), (others, wrong))
    ]
    ok, missed = 3000, 0.01
    total = failures.sum() + others.sum() + ok
    rate = (failures @ truth[0] + others @ truth[1] + ok * missed) / total
    given_ = reviewed.allocate([int(failures.sum()), int(others.sum()), ok], n)
    covered, errors = 0, []
    for _ in range(seeds):
        strata = [
            Stratum(
                each.sum(),
                [(each[g], answers(right[g], k)) for g, k in drawn.certain],
                [one for g, k in drawn.rest for one in answers(right[g], k)],
            )
            for each, right, k in zip((failures, others), truth, given_, strict=False)
            for drawn in [reviewed.draw(each, k, rng)]
        ]
        found = rng.random(given_[2]) < missed
        strata.append(Stratum(ok, (), [one for each in found for one in answers(each)]))
        found = reviewed.reviewed_rate(strata)
        covered += found.low <= rate <= found.high
        errors.append(found.rate - rate)
    return covered / seeds, float(np.mean(errors))


@pytest.mark.parametrize("n", [20, 60])
def test_a_sample_covers_the_true_rate_where_the_verdict_is_wrong_in_large_groups(n):
    found = [simulated(np.random.default_rng(seed), 60, n, 0.4) for seed in range(5)]
    assert np.mean([covered for covered, _ in found]) >= 0.93
    assert abs(np.mean([error for _, error in found])) < 0.01


def test_two_percent_of_wrong_answers_cost_one_and_a_half_points():
    found = [simulated(np.random.default_rng(seed), 60, 60, 0.4, 0.02) for seed in range(6)]
    errors = [error for _, error in found]
    assert 0.01 < np.mean(errors) < 0.02
    assert np.mean([covered for covered, _ in found]) < 0.93  # more answers do not help


def test_more_answers_give_a_narrower_interval_as_planned():
    planned = [
        reviewed.expected_half_width([400, 900, 3000], [[300], [600, 200], []], [a, 2 * a, 6 * a])
        for a in (3, 5, 10, 20)
    ]
    assert planned == sorted(planned, reverse=True)


def test_kappa_has_an_interval_also_where_all_answers_agree():
    equal = agreement([("tool", "tool")] * 10 + [("caller", "caller")] * 10)
    assert equal.kappa == 1
    assert 0.5 < equal.low < 1
    chance = agreement([(a, b) for a in "xy" for b in "xy"] * 10)
    assert chance.low < 0 < chance.high


def test_kappa_is_that_of_the_textbook():
    # Fleiss, Levin and Paik (2003), table 18.1: kappa 0.676, standard error 0.088.
    table = {"aa": 75, "ab": 1, "ac": 4, "ba": 5, "bb": 4, "bc": 1, "ca": 0, "cb": 0, "cc": 10}
    found = agreement([(key[0], key[1]) for key, n in table.items() for _ in range(n)])
    assert found.kappa == pytest.approx(0.676, abs=5e-4)
    assert (found.high - found.kappa) / 1.96 == pytest.approx(0.0877, abs=5e-4)
