"""Failures in languages with only word lists get the right verdict or a low certainty."""

import json
import tomllib
from pathlib import Path

import polars as pl
import pytest

from mcptally.errors import RuleError
from mcptally.verdict import classify, judge, rule_model
from mcptally.verdict.rule_model import words_of_languages

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PHRASES = tomllib.loads((HERE / "other_languages.toml").read_text(encoding="utf-8"))


def verdicts(texts: list[str]) -> list[str]:
    calls = pl.DataFrame([{"outcome": "tool_error", "error_text": text} for text in texts])
    return judge(calls)["verdict"].to_list()


@pytest.mark.parametrize("part", ["read", "system"])
def test_failures_that_were_read_get_their_verdict(part):
    for verdict, texts in PHRASES[part].items():
        assert set(verdicts(texts)) == {verdict}


@pytest.mark.parametrize(("part", "least"), [("held", 0.85), ("later", 0.90)])
def test_most_failures_that_were_only_counted_get_their_verdict(part, least):
    right = [
        actual == verdict
        for verdict in ("infrastructure", "tool_failure")
        for actual in verdicts(PHRASES[part][verdict])
    ]
    assert sum(right) / len(right) >= least


def test_refusals_are_still_recognised():
    business = verdicts(PHRASES["held"]["business"])
    assert business.count("business") / len(business) >= 0.85


def test_a_language_without_words_is_never_the_callers_fault():
    assert set(verdicts(PHRASES["none"]["unknown"])) == {"ambiguous"}


def test_a_text_in_another_language_is_judged_by_codes_and_addresses_first():
    texts = ["Mawasiliano na 10.0.0.7:5432 yamekatika", "Kosa: ECONNREFUSED"]
    assert verdicts(texts) == ["infrastructure"] * 2


def test_words_match_no_english_text():
    lines = (HERE / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    known = tomllib.loads((HERE / "known_words.toml").read_text(encoding="utf-8"))
    texts = [json.loads(line)["text"] for line in lines] + [
        text for texts in known.values() for text in texts
    ]
    english = pl.Series([text.encode("utf-8", "replace").decode() for text in texts])
    english = english.filter(~english.str.contains(r"[^\x00-\x7f]"))
    assert len(english) > 500
    for name, words in words_of_languages().items():
        for pattern in words.patterns:
            assert english.filter(english.str.contains(f"(?i){pattern}")).to_list() == [], name


def test_an_unknown_class_of_words_is_an_error():
    row = {"id": "my.rule", "title": "x", "source": "x", "order": 1, "verdict": "business"}
    row |= {"reason": "x", "words": "netwrok", "fires": ["x"], "silent": ["y"]}
    with pytest.raises(RuleError, match=r"netwrok.*network"):
        rule_model.apply(classify.failure_rules(), [row], where="my.toml")
