r"""Matches many rules against many texts.

One pass finds the keywords of all patterns; each pattern is then tried only on texts that contain
one of its keywords. RE2, which is part of pyarrow, compiles patterns eight times as fast as polars.
Polars handles patterns whose `\b` or `\w` must match non-ASCII letters.
"""

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from mcptally.tables.arrow import indices, series_from_arrow, series_from_numpy
from mcptally.tables.queries import run_query
from mcptally.verdict.rule_model import TextRule

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row indexes in ascending order."""
Mask: TypeAlias = npt.NDArray[np.bool_]

_KNOWS_LETTERS: Final = re.compile(r"\\[bBwW]")
_BEYOND_ASCII: Final = r"[^\x00-\x7F\pP\pS\pZ]"
_AT_ONCE: Final = 4096
"""Number of texts that are searched for keywords together, to limit memory."""


def match_rules(
    rules: Sequence[TextRule],
    texts: pl.Series,
    starts: pl.Series,
    lines: pl.Series | None = None,
    *,
    within: Callable[[TextRule], Mask | None] = lambda _: None,
) -> list[Rows | None]:
    """Return, for each rule, the rows of `texts` that match its patterns; None without patterns.

    Args:
        rules: the rules, in order of precedence.
        texts: distinct texts, without nulls.
        starts: the texts for rules with `where = "start"`, one per row of `texts`.
        lines: the first lines of `texts`; needed if a rule has `where = "first_line"`.
        within: returns the rows that a rule may match; None for all rows.
    """
    whole_texts = _Texts(texts)
    places = {"anywhere": whole_texts, "start": _Texts(starts)}
    if lines is not None:
        places["first_line"] = _Texts(lines)
    candidates = iter(_candidates([each for rule in rules for each in _keywords_of(rule)], texts))
    matched: list[Rows | None] = []
    for rule in rules:
        own = list(itertools.islice(candidates, len(rule.matches)))
        if not rule.matches:
            matched.append(None)
            continue
        allowed = within(rule)
        tried = np.ones(len(texts), dtype=np.bool_) if allowed is None else allowed.copy()
        rows = _matching(rule, own, places[rule.where], tried)
        if rule.also:
            rows = rows[whole_texts.contain(rows, rule.also)]
        if rule.unless:
            rows = rows[~whole_texts.contain(rows, rule.unless)]
        matched.append(rows)
    return matched


def with_texts(matched: Rows | None, text_of: Rows, count: int) -> Mask:
    """Return a mask of the rows whose text is matched.

    Args:
        matched: the indexes of the matched texts; None for all texts.
        text_of: for each row, the index of its text.
        count: number of texts.
    """
    of_text = np.zeros(count, dtype=np.bool_)
    of_text[slice(None) if matched is None else matched] = True
    mask: Mask = of_text[text_of]
    return mask


def _keywords_of(rule: TextRule) -> Sequence[tuple[str, ...]]:
    """Return, for each pattern in the rule's `matches`, its keywords."""
    return rule.keywords or [()] * len(rule.matches)


def _matching(
    rule: TextRule, candidates: Sequence[Rows | None], texts: "_Texts", tried: Mask
) -> Rows:
    """Return the rows, among those in the mask `tried`, that match one of the rule's patterns."""
    start = rule.where == "start"
    found = [np.zeros(0, dtype=np.int64)]
    without_keywords = []
    for pattern, rows in zip(rule.matches, candidates, strict=True):
        if rows is None:
            without_keywords.append(pattern)
        elif len(left := rows[tried[rows]]):
            found.append(left[texts.contain(left, [pattern], start=start)])
            tried[found[-1]] = False
    if without_keywords:
        left = np.flatnonzero(tried)
        found.append(left[texts.contain(left, without_keywords, start=start)])
    return np.sort(np.concatenate(found))


def alternation(patterns: Sequence[str], *, start: bool = False) -> str:
    """Join patterns to one regular expression that matches any of them, ignoring case."""
    return f"(?i){'^' if start else ''}(?:{'|'.join(patterns)})"


def found_parts(texts: pl.Series, patterns: Sequence[str], *, start: bool = False) -> pl.Series:
    """Return the part of each text that one of the patterns matches; null if none does."""
    regex = f"(?P<found>{alternation(patterns, start=start)})"
    if all(map(uses_re2, patterns)):
        column = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
        # A user's pattern may use syntax that only polars supports, or an unnamed group.
        with contextlib.suppress(pa.ArrowInvalid):
            return series_from_arrow(pc.struct_field(pc.extract_regex(column, regex), "found"))
    return texts.str.extract(regex, 1)


def uses_re2(pattern: str) -> bool:
    r"""Return whether a pattern can run on RE2, whose `\b` and `\w` know only ASCII letters."""
    if pattern.isascii() or not _KNOWS_LETTERS.search(pattern):
        return True
    return not any(char.isalpha() and not char.isascii() for char in pattern)


class _Texts:
    """A column of texts whose rows can be searched for patterns."""

    def __init__(self, texts: pl.Series) -> None:
        self.texts = texts

    @functools.cached_property
    def _column(self) -> pa.Array:
        return self.texts.to_arrow(compat_level=pl.CompatLevel.oldest())

    @functools.cached_property
    def _beyond_ascii(self) -> Mask:
        """Mask of the texts that contain non-ASCII letters, digits or marks."""
        return self._search_by_re2(np.arange(len(self.texts)), _BEYOND_ASCII)

    def contain(self, rows: Rows, patterns: Sequence[str], *, start: bool = False) -> Mask:
        """Return, for each of `rows`, whether its text matches one of `patterns`."""
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        others = [pattern for pattern in patterns if not uses_re2(pattern)]
        # On texts without non-ASCII letters, both engines give the same results.
        left = np.flatnonzero(self._beyond_ascii[rows]) if others else np.zeros(0, dtype=np.int64)
        matched = self._search_by_re2(rows, alternation(patterns, start=start))
        if len(left):
            by_re2 = [pattern for pattern in patterns if pattern not in others]
            matched[left] = self._search_by_polars(rows[left], alternation(others, start=start))
            left = left[~matched[left]]
            if by_re2 and len(left):
                matched[left] = self._search_by_re2(rows[left], alternation(by_re2, start=start))
        return matched

    def _search_by_re2(self, rows: Rows, regex: str) -> Mask:
        try:
            if len(rows) == len(self.texts):
                found = pc.match_substring_regex(self._column, regex)
            else:
                numbers = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
                found = pc.match_substring_regex(pc.take(self._column, numbers), regex)
        except pa.ArrowInvalid:  # a user's pattern with syntax that only polars supports
            return self._search_by_polars(rows, regex)
        bits = np.frombuffer(found.buffers()[1], np.uint8)
        return np.unpackbits(bits, count=len(rows), bitorder="little").view(np.bool_)

    def _search_by_polars(self, rows: Rows, regex: str) -> Mask:
        matches: Mask = self.texts.gather(indices(rows)).str.contains(regex).to_numpy()
        return matches


def _candidates(keywords: Sequence[tuple[str, ...]], texts: pl.Series) -> list[Rows | None]:
    """Return, for each list of keywords, the rows that contain at least one of them.

    The result for an empty list is None.
    """
    words, owners = _numbered(tuple(keywords))
    parts = [
        _occurrences(words, owners, texts, start)
        for start in range(0, len(texts) if words else 0, _AT_ONCE)
    ]
    found = pl.concat([pl.DataFrame(schema={"row": pl.Int64, "owner": pl.Int64}), *parts])
    owner = found["owner"].to_numpy()
    rows = found["row"].to_numpy()[np.argsort(owner, kind="stable")]
    counts = np.bincount(owner, minlength=len(keywords))
    groups = np.split(rows, np.cumsum(counts))
    return [group if each else None for each, group in zip(keywords, groups, strict=False)]


def _occurrences(
    words: list[str], owners: pl.DataFrame, texts: pl.Series, start: int
) -> pl.DataFrame:
    """Return a row for each text (`row`) and keyword list (`owner`) with a keyword in the text.

    Only `_AT_ONCE` texts from `start` on are searched.
    """
    lower = pl.col("text").str.to_lowercase()
    return (
        texts[start : start + _AT_ONCE]
        .to_frame("text")
        .lazy()
        .select(
            row=start + pl.int_range(pl.len(), dtype=pl.Int64),
            word=lower.str.extract_many(words, overlapping=True).list.unique(),
        )
        .explode("word", empty_as_null=False)
        .drop_nulls()
        .join(owners.lazy(), on="word")
        .select("row", "owner")
        .unique()
        .sort("row")
        .pipe(run_query)
    )


@functools.lru_cache(maxsize=8)
def _numbered(keywords: tuple[tuple[str, ...], ...]) -> tuple[list[str], pl.DataFrame]:
    """Return the distinct keywords, and a table of each keyword (`word`) and its list (`owner`)."""
    words = list(itertools.chain.from_iterable(keywords))
    owner = np.repeat(np.arange(len(keywords)), [len(each) for each in keywords])
    owners = pl.DataFrame(
        {"word": words, "owner": series_from_numpy(owner)},
        schema={"word": pl.String, "owner": pl.Int64},
    )
    return list(dict.fromkeys(words)), owners
