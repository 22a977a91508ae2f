"""Every text that matches a pattern contains the keywords derived from the pattern."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.verdict import classify
from tests.verdict.pattern_keywords import required

WORDS = {
    "not found": [[{"not found"}]],
    "(?:not|never) found": [[{"not", "never"}, {" found"}]],
    r"quota (?:used up|gone)\b": [[{"quota "}, {"used up", "gone"}]],
    "time-?out": [[{"time"}, {"out"}]],
    "denied|refused": [[{"denied"}], [{"refused"}]],
    "errors?:+ ": [[{"error"}]],
    "a|bcde": None,
    r"\d+": None,
    "(?:fatal)?": None,
    "(?:fatal){2,}": [[{"fatal"}]],
    "ECONNREFUSED": [[{"econnrefused"}]],
    r"foo\d+barbaz": [[{"foo"}, {"barbaz"}]],
    r"(?:time out|dead)line": [[{"time out", "dead"}, {"line"}]],
    r"(?:a time|dead (?:line|end))s": [[{"a time", "dead "}]],
    r"spawn \S+ enoent": [[{"spawn "}, {" enoent"}]],
    r"x{3}yellow": [[{"yellow"}]],
    r"[abc]def[^\]x]": [[{"def"}]],
    r"错误|失败": [[{"错误"}], [{"失败"}]],
    "a|b": None,
    "abc|.*": None,
    "(?:abcd)*x?": None,
}


@pytest.mark.parametrize("pattern", WORDS)
def test_each_part_of_a_branch_has_its_longest_literals_as_keywords(pattern: str):
    expected = WORDS[pattern]
    assert required(pattern) == (expected and tuple(map(tuple, expected)))


def has_keywords(pattern: str, text: str) -> bool:
    """Return whether `text` contains the keywords of any branch of `pattern`."""
    branches = required(pattern)
    return branches is None or any(
        all(any(word in text.lower() for word in words) for words in branch) for branch in branches
    )


def keywords_cover(pattern: str, text: str) -> bool:
    """Return whether `text` contains the keywords of `pattern`, or Rust finds no match."""
    matches = pl.Series([text]).str.contains(f"(?i){pattern}")[0]
    return not matches or has_keywords(pattern, text)


PIECES = st.sampled_from(
    [*"aB1 ", "ab", r"\d", r"\.", ".", "[ab]", "[^a[b1]]", "[[:alpha:]]", r"\b", r"\x61", "^", "$"]
)


def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Sequences, groups and repetitions of patterns."""
    counted = st.tuples(parts, st.sampled_from(["?", "*", "+", "+?", "{2}", "{0,1}", "{1,}?"]))
    return st.one_of(
        st.lists(parts, min_size=1, max_size=5).map("".join),
        st.lists(parts, min_size=1, max_size=3).map(lambda each: f"(?:{'|'.join(each)})"),
        counted.map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


@given(st.recursive(PIECES, combined, max_leaves=12), st.text("aAbB1. ]", max_size=12))
def test_no_generated_pattern_matches_a_text_without_its_keywords(pattern: str, text: str):
    assert keywords_cover(pattern, text)


@pytest.mark.slow
def test_examples_of_shipped_rules_contain_a_keyword_of_each_pattern_that_matches():
    for rule in classify.failure_rules():
        texts = pl.Series([e for e in (*rule.fires,) if isinstance(e, str)], dtype=pl.String)
        for pattern in rule.matches:
            matched = texts.filter(texts.str.contains(f"(?i){pattern}"))
            assert all(has_keywords(pattern, text) for text in matched)
