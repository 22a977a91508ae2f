"""The keywords in the rows of rules are those of their patterns."""

import pytest

from mcptally.errors import RuleError
from mcptally.verdict import classify
from mcptally.verdict.rule_model import apply
from tests.verdict.keywords import (
    FILES,
    LANGUAGES,
    RULES,
    derived,
    languages_with_keywords,
    with_keywords,
)

HOW_TO_FIX = "run: python -m tests.verdict.keywords"


@pytest.mark.parametrize("name", FILES)
def test_each_rule_has_the_keywords_of_its_patterns(name):
    text = (RULES / name).read_text("utf-8")
    assert with_keywords(text, FILES[name]) == text, HOW_TO_FIX


def test_each_class_of_words_has_the_keywords_of_its_patterns():
    text = LANGUAGES.read_text("utf-8")
    assert languages_with_keywords(text) == text, HOW_TO_FIX


def test_of_the_words_that_a_pattern_requires_the_rarest_are_its_keywords():
    assert derived(r"validation error\b.*<html") == ("<html",)
    assert derived(r"(?:validation error\d+frob|invalid)") == ("frob", "invalid")


def test_a_users_pattern_for_a_known_rule_is_tried_on_texts_without_the_old_keywords():
    change = {"id": "verdict.network.refused", "matches": ["kaputt"]}
    rules = apply(classify.failure_rules(), [change], where="mine.toml")
    changed = next(rule for rule in rules if rule.id == change["id"])
    assert changed.keywords == ()


@pytest.mark.parametrize(
    "keywords",
    [
        pytest.param([["a"], ["b"]], id="one list too many"),
        pytest.param([["Quota"]], id="upper case"),
        pytest.param([[""]], id="empty"),
    ],
)
def test_keywords_that_could_never_be_found_are_refused(keywords):
    change = {"id": "verdict.network.refused", "matches": ["x"], "keywords": keywords}
    with pytest.raises(RuleError, match="keyword"):
        apply(classify.failure_rules(), [change], where="mine.toml")
