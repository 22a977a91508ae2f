"""Decides for each failed call whose failure it is and whether a retry can help."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.tables.calls import FAILED_OUTCOMES
from mcptally.verdict import confidence, error_text, match, named_object
from mcptally.verdict.rule_model import TextRule, VerdictRule, shipped_rules, status_in

FILES: Final = (
    "verdict-protocol.toml",
    "verdict-validation.toml",
    "verdict-infrastructure.toml",
    "verdict-crash.toml",
    "verdict-failure.toml",
    "verdict-refusal.toml",
    "verdict-languages.toml",
    "verdict-context.toml",
)
JUDGED_OUTCOMES: Final = tuple(outcome for outcome in FAILED_OUTCOMES if outcome != "cancelled")
"""Outcomes that get a verdict. Cancelled calls get none: their outcome is unknown."""

COLUMNS: Final[dict[str, pl.DataType]] = {
    "verdict": pl.String(),
    "reason": pl.String(),
    "fault": pl.String(),
    "retryable": pl.String(),
    "confidence": pl.Float64(),
    "rule": pl.String(),
}
"""The columns that `judge` returns; null where the outcome is not in `JUDGED_OUTCOMES`."""

INPUTS: Final[dict[str, pl.DataType]] = {
    "outcome": pl.String(),
    "error_text": pl.String(),
    "error_code": pl.Int64(),
    "http_status": pl.Int32(),
    "input_schema_state": pl.String(),
    "tool": pl.String(),
    "arguments": pl.String(),
    "exit_code": pl.Int64(),
    "signal": pl.Int64(),
    "closed": pl.Boolean(),
    "concurrent_failure_share": pl.Float64(),
}
"""The columns that `judge` reads; a missing column counts as null."""

_Numbers: TypeAlias = npt.NDArray[np.int64]


@functools.cache
def failure_rules() -> tuple[VerdictRule, ...]:
    """Return the shipped rules about failures, in the order in which they decide."""
    return shipped_rules(VerdictRule, *FILES)


def judge(calls: pl.DataFrame, ruleset: Sequence[VerdictRule] | None = None) -> pl.DataFrame:
    """Return the verdict on each call: one row per row of `calls`, in the same order.

    Args:
        calls: any of the columns of `INPUTS`.
        ruleset: rules to use in place of the ones that come with mcptally.

    Returns:
        The columns of `COLUMNS`.
    """
    chosen = tuple(failure_rules() if ruleset is None else ruleset)
    failed = _failed(calls)
    evidence = _evidence(failed, chosen, decides=_depends_on_text_only)
    undecided = len(chosen)
    rule_of_kind = np.full(evidence.kinds.height, undecided, dtype=np.int64)
    for number, mask in _matching_kinds(evidence, chosen):
        rule_of_kind[mask & (rule_of_kind == undecided)] = number
    rule_of_call = np.full(calls.height, undecided, dtype=np.int64)
    rule_of_call[failed["row"].to_numpy()] = rule_of_kind[evidence.kind_of_row]
    return _verdicts(chosen).select(pl.all().gather(pl.Series(rule_of_call, dtype=pl.UInt32)))


def matching_rules(
    calls: pl.DataFrame, ruleset: Sequence[VerdictRule] | None = None
) -> pl.DataFrame:
    """Return every rule that matches each failed call, not only the one that decides.

    Returns:
        `row` (row number in `calls`) and `rule` (id), in the order in which rules decide.
    """
    chosen = tuple(failure_rules() if ruleset is None else ruleset)
    failed = _failed(calls)
    evidence = _evidence(failed, chosen, decides=lambda _: False)
    rows = failed["row"].to_numpy()
    parts = [
        pl.DataFrame({"row": rows[mask[evidence.kind_of_row]]}).with_columns(
            rule=pl.lit(chosen[number].id)
        )
        for number, mask in _matching_kinds(evidence, chosen)
    ]
    empty = pl.DataFrame(schema={"row": pl.UInt32, "rule": pl.String})
    return pl.concat([empty, *parts]).sort("row", maintain_order=True)


def _verdicts(chosen: tuple[VerdictRule, ...]) -> pl.DataFrame:
    """Return one row of `COLUMNS` per rule, then a row of nulls for "no rule matched"."""
    rows = [
        (rule.verdict, rule.reason, rule.fault or None, rule.retryable or None, percent, rule.id)
        for rule, percent in zip(chosen, confidence.confidence_percent(chosen), strict=True)
    ]
    return pl.DataFrame([*rows, (None,) * len(COLUMNS)], schema=COLUMNS, orient="row")


def _failed(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the failed calls with all columns of `INPUTS` and their row number `row`."""
    present = set(calls.columns)
    return (
        calls.select(
            (pl.col(name) if name in present else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in INPUTS.items()
        )
        .with_row_index("row")
        .filter(pl.col("outcome").is_in(JUDGED_OUTCOMES))
    )


@dataclasses.dataclass(frozen=True)
class _Evidence:
    """The facts about the failed calls that rules test, each distinct combination once."""

    kinds: pl.DataFrame
    """One row per distinct combination of facts ("kind" of call)."""
    kind_of_row: _Numbers
    """For each failed call the row of its kind in `kinds`."""
    matched: list[match.Rows | None]
    """For each rule the distinct texts that its patterns match; None: it has no patterns."""
    text_count: int
    """How many distinct texts there are."""


def _depends_on_text_only(rule: TextRule) -> bool:
    """Return whether `rule` has no condition besides its patterns."""
    return isinstance(rule, VerdictRule) and not any(
        (
            *(rule.tool, rule.arguments, rule.arguments_unless, rule.outcomes, rule.codes),
            *(rule.statuses, rule.schema, rule.end, rule.outage, rule.quotes),
        )
    )


def _evidence(
    failed: pl.DataFrame,
    chosen: tuple[VerdictRule, ...],
    *,
    decides: Callable[[TextRule], bool],
) -> _Evidence:
    """Match the rules' patterns against the distinct texts and collect all other facts.

    Args:
        failed: what `_failed` returns.
        chosen: the rules, in the order in which they decide.
        decides: whether a text that this rule matches need not be tried with later rules.
    """
    distinct = failed.select("error_text").unique(maintain_order=True)
    stripped = error_text.strip_wrappers(pl.col("error_text").fill_null(""))
    texts = distinct.with_columns(stripped=stripped).with_row_index("text")
    texts = texts.with_columns(
        line=error_text.first_line(pl.col("stripped")),
        text_status=error_text.http_status(pl.col("error_text").fill_null("")),
    )
    matched = match.match_rules(
        chosen, texts["stripped"], texts["stripped"], texts["line"], decides=decides
    )
    frame = failed.join(
        texts.select("error_text", "text", "text_status", "stripped"),
        on="error_text",
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).with_columns(
        status=pl.coalesce("http_status", "text_status"),
        end=pl.when(pl.col("outcome") == "no_response").then(_recording_end()),
        # Rounded down to tenths, so that there are few kinds of calls.
        outage=pl.col("concurrent_failure_share").mul(10).floor().truediv(10),
    )
    columns = _call_pattern_columns(chosen)
    frame = frame.with_columns(
        _column_matches(frame, field, pattern, chosen, matched).alias(name)
        for (field, pattern), name in columns.items()
    )
    frame = frame.with_columns(quotes=_quoted_from(frame, chosen, matched))
    key = ["text", "outcome", "error_code", "status", "input_schema_state", "end", "outage"]
    key += ["quotes", *columns.values()]
    kinds = frame.select(key).unique(maintain_order=True).with_row_index("kind")
    kind_of_row = frame.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
    return _Evidence(
        kinds=kinds,
        kind_of_row=kind_of_row["kind"].cast(pl.Int64).to_numpy(),
        matched=matched,
        text_count=texts.height,
    )


def _recording_end() -> pl.Expr:
    """Return how the recording of a call without a response ended (`VerdictRule.end`)."""
    return (
        pl.when(pl.col("signal").is_in([6, 8, 11]) | (pl.col("exit_code").is_in([-6, -8, -11])))
        .then(pl.lit("crashed"))
        .when((pl.col("signal") > 0) | (pl.col("exit_code") < 0))
        .then(pl.lit("killed"))
        .when(pl.col("exit_code") > 0)
        .then(pl.lit("crashed"))
        .when(pl.col("exit_code") == 0)
        .then(pl.lit("exited"))
        .when(pl.col("closed"))
        .then(pl.lit("closed"))
        .otherwise(pl.lit("unknown"))
    )


def _call_pattern_columns(chosen: tuple[VerdictRule, ...]) -> dict[tuple[str, str], str]:
    """Map each (field of rules, pattern) that some rule tests to the name of a column."""
    tests = {("tool", rule.tool) for rule in chosen if rule.tool}
    tests |= {("arguments", rule.arguments) for rule in chosen if rule.arguments}
    tests |= {
        ("arguments_unless", rule.arguments_unless) for rule in chosen if rule.arguments_unless
    }
    return {test: f"matches_{number}" for number, test in enumerate(sorted(tests))}


def _column_matches(
    frame: pl.DataFrame,
    field: str,
    pattern: str,
    chosen: tuple[VerdictRule, ...],
    matched: list[match.Rows | None],
) -> pl.Series:
    """Return whether the column that `field` tests matches; tested only where a rule needs it.

    That is where the rule's patterns match the text; all other rows are False. Unknown arguments
    count as a match of `arguments_unless`, because no rule with that field matches them.
    """
    rows = _rows_of_texts(
        frame,
        [
            texts
            for rule, texts in zip(chosen, matched, strict=True)
            if pattern == getattr(rule, field)
        ],
    )
    column = frame["tool" if field == "tool" else "arguments"]
    tested = column.gather(pl.Series(rows)).str.contains(match.alternation([pattern]))
    matches = np.zeros(frame.height, dtype=np.bool_)
    matches[rows] = tested.fill_null(value=field == "arguments_unless").to_numpy()
    return pl.Series(matches)


def _quoted_from(
    frame: pl.DataFrame, chosen: tuple[VerdictRule, ...], matched: list[match.Rows | None]
) -> pl.Series:
    """Return where the object that each text names comes from (`VerdictRule.quotes`).

    Null where no rule with this condition matches the text.
    """
    rows = _rows_of_texts(
        frame, [texts for rule, texts in zip(chosen, matched, strict=True) if rule.quotes]
    )
    source = named_object.source(frame.select("stripped", "arguments")[rows])
    known = pl.DataFrame({"row": rows, "source": source})
    return pl.DataFrame({"row": np.arange(frame.height)}).join(
        known, on="row", how="left", maintain_order="left"
    )["source"]


def _rows_of_texts(frame: pl.DataFrame, matched: list[match.Rows | None]) -> _Numbers:
    """Return the rows of `frame` whose text is in one of `matched`; None stands for every text."""
    wanted = np.zeros(frame["text"].n_unique(), dtype=np.bool_)
    for texts in matched:
        wanted[slice(None) if texts is None else texts] = True
    return np.flatnonzero(wanted[frame["text"].to_numpy()])


def _matching_kinds(
    evidence: _Evidence, chosen: tuple[VerdictRule, ...]
) -> Iterator[tuple[int, match.Mask]]:
    """Yield, in order, each rule that matches some kind of call, and a mask of these kinds."""
    columns = _call_pattern_columns(chosen)
    text_of_kind = evidence.kinds["text"].to_numpy()
    for number, rule in enumerate(chosen):
        texts = evidence.matched[number]
        if texts is None:
            mask = np.ones(evidence.kinds.height, dtype=np.bool_)
        elif not len(texts):
            continue
        else:
            of_text = np.zeros(evidence.text_count, dtype=np.bool_)
            of_text[texts] = True
            mask = of_text[text_of_kind]
        if conditions := list(_conditions(rule, columns)):
            met = evidence.kinds.select(
                pl.all_horizontal(conditions).fill_null(value=False).alias("met")
            )
            mask = mask & met["met"].to_numpy()
        yield number, mask


def _conditions(rule: VerdictRule, columns: dict[tuple[str, str], str]) -> Iterator[pl.Expr]:
    """Yield the conditions of a rule besides its patterns."""
    for column, allowed in (
        ("outcome", rule.outcomes),
        ("error_code", rule.codes),
        ("input_schema_state", rule.schema),
        ("end", rule.end),
        ("quotes", [rule.quotes] if rule.quotes else []),
    ):
        if allowed:
            yield pl.col(column).is_in(list(allowed))
    if rule.statuses:
        yield status_in(rule.statuses)
    if rule.outage:
        yield pl.col("outage") >= rule.outage
    if rule.tool:
        yield pl.col(columns["tool", rule.tool])
    if rule.arguments:
        yield pl.col(columns["arguments", rule.arguments])
    if rule.arguments_unless:
        yield ~pl.col(columns["arguments_unless", rule.arguments_unless])
