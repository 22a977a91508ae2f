"""Matches many rules against many texts.

One pass finds the keywords of all patterns; each pattern is then tried only on the texts that
contain its keywords (`regex_literals`).
"""

import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from pyarrow.compute import MatchSubstringOptions, TakeOptions, call_function

from mcptally import rules as rule_files
from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.queries import run_query
from mcptally.verdict import re2
from mcptally.verdict.rule_model import TextRule

if TYPE_CHECKING:
    from mcptally.verdict.regex_literals import Branch

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, ascending."""
Mask: TypeAlias = npt.NDArray[np.bool_]

_START: Final = "start"
_FEW_BYTES: Final = 1 << 16
"""Bytes of texts up to which keywords that cannot occur are left out of the search: making the
automaton of all keywords takes as long as searching 4 MB."""
_AT_ONCE: Final = 4096
"""Texts in which keywords are looked for at once; limits memory."""


def match_rules(
    rules: Sequence[TextRule],
    texts: pl.Series,
    starts: pl.Series,
    lines: pl.Series | None = None,
    *,
    within: Callable[[TextRule], Mask | None] = lambda _: None,
) -> list[Rows | None]:
    """Return for each rule the rows of `texts` that its patterns match; None: it has no patterns.

    Args:
        rules: the rules, in the order in which they decide.
        texts: distinct texts, without nulls.
        starts: the texts that rules with `where = "start"` read, one per row of `texts`.
        lines: the first lines of `texts`; needed if a rule has `where = "first_line"`.
        within: the rows that a rule may match; None for all.
    """
    whole_texts = _Texts(texts)
    places = {"anywhere": whole_texts}
    places[_START] = whole_texts if starts is texts else _Texts(starts, whole_texts)
    if lines is not None:
        places["first_line"] = _Texts(lines)
    patterns = tuple(patterns_of(rule) for rule in rules)
    candidates = _candidates(_keywords(patterns), texts)
    every = np.ones(len(texts), dtype=np.bool_)
    matched: list[Rows | None] = []
    for rule, (*of_matches, of_also, of_unless) in zip(rules, candidates, strict=True):
        if not rule.matches:
            matched.append(None)
            continue
        allowed = within(rule)
        tried = every if allowed is None else allowed
        rows = _matching_any(
            rule.matches, of_matches, places[rule.where], tried, start=rule.where == _START
        )
        if rule.also:
            rows = rows[_matching(rule.also, of_also, whole_texts, rows)]
        if rule.unless:
            rows = rows[~_matching(rule.unless, of_unless, whole_texts, rows)]
        matched.append(rows)
    return matched


def patterns_of(rule: TextRule) -> tuple[str, ...]:
    """Return the patterns of a rule that are tried separately: `matches`, `also` and `unless`."""
    return (*rule.matches, "|".join(rule.also), "|".join(rule.unless))


def alternation(patterns: Sequence[str], *, start: bool = False) -> str:
    """Return one regular expression that matches what any of `patterns` matches, ignoring case."""
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
    pairs = list(zip(patterns, candidates, strict=True))
    for each, rows in pairs:
        if rows is not None and len(rows):
            left = rows[tried[rows] & ~matched[rows]]
            matched[left] = texts.contain(left, alternation([each], start=start))
    if without_keywords := [each for each, rows in pairs if rows is None]:
        left = np.flatnonzero(tried & ~matched)
        matched[left] = texts.contain(left, alternation(without_keywords, start=start))
    return np.flatnonzero(matched)


def _matching(
    patterns: Sequence[str], candidates: Rows | None, texts: "_Texts", rows: Rows
) -> Mask:
    """Return for each of `rows` whether one of `patterns` matches."""
    regex = alternation(patterns)
    if candidates is None:
        return texts.contain(rows, regex)
    has_keywords = np.zeros(len(texts.texts), dtype=np.bool_)
    has_keywords[candidates] = True
    matched: Mask = has_keywords[rows]
    matched[matched] = texts.contain(rows[matched], regex)
    return matched


class _Texts:
    """A column of texts, and the search for a pattern in some of its rows."""

    def __init__(self, texts: pl.Series, originals: "_Texts | None" = None) -> None:
        """Keep `texts`, of which few differ from `originals` if given."""
        self.texts = texts
        self.originals = originals

    @functools.cached_property
    def folding(self) -> re2.Folding:
        if self.originals is None:
            return re2.fold(self.texts)
        return re2.fold_changed(self.texts, self.originals.texts, self.originals.folding)

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
            matches = self.folding.plain[rows]
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
        # `pa.array` imports pandas; a series takes forty times as long.
        indices = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
        some = (
            self.folding.folded
            if len(rows) == len(self.texts)
            else call_function(
                "array_take",
                [self.folding.folded, indices],
                TakeOptions(boundscheck=False),
            )
        )
        found = call_function("match_substring_regex", [some], MatchSubstringOptions(regex))
        # `to_numpy` imports pandas.
        bits = np.frombuffer(found.buffers()[1], np.uint8)
        matches: Mask = np.unpackbits(bits, count=len(found), bitorder="little").view(np.bool_)
        return matches

    def _contain_by_rust(self, rows: Rows, regex: str) -> Mask:
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        matches: Mask = self.texts.gather(indices(rows)).str.contains(regex).to_numpy()
        return matches


class _Keywords(msgspec.Struct, frozen=True, dict=True):
    """The keywords of all patterns; patterns are numbered through all rules."""

    words: list[str]
    """All keywords, each once."""
    owners: pl.DataFrame
    """`word` and the number of a `set` that it is in; sets are those of `regex_literals.Branch`."""
    set_count: int
    sets: Rows
    """The sets of all branches, one branch after the other."""
    branches: Rows
    """Position in `sets` of the first set of each branch."""
    patterns: Rows
    """Number in `branches` of the first branch of each pattern that has keywords."""
    numbers: Rows
    """The numbers of these patterns. Others are tried on every text."""
    counts: tuple[int, ...]
    """How many patterns each rule has."""

    @functools.cached_property
    def _beginnings(self) -> list[tuple[int, Rows, Rows]]:
        """Numbers of words and the first bytes of each: six, or three of shorter words."""
        words = [word.encode() for word in self.words]
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        return [
            (size, numbers, _windows(b"".join([words[i][:size] for i in numbers]), size)[::size])
            for size, numbers in ((6, np.flatnonzero(sizes >= 6)), (3, np.flatnonzero(sizes < 6)))
        ]

    def possible_words(self, texts: pl.Series, size: int) -> list[str]:
        """Return at least the words that occur in the texts.

        Args:
            texts: texts in lower case.
            size: their bytes.
        """
        if size > _FEW_BYTES:
            return self.words
        data = "\n".join(texts).encode()
        possible = np.zeros(len(self.words), dtype=np.bool_)
        for length, numbers, beginnings in self._beginnings:
            occurring = np.sort(_windows(data, length))
            if len(occurring):
                places = np.searchsorted(occurring[:-1], beginnings)
                possible[numbers] = occurring[places] == beginnings
        return [self.words[number] for number in np.flatnonzero(possible)]


def _windows(data: bytes, size: int) -> Rows:
    """Return each run of `size` bytes, at most seven, as a number."""
    values = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    count = max(0, len(values) - size + 1)
    found = np.zeros(count, dtype=np.int64)
    for place in range(size):
        found = found << 8 | values[place : place + count]
    return found


@functools.lru_cache(maxsize=8)
def _keywords(patterns_by_rule: tuple[tuple[str, ...], ...]) -> _Keywords:
    """Derive the keywords of each rule's patterns."""
    number_of: defaultdict[frozenset[str], int] = defaultdict(itertools.count().__next__)
    sets: list[int] = []
    branches: list[int] = []
    patterns: list[int] = []
    numbers: list[int] = []
    known = _derived_keywords()
    for number, each in enumerate(itertools.chain.from_iterable(patterns_by_rule)):
        if found := known[each] if each in known else _required(each):
            numbers.append(number)
            patterns.append(len(branches))
            for branch in found:
                branches.append(len(sets))
                sets += map(number_of.__getitem__, branch)
    every_word = list(itertools.chain.from_iterable(number_of))
    set_of_word = np.repeat(np.arange(len(number_of)), [len(words) for words in number_of])
    return _Keywords(
        words=list(dict.fromkeys(every_word)),
        owners=pl.DataFrame(
            {"word": every_word, "set": series_from_numpy(set_of_word)},
            schema={"word": pl.String, "set": pl.Int64},
        ),
        set_count=len(number_of),
        sets=np.array(sets, dtype=np.int64),
        branches=np.array(branches, dtype=np.int64),
        patterns=np.array(patterns, dtype=np.int64),
        numbers=np.array(numbers, dtype=np.int64),
        counts=tuple(len(patterns) for patterns in patterns_by_rule),
    )


def _required(pattern: str) -> "Sequence[Branch] | None":
    """Return the keywords of a pattern, derived now."""
    if not pattern:
        return None
    from mcptally.verdict import regex_literals  # noqa: PLC0415  (only for rules of a user)

    return regex_literals.required(pattern)


@functools.cache
def _derived_keywords() -> "Mapping[str, Sequence[Branch] | None]":
    """Return the keywords of the shipped rules' patterns, if this version derived them."""
    source = Path(__file__).with_name("regex_literals.py")
    compiled = rule_files.compiled()
    same = source.is_file() and hashlib.sha256(source.read_bytes()).hexdigest() == compiled.parser
    return compiled.keywords if same else {}


def _candidates(keywords: _Keywords, texts: pl.Series) -> list[list[Rows | None]]:
    """Return for each pattern of each rule the rows with its keywords; None for all rows."""
    by_pattern: list[Rows | None] = [None] * sum(keywords.counts)
    if len(texts) and len(keywords.numbers):
        parts = [
            np.nonzero(_with_keywords(keywords, texts[start : start + _AT_ONCE]))
            for start in range(0, len(texts), _AT_ONCE)
        ]
        patterns = np.concatenate([part[0] for part in parts])
        rows = np.concatenate([part[1] + number * _AT_ONCE for number, part in enumerate(parts)])
        rows = rows[np.argsort(patterns, kind="stable")]
        counts = np.bincount(patterns, minlength=len(keywords.numbers))
        for number, some in zip(
            keywords.numbers, np.split(rows, np.cumsum(counts)[:-1]), strict=True
        ):
            by_pattern[number] = some
    starts = np.concatenate([[0], np.cumsum(keywords.counts)])
    return [by_pattern[start:end] for start, end in itertools.pairwise(starts)]


def _with_keywords(keywords: _Keywords, texts: pl.Series) -> Mask:
    """Return a matrix: whether each text (column) has the keywords of each pattern (row)."""
    text = pl.col("text")
    lower = texts.to_frame("text").select(text.str.to_lowercase(), size=text.str.len_bytes())
    words = keywords.possible_words(lower["text"], int(lower["size"].to_numpy().sum()))
    if not words:
        return np.zeros((len(keywords.numbers), len(texts)), dtype=np.bool_)
    occurrences = (
        lower.lazy()
        .select(
            row=pl.int_range(pl.len(), dtype=pl.Int64),
            word=text.str.extract_many(words, overlapping=True).list.unique(),
        )
        .explode("word")
        .drop_nulls()
        .join(keywords.owners.lazy(), on="word")
        .pipe(run_query)
    )
    has_set = np.zeros((keywords.set_count, len(texts)), dtype=np.bool_)
    has_set[occurrences["set"].to_numpy(), occurrences["row"].to_numpy()] = True
    # Eight texts per byte: the matrices of branches are large.
    bits = np.packbits(has_set, axis=1)
    has_branch = bits[keywords.sets[keywords.branches]]
    sizes = np.diff(keywords.branches, append=len(keywords.sets))
    for place in range(1, sizes.max()):
        longer = np.flatnonzero(sizes > place)
        has_branch[longer] &= bits[keywords.sets[keywords.branches[longer] + place]]
    has_pattern = np.bitwise_or.reduceat(has_branch, keywords.patterns)
    return np.unpackbits(has_pattern, axis=1, count=len(texts)).view(np.bool_)
