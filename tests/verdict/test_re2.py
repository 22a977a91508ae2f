"""RE2 on folded texts gives the same matches as the Rust engine on the original texts."""

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcptally.verdict import classify, hidden_errors
from mcptally.verdict.match import alternation
from mcptally.verdict.re2 import folded, matches
from mcptally.verdict.rule_model import words_of_languages

PATTERNS = [
    alternation([each], start=rule.where == "start")
    for rule in (*classify.failure_rules(), *hidden_errors.hidden_error_rules())
    for each in (*rule.matches, *rule.also, *rule.unless)
    if each not in words_of_languages().get(rule.words, ())
]
ONE_TEXT = folded(pl.Series([""]))
SUPPORTED = [each for each in PATTERNS if matches(ONE_TEXT, each) is not None]

words = st.sampled_from(
    [
        "error",
        "Fehler",
        "naïve",
        "日本語",
        "must be",
        "'é'",
        "٣",
        "404",
        "\u2013",
        "“x”",
        "\u2028",
        "\x0b",
    ]
)
gaps = st.sampled_from([" ", "", "\n", "\u00a0", ": ", "…", "\t"])
texts = st.lists(st.tuples(words, gaps), max_size=9).map(lambda parts: "".join(map("".join, parts)))


def test_re2_supports_most_patterns_of_the_shipped_rules():
    assert len(SUPPORTED) > 0.85 * len(PATTERNS)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(texts, min_size=1, max_size=20))
@example(["Path '日本語テキスト' must be absolute"])
@example(["naïve error"])
def test_both_engines_match_the_same_texts(some):
    series = pl.Series(some, dtype=pl.String)
    ascii_only = folded(series)
    for each in SUPPORTED[::7]:
        rust = series.str.contains(each).to_list()
        found = matches(ascii_only, each)
        assert found is not None
        assert found.to_pylist() == rust, each


@pytest.mark.parametrize(
    "unsupported", ["é", r"\x{e9}", r"\pL", r"(?x) a", r"[a-z&&[^e]]", r"\b{start}a", "(?=a)"]
)
def test_a_pattern_that_re2_reads_in_another_way_is_not_supported(unsupported):
    assert matches(ONE_TEXT, unsupported) is None


def test_folding_keeps_ascii_characters_and_the_number_of_characters():
    series = pl.Series(["aé b٣c…d\x0be", "plain", None])
    assert folded(series).to_pylist() == ["a_ b0c\x7fd e", "plain", None]
