"""Whose failure a failed call is, and whether to try again: the verdict."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally import rules as rule_files
from mcptally.tables.calls import FAILED
from mcptally.verdict import confidence, error_text, match
from mcptally.verdict.rule_model import TextRule, VerdictRule, in_order, status_in

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
JUDGED: Final = tuple(outcome for outcome in FAILED if outcome != "cancelled")
"""Outcomes that get a verdict: of what a client gave up, nobody knows what would have come."""

COLUMNS: Final[dict[str, pl.DataType]] = {
    "verdict": pl.String(),
    "reason": pl.String(),
    "fault": pl.String(),
    "retryable": pl.String(),
    "confidence": pl.Float64(),
    "rule": pl.String(),
}
"""What `judge` adds; null where the outcome is none of `JUDGED`."""

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
"""What `judge` reads; a column that is missing counts as null."""

_QUOTED: Final = r"""['"`]([^'"`\n]{1,200})['"`]"""
Numbers: TypeAlias = npt.NDArray[np.int64]


@functools.cache
def rules() -> tuple[VerdictRule, ...]:
    """The rules that come with mcptally, in the order in which they decide."""
    return in_order(rule_files.load(VerdictRule, *FILES))


def judge(calls: pl.DataFrame, ruleset: Sequence[VerdictRule] | None = None) -> pl.DataFrame:
    """The verdict on every failed call of `calls`, row by row in the same order.

    Args:
        calls: the columns of `INPUTS`, those it has.
        ruleset: other rules than the ones that come with mcptally.

    Returns:
        the columns of `COLUMNS`.
    """
    chosen = tuple(rules() if ruleset is None else ruleset)
    failed = _failed(calls)
    first = np.full(calls.height, len(chosen), dtype=np.int64)
    evidence = _evidence(failed, chosen, decides=_unconditional)
    best = np.full(evidence.kinds.height, len(chosen), dtype=np.int64)
    for number, mask in _holding(evidence, chosen):
        best[mask & (best == len(chosen))] = number
    first[failed["row"].to_numpy()] = best[evidence.kind_of_row]
    return _table(chosen).select(pl.all().gather(pl.Series(first, dtype=pl.UInt32)))


def firing(calls: pl.DataFrame, ruleset: Sequence[VerdictRule] | None = None) -> pl.DataFrame:
    """Every rule that holds for every failed call, not only the one that decides.

    Returns:
        `row` (number in `calls`) and `rule` (id), in the order in which rules decide.
    """
    chosen = tuple(rules() if ruleset is None else ruleset)
    failed = _failed(calls)
    evidence = _evidence(failed, chosen, decides=lambda _: False)
    rows = failed["row"].to_numpy()
    parts = [
        pl.DataFrame({"row": rows[mask[evidence.kind_of_row]]}).with_columns(
            rule=pl.lit(chosen[number].id)
        )
        for number, mask in _holding(evidence, chosen)
    ]
    empty = pl.DataFrame(schema={"row": pl.UInt32, "rule": pl.String})
    return pl.concat([empty, *parts]).sort("row", maintain_order=True)


def _table(chosen: tuple[VerdictRule, ...]) -> pl.DataFrame:
    """What each rule says, and a last row that says nothing."""
    rows = [
        (rule.verdict, rule.reason, rule.fault or None, rule.retryable or None, sure, rule.id)
        for rule, sure in zip(chosen, confidence.percent(chosen), strict=True)
    ]
    return pl.DataFrame([*rows, (None,) * len(COLUMNS)], schema=COLUMNS, orient="row")


def _failed(calls: pl.DataFrame) -> pl.DataFrame:
    have = set(calls.columns)
    return (
        calls.select(
            (pl.col(name) if name in have else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in INPUTS.items()
        )
        .with_row_index("row")
        .filter(pl.col("outcome").is_in(JUDGED))
    )


@dataclasses.dataclass(frozen=True)
class _Evidence:
    """All that rules may ask about the failed calls, each distinct combination once."""

    kinds: pl.DataFrame
    kind_of_row: Numbers
    matched: list[match.Rows | None]
    texts: int


def _unconditional(rule: TextRule) -> bool:
    """Whether nothing but the text decides if `rule` holds."""
    return isinstance(rule, VerdictRule) and not any(
        (
            *(rule.tool, rule.arguments, rule.outcomes, rule.codes, rule.statuses),
            *(rule.schema, rule.end, rule.outage, rule.quotes),
        )
    )


def _evidence(
    failed: pl.DataFrame,
    chosen: tuple[VerdictRule, ...],
    *,
    decides: Callable[[TextRule], bool],
) -> _Evidence:
    distinct = failed.select("error_text").unique(maintain_order=True)
    bare = error_text.strip_wrappers(pl.col("error_text").fill_null(""))
    texts = distinct.with_columns(bare=bare).with_row_index("text")
    texts = texts.with_columns(
        line=error_text.first_line(pl.col("bare")),
        text_status=error_text.http_status(pl.col("error_text").fill_null("")),
    )
    matched = match.matching(chosen, texts["bare"], texts["bare"], texts["line"], decides=decides)
    frame = failed.join(
        texts.select("error_text", "text", "text_status", "bare"),
        on="error_text",
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).with_columns(
        status=pl.coalesce("http_status", "text_status"),
        end=pl.when(pl.col("outcome") == "no_response").then(_end()),
        outage=pl.col("concurrent_failure_share").mul(10).floor().truediv(10),
    )
    asked = _asked(chosen)
    frame = frame.with_columns(
        _answers(frame, column, pattern, chosen, matched).alias(name)
        for (column, pattern), name in asked.items()
    )
    frame = frame.with_columns(quotes=_quotes(frame, chosen, matched))
    key = ["text", "outcome", "error_code", "status", "input_schema_state", "end", "outage"]
    key.append("quotes")
    key += asked.values()
    kinds = frame.select(key).unique(maintain_order=True).with_row_index("kind")
    kind_of_row = frame.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
    return _Evidence(
        kinds=kinds,
        kind_of_row=kind_of_row["kind"].cast(pl.Int64).to_numpy(),
        matched=matched,
        texts=texts.height,
    )


def _end() -> pl.Expr:
    """How the recording of a call without an answer ended."""
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


def _asked(chosen: tuple[VerdictRule, ...]) -> dict[tuple[str, str], str]:
    """The patterns that some rule puts to a tool's name or its arguments, and a name for each."""
    asked = {("tool", rule.tool) for rule in chosen if rule.tool}
    asked |= {("arguments", rule.arguments) for rule in chosen if rule.arguments}
    return {each: f"answer_{number}" for number, each in enumerate(sorted(asked))}


def _answers(
    frame: pl.DataFrame,
    column: str,
    pattern: str,
    chosen: tuple[VerdictRule, ...],
    matched: list[match.Rows | None],
) -> pl.Series:
    """Whether `column` matches, only for rows whose text a rule that asks this has matched."""
    interested = np.zeros(frame["text"].n_unique(), dtype=np.bool_)
    for rule, rows in zip(chosen, matched, strict=True):
        if pattern in (rule.tool, rule.arguments):
            interested[slice(None) if rows is None else rows] = True
    rows = np.flatnonzero(interested[frame["text"].to_numpy()])
    found = frame[column].gather(pl.Series(rows)).str.contains(match.pattern([pattern]))
    answers = np.zeros(frame.height, dtype=np.bool_)
    answers[rows] = found.fill_null(value=False).to_numpy()
    return pl.Series(answers)


def _quotes(
    frame: pl.DataFrame, chosen: tuple[VerdictRule, ...], matched: list[match.Rows | None]
) -> pl.Series:
    """Whose word the first quoted word of each text is; only where a rule that asks has matched."""
    interested = np.zeros(frame["text"].n_unique(), dtype=np.bool_)
    for rule, texts in zip(chosen, matched, strict=True):
        if rule.quotes:
            interested[slice(None) if texts is None else texts] = True
    rows = np.flatnonzero(interested[frame["text"].to_numpy()])
    word = pl.col("bare").str.extract(_QUOTED, 1)
    lower = word.str.to_lowercase()
    said = frame.select("bare", "arguments")[rows].select(
        pl.when(pl.col("arguments").str.to_lowercase().str.contains(lower, literal=True))
        .then(pl.lit("caller"))
        # JSON may write other words in escapes, so that not finding them says nothing.
        .when(pl.col("arguments").is_not_null() & word.str.contains(r"^[ -!#-\[\]-~]+$"))
        .then(pl.lit("server"))
    )
    asked = pl.DataFrame({"row": rows, "whose": said.to_series()})
    return pl.DataFrame({"row": np.arange(frame.height)}).join(
        asked, on="row", how="left", maintain_order="left"
    )["whose"]


def _holding(
    evidence: _Evidence, chosen: tuple[VerdictRule, ...]
) -> Iterator[tuple[int, match.Mask]]:
    """The rules that hold for some kind of call, in order, and for which kinds."""
    asked = _asked(chosen)
    text_of_kind = evidence.kinds["text"].to_numpy()
    for number, rule in enumerate(chosen):
        rows = evidence.matched[number]
        if rows is None:
            mask = np.ones(evidence.kinds.height, dtype=np.bool_)
        elif not len(rows):
            continue
        else:
            of_text = np.zeros(evidence.texts, dtype=np.bool_)
            of_text[rows] = True
            mask = of_text[text_of_kind]
        if conditions := list(_context(rule, asked)):
            context = evidence.kinds.select(
                pl.all_horizontal(conditions).fill_null(value=False).alias("holds")
            )
            mask = mask & context["holds"].to_numpy()
        yield number, mask


def _context(rule: VerdictRule, asked: dict[tuple[str, str], str]) -> Iterator[pl.Expr]:
    """What a rule demands beside its patterns."""
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
        yield pl.col(asked["tool", rule.tool])
    if rule.arguments:
        yield pl.col(asked["arguments", rule.arguments])
