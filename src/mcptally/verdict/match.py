"""Matches many rules against many texts.

One pass finds the keywords of all patterns; each pattern is then tried only on the texts that
contain one of its keywords (`regex_literals`).
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from mcptally.verdict import re2, regex_literals
from mcptally.verdict.rule_model import TextRule

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, ascending."""
Mask: TypeAlias = npt.NDArray[np.bool_]

_START: Final = "start"


def match_rules(
    rules: Sequence[TextRule],
    texts: pl.Series,
    starts: pl.Series,
    lines: pl.Series | None = None,
    *,
    decides: Callable[[TextRule], bool] = lambda _: False,
    within: Callable[[TextRule], Mask | None] = lambda _: None,
) -> list[Rows | None]:
    """Return for each rule the rows of `texts` that its patterns match; None: it has no patterns.

    Args:
        rules: the rules, in the order in which they decide.
        texts: distinct texts, without nulls.
        starts: the texts that rules with `where = "start"` read, one per row of `texts`.
        lines: the first lines of `texts`; needed if a rule has `where = "first_line"`.
        decides: whether a text that this rule matches need not be tried with later rules.
        within: the rows that a rule may match; None for all.
    """
    whole_texts = _Texts(texts)
    places = {"anywhere": whole_texts, _START: _Texts(starts)}
    if lines is not None:
        places["first_line"] = _Texts(lines)
    candidates = _candidates(_keywords(tuple(rule.matches for rule in rules)), texts)
    undecided = np.ones(len(texts), dtype=np.bool_)
    matched: list[Rows | None] = []
    for rule, candidate_rows in zip(rules, candidates, strict=True):
        if not rule.matches:
            matched.append(None)
            continue
        allowed = within(rule)
        tried = undecided if allowed is None else undecided & allowed
        rows = _matching_any(
            rule.matches, candidate_rows, places[rule.where], tried, start=rule.where == _START
        )
        if rule.also:
            rows = rows[whole_texts.contain(rows, alternation(rule.also))]
        if rule.unless:
            rows = rows[~whole_texts.contain(rows, alternation(rule.unless))]
        if decides(rule):
            undecided[rows] = False
        matched.append(rows)
    return matched


def alternation(patterns: Sequence[str], *, start: bool = False) -> str:
    """Return one regular expression that matches what any of `patterns` does, ignoring case."""
    return f"(?i){'^' if start else ''}(?:{'|'.join(patterns)})"


def _matching_any(
    patterns: Sequence[str],
    candidates: Sequence[Rows | None],
    texts: "_Texts",
    tried: Mask,
    *,
    start: bool,
) -> Rows:
    """Return the rows among `tried` that one of `patterns` matches."""
    matched = np.zeros(len(tried), dtype=np.bool_)
    for each, candidate_rows in zip(patterns, candidates, strict=True):
        left = tried & ~matched
        rows = (
            np.flatnonzero(left) if candidate_rows is None else candidate_rows[left[candidate_rows]]
        )
        matched[rows] = texts.contain(rows, alternation([each], start=start))
    return np.flatnonzero(matched)


class _Texts:
    """A column of texts that tells which of some rows a pattern matches."""

    def __init__(self, texts: pl.Series) -> None:
        self.texts = texts

    @functools.cached_property
    def folded(self) -> pa.Array:
        return re2.folded(self.texts)

    @functools.cached_property
    def plain(self) -> Mask:
        return re2.is_plain(self.texts).to_numpy()

    def contain(self, rows: Rows, regex: str) -> Mask:
        """Return for each of `rows` whether the text contains a match of `regex`."""
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        forms = re2.forms(regex)
        if forms is None:
            return self._contain_by_rust(rows, regex)
        try:
            if forms.exact:
                return self._contain_by_re2(rows, forms.plain)
            matches = self.plain[rows]
            others = np.flatnonzero(~matches)
            matches[matches] = self._contain_by_re2(rows[matches], forms.plain)
            if forms.folded is not None:
                others = others[self._contain_by_re2(rows[others], forms.folded)]
        except pa.ArrowInvalid:  # for example a repetition that RE2 does not allow
            return self._contain_by_rust(rows, regex)
        matches[others] = self._contain_by_rust(rows[others], regex)
        return matches

    def _contain_by_re2(self, rows: Rows, regex: str) -> Mask:
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        some = self.folded if len(rows) == len(self.texts) else self.folded.take(pa.array(rows))
        matches: Mask = pc.match_substring_regex(some, regex).to_numpy(zero_copy_only=False)
        return matches

    def _contain_by_rust(self, rows: Rows, regex: str) -> Mask:
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        matches: Mask = self.texts.gather(pl.Series(rows)).str.contains(regex).to_numpy()
        return matches


@dataclasses.dataclass(frozen=True)
class _Keywords:
    """The keywords of all patterns; patterns are numbered through all rules."""

    patterns_of: Mapping[str, tuple[int, ...]]
    """Keyword → numbers of the patterns whose matches may contain it."""
    without: frozenset[int]
    """Patterns without keywords: they are tried on every text."""
    counts: tuple[int, ...]
    """How many patterns each rule has."""


@functools.lru_cache(maxsize=8)
def _keywords(patterns_by_rule: tuple[tuple[str, ...], ...]) -> _Keywords:
    """Derive the keywords of the patterns of each rule."""
    patterns_of: dict[str, list[int]] = {}
    without: set[int] = set()
    for number, each in enumerate(each for patterns in patterns_by_rule for each in patterns):
        words = regex_literals.required(each)
        if words is None:
            without.add(number)
        for word in words or ():
            patterns_of.setdefault(word, []).append(number)
    return _Keywords(
        patterns_of={word: tuple(numbers) for word, numbers in patterns_of.items()},
        without=frozenset(without),
        counts=tuple(len(patterns) for patterns in patterns_by_rule),
    )


def _candidates(keywords: _Keywords, texts: pl.Series) -> list[list[Rows | None]]:
    """Return for each pattern of each rule the rows with one of its keywords; None for all rows."""
    if texts.is_empty() or not keywords.patterns_of:
        return [[None] * count for count in keywords.counts]
    occurrences = (
        texts.to_frame("text")
        .select(
            row=pl.int_range(pl.len(), dtype=pl.Int64),
            word=pl.col("text")
            .str.to_lowercase()
            .str.extract_many(list(keywords.patterns_of), overlapping=True),
        )
        .explode("word")
        .drop_nulls()
        .unique()
    )
    owners = pl.DataFrame(
        [(word, number) for word, numbers in keywords.patterns_of.items() for number in numbers],
        schema={"word": pl.String, "pattern": pl.Int64},
        orient="row",
    )
    pairs = occurrences.join(owners, on="word").select("pattern", "row").unique()
    pairs = pairs.sort("pattern", "row")
    patterns, rows = pairs["pattern"].to_numpy(), pairs["row"].to_numpy()
    total = sum(keywords.counts)
    edges = np.searchsorted(patterns, np.arange(total + 1))
    by_pattern = [
        None if number in keywords.without else rows[edges[number] : edges[number + 1]]
        for number in range(total)
    ]
    starts = np.concatenate([[0], np.cumsum(keywords.counts)])
    return [by_pattern[start:end] for start, end in itertools.pairwise(starts)]
