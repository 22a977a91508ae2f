"""Every rule's own examples, through the engine that judges archives."""

import polars as pl
import pytest

from mcptally.verdict import classify, hidden_errors, judge, regex_literals
from mcptally.verdict.examples import wrong_about_failures, wrong_about_results
from mcptally.verdict.rule_model import HiddenRule, VerdictRule, check_patterns


@pytest.mark.parametrize("rule", classify.rules(), ids=lambda rule: rule.id)
def test_a_failure_rule_holds_for_its_examples_and_not_for_its_counterexamples(rule: VerdictRule):
    assert wrong_about_failures(rule) == []


@pytest.mark.parametrize("rule", hidden_errors.rules(), ids=lambda rule: rule.id)
def test_a_hidden_error_rule_decides_its_examples_and_not_its_counterexamples(rule: HiddenRule):
    assert wrong_about_results(rule, hidden_errors.rules()) == []


@pytest.mark.parametrize("rule", [*classify.rules(), *hidden_errors.rules()], ids=lambda r: r.id)
def test_a_rule_names_its_section(rule: VerdictRule | HiddenRule):
    group, section, name = rule.id.split(".")
    assert group == ("verdict" if isinstance(rule, VerdictRule) else "hidden")
    assert section
    assert name


def test_every_pattern_is_a_regular_expression():
    for rule in (*classify.rules(), *hidden_errors.rules()):
        check_patterns(rule)


def test_orders_are_not_shared_so_that_which_rule_decides_is_plain():
    orders = [rule.order for rule in classify.rules()]
    assert len(set(orders)) == len(orders)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("connection refused", {"connection refused"}),
        ("ECONNREFUSED", {"econnrefused"}),
        ("abc|defg", {"abc", "defg"}),
        (r"foo\d+barbaz", {"barbaz"}),
        (r"(?:time|dead)line", {"time", "dead"}),
        (r"colou?rful", {"colo"}),
        (r"spawn \S+ enoent", {" enoent"}),
        (r"x{3}yellow", {"yellow"}),
        (r"[abc]def[^\]x]", {"def"}),
        (r"错误|失败", {"错误", "失败"}),
    ],
)
def test_the_words_a_pattern_needs_are_found(pattern: str, words: set[str]):
    assert regex_literals.required(pattern) == words


@pytest.mark.parametrize("pattern", [r"\d+", "a|b", "(?:abc)?", "abc|.*", "(?:abcd)*x?"])
def test_a_pattern_that_needs_no_word_is_tried_everywhere(pattern: str):
    assert regex_literals.required(pattern) is None


def test_nothing_that_a_pattern_matches_lacks_its_words():
    for rule in classify.rules():
        texts = pl.Series([e for e in (*rule.fires,) if isinstance(e, str)], dtype=pl.String)
        for pattern in rule.matches:
            words = regex_literals.required(pattern)
            matched = texts.filter(texts.str.contains(f"(?i){pattern}"))
            assert words is None or all(
                any(word in text.lower() for word in words) for text in matched
            )


def test_a_verdict_has_all_its_columns_and_only_where_something_failed():
    frame = pl.DataFrame(
        {
            "outcome": ["ok", "tool_error", "input_required"],
            "error_text": [None, "x not found", None],
        }
    )
    said = judge(frame)
    assert said.columns == list(classify.COLUMNS)
    assert said["verdict"].to_list() == [None, "business", None]
    assert said["reason"][1] == "not_found"
    assert 0 < said["confidence"][1] < 100
