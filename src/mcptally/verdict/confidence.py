"""How sure a rule may be: the precision it has shown, drawn towards that of its kind."""

from collections.abc import Mapping, Sequence
from typing import Final

from mcptally.verdict.rule_model import HiddenRule, TextRule

PRIOR_WEIGHT: Final = 20.0
"""How many observations the precision of the kind counts for. Ours; the reliability table in
docs/explanation/verdict.md is what it was chosen by."""
VERDICT_DOUBT: Final = (100.0, 0.8)
HIDDEN_DOUBT: Final = (20.0, 0.9)
"""How many observations the precision of all rules counts for in that of one kind, and how
precise rules are before anything was measured, which counts as much in the precision of all.
Verdicts err on servers nobody has met in ways that labelled ones do not show; findings of hidden
errors hardly do."""


def kind(rule: TextRule) -> str:
    """Which rules lend each other precision: those of one section, `group.<section>.name`."""
    _, _, rest = rule.id.partition(".")
    return rest.partition(".")[0]


def percent(
    rules: Sequence[TextRule], counts: Mapping[str, tuple[float, float]] | None = None
) -> list[float]:
    """For every rule the mean of its Beta posterior as the 0 to 100 of the tables.

    The prior is the pooled precision of the rules of the same `kind`, as strong as
    `PRIOR_WEIGHT` observations; that pool in turn is drawn towards all rules together.

    Args:
        rules: all rules about failures, or all about hidden errors.
        counts: hits and right by rule id, instead of what the rows say.
    """
    measured = {rule.id: (rule.hits, rule.right) for rule in rules} if counts is None else counts
    pools: dict[str, tuple[float, float]] = {}
    for rule in rules:
        hits, right = measured.get(rule.id, (0.0, 0.0))
        pool = pools.get(kind(rule), (0.0, 0.0))
        pools[kind(rule)] = (pool[0] + hits, pool[1] + right)
    every = (sum(pool[0] for pool in pools.values()), sum(pool[1] for pool in pools.values()))
    weight, unmeasured = (
        HIDDEN_DOUBT if any(isinstance(rule, HiddenRule) for rule in rules) else VERDICT_DOUBT
    )
    overall = _shrunk(*every, unmeasured, weight)
    prior = {name: _shrunk(*pool, overall, weight) for name, pool in pools.items()}
    return [
        round(100 * _shrunk(*measured.get(rule.id, (0.0, 0.0)), prior[kind(rule)], PRIOR_WEIGHT), 1)
        for rule in rules
    ]


def _shrunk(hits: float, right: float, prior: float, weight: float) -> float:
    return (right + weight * prior) / (hits + weight)
