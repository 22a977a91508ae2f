"""Rules match the texts that their patterns match, whichever engine reads them."""

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.verdict import classify, hidden_errors, match
from mcptally.verdict.rule_model import VerdictRule

RULES = (*classify.failure_rules(), *hidden_errors.hidden_error_rules())
EXAMPLES = [
    text
    for rule in classify.failure_rules()
    for text in (*rule.fires, *rule.silent)
    if isinstance(text, str)
]
RULE = next(rule for rule in classify.failure_rules() if rule.id == "verdict.network.refused")


def matches(text: str, *patterns: str) -> bool:
    rule = msgspec.structs.replace(RULE, matches=patterns, also=(), unless=(), keywords=())
    texts = pl.Series([text])
    return len(match.match_rules([rule], texts, texts)[0]) == 1


def by_polars(rule: VerdictRule, texts: pl.Series) -> list[int]:
    """Return the rows that a rule matches with polars' engine and without keywords."""
    found = texts.str.contains(match.alternation(rule.matches, start=rule.where == "start"))
    if rule.also:
        found &= texts.str.contains(match.alternation(rule.also))
    if rule.unless:
        found &= ~texts.str.contains(match.alternation(rule.unless))
    return found.arg_true().to_list()


@pytest.mark.slow
def test_keywords_and_engines_change_no_match():
    texts = pl.Series(EXAMPLES).unique(maintain_order=True)
    rules = [rule for rule in RULES[::5] if rule.matches and rule.where != "first_line"]
    found = match.match_rules(rules, texts, texts, texts)
    assert [rows.tolist() for rows in found] == [by_polars(rule, texts) for rule in rules]
    assert sum(map(len, found)) > len(rules)


def test_a_word_with_letters_beyond_ascii_has_boundaries():
    assert matches("nie udało się połączyć", r"\bsię\b")
    assert not matches("bessię", r"\bsię\b")


def test_syntax_that_only_polars_reads_is_read_by_polars():
    assert matches("abc", r"[a-c&&[^b]]{3}|a[\w--d]c")


@given(st.lists(st.sampled_from([*"ab é\uff1a\n", "error", "fout", "Fehler"])).map("".join))
def test_a_pattern_matches_the_same_texts_in_both_engines(text: str):
    pattern = r"error[:\x{ff1a}]?\s*\S|^[^\n]{1,3}\nfehler"
    assert match.uses_re2(pattern)
    assert matches(text, pattern) == pl.Series([text]).str.contains(f"(?i)(?:{pattern})")[0]


def test_the_part_that_a_rule_matches_is_the_same_in_both_engines():
    texts = pl.Series(["x Error: ab", "none", "error", "ERROR 5"])

    found = match.found_parts(texts, [r"error[: ]+\w+", "error"])

    assert found.to_list() == ["Error: ab", None, "error", "ERROR 5"]
    assert found.to_list() == texts.str.extract(r"(?i)((?:error[: ]+\w+|error))", 1).to_list()
    assert match.found_parts(texts, ["error"], start=True).to_list() == [
        None,
        None,
        "error",
        "ERROR",
    ]


def test_parts_of_patterns_with_a_group_without_a_name_are_found_by_polars():
    found = match.found_parts(pl.Series(["took 5 s"]), [r"took (\d) s"])

    assert found.to_list() == ["took 5 s"]
