"""Turns the rules that match a call into a probability for each class.

matching rules → features → weights (rules/weights.json) → probabilities

The model is a multinomial logistic regression. Rules about the text with the same verdict and tier
share weights, because many rules match too few labelled calls for individual weights. Each rule
about a call's context (`CONTEXT_FROM`) has its own weights. `python -m tests.benchmarks.calibrate`
fits the weights and writes the file.
"""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from mcptally import rules as rule_files
from mcptally.tables.outcomes import Verdict
from mcptally.verdict import text_model
from mcptally.verdict.rule_model import VerdictRule

CLASSES: Final = tuple(Verdict)
"""The classes, in the order in which probabilities are given."""
TIERS: Final = (
    (150, "form"),
    (200, "code"),
    (500, "cause"),
    (700, "refusal"),
    (900, "words"),
)
"""Tiers of rules, each with its upper limit of `order` and its name.

`form`: the text has the form that one library writes. `code`: the caller's or the server's code
failed. `cause`: the text names a cause. `refusal`: the text refuses the request. `words`: the text
only contains words that occur in refusals or crashes."""
CONTEXT_FROM: Final = 900
"""The `order` from which rules are about a call's context."""
CONVINCING: Final = 0.5
"""Minimum probability at which a verdict other than `ambiguous` is given."""
SETTLING: Final = ("form", "code", "cause")
"""Tiers that make a call clear.

A call is clear if the first rule about the text has one of these tiers and all other rules about
the text agree. Rules about context have separate weights for clear calls, because they should
change clear calls less.
"""
SMALLEST: Final = 1e-4
"""Lower limit for the rules' probabilities in pooling, so that rules cannot exclude a class."""
SMALLEST_OPINION: Final = 0.02
"""Lower limit for the text model's probabilities. The model uses fewer facts than the rules and
must not outweigh all of them."""
ALONE: Final = 2.0
"""Factor for the weight of the text model where a text names a cause, but no rule matches it."""
MOST_VOTES: Final = 2.0
"""Number up to which matching rules with the same verdict and tier are counted."""

NO_TEXT_RULE: Final = "no rule about the text"
CONFLICT: Final = "rules disagree"
Features: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Weights(msgspec.Struct, frozen=True):
    """The fitted model: for each feature, one number per class, in the order of `CLASSES`."""

    intercept: tuple[float, ...]
    features: dict[str, tuple[float, ...]]
    """Maps the names of features to their weights. A feature without weights has no effect."""

    def of(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the weights of features: one row for each name, one column for each class."""
        none = (0.0,) * len(CLASSES)
        rows = [self.features.get(name, none) for name in names]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(CLASSES))


@functools.cache
def shipped_weights() -> Weights:
    """Load the weights that are shipped with the package."""
    text = Path(rule_files.__file__).with_name("weights.json").read_bytes()
    return msgspec.json.decode(text, type=Weights)


def tier(rule: VerdictRule) -> str | None:
    """Return the tier of a rule that tests the text, or None for a rule that tests the context."""
    return next((name for limit, name in TIERS if rule.order < limit), None)


def names(ruleset: Sequence[VerdictRule]) -> tuple[str, ...]:
    """Return the names of all features, in the order of the columns of `FeatureTable`."""
    kinds = [(each, name) for each in CLASSES for _, name in TIERS]
    return (
        *(_vote(*kind) for kind in kinds),
        *(_first(each) for each in CLASSES),
        *(_first(*kind) for kind in kinds),
        NO_TEXT_RULE,
        CONFLICT,
        *(rule.id for rule in ruleset if tier(rule) is None),
        *(_clear(rule.id) for rule in ruleset if tier(rule) is None),
    )


def _clear(name: str) -> str:
    return f"{name}, in a clear case"


def _vote(verdict: str, name: str) -> str:
    return f"{verdict}, {name}"


def _first(verdict: str, name: str | None = None) -> str:
    return f"first: {verdict}" if name is None else f"first: {verdict}, {name}"


def features_of(rule: VerdictRule, *, first: bool) -> tuple[str, ...]:
    """Return the names of the features that increase by one if a rule matches.

    Args:
        rule: the rule.
        first: whether this is the first rule that matches the text.
    """
    name = tier(rule)
    if name is None:
        return (rule.id,)
    vote = _vote(rule.verdict, name)
    return (vote, _first(rule.verdict), _first(rule.verdict, name)) if first else (vote,)


class FeatureTable:
    """The features of several kinds of calls, built by adding one rule at a time, in order."""

    def __init__(self, ruleset: Sequence[VerdictRule], height: int) -> None:
        """Create a table to which no rule has been added yet.

        Args:
            ruleset: the rules that may be added.
            height: number of kinds.
        """
        self.names = names(ruleset)
        self.column = {name: number for number, name in enumerate(self.names)}
        self.values: Features = np.zeros((height, len(self.names)))
        self.undecided = np.ones(height, dtype=np.bool_)
        self.overruled = np.zeros(height, dtype=np.bool_)

    def add(self, rule: VerdictRule, matches: Mask) -> None:
        """Add a rule, with a mask of the kinds that it matches.

        A rule about the context with the verdict `ambiguous` (no cause in the text, or an unknown
        language) counts only for kinds that no rule about the text matches.
        """
        if tier(rule) is None and rule.verdict == Verdict.AMBIGUOUS:
            matches = matches & self.undecided
        if tier(rule) is not None:
            matches = matches & ~self.overruled
            if rule.overrules:
                self.overruled = self.overruled | matches
        for name in features_of(rule, first=False):
            self.values[matches, self.column[name]] += 1
        if tier(rule) is not None:
            first = matches & self.undecided
            for name in features_of(rule, first=True)[1:]:
                self.values[first, self.column[name]] = 1
            self.undecided &= ~matches

    def finish(self) -> Features:
        """Return the features, with one row per kind and one column per name."""
        votes = [self._columns(_vote(each, name) for _, name in TIERS) for each in CLASSES]
        sides = np.sum([self.values[:, columns].any(axis=1) for columns in votes], axis=0)
        disagree = sides > 1
        self.values[:, self.column[CONFLICT]] = disagree
        self.values[:, self.column[NO_TEXT_RULE]] = self.undecided
        clear = self._columns(_first(each, name) for each in CLASSES for name in SETTLING)
        settled = self.values[:, clear].any(axis=1) & ~disagree
        start = self.column[CONFLICT] + 1
        middle = (start + len(self.names)) // 2
        self.values[settled, middle:] = self.values[settled, start:middle]
        self.values[settled, start:middle] = 0
        return np.minimum(self.values, MOST_VOTES)

    def _columns(self, feature_names: Iterable[str]) -> list[int]:
        return [self.column[name] for name in feature_names]


def probabilities(
    features: Features, feature_names: Sequence[str], weights: Weights
) -> npt.NDArray[np.float64]:
    """Return the probability of each class, with one row per kind and one column per class."""
    return text_model.softmax(features @ weights.of(feature_names) + np.array(weights.intercept))


def pooled(
    probability: npt.NDArray[np.float64],
    opinions: text_model.Opinions,
    how: tuple[float, float, float],
    alone: Mask,
) -> npt.NDArray[np.float64]:
    """Pool the rules' probabilities with the opinions of the text model.

    The logarithms are added. The probability of `ambiguous` comes from the rules alone.

    Args:
        probability: the result of `probabilities`.
        opinions: the opinions on the same calls.
        how: `TextModel.pooled`.
        alone: mask of the calls where the model's weight is `ALONE` times as large (`is_alone`).
    """
    weight, agreed, disagreed = how
    weights = np.where(alone, ALONE * weight, weight)[:, None]
    causes = [CLASSES.index(each) for each in text_model.CLASSES]
    by_rules = np.maximum(probability[:, causes], SMALLEST)
    scores = np.log(by_rules) + weights * np.log(np.maximum(opinions, SMALLEST_OPINION))
    agree = by_rules.argmax(axis=1) == opinions.argmax(axis=1)
    agree |= opinions.max(axis=1, initial=0) == opinions.min(axis=1, initial=1)
    scores /= np.where(agree, agreed, disagreed)[:, None]
    share = probability[:, causes].sum(axis=1, keepdims=True)
    found = probability.copy()
    found[:, causes] = text_model.softmax(scores) * share
    return found


def is_alone(
    features: Features, feature_names: Sequence[str], ruleset: Sequence[VerdictRule]
) -> Mask:
    """Return a mask of the kinds whose text names a cause, but no rule matches it."""
    found: Mask = features[:, feature_names.index(NO_TEXT_RULE)] > 0
    for rule in ruleset:
        if tier(rule) is None and rule.verdict == Verdict.AMBIGUOUS:
            found &= features[:, feature_names.index(rule.id)] == 0
    return found


def convinced(opinions: text_model.Opinions) -> Mask:
    """Return, for each row of `opinions` and each class, whether the text model is convinced."""
    found = np.zeros((len(opinions), len(CLASSES)), dtype=np.bool_)
    causes = [CLASSES.index(each) for each in text_model.CLASSES]
    found[:, causes] = opinions >= CONVINCING
    return found


def decide(probability: npt.NDArray[np.float64], named: Mask) -> npt.NDArray[np.int64]:
    """Choose a class for each row of `probability`, and return the indexes of these classes.

    The chosen class is the most probable class, or `ambiguous` if the most probable class is not
    convincing or not named: a class's general frequency is not evidence.

    Args:
        probability: the probabilities.
        named: for each row and class, whether a matching rule has this verdict, or the text model
            is convinced of it and no rule matches the text.
    """
    best: npt.NDArray[np.int64] = probability.argmax(axis=1)
    convincing = probability.max(axis=1, initial=0.0) >= CONVINCING
    convincing &= named[np.arange(len(best)), best]
    best[~convincing] = CLASSES.index(Verdict.AMBIGUOUS)
    return best


def given_a_cause(
    probability: npt.NDArray[np.float64], best: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Remove `ambiguous` from the probabilities where the verdict names a cause, and rescale.

    If the cause cannot be known, no verdict that names a cause is right or wrong.

    Args:
        probability: the probabilities.
        best: the indexes of the chosen classes (`decide`).
    """
    ambiguous = CLASSES.index(Verdict.AMBIGUOUS)
    names_cause = best != ambiguous
    given = probability.copy()
    given[names_cause, ambiguous] = 0
    total: npt.NDArray[np.float64] = given / given.sum(axis=1, keepdims=True)
    return total


def contributions(
    features: Features, feature_names: Sequence[str], verdict: str, weights: Weights
) -> list[tuple[str, float]]:
    """Return the contribution of each feature for or against a verdict, largest first.

    A contribution is the feature's effect on the log odds of the verdict against the mean of the
    other classes.

    Args:
        features: the features of one call.
        feature_names: their names.
        verdict: the verdict that the features support or contradict.
        weights: the model.
    """
    own = CLASSES.index(Verdict(verdict))
    others = [number for number in range(len(CLASSES)) if number != own]
    by_class = weights.of(feature_names)
    sizes = features * (by_class[:, own] - by_class[:, others].mean(axis=1))
    found = [
        (name, float(size))
        for name, value, size in zip(feature_names, features, sizes, strict=True)
        if value
    ]
    return sorted(found, key=lambda each: -abs(each[1]))


def rules_by_feature(matching: Sequence[VerdictRule]) -> dict[str, list[str]]:
    """Map the name of each feature to the ids of the matching rules that contribute to it.

    Args:
        matching: the rules that match a call, in the order of the rule set.
    """
    about_text = [rule for rule in matching if tier(rule) is not None]
    last = next((number for number, rule in enumerate(about_text, 1) if rule.overrules), None)
    overruled = about_text[last:] if last else []
    about_text = about_text[:last]
    found = {CONFLICT: [rule.id for rule in about_text]}
    for rule in matching:
        if rule not in overruled:
            for name in (*features_of(rule, first=rule in about_text[:1]), _clear(rule.id)):
                found.setdefault(name, []).append(rule.id)
    return found


def in_words(name: str) -> str:
    """Return a phrase for a feature that several rules share."""
    if name in (NO_TEXT_RULE, CONFLICT):
        return name
    kind = name.replace(", ", ", tier ")
    if kind.startswith("first: "):
        return kind.replace("first:", "the first rule about the text says")
    return f"rules about the text that say {kind}"
