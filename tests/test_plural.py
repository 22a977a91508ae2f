"""`count` writes numbers with their nouns."""

import pytest

from mcptally.plural import count


@pytest.mark.parametrize(
    ("n", "words", "text"),
    [
        (0, ("file",), "0 files"),
        (1, ("file",), "1 file"),
        (1234, ("file",), "1,234 files"),
        (None, ("file",), "0 files"),
        (2, ("family", "families"), "2 families"),
        (12.7, (), "13"),
        (10**400 + 1, (), f"{10**400 + 1:,}"),
    ],
)
def test_a_count_agrees_with_its_noun_and_keeps_all_digits(n, words, text):
    assert count(n, *words) == text
