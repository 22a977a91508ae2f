"""Which rules match which texts: one keyword pass over all, then each rule on its candidates."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.verdict import literals
from mcptally.verdict.rows import TextRule

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, ascending."""

_START: Final = "start"


def matching(rules: Sequence[TextRule], texts: pl.Series, lines: pl.Series) -> list[Rows | None]:
    """For every rule the rows of `texts` its patterns match; None where a rule has no patterns.

    `lines` holds the first lines of `texts`, for rules that look only there.
    """
    plan = _plan(tuple((rule.matches, rule.where) for rule in rules))
    candidates = _candidates(plan, texts)
    found: list[Rows | None] = []
    for rule, near in zip(rules, candidates, strict=True):
        if not rule.matches:
            found.append(None)
            continue
        rows = np.arange(len(texts)) if near is None else near
        where = lines if rule.where == "first_line" else texts
        anchor = "^" if rule.where == _START else ""
        rows = _keep(rows, where, rule.matches, anchor=anchor, wanted=True)
        rows = _keep(rows, texts, rule.also, anchor="", wanted=True)
        rows = _keep(rows, texts, rule.unless, anchor="", wanted=False)
        found.append(rows)
    return found


def pattern(patterns: Sequence[str], *, anchor: str = "") -> str:
    """One regular expression for "one of these", letter case ignored."""
    return f"(?i){anchor}(?:{'|'.join(patterns)})"


def _keep(
    rows: Rows, texts: pl.Series, patterns: Sequence[str], *, anchor: str, wanted: bool
) -> Rows:
    if not patterns or not len(rows):
        return rows
    matched = texts.gather(pl.Series(rows)).str.contains(pattern(patterns, anchor=anchor))
    return rows[matched.to_numpy() == wanted]


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The words to look for, and which rules want each."""

    words: tuple[str, ...]
    wanted_by: Mapping[str, tuple[int, ...]]
    tried_everywhere: frozenset[int]
    rules: int


@functools.lru_cache(maxsize=8)
def _plan(conditions: tuple[tuple[tuple[str, ...], str], ...]) -> _Plan:
    wanted_by: dict[str, list[int]] = {}
    everywhere: set[int] = set()
    for number, (patterns, _) in enumerate(conditions):
        words = [literals.required(each) for each in patterns]
        if any(each is None for each in words):
            everywhere.add(number)
            continue
        for word in frozenset().union(*(each for each in words if each is not None)):
            wanted_by.setdefault(word, []).append(number)
    return _Plan(
        words=tuple(wanted_by),
        wanted_by={word: tuple(numbers) for word, numbers in wanted_by.items()},
        tried_everywhere=frozenset(everywhere),
        rules=len(conditions),
    )


def _candidates(plan: _Plan, texts: pl.Series) -> list[Rows | None]:
    """For every rule the rows that contain one of its words; None for all rows."""
    if not plan.words or texts.is_empty():
        return [None] * plan.rules
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
        [(word, rule) for word, numbers in plan.wanted_by.items() for rule in numbers],
        schema={"word": pl.String, "rule": pl.Int64},
        orient="row",
    )
    pairs = seen.join(wanted, on="word").select("rule", "row").unique().sort("rule", "row")
    rules, rows = pairs["rule"].to_numpy(), pairs["row"].to_numpy()
    edges = np.searchsorted(rules, np.arange(plan.rules + 1))
    return [
        None if number in plan.tried_everywhere else rows[edges[number] : edges[number + 1]]
        for number in range(plan.rules)
    ]
