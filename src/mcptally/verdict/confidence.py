"""How sure a rule may be: the precision it has shown, drawn towards that of its kind."""

from collections.abc import Callable, Sequence
from typing import Final

from mcptally.verdict.rows import TextRule

PRIOR_WEIGHT: Final = 20.0
"""How many observations the precision of the kind counts for. Ours; the reliability table in
docs/explanation/verdict.md is what it was chosen by."""
PRIOR_PRECISION: Final = 0.8
"""Precision of a kind about which nothing has been measured at all."""


def precision(rules: Sequence[TextRule], kind: Callable[[TextRule], str]) -> list[float]:
    """For every rule the mean of its Beta posterior, 0 to 1.

    The prior is the pooled precision of the rules of the same `kind`, as strong as
    `PRIOR_WEIGHT` observations; that pool in turn is drawn towards all rules together.
    """
    pools: dict[str, tuple[float, float]] = {}
    for rule in rules:
        hits, right = pools.get(kind(rule), (0.0, 0.0))
        pools[kind(rule)] = (hits + rule.hits, right + rule.right)
    every = (sum(pool[0] for pool in pools.values()), sum(pool[1] for pool in pools.values()))
    overall = _shrunk(*every, PRIOR_PRECISION)
    prior = {name: _shrunk(*pool, overall) for name, pool in pools.items()}
    return [_shrunk(rule.hits, rule.right, prior[kind(rule)]) for rule in rules]


def _shrunk(hits: float, right: float, prior: float) -> float:
    return (right + PRIOR_WEIGHT * prior) / (hits + PRIOR_WEIGHT)


def percent(rules: Sequence[TextRule], kind: Callable[[TextRule], str]) -> list[float]:
    """`precision` as the 0 to 100 of the tables, with one decimal."""
    return [round(100 * each, 1) for each in precision(rules, kind)]
