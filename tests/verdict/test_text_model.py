"""The text model uses words that describe the failure, not names, and is pooled with the rules."""

import numpy as np
import polars as pl
import pytest

from mcptally.verdict import facts, judge, text_model, weighing
from mcptally.verdict.text_model import TextModel

MODEL = TextModel(
    pooled=(1.0, 1.0, 2.0),
    intercept=(0.0, 0.0, 0.0),
    terms=("refused", "connection refused", "required"),
    idf=(1.0, 2.0, 1.0),
    unknown_idf=3.0,
    weights=((-1.0, -1.0, 4.0), (0.0, 0.0, -2.0), (1.0, 1.0, -2.0)),
)


def read(text: str, tool: str | None = None, arguments: str | None = None) -> list[str]:
    """Return the word parts that the model uses from an error text."""
    call = {"error_text": text, "tool": tool, "arguments": arguments}
    found = text_model.terms(facts.masked_texts(facts.texts_of(pl.DataFrame([call]))))["term"]
    return sorted(term for term in found if " " not in term)


def test_names_and_values_are_not_read():
    assert read("Cannot open /srv/data/x.db") == ["cannot", "open", "path"]
    assert read("See https://a.test/?q=timeout") == ["see", "url"]
    assert read("City 'Timeout' is bad") == ["bad", "city", "is", "quoted"]
    assert read("crash_all is slow", tool="crash_all") == ["is", "slow", "this", "tool"]
    assert read("no crash here", arguments='{"q": "crash"}') == ["here", "no", "quoted"]
    assert read("took 1500 ms") == ["ms", "took"]


def test_a_status_is_read():
    assert "404" in read("failed with status 404")


def test_a_word_is_read_in_its_parts():
    assert read("FileNotFoundError") == ["error", "file", "found", "not"]
    assert read("接続エラー") == sorted("接続エラー")


def test_terms_of_up_to_three_parts_are_distinct():
    terms = text_model.terms(pl.Series(["a b c d", "a a"]))
    assert sorted(terms.filter(pl.col("row") == 0)["term"]) == sorted(
        ["a", "b", "c", "d", "a b", "b c", "c d", "a b c", "b c d"]
    )
    assert sorted(terms.filter(pl.col("row") == 1)["term"]) == ["a", "a a"]


def test_a_text_without_known_words_has_no_opinion():
    assert text_model.opinions(pl.Series(["", "blue parcels"]), MODEL).tolist() == [[1 / 3] * 3] * 2


def test_unknown_words_weaken_an_opinion():
    short, long = text_model.opinions(pl.Series(["required", "required for parcels"]), MODEL)
    assert short[0] > long[0] > 1 / 3


def test_the_words_that_count_are_named_with_their_weights():
    texts = pl.Series(["connection refused", "required", ""])
    verdicts = pl.Series(["infrastructure", "ambiguous", None])
    refused, no_class, no_verdict = text_model.words(texts, verdicts, MODEL, 8)
    assert [word for word, _ in refused] == ["connection refused", "refused"]
    assert text_model.words(texts, verdicts, MODEL, 1)[0] == refused[:1]
    assert no_class == no_verdict == []


ALONE = np.ones(3, dtype=np.bool_)


def test_disagreement_is_doubt():
    rules = np.array([[0.9, 0.05, 0.05, 0.0]] * 3)
    agreeing, even, contrary = [0.8, 0.1, 0.1], [1 / 3] * 3, [0.1, 0.1, 0.8]
    pooled = weighing.pooled(rules, np.array([agreeing, even, contrary]), MODEL.pooled, ~ALONE)
    assert pooled.sum(axis=1) == pytest.approx([1, 1, 1])
    assert pooled[0, 0] > 0.9
    assert pooled[1, 0] == pytest.approx(0.9)
    assert pooled[2, 0] < 0.65


def test_the_model_counts_more_where_no_rule_matches_the_text():
    rules = np.array([[0.5, 0.4, 0.1, 0.0]])
    opinion = np.array([[0.3, 0.6, 0.1]])
    beside, instead = (
        weighing.pooled(rules, opinion, MODEL.pooled, alone)[0] for alone in (~ALONE[:1], ALONE[:1])
    )
    assert instead[1] > beside[1]


def test_a_probability_of_ambiguous_is_that_of_the_rules():
    rules = np.array([[0.3, 0.1, 0.1, 0.5]])
    assert (
        weighing.pooled(rules, np.array([[0.9, 0.05, 0.05]]), MODEL.pooled, ALONE[:1])[0, 3] == 0.5
    )


def test_the_same_words_get_one_verdict_however_many_calls_have_them():
    texts = ["connection refused", "user not found", "connection refused"]
    calls = pl.DataFrame({"outcome": ["tool_error"] * 3, "error_text": texts})
    together = judge(calls)
    assert together[0].equals(together[2])
    assert together[1].equals(judge(calls[1:2]))
