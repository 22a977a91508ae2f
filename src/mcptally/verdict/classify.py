"""Decides who is at fault for each failed call, and whether a retry can help."""

import functools
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.declaration import StageTable
from mcptally.tables.outcomes import Verdict, fault_of
from mcptally.tables.stages import Judged
from mcptally.verdict import certainty, facts, match, text_model, weighing
from mcptally.verdict.rule_model import VerdictRule, shipped_rules

FILES: Final = (
    "verdict-protocol.toml",
    "verdict-validation.toml",
    "verdict-infrastructure.toml",
    "verdict-crash.toml",
    "verdict-failure.toml",
    "verdict-refusal.toml",
    "verdict-languages.toml",
    "verdict-context.toml",
    "verdict-archive.toml",
)


class Verdicts(StageTable):
    """The table that `judge` returns: one row per call; null if the call did not fail."""

    verdict = Judged.verdict
    reason = Judged.reason
    fault = Judged.fault
    retryable = Judged.retryable
    certainty = Judged.certainty
    rule = Judged.rule
    evidence = Judged.evidence


MOST_BY_WORDS: Final = 84.9
"""Maximum certainty, in percent, of a verdict that is supported only by words in the text. Rules
about words are less accurate on servers whose texts were not read when the rules were written."""

_WITHOUT_RULE: Final = {
    Verdict.BUSINESS: ("other_refusal", "after_change"),
    Verdict.TOOL_FAILURE: ("internal_error", "no"),
    Verdict.INFRASTRUCTURE: ("dependency_down", "yes"),
    Verdict.AMBIGUOUS: ("unclear", None),
}
"""Maps each verdict to the `reason` and `retryable` of calls for which no matching rule has it."""

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Opinions: TypeAlias = tuple[text_model.Opinions, tuple[float, float, float]]


@functools.cache
def failure_rules() -> tuple[VerdictRule, ...]:
    """Return the shipped rules about failures, in order of precedence."""
    return shipped_rules(VerdictRule, *FILES)


def judge(
    calls: pl.DataFrame,
    ruleset: Sequence[VerdictRule] | None = None,
    weights: weighing.Weights | None = None,
    definitions: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Judge failed calls; return one row per row of `calls`, in the same order.

    Args:
        calls: some or all columns of `facts.Inputs`.
        ruleset: rules that replace the shipped rules.
        weights: weights that replace the shipped weights.
        definitions: `Definitions` of the tools, if `calls` has no `input_schema`.

    Returns:
        `Verdicts`.
    """
    chosen = tuple(failure_rules() if ruleset is None else ruleset)
    failed = facts.failed_calls(calls, definitions)
    if not failed.height:
        return Verdicts.nulls(calls.height)
    known = facts.collect(failed, chosen)
    kinds = _weigh(facts.matching_kinds(known, chosen), known.kinds.height, chosen)
    model = text_model.shipped_model()
    of_kind = text_model.opinions(known.masked, model)[known.kinds.get_column("words").to_numpy()]
    opinions = (of_kind, model.pooled)
    verdicts = _verdicts(kinds, chosen, weights or weighing.shipped_weights(), opinions)
    kind_of_call = pl.Series([None], dtype=pl.UInt32).new_from_index(0, calls.height)
    return verdicts[kind_of_call.scatter(failed["row"], indices(known.kind_of_row))]


def judge_evidence(
    evidence: pl.Series,
    weights: weighing.Weights | None = None,
    ruleset: Sequence[VerdictRule] | None = None,
    opinions: _Opinions | None = None,
) -> pl.DataFrame:
    """Judge calls by the rules that matched them; return the same verdicts as `judge` would.

    Args:
        evidence: lists of rule ids, as returned by `judge`. Rules that are not in `ruleset` are
            ignored.
        weights: see `judge`.
        ruleset: see `judge`.
        opinions: the text model's opinions on the calls, and the parameters for pooling them; None
            to use only rules.
    """
    chosen = tuple(failure_rules() if ruleset is None else ruleset)
    kinds = _weigh_evidence(evidence, chosen)
    return _verdicts(kinds, chosen, weights or weighing.shipped_weights(), opinions)


def features(
    evidence: pl.Series, ruleset: Sequence[VerdictRule] | None = None
) -> tuple[tuple[str, ...], weighing.Features]:
    """Return the names of the features, and their values for each list of rule ids.

    Args:
        evidence: lists of ids of the rules that match a call.
        ruleset: rules that replace the shipped rules.
    """
    kinds = _weigh_evidence(evidence, tuple(failure_rules() if ruleset is None else ruleset))
    return kinds.names, kinds.features


class _Weighed(msgspec.Struct, frozen=True):
    """The features of each kind of call, and facts about the rules that match it."""

    names: tuple[str, ...]
    features: weighing.Features
    first: _Numbers
    """For each kind, the index of the first matching rule, or the number of rules if none matches.
    """
    first_of_class: npt.NDArray[np.int64]
    """For each kind and class, the index of the first matching rule with this verdict, or the
    number of rules if none matches."""
    backed: match.Mask
    """For each kind and class, whether this verdict is backed by a matching rule that tests more
    than words. Rules about the context count only if the text names a cause."""
    evidence: pl.Series
    """For each kind, the ids of the matching rules."""


def _weigh(
    matches: Iterable[tuple[int, match.Mask]], height: int, chosen: tuple[VerdictRule, ...]
) -> _Weighed:
    """Collect the features of kinds of calls; calls of one kind have the same facts.

    Args:
        matches: rule indexes, in order, each with a mask of the kinds that the rule matches.
        height: number of kinds.
        chosen: the rules.
    """
    table = weighing.FeatureTable(chosen, height)
    none = len(chosen)
    first = np.full(height, none, dtype=np.int64)
    first_of_class = np.full((height, len(weighing.CLASSES)), none, dtype=np.int64)
    backed = np.zeros(first_of_class.shape, dtype=np.bool_)
    by_archive = backed.copy()
    names_nothing = np.zeros(height, dtype=np.bool_)
    owners: list[_Numbers] = []
    numbers: list[int] = []
    for number, mask in matches:
        rule = chosen[number]
        table.add(rule, mask)
        first[mask & (first == none)] = number
        column = weighing.CLASSES.index(Verdict(rule.verdict))
        of_class = first_of_class[:, column]
        of_class[mask & (of_class == none)] = number
        if rule.id.startswith("verdict.archive."):
            by_archive[mask, column] = True
        elif weighing.tier(rule) in weighing.SETTLING or rule.tests_more_than_text:
            backed[mask, column] = True
        if weighing.tier(rule) is None and rule.verdict == Verdict.AMBIGUOUS:
            names_nothing |= mask & table.undecided
        owners.append(np.flatnonzero(mask))
        numbers.append(number)
    return _Weighed(
        names=table.names,
        features=table.finish(),
        first=first,
        first_of_class=first_of_class,
        backed=backed | (by_archive & ~names_nothing[:, None]),
        evidence=_lists(owners, [chosen[number].id for number in numbers], height),
    )


def _lists(owners: Sequence[_Numbers], ids: Sequence[str], height: int) -> pl.Series:
    """Collect ids into lists; lists that get no id are null.

    Args:
        owners: for each id, the indexes of the lists that contain it.
        ids: the ids, in the order of the lists.
        height: number of lists.
    """
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *owners])
    numbers = np.repeat(np.arange(len(ids)), [len(each) for each in owners])
    sizes = np.bincount(rows, minlength=height)
    numbers = numbers[np.argsort(rows, kind="stable")]
    values = pl.Series(ids, dtype=pl.String)[indices(numbers)].to_arrow()
    offsets = pl.Series(np.concatenate([[0], np.cumsum(sizes)])).to_arrow()
    empty = pl.Series(sizes == 0).to_arrow()
    return pl.Series(pa.LargeListArray.from_arrays(offsets, values, mask=empty))


def _weigh_evidence(evidence: pl.Series, chosen: tuple[VerdictRule, ...]) -> _Weighed:
    """Collect the features of kinds of calls, each given as a list of the rules that match."""
    matches = (
        (number, evidence.list.contains(rule.id).fill_null(value=False).to_numpy())
        for number, rule in enumerate(chosen)
    )
    return _weigh(matches, len(evidence), chosen)


def _verdicts(
    kinds: _Weighed,
    chosen: tuple[VerdictRule, ...],
    weights: weighing.Weights,
    opinions: _Opinions | None,
) -> pl.DataFrame:
    """Decide on kinds of calls; return `Verdicts` with one row per kind."""
    probability = weighing.probabilities(kinds.features, kinds.names, weights)
    named = kinds.first_of_class < len(chosen)
    if opinions is not None:
        alone = weighing.is_alone(kinds.features, kinds.names, chosen)
        probability = weighing.pooled(probability, *opinions, alone)
        named |= alone[:, None] & weighing.convinced(opinions[0])
    best = weighing.decide(probability, named)
    every = np.arange(len(best))
    rule = kinds.first_of_class[every, best]
    # The table of rules ends with one row per verdict, for calls whose verdict no matching rule
    # has.
    rule += np.where(rule == len(chosen), best, 0)
    decides = np.array([*(each.decides for each in chosen), False])[kinds.first]
    rule[decides] = kinds.first[decides]
    percent = 100 * weighing.given_a_cause(probability, best)[every, best]
    percent = np.where(kinds.backed[every, best], percent, np.minimum(percent, MOST_BY_WORDS))
    measured = np.array([*certainty.certainty_percent(chosen), np.nan])[kinds.first]
    certainties = series_from_numpy(np.where(decides, measured, percent).round(1), "certainty")
    return (
        _rule_columns(chosen)[indices(rule)].hstack([certainties, kinds.evidence.alias("evidence")])
    )[list(Verdicts.columns())]


def _rule_columns(chosen: tuple[VerdictRule, ...]) -> pl.DataFrame:
    """Return the columns that rules set: one row per rule, then one per class without a rule."""
    rows: list[tuple[str | None, ...]] = [
        (
            rule.verdict,
            rule.reason,
            fault_of(rule.reason, rule.fault),
            rule.retryable or None,
            rule.id,
        )
        for rule in chosen
    ]
    for each in weighing.CLASSES:
        reason, retryable = _WITHOUT_RULE[each]
        rows.append((each, reason, fault_of(reason), retryable, None))
    names = ("verdict", "reason", "fault", "retryable", "rule")
    return pl.DataFrame(
        rows, schema={name: Verdicts.schema()[name] for name in names}, orient="row"
    )


def matching_rules(
    calls: pl.DataFrame, ruleset: Sequence[VerdictRule] | None = None
) -> pl.DataFrame:
    """Return all rules that match each failed call, not only the rule that decides.

    Returns:
        `row` (row index in `calls`) and `rule` (id), in order of precedence.
    """
    chosen = tuple(failure_rules() if ruleset is None else ruleset)
    failed = facts.failed_calls(calls)
    known = facts.collect(failed, chosen)
    rows = failed["row"].to_numpy()
    parts = [
        pl.DataFrame({"row": rows[mask[known.kind_of_row]]}).with_columns(
            rule=pl.lit(chosen[number].id)
        )
        for number, mask in facts.matching_kinds(known, chosen)
    ]
    empty = pl.DataFrame(schema={"row": pl.UInt32, "rule": pl.String})
    return pl.concat([empty, *parts]).sort("row", maintain_order=True)
