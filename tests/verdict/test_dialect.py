"""RE2 finds in folded texts what the Rust engine finds in the texts themselves."""

import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcptally.verdict import classify, hidden_errors
from mcptally.verdict.match import pattern
from mcptally.verdict.re2 import folded, read_alike

PATTERNS = [
    pattern([each], start=rule.where == "start")
    for rule in (*classify.rules(), *hidden_errors.rules())
    for each in (*rule.matches, *rule.also, *rule.unless)
]
ALIKE = [each for each in PATTERNS if read_alike(each)]

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


def test_most_patterns_of_our_rules_are_read_alike():
    assert len(ALIKE) > 0.85 * len(PATTERNS)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(texts, min_size=1, max_size=20))
@example(["Path '日本語テキスト' must be absolute"])
@example(["naïve error"])
def test_both_engines_find_the_same(these):
    series = pl.Series(these, dtype=pl.String)
    near = folded(series)
    for each in ALIKE[::7]:
        rust = series.str.contains(each).to_list()
        assert pc.match_substring_regex(near, each).to_pylist() == rust, each


@pytest.mark.parametrize(
    "theirs", ["é", r"\x{e9}", r"\pL", r"(?x) a", r"[a-z&&[^e]]", r"\b{start}a", "(?=a)"]
)
def test_what_only_one_engine_can_read_stays_with_it(theirs):
    assert not read_alike(theirs)


def test_folding_keeps_the_length_and_what_is_ascii():
    series = pl.Series(["aé b٣c…d\x0be", "plain", None])
    assert folded(series).to_pylist() == ["a_ b0c\x7fd e", "plain", None]
