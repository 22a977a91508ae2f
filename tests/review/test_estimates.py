"""Only complete samples give rates, which gates, comparisons and `evaluate` use."""

import math

import msgspec
import pytest

import mcptally as mt
from mcptally.analytics.reviewing import reviewed_rates
from mcptally.errors import UsageError
from mcptally.evaluation.own_archive import evaluate_store
from mcptally.gates import limits, reviewed
from mcptally.review import answers, estimates
from mcptally.review import sample as samples
from mcptally.statistics.reviewed import Interval, difference
from tests.commands import run
from tests.review.archives import OK, UNKNOWN_TOPIC, full, recording, scored, session
from tests.transcripts import write

pytestmark = pytest.mark.slow

TRUTH = {"tool_failure": "tool", "other_error": "tool", "ok": "not_an_error"}
"""The true faults: the quota is the tool's own, whatever the verdict says."""


MORE = recording("b", [*[OK] * 90, *map(full, range(9)), UNKNOWN_TOPIC])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return scored(tmp_path_factory.mktemp("estimates"), MORE).path


@pytest.fixture
def store(kept):
    """A store that the test must not change; its answers are removed afterwards."""
    yield mt.open_store(kept)
    (kept.parent / "traces" / "reviews.jsonl").unlink(missing_ok=True)


def reviewed_store(store, n=40, **about):
    """Answer a sample; the file of answers is beside the archive."""
    review = session(store, **about)
    drawn = review.draw(n, seed=7)
    said = {each.key: TRUTH[each.stratum] for each in drawn.drawn}
    for item in review.next_items(n, mode="sample"):
        review.answer(item, said[item.key])
    return review


def test_a_sample_estimates_what_the_verdict_gets_wrong(store):
    (failure, *_) = reviewed_store(store).rates()
    assert failure.metric == "failure_rate"
    assert failure.rate == pytest.approx(17 / 113)
    assert failure.low <= 17 / 113 <= failure.high
    assert failure.service_low <= failure.low
    assert failure.service_high >= failure.high
    assert store.sql("SELECT sum(tool_failures) FROM server_scores").fetchall()[0][0] < 17


def test_no_rate_is_given_before_the_last_answer(store):
    review = session(store)
    review.draw(20)
    for item in review.next_items(19, mode="sample"):
        review.answer(item, "tool")
    assert review.rates() == []
    review.answer(review.next_items(mode="sample")[0], "tool")
    assert review.rates()


def test_answers_of_largest_first_have_no_part_in_a_rate(store):
    review = reviewed_store(store)
    before = review.rates()
    drawn = {each.key for each in review.sample().drawn}
    for item in review.next_items(9):
        if item.key not in drawn:
            review.answer(item, "caller")
    other = session(store, review.path, "bob")
    for item in other.next_items(9):
        if item.key not in drawn:
            other.answer(item, "caller", group=True)
    assert [(each.rate, each.low) for each in review.rates()] == [
        (each.rate, each.low) for each in before
    ]


def test_seed_frame_and_probabilities_are_kept(store):
    review = session(store)
    drawn = review.draw(40, seed=7)
    kept = review.sample()
    assert kept == drawn
    assert (kept.seed, kept.calls, sum(kept.strata.values())) == (7, 113, 113)
    assert all(0 < each.probability <= 1 for each in kept.drawn)
    again = samples.draw(store, 40, who="x", seed=7)
    assert {each.key for each in again.drawn} == {each.key for each in drawn.drawn}
    assert sum(estimates.weights(kept).values()) == pytest.approx(113)


def test_applying_the_answers_does_not_change_the_rate(tmp_path):
    store = scored(tmp_path, MORE)
    review = reviewed_store(store)
    before = [(each.rate, each.low, each.high) for each in review.rates()]
    mt.score(tmp_path / "traces", out=store.path)
    after = session(mt.open_store(store.path))
    assert [(each.rate, each.low, each.high) for each in after.rates()] == before


def test_an_archive_that_grew_is_a_new_frame(tmp_path):
    store = scored(tmp_path, MORE)
    review = reviewed_store(store)
    assert samples.is_current(review.sample(), samples.frame(store))
    write(tmp_path / "traces" / "c.jsonl", recording("c", [OK] * 9))
    mt.score(tmp_path / "traces", out=store.path)
    grown = session(mt.open_store(store.path))
    old = grown.sample()
    assert not samples.is_current(old, samples.frame(grown.store))
    assert {each.calls for each in grown.rates()} == {113}, "the rates stay those of the old calls"
    new = grown.ensure_sample(40)
    assert (new.id != old.id, new.look) == (True, 1)


def test_a_second_sample_of_the_same_calls_has_a_wider_interval(store):
    review = reviewed_store(store, 20)
    first = review.rates()[0]
    found = review.sample()
    later = msgspec.structs.replace(found, look=2)
    second = estimates.rates(store, later, review.settled)[0]
    assert second.high - second.low > first.high - first.low
    assert review.draw(40).look == 2


def test_cannot_tell_widens_the_interval_and_is_no_skip(store):
    review = reviewed_store(store)
    before = review.rates()[0]
    drawn = next(each for each in review.sample().drawn if each.stratum == "ok")
    row = next(row for row in review.reviews.answers if row.key == drawn.key)
    unsure = msgspec.structs.replace(row, answer="cannot_tell", at=answers.now())
    answers.append(review.path, [unsure])
    after = review.rates()[0]
    assert after.high > before.high
    assert after.low == pytest.approx(before.low)


def test_a_sample_of_one_server_is_about_its_calls(tmp_path):
    store = scored(tmp_path, recording("b", [*[OK] * 30, full(1)], server="other"))
    review = reviewed_store(store, 20, server="other")
    assert {each.calls for each in review.rates()} == {31}
    assert session(store).sample() is None


def test_a_gate_reads_the_rate_of_the_service(store):
    (gate,) = limits.load(["reviewed.failure_rate > 1%"])
    (undecided,) = reviewed.check(store, [gate])
    assert undecided.state == "undecided"
    assert "mcptally review STORE --sample" in undecided.message
    reviewed_store(store)
    (result,) = reviewed.check(store, [gate])
    rate = reviewed_rates(store, store.path.parent / "traces" / "reviews.jsonl")[0]
    assert result.state == gate.state(rate.service_low, rate.service_high)
    assert "from 40 answers" in result.message
    with pytest.raises(UsageError, match="did you mean failure_rate"):
        limits.load(["reviewed.failure_rates > 1%"])


def test_compare_tells_how_a_reviewed_rate_changed(store):
    reviewed_store(store)
    done = run("compare", store.path, store.path, "--fail-on", "reviewed.failure_rate > 90%")
    said = "reviewed failure_rate of all calls: 15.0 % to 15.0 %, a change of +0.0 points ("
    assert said in done.stderr
    assert done.returncode == 0


def test_the_difference_of_two_rates_is_newcombes():
    # Newcombe (1998), method 10, on 56/70 and 48/80.
    low_high = [Interval(0.6, 0.4905, 0.7003), Interval(0.8, 0.6919, 0.8769)]
    found = difference(*low_high)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=2e-3)


def test_the_accuracy_on_ones_own_archive_names_the_rules_that_were_wrong(store):
    with pytest.raises(UsageError, match="has no reviewed sample"):
        evaluate_store(store)
    review = session(store)
    review.draw(40)
    with pytest.raises(UsageError, match="40 of 40 calls of the sample have no answer"):
        evaluate_store(store)
    reviewed_store(store)
    found = evaluate_store(store)
    assert found.accuracy.rate == pytest.approx(96 / 113)
    assert found.accuracy.low < 96 / 113 < found.accuracy.high
    assert found.failed.rate == pytest.approx(0, abs=0.01)
    (server,) = found.servers
    assert (server.server, round(server.right, 3)) == ("demo", round(96 / 113, 3))
    assert sum(rule.wrong for rule in found.rules) == sum(
        each.stratum != "ok" for each in review.sample().drawn
    )
    assert any("Quota" in text for rule in found.rules for text in rule.texts)
    assert not math.isnan(found.accuracy.rate)


def test_evaluate_takes_a_store_and_another_file_of_answers(store, tmp_path):
    reviewed_store(store)
    assert run("evaluate", store.path, "--format", "json").returncode == 0
    assert run("evaluate", store.path, "--server", "none").returncode == 2
    beside = session(store).path
    moved = tmp_path / "elsewhere.jsonl"
    beside.rename(moved)
    without = run("evaluate", store.path)
    assert (without.returncode, "has no reviewed sample" in without.stderr) == (2, True)
    done = run("evaluate", store.path, "--reviews", moved)
    assert "## Verdict on this archive" in done.stdout
    labels = tmp_path / "labels.jsonl"
    labels.touch()
    refused = run("evaluate", labels, "--reviews", moved)
    assert (refused.returncode, "are about a store" in refused.stderr) == (2, True)
