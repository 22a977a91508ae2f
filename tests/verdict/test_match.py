"""Rules match the same texts however many texts there are."""

import polars as pl
import pytest

from mcptally.verdict import classify, match


def test_keywords_that_cannot_occur_are_left_out_and_no_other(monkeypatch: pytest.MonkeyPatch):
    rules = classify.failure_rules()
    examples = [text for rule in rules[::9] for text in rule.fires if isinstance(text, str)]
    texts = pl.Series([*examples[::3], "ab", "", "ENOENT\n错误"])
    assert texts.str.len_bytes().sum() < match._FEW_BYTES
    few = match.match_rules(rules, texts, texts, texts)
    monkeypatch.setattr(match, "_FEW_BYTES", 0)
    assert list(map(rows, match.match_rules(rules, texts, texts, texts))) == list(map(rows, few))
    assert sum(len(each) for each in few if each is not None) > len(texts)


def rows(matched: match.Rows | None) -> list[int] | None:
    return None if matched is None else matched.tolist()
