"""Judges calls: determines scenario, hidden errors, verdict, tokens and error template."""

from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from mcptally.pipeline.tokens import count_tokens
from mcptally.process_memory import release_memory
from mcptally.review.answers import AppliedReviews
from mcptally.seeds.inspector.scenario import assign_scenarios
from mcptally.seeds.inspector.scenario_file import ScenarioEntry, load_scenarios
from mcptally.tables.arrow import matches
from mcptally.tables.ids import digest
from mcptally.tables.outcomes import ANSWERED_BY_CLIENT, Fault
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Judged
from mcptally.verdict import classify, error_template, error_text, evidence, hidden_errors
from mcptally.verdict.rule_set import RuleSet


class ScoringRules(msgspec.Struct, frozen=True):
    """The rules in force, and the user's scenarios and reviews."""

    rules: RuleSet = msgspec.field(default_factory=RuleSet)
    given: tuple[ScenarioEntry, ...] = ()
    reviews: AppliedReviews = AppliedReviews()

    @classmethod
    def of(
        cls, *, rules: str | Path | None = None, scenarios: str | Path | None = None
    ) -> "ScoringRules":
        """Load the shipped rules with the user's changes, and the user's scenarios.

        Raises:
            RuleError: the rule file cannot be read, a row is incomplete, or a rule contradicts its
                examples.
            UsageError: the scenarios cannot be used.
        """
        return cls(
            RuleSet.load(Path(rules) if rules else None),
            load_scenarios(Path(scenarios)) if scenarios else (),
        )

    @property
    def digest(self) -> str:
        """Return 16 hex digits that change whenever the rules or the scenarios change.

        The digest does not include reviewers' answers: a changed answer changes few rows, so a run
        compares answers separately.
        """
        return digest(msgspec.json.encode((self.rules.verdict, self.rules.hidden, self.given)))


def judge_calls(
    calls: pl.DataFrame,
    definitions: pl.DataFrame,
    combinations: pl.DataFrame,
    judging: ScoringRules,
) -> pl.DataFrame:
    """Judge calls: add the scenario, the final outcome, and the rules' or a reviewer's verdict.

    Args:
        calls: `Evidenced`.
        definitions: `Definitions` of the tools.
        combinations: `ArgumentCombinations` of the whole archive, possibly summed over recordings.
        judging: the rules in force.
    """
    calls = calls.hstack(assign_scenarios(calls, definitions, combinations, judging.given))
    calls = _with_hidden_errors(calls, judging)
    release_memory()
    calls = evidence.add_client_lacks(evidence.add_file_facts(calls))
    calls = calls.hstack(classify.judge(calls, judging.rules.verdict, definitions=definitions))
    certainty = pl.min_horizontal(Judged.certainty.col, Judged.hidden_certainty.col)
    judged = Judged.select(
        calls.with_columns(
            pl.when(Judged.outcome.col == "hidden_error")
            .then(certainty)
            .otherwise(Judged.certainty.col)
            .alias(Judged.certainty.name),
            pl.when(Judged.dir.col == "s2c")
            .then(Judged.fault.col.replace(ANSWERED_BY_CLIENT))
            .when(_is_denied_as_other_user())
            .then(pl.lit(Fault.CLIENT))
            .otherwise(Judged.fault.col)
            .alias(Judged.fault.name),
            count_tokens(calls.get_column(Judged.response.name)).alias(Judged.response_tokens.name),
            error_template.templates(_informative_texts(calls)).alias(Judged.template.name),
        )
    )
    if judging.reviews:
        from mcptally.review.apply import apply  # noqa: PLC0415  (few archives are reviewed)

        judged = apply(judged, judging.reviews)
    return judged


_OTHER_USER: Final = r'^\["(?:[^"]*/)?(?:doas|gosu|runuser|setpriv|su|su-exec|sudo)"'
"""Matches command lines that start a server as another user."""


def _is_denied_as_other_user() -> pl.Expr:
    """Return whether a server lacks rights on files, and the host starts it as another user."""
    suspects = (
        Judged.reason.col == "misconfig_or_missing_dependency"
    ) & Judged.command.col.str.contains(_OTHER_USER)
    return suspects & (pl.col("denied_before") | evidence.is_denied(suspects))


def _informative_texts(calls: pl.DataFrame) -> pl.Series:
    """Return the text of each reply, or the exception on stderr if the reply names no cause."""
    replies = calls.get_column(Judged.error_text.name)
    exceptions = calls.get_column(Judged.stderr_error.name)
    if exceptions.null_count() == len(exceptions):
        return replies
    text = error_text.informative_text(Judged.error_text.col, Judged.stderr_error.col)
    return calls.select(text).to_series()


_EMPTY: Final = r'^\s*(?:\{"\w+":)?\s*(?:null|""|\[\s*\]|\{\s*\})?\s*\}?\s*$'
"""Matches the text or the structured content of a result without data."""


def _with_hidden_errors(calls: pl.DataFrame, judging: ScoringRules) -> pl.DataFrame:
    """Set the outcome `hidden_error` for successful results whose text reports a failure.

    If a result is empty and its server wrote an exception to stderr, the exception is its text.
    """
    is_result = (Judged.outcome.col == "ok") & Judged.tool.col.is_not_null()
    text = pl.col("first_text")
    if calls.get_column(Judged.stderr_error.name).count():
        # Test only these results, because `matches` copies the texts.
        raised = is_result & Judged.stderr_error.col.is_not_null()
        has_data = pl.any_horizontal(
            ~matches(pl.when(raised).then(content).fill_null(""), _EMPTY)
            for content in (text, pl.col("structured_content"))
        )
        text = pl.when(raised & ~has_data).then(Judged.stderr_error.col).otherwise(text)
    results = calls.select(
        *(name for name in hidden_errors.READ if name in calls.columns),
        text=pl.when(is_result).then(text),
        structured=pl.when(is_result).then("structured_content"),
        later_texts=hidden_errors.later_texts(
            pl.when(is_result & (Judged.text_blocks.col > 1)).then("response"),
            Judged.text_blocks.col,
        ),
    )
    calls = calls.hstack(hidden_errors.find_hidden_errors(results, judging.rules.hidden))
    is_hidden = (Judged.outcome.col == "ok") & pl.col("hidden_error").fill_null(value=False)
    return (
        calls.lazy()
        .with_columns(
            outcome=pl.when(is_hidden).then(pl.lit("hidden_error")).otherwise("outcome"),
            error_text=pl.when(is_hidden).then("hidden_text").otherwise("error_text"),
        )
        .drop("hidden_error", "hidden_text")
        .pipe(run_query)
    )
