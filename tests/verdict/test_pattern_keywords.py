"""Every text that matches a pattern contains the keywords derived from the pattern."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tests.verdict.pattern_keywords import required


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
