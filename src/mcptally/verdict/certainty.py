"""Computes a rule's certainty: its measured precision, shrunk towards its section's precision."""

from collections.abc import Sequence
from typing import Final

from mcptally.verdict.rule_model import HiddenRule, TextRule

PRIOR_WEIGHT: Final = 20.0
"""Number of observations as which a section's precision counts in the certainty of its rules,
chosen by the reliability table in docs/reference/accuracy.md."""
VERDICT_PRIOR: Final = (100.0, 0.8)
HIDDEN_PRIOR: Final = (20.0, 0.9)
"""Weight of the prior, as a number of observations, and precision that it assumes.

This precision is assumed for rules without measurements. The weight is used twice: the precision of
all rules is shrunk towards this prior, and each section's precision towards the precision of all
rules. The weight for verdicts is higher, because on unlabelled servers verdicts are wrong in ways
that the labels do not show; with hidden errors, this is rare."""


def section(rule: TextRule) -> str:
    """Return the section of a rule, from its id `group.<section>.name`.

    The rules of a section share a prior.
    """
    _, _, rest = rule.id.partition(".")
    return rest.partition(".")[0]


def certainty_percent(rules: Sequence[TextRule]) -> list[float]:
    """Return each rule's certainty in percent: the mean of a Beta posterior.

    The prior is the pooled precision of the rules in the same `section`, with the weight of
    `PRIOR_WEIGHT` observations. The pooled precision is shrunk towards the precision of all rules.

    Args:
        rules: all rules about failures, or all about hidden errors.
    """
    pools: dict[str, tuple[float, float]] = {}
    for rule in rules:
        pool = pools.get(section(rule), (0.0, 0.0))
        pools[section(rule)] = (pool[0] + rule.hits, pool[1] + rule.right)
    total = (sum(pool[0] for pool in pools.values()), sum(pool[1] for pool in pools.values()))
    weight, unmeasured = (
        HIDDEN_PRIOR if any(isinstance(rule, HiddenRule) for rule in rules) else VERDICT_PRIOR
    )
    overall = _shrunk(*total, unmeasured, weight)
    priors = {name: _shrunk(*pool, overall, weight) for name, pool in pools.items()}
    posteriors = (
        _shrunk(rule.hits, rule.right, priors[section(rule)], PRIOR_WEIGHT) for rule in rules
    )
    return [round(100 * posterior, 1) for posterior in posteriors]


def _shrunk(hits: float, right: float, prior: float, weight: float) -> float:
    """Return the weighted mean of `right / hits` and `prior`; the prior counts as `weight` hits."""
    return (right + weight * prior) / (hits + weight)
