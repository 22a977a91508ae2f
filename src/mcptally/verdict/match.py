"""Which rules match which texts: one keyword pass over all, then each pattern on its candidates."""

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


def matching(
    rules: Sequence[TextRule],
    texts: pl.Series,
    starts: pl.Series,
    lines: pl.Series | None = None,
    *,
    decides: Callable[[TextRule], bool] = lambda _: False,
    within: Callable[[TextRule], Mask | None] = lambda _: None,
) -> list[Rows | None]:
    """For every rule the rows of `texts` its patterns match; None where a rule has no patterns.

    Args:
        rules: in the order in which they decide.
        texts: distinct texts, no nulls.
        starts: `texts` as rules for their start see them.
        lines: the first lines of `texts`, where a rule looks only there.
        decides: says of a rule that later ones need not be tried where it matches.
        within: says of a rule which rows it is about; None for all.
    """
    anywhere = _Texts(texts)
    places = {"anywhere": anywhere, _START: _Texts(starts)}
    if lines is not None:
        places["first_line"] = _Texts(lines)
    candidates = _candidates(_plan(tuple(rule.matches for rule in rules)), texts)
    undecided = np.ones(len(texts), dtype=np.bool_)
    found: list[Rows | None] = []
    for rule, near in zip(rules, candidates, strict=True):
        if not rule.matches:
            found.append(None)
            continue
        where = places[rule.where]
        about = within(rule)
        open_ = undecided if about is None else undecided & about
        rows = _any(rule.matches, near, where, open_, start=rule.where == _START)
        if rule.also:
            rows = rows[anywhere.contain(rows, pattern(rule.also))]
        if rule.unless:
            rows = rows[~anywhere.contain(rows, pattern(rule.unless))]
        if decides(rule):
            undecided[rows] = False
        found.append(rows)
    return found


def pattern(patterns: Sequence[str], *, start: bool = False) -> str:
    """One regular expression for "one of these", letter case ignored."""
    return f"(?i){'^' if start else ''}(?:{'|'.join(patterns)})"


def _any(
    patterns: Sequence[str],
    candidates: Sequence[Rows | None],
    texts: "_Texts",
    undecided: Mask,
    *,
    start: bool,
) -> Rows:
    """Rows that one of `patterns` matches, each pattern tried only where it can match."""
    matched = np.zeros(len(undecided), dtype=np.bool_)
    for each, near in zip(patterns, candidates, strict=True):
        open_ = undecided & ~matched
        rows = np.flatnonzero(open_) if near is None else near[open_[near]]
        matched[rows] = texts.contain(rows, pattern([each], start=start))
    return np.flatnonzero(matched)


class _Texts:
    """Texts to be asked, some rows at a time, whether a pattern matches."""

    def __init__(self, texts: pl.Series) -> None:
        self.texts = texts

    @functools.cached_property
    def folded(self) -> pa.Array:
        return re2.folded(self.texts)

    def contain(self, rows: Rows, regex: str) -> Mask:
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        found: Mask
        if re2.read_alike(regex):
            near = self.folded.take(pa.array(rows))
            found = pc.match_substring_regex(near, regex).to_numpy(zero_copy_only=False)
        else:
            found = self.texts.gather(pl.Series(rows)).str.contains(regex).to_numpy()
        return found


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The words to look for, which patterns want each, and how many patterns a rule has."""

    words: tuple[str, ...]
    wanted_by: Mapping[str, tuple[int, ...]]
    tried_everywhere: frozenset[int]
    sizes: tuple[int, ...]


@functools.lru_cache(maxsize=8)
def _plan(conditions: tuple[tuple[str, ...], ...]) -> _Plan:
    wanted_by: dict[str, list[int]] = {}
    everywhere: set[int] = set()
    for number, each in enumerate(each for patterns in conditions for each in patterns):
        words = regex_literals.required(each)
        if words is None:
            everywhere.add(number)
        for word in words or ():
            wanted_by.setdefault(word, []).append(number)
    return _Plan(
        words=tuple(wanted_by),
        wanted_by={word: tuple(numbers) for word, numbers in wanted_by.items()},
        tried_everywhere=frozenset(everywhere),
        sizes=tuple(len(patterns) for patterns in conditions),
    )


def _candidates(plan: _Plan, texts: pl.Series) -> list[list[Rows | None]]:
    """For every pattern of every rule the rows that contain one of its words; None for all."""
    if texts.is_empty() or not plan.words:
        return [[None] * size for size in plan.sizes]
    seen = (
        texts.to_frame("text")
        .select(
            row=pl.int_range(pl.len(), dtype=pl.Int64),
            word=pl.col("text")
            .str.to_lowercase()
            .str.extract_many(list(plan.words), overlapping=True),
        )
        .explode("word")
        .drop_nulls()
        .unique()
    )
    wanted = pl.DataFrame(
        [(word, each) for word, numbers in plan.wanted_by.items() for each in numbers],
        schema={"word": pl.String, "pattern": pl.Int64},
        orient="row",
    )
    pairs = seen.join(wanted, on="word").select("pattern", "row").unique().sort("pattern", "row")
    patterns, rows = pairs["pattern"].to_numpy(), pairs["row"].to_numpy()
    edges = np.searchsorted(patterns, np.arange(sum(plan.sizes) + 1))
    flat = [
        None if number in plan.tried_everywhere else rows[edges[number] : edges[number + 1]]
        for number in range(sum(plan.sizes))
    ]
    starts = np.concatenate([[0], np.cumsum(plan.sizes)])
    return [flat[start:end] for start, end in itertools.pairwise(starts)]
