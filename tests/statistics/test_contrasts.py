"""Facts that separate failing calls to simulated tools from working ones."""

import numpy as np
import pytest

from mcptally.statistics.contrasts import Calls, strongest

FACTS = 40
CAUSE, SECOND = 7, 11


def simulated(failed, *, sessions=12, calls=30, seed=0, facts=FACTS):
    """A tool's calls with random facts; `failed(facts, session, random)` says which calls fail."""
    random = np.random.default_rng(seed)
    session = np.repeat(np.arange(sessions), calls)
    shares = random.uniform(0.1, 0.6, facts) * random.uniform(0.2, 1.5, (sessions, facts))
    holds = random.random((len(session), facts)) < shares[session]
    group = failed(holds, session, random).astype(np.uint64)
    call, fact = np.nonzero(holds)
    return Calls(group, session, call, fact)


def only(calls):
    [contrast] = strongest(calls)
    return contrast


def causes(holds, *_):
    return holds[:, CAUSE]


@pytest.mark.parametrize("sessions", [1, 3, 12])
def test_the_fact_that_every_failing_call_has_is_found(sessions):
    found = only(simulated(causes, sessions=sessions, calls=120 // sessions))
    assert (found.fact, found.absent, found.other) == (CAUSE, False, -1)
    assert found.effect == 1
    assert found.p_value <= 0.05


def test_a_fact_and_the_absence_of_another_that_must_hold_together_are_found():
    def both(holds, _, random):
        holds[:, [CAUSE, SECOND]] = random.random((len(holds), 2)) < 0.5
        return holds[:, CAUSE] & ~holds[:, SECOND]

    found = only(simulated(both))
    assert {found.fact, found.other} == {CAUSE, SECOND}
    assert found.effect == 1


@pytest.mark.parametrize(
    ("meets", "fact"),
    [
        (lambda _, session: session % 3 == 0, CAUSE),
        (lambda _, session: session == 0, -1),
        (lambda holds, session: holds & (session < 2), CAUSE),
    ],
    ids=["all calls of several sessions", "all calls of one", "some calls of two"],
)
def test_a_cause_that_only_some_sessions_meet_is_found_unless_it_is_one(meets, fact):
    def failed(holds, session, _):
        holds[:, CAUSE] = meets(holds[:, CAUSE], session)
        return holds[:, CAUSE]

    assert only(simulated(failed, sessions=24, calls=15)).fact == fact


def test_a_fact_that_holds_for_few_repetitions_of_each_call_counts_little():
    calls = simulated(causes)
    every = np.repeat(np.arange(len(calls.group)), 2)
    fact = np.tile([FACTS, CAUSE], len(calls.group))
    share = np.where(fact == FACTS, np.where(calls.group == 1, 1.0, 0.1)[every], 0.5)
    found = only(calls._replace(fact_call=every, fact=fact, share=share))
    assert (found.fact, round(found.effect, 6)) == (FACTS, 0.9)


def with_values(fails, seed=0):
    """A tool's calls in 12 sessions whose argument has one of 12 values; facts are the values."""
    random = np.random.default_rng(seed)
    session = np.repeat(np.arange(12), 30)
    value = random.integers(0, 12, len(session))
    group = fails(value, random).astype(np.uint64)
    paths = {"value_fact": np.arange(12), "value_path": np.full(12, 9, np.uint64)}
    return Calls(group, session, np.arange(len(session)), value)._replace(**paths)


def test_that_an_argument_does_not_have_a_value_is_no_cause():
    values = with_values(lambda value, _: value != 3)
    assert only(values).fact != 3
    assert only(values._replace(value_fact=np.empty(0, np.int64))).fact == 3


def test_of_tools_that_fail_by_chance_at_most_one_in_twenty_gets_a_set_of_values():
    found = [only(with_values(flaky_values, seed)) for seed in range(200)]
    assert sum(contrast.fact >= 0 for contrast in found) <= 10


def flaky_values(value, random):
    return random.random(len(value)) < 0.4


def test_calls_whose_arguments_are_not_known_do_not_count_as_lacking_a_fact():
    calls = simulated(lambda _, session, __: session % 2 == 0)
    unread = np.flatnonzero(calls.group == 1)
    given = np.flatnonzero(calls.group == 0)
    pairs = {"fact_call": given, "fact": np.full(len(given), CAUSE)}
    assert only(calls._replace(**pairs, unread=unread)).fact == -1
    assert only(calls._replace(**pairs)).fact == CAUSE


def test_of_facts_that_separate_about_as_well_the_one_that_the_message_names_is_reported():
    def nearly(holds, *_):
        holds[:, SECOND] = holds[:, CAUSE]
        holds[:3, SECOND] = ~holds[:3, CAUSE]
        return holds[:, CAUSE]

    calls = simulated(nearly)
    assert only(calls).fact == CAUSE
    named = {"named_group": np.array([1], np.uint64), "named_fact": np.array([SECOND])}
    assert only(calls._replace(**named)).fact == SECOND


def test_of_facts_that_separate_equally_well_the_one_is_reported_that_other_failures_lack():
    def two(holds, *_):
        failed = np.where(holds[:, CAUSE], 1, np.where(holds[:, FACTS - 1], 2, 0))
        holds[:, SECOND] = failed == 1
        holds[:, CAUSE] = failed > 0
        return failed

    assert strongest(simulated(two))[0].fact == SECOND


def test_of_facts_that_hold_for_the_same_calls_the_first_is_reported():
    def twins(holds, *_):
        holds[:, CAUSE + 3] = holds[:, CAUSE]
        return holds[:, CAUSE]

    assert only(simulated(twins)).fact == CAUSE


def test_two_groups_of_failures_are_compared_with_working_calls_only():
    def two(holds, *_):
        return np.where(holds[:, CAUSE], 1, np.where(holds[:, SECOND], 2, 0))

    first, second = strongest(simulated(two))
    assert (first.group, first.fact) == (1, CAUSE)
    assert (second.group, second.fact) == (2, SECOND)


def test_no_contrast_is_reported_for_few_failures_or_few_successes():
    few = simulated(lambda _, session, __: np.arange(len(session)) < 4)
    assert strongest(few) == []
    most = simulated(lambda _, session, __: np.arange(len(session)) >= 4)
    assert strongest(most) == []


def flaky(_, session, random):
    return random.random(len(session)) < 0.3


def bad_days(_, session, random):
    return random.random(len(session)) < random.beta(0.6, 1.4, session.max() + 1)[session]


@pytest.mark.parametrize(("sessions", "calls"), [(2, 12), (4, 6), (12, 3), (30, 1)])
@pytest.mark.parametrize("kind", [flaky, bad_days])
def test_at_most_one_tool_in_twenty_without_a_cause_gets_a_contrast(sessions, calls, kind):
    found = [
        contrast
        for seed in range(150)
        for contrast in strongest(simulated(kind, sessions=sessions, calls=calls, seed=seed))
    ]
    alarms = sum(contrast.fact >= 0 for contrast in found)
    # Above the expectation by less than three standard deviations.
    assert len(found) > 50
    assert alarms <= 0.05 * len(found) + 3 * np.sqrt(0.05 * 0.95 * len(found))
