"""The words that stand for a pattern: whatever matches the pattern contains one of them."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.verdict.regex_literals import required

WORDS = {
    "not found": {"not found"},
    "(?:not|never) found": {" found"},
    r"quota (?:used up|gone)\b": {"quota "},
    "time-?out": {"time"},
    "denied|refused": {"denied", "refused"},
    "errors?:+ ": {"error"},
    "a|bcde": None,
    r"\d+": None,
    "(?:fatal)?": None,
    "(?:fatal){2,}": {"fatal"},
}


@pytest.mark.parametrize("pattern", WORDS)
def test_the_longest_words_that_must_be_there_are_found(pattern: str):
    assert required(pattern) == WORDS[pattern]


MATCHES = {
    r"\x41bcd": "Abcd",
    r"\x{41}bcd": "Abcd",
    r"\u0041bcd": "Abcd",
    r"\pLabcd": "xabcd",
    r"\p{Greek}abcd": "λabcd",
    r"\fabcd": "\fabcd",
    r"\<abcd\>": "abcd",
    r"\b{start}abcd": "abcd",
    "(?x) abc def  # words": "abcdef",
    "[[:digit:]]abcd": "1abcd",
    "[a[bc]]defg": "bdefg",
    r"[\w&&[^a]]bcde": "xbcde",
    "[]x]abcd": "]abcd",
    r"[^]\]]abcd": "xabcd",
    "abc+*def": "abdef",
    "(?P<box>abcd)e": "abcde",
    "abcd{0}e": "abce",
    "abc{0,2}de": "abde",
}


def holds(pattern: str, text: str) -> bool:
    """Whether Rust finds the pattern, and if so, whether one of its words is there."""
    matches = pl.Series([text]).str.contains(f"(?i){pattern}")[0]
    words = required(pattern)
    return not matches or words is None or any(word in text.lower() for word in words)


@pytest.mark.parametrize("pattern", MATCHES)
def test_what_matches_has_one_of_the_words(pattern: str):
    text = MATCHES[pattern]
    assert pl.Series([text]).str.contains(f"(?i){pattern}")[0]
    assert holds(pattern, text)


PIECES = st.sampled_from(
    [*"aB1 ", "ab", r"\d", r"\.", ".", "[ab]", "[^a[b1]]", "[[:alpha:]]", r"\b", r"\x61", "^", "$"]
)


def grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Patterns made of patterns."""
    counted = st.tuples(parts, st.sampled_from(["?", "*", "+", "+?", "{2}", "{0,1}", "{1,}?"]))
    return st.one_of(
        st.lists(parts, min_size=1, max_size=5).map("".join),
        st.lists(parts, min_size=1, max_size=3).map(lambda each: f"(?:{'|'.join(each)})"),
        counted.map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


@given(st.recursive(PIECES, grown, max_leaves=12), st.text("aAbB1. ]", max_size=12))
def test_no_pattern_matches_where_none_of_its_words_is(pattern: str, text: str):
    assert holds(pattern, text)


@pytest.mark.parametrize("pattern", ["(abc", "[abc", "abc{", "abc\\", "(?i", "abc)", "a{x}bcd"])
def test_what_is_no_pattern_has_no_words(pattern: str):
    assert required(pattern) is None
