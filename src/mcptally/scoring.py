"""Calls to scored calls: scenarios, hidden errors, the verdict, the seed score in both readings."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from mcptally.ids import digest
from mcptally.seed import columns as seed
from mcptally.seed.given import Given
from mcptally.seed.given import load as load_given
from mcptally.seed.scenario import scenarios
from mcptally.verdict import examples, failures, hidden_errors, rows


@dataclasses.dataclass(frozen=True)
class Judging:
    """What calls are judged by: the rules in force, and scenarios that somebody gave."""

    verdict_rules: Sequence[rows.VerdictRule] = dataclasses.field(default_factory=failures.rules)
    hidden_rules: Sequence[rows.HiddenRule] = dataclasses.field(default_factory=hidden_errors.rules)
    given: tuple[Given, ...] = ()

    @classmethod
    def of(cls, *, rules: Path | None = None, scenarios: Path | None = None) -> "Judging":
        """The shipped rules with a user's changes (TOML), and a user's scenarios.

        Raises:
            RuleError: the rule file cannot be read, or a row is incomplete, or a rule does not do
                what its examples say.
            UsageError: the scenarios file cannot be read, or an entry is incomplete.
        """
        judging = cls(given=load_given(scenarios) if scenarios else ())
        if rules is None:
            return judging
        about_failures, about_hidden = rows.read_changes(rules)
        verdicts = rows.apply(judging.verdict_rules, about_failures, where=str(rules))
        hidden = rows.apply(judging.hidden_rules, about_hidden, where=str(rules))
        examples.check((*verdicts, *hidden), (*about_failures, *about_hidden), where=str(rules))
        return dataclasses.replace(judging, verdict_rules=verdicts, hidden_rules=hidden)

    @property
    def digest(self) -> str:
        """16 hex digits that stand for these rules and scenarios."""
        return digest(repr((self.verdict_rules, self.hidden_rules, self.given)))


def score_calls(
    calls: pl.DataFrame, definitions: pl.DataFrame, combinations: pl.DataFrame, judging: Judging
) -> pl.DataFrame:
    """`calls` (paired and validated) with `outcome` final and every score beside it.

    Args:
        calls: the columns that pairing and validation make.
        definitions: `definition`, `input_schema` and `output_schema` of the tools.
        combinations: which arguments are given together how often, in the whole archive.
        judging: the rules in force.
    """
    calls = calls.hstack(scenarios(calls, definitions, combinations, judging.given))
    calls = _with_hidden(calls, judging)
    calls = calls.hstack(failures.judge(calls, judging.verdict_rules))
    calls = calls.with_columns(
        pl.when(pl.col("outcome") == "hidden_error")
        .then(pl.min_horizontal("confidence", "hidden_confidence"))
        .otherwise(pl.col("confidence"))
        .alias("confidence"),
        response_tokens=pl.col("response").str.len_bytes().cast(pl.Int64) // 4,
    )
    return seed.score(calls, definitions)


def _with_hidden(calls: pl.DataFrame, judging: Judging) -> pl.DataFrame:
    """Results that report a failure without saying so become `hidden_error`."""
    # Only results of tools can hide an error.
    may = (pl.col("outcome") == "ok") & pl.col("tool").is_not_null()
    asked = calls.with_columns(
        text=pl.when(may).then("first_text"),
        structured=pl.when(may).then("structured_content"),
        texts_count=pl.col("text_blocks"),
    )
    calls = calls.hstack(hidden_errors.hidden(asked, judging.hidden_rules))
    is_hidden = (pl.col("outcome") == "ok") & pl.col("hidden_error").fill_null(value=False)
    return calls.with_columns(
        outcome=pl.when(is_hidden).then(pl.lit("hidden_error")).otherwise(pl.col("outcome")),
        error_text=pl.when(is_hidden).then(pl.col("hidden_text")).otherwise(pl.col("error_text")),
    ).drop("hidden_error", "hidden_text")
