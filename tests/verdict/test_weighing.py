"""The verdict weighs all rules that match; its probabilities are those of the fitted model."""

import polars as pl
import pytest

from mcptally.verdict import classify, facts, judge, text_model, weighing
from mcptally.verdict.weighing import CLASSES, Weights

REFUSED = "connect ECONNREFUSED 127.0.0.1:5432"
VAGUE = "Seventeen blue parcels"


def judged(text: str, **facts: object) -> dict[str, object]:
    call = {"outcome": "tool_error", "error_text": text} | facts
    return judge(pl.DataFrame([call])).row(0, named=True)


def test_the_evidence_has_every_rule_that_matches_in_order():
    evidence = judged("ECONNREFUSED: user not found")["evidence"]
    orders = [rule.order for rule in classify.failure_rules() if rule.id in evidence]
    assert {"verdict.network.refused", "verdict.refusal.not-found"} <= set(evidence)
    assert orders == sorted(orders)


def test_a_text_that_no_rule_explains_is_never_the_fault_of_the_caller():
    for text in (VAGUE, "", "Ĉiuj blovas", "x"):
        assert judged(text)["verdict"] == "ambiguous"


def opinions(*texts: str) -> tuple[text_model.Opinions, tuple[float, float, float]]:
    calls = pl.DataFrame({"error_text": texts}, schema={"error_text": pl.String})
    model = text_model.shipped_model()
    return text_model.opinions(facts.masked_texts(facts.texts_of(calls)), model), model.pooled


def test_the_certainty_is_the_probability_of_the_verdict_given_that_the_call_shows_a_cause():
    row = judged(REFUSED)
    names, features = classify.features(pl.Series([row["evidence"]]))
    by_rules = weighing.probabilities(features, names, weighing.shipped_weights())
    (shares,) = weighing.pooled(
        by_rules, *opinions(REFUSED), weighing.is_alone(features, names, classify.failure_rules())
    )
    assert sum(shares) == pytest.approx(1)
    share_of_causes = 1 - shares[CLASSES.index("ambiguous")]
    assert row["certainty"] == pytest.approx(100 * max(shares) / share_of_causes, abs=0.05)
    assert row["verdict"] == CLASSES[shares.argmax()]


def test_the_certainty_that_a_call_is_ambiguous_is_its_probability():
    row = judged(VAGUE)
    evidence = pl.Series([row["evidence"]], dtype=pl.List(pl.String))
    names, features = classify.features(evidence)
    (shares,) = weighing.probabilities(features, names, weighing.shipped_weights())
    share = shares[CLASSES.index("ambiguous")]
    assert row["certainty"] == pytest.approx(100 * share, abs=0.05)


def test_verdicts_of_stored_evidence_equal_those_of_the_calls():
    calls = pl.DataFrame(
        {
            "outcome": ["tool_error", "timeout", "protocol_error", "ok"],
            "error_text": [REFUSED, None, "user not found", None],
            "tool_record": ["never", None, "mostly", None],
        }
    )
    fresh = judge(calls)[:3]
    pooled = opinions(REFUSED, None, "user not found")
    assert classify.judge_evidence(fresh["evidence"], opinions=pooled).equals(fresh)


def test_no_verdict_is_more_probable_than_not_without_a_convincing_class():
    even = Weights(intercept=(0.0,) * len(CLASSES), features={})
    row = classify.judge_evidence(pl.Series([judged(REFUSED)["evidence"]]), even).row(0, named=True)
    assert (row["verdict"], row["rule"]) == ("ambiguous", None)


def test_a_class_that_no_matching_rule_names_is_not_the_verdict():
    prior = Weights(intercept=(9.0, 0.0, 0.0, 0.0), features={})
    calls = pl.DataFrame({"outcome": ["tool_error"] * 2, "error_text": [VAGUE, "user not found"]})
    assert judge(calls, weights=prior)["verdict"].to_list() == ["ambiguous", "business"]


def test_that_a_language_is_unknown_counts_only_where_no_rule_about_the_text_matches():
    names, features = classify.features(
        pl.Series([["verdict.languages.not-understood"], judged("Ошибка сети")["evidence"]])
    )
    column = names.index("verdict.languages.not-understood")
    assert "verdict.languages.not-understood" in judged("Ошибка сети")["evidence"]
    assert features[:, column].tolist() == [1, 0]


def test_a_recorded_fact_decides_alone():
    row = judged(None, outcome="timeout", tool_record="never")
    assert (row["verdict"], row["rule"]) == ("infrastructure", "verdict.silence.timeout")


def test_context_changes_a_vague_case_more_than_a_clear_one():
    def probability(text: str, **facts: object) -> float:
        names, features = classify.features(pl.Series([judged(text, **facts)["evidence"]]))
        shares = weighing.probabilities(features, names, weighing.shipped_weights())
        return float(shares[0][CLASSES.index("infrastructure")])

    change = {
        text: probability(text, concurrent_failure_share=1.0) - probability(text)
        for text in ("Failed to load", REFUSED)
    }
    assert change["Failed to load"] > 0.3 > abs(change[REFUSED])


def test_contributions_add_up_to_the_log_odds_of_the_verdict():
    names, features = classify.features(pl.Series([judged(REFUSED)["evidence"]]))
    weights = weighing.shipped_weights()
    found = weighing.contributions(features[0], names, "infrastructure", weights)
    scores = features[0] @ weights.of(names)
    others = [n for n, name in enumerate(CLASSES) if name != "infrastructure"]
    expected = scores[CLASSES.index("infrastructure")] - scores[others].mean()
    assert sum(size for _, size in found) == pytest.approx(expected)
    assert [abs(size) for _, size in found] == sorted((abs(s) for _, s in found), reverse=True)


@pytest.mark.parametrize(
    ("latency", "evident"), [(30_010, True), (30_700, False), (29_990, False), (120_900, True)]
)
def test_a_call_that_took_a_usual_time_limit_is_noted(latency: float, *, evident: bool):
    evidence = judged(VAGUE, latency_ms=float(latency))["evidence"] or []
    assert ("verdict.archive.time-limit" in evidence) == evident


@pytest.mark.parametrize(
    ("latency", "reason"),
    [(9.9, "server_policy"), (10.0, "rate_or_quota"), (None, "rate_or_quota")],
)
def test_a_limit_is_the_servers_own_if_it_answers_faster_than_a_service(
    latency: float | None, reason: str
):
    assert judged("Error: Rate limit exceeded", latency_ms=latency)["reason"] == reason


@pytest.mark.parametrize(
    ("worked", "failed", "band"),
    [(0, 4, None), (0, 5, "never"), (1, 5, "seldom"), (1, 4, "mostly"), (19, 1, "always")],
)
def test_records_are_bands(worked: int, failed: int, band: str | None):
    from mcptally.verdict.evidence import record

    counts = pl.DataFrame({"worked": [worked], "failed": [failed]})
    assert counts.select(record(pl.col("worked"), pl.col("failed"))).item() == band
