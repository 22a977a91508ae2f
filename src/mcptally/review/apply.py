"""Applies answers during scoring: the reviewer's verdict replaces mcptally's."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import polars as pl

from mcptally.review.answers import (
    CANNOT_TELL,
    NOT_AN_ERROR,
    Answer,
    AppliedReviews,
    Reviews,
    group_id,
    template_of,
    text_digest,
)
from mcptally.review.settled import settle
from mcptally.tables.outcomes import ERRORS, FAILED, Fault, Verdict
from mcptally.tables.stages import Judged
from mcptally.verdict import error_template

REVIEWED: Final = "review"
"""The `rule` of calls with an answer."""
INFERRED: Final = "review.group"
"""The `rule` of calls to which an answer about their group was applied."""
CERTAINTY: Final = {REVIEWED: 98.0, INFERRED: 95.0}
"""Certainty of a reviewer's verdict: careful reviewers contradict themselves on about 2 % of calls,
and one template may have several causes."""
LEAST_LETTERS: Final = 8
"""Minimum number of letters outside placeholders in a template. If a template has fewer, an answer
does not apply to other calls with this template."""


_PLACEHOLDER: Final = re.compile("<[a-z]+>")


class Meaning(NamedTuple):
    """The values that a reviewer's answer puts into a call's columns."""

    verdict: Verdict
    reason: str
    retryable: str | None
    """`reason` and `retryable` replace mcptally's values only if mcptally's verdict named another
    fault."""


_MEANINGS: Final = {
    Fault.CALLER: Meaning(Verdict.BUSINESS, "other_refusal", "after_change"),
    Fault.ACCOUNT: Meaning(Verdict.BUSINESS, "permission_policy", "after_change"),
    Fault.CLIENT: Meaning(Verdict.BUSINESS, "client_capability", "after_change"),
    Fault.TOOL: Meaning(Verdict.TOOL_FAILURE, "internal_error", "no"),
    Fault.UPSTREAM: Meaning(Verdict.INFRASTRUCTURE, "dependency_down", "yes"),
    Fault.NETWORK: Meaning(Verdict.INFRASTRUCTURE, "network", "yes"),
    CANNOT_TELL: Meaning(Verdict.AMBIGUOUS, "unclear", None),
}
"""Maps answers to the values that a call gets. With `not_an_error`, the call's values become
null."""


def meaning_of(answer: str) -> Meaning | None:
    """Return the verdict, reason and retryability that an answer means; None for `not_an_error`."""
    return _MEANINGS.get(answer)


def verdict_of(answer: str) -> str | None:
    """Return the verdict that an answer means; None for `not_an_error`."""
    meaning = meaning_of(answer)
    return None if meaning is None else str(meaning.verdict)


def counted(reviews: Reviews) -> AppliedReviews:
    """Return the answers that count (`settled.settle`), sorted, for `apply`."""
    settled = settle(reviews)
    return AppliedReviews(
        tuple(settled.calls[key] for key in sorted(settled.calls)),
        tuple(
            settled.groups[key]
            for key in sorted(settled.groups, key=lambda key: (key.group, key.definition or ""))
        ),
    )


def apply(calls: pl.DataFrame, reviews: AppliedReviews) -> pl.DataFrame:
    """Apply the answers about calls and about their groups to `Judged` rows.

    An answer is ignored if the reply's text differs from the text that was reviewed.
    """
    if not reviews or calls.is_empty():
        return calls
    calls = calls.with_row_index("_row")
    answers = pl.concat([_of_calls(calls, reviews.calls), _of_groups(calls, reviews.groups)])
    # An answer about a call outranks an answer about the call's group.
    answers = answers.unique("_row", keep="first", maintain_order=True)
    if answers.is_empty():
        return calls.drop("_row")
    found = calls.join(answers, on="_row", how="left", maintain_order="left")
    return _with_templates(found.with_columns(_changes())).drop("_row", "_answer", "_by")


def _with_templates(calls: pl.DataFrame) -> pl.DataFrame:
    """Add a template to calls that are errors only according to a reviewer."""
    new = pl.col("_answer").is_not_null() & Judged.template.col.is_null()
    texts = calls.select(pl.when(new).then(Judged.error_text.col)).to_series()
    if texts.null_count() == calls.height:
        return calls
    templates = error_template.templates(texts).alias("_template")
    return (
        calls.hstack([templates])
        .with_columns(pl.coalesce(Judged.template.name, "_template").alias(Judged.template.name))
        .drop("_template")
    )


_KEYS: Final = (Judged.recording, Judged.seq, Judged.dir, Judged.index)
_ANSWERS: Final = {"_row": pl.UInt32, "_answer": pl.String, "_by": pl.String}


def _of_calls(calls: pl.DataFrame, answers: Iterable[Answer]) -> pl.DataFrame:
    """Return `_row`, `_answer` and `_by` for each call with an answer about the call itself."""
    given = pl.DataFrame(
        [(*row.key, row.answer, row.text) for row in answers],
        orient="row",
        schema={column.name: calls.schema[column.name] for column in _KEYS}
        | {"_answer": pl.String, "_text": pl.String},
    )
    found = calls.join(given, on=[column.name for column in _KEYS])
    same = pl.Series(
        [
            text is None or text == text_digest(response)
            for text, response in found.select("_text", Judged.response.name).iter_rows()
        ],
        dtype=pl.Boolean,
    )
    return found.filter(same).select("_row", "_answer", _by=pl.lit(REVIEWED))


def _of_groups(calls: pl.DataFrame, answers: Iterable[Answer]) -> pl.DataFrame:
    """Return the same columns as `_of_calls` for each call whose group has an answer."""
    given = {(row.group, row.definition): row.answer for row in answers}
    tools = pl.DataFrame(
        list({(row.server, row.tool) for row in answers}),
        orient="row",
        schema={Judged.server.name: pl.String, Judged.tool.name: pl.String},
    )
    if not given:
        return pl.DataFrame(schema=_ANSWERS)
    columns = (Judged.server, Judged.tool, Judged.template, Judged.outcome, Judged.definition)
    failed = calls.filter(Judged.outcome.col.is_in(FAILED)).join(
        tools, on=[Judged.server.name, Judged.tool.name], how="semi", nulls_equal=True
    )
    kinds = failed.select(column.name for column in columns).unique()
    reached = pl.DataFrame(
        list(_reached(kinds, given)),
        orient="row",
        schema=kinds.schema | {"_answer": pl.String},
    )
    return failed.join(reached, on=[column.name for column in columns], nulls_equal=True).select(
        "_row", "_answer", _by=pl.lit(INFERRED)
    )


def _reached(
    kinds: pl.DataFrame, given: dict[tuple[str | None, str | None], str]
) -> Iterator[tuple[str | None, ...]]:
    for server, tool, template, outcome, definition in kinds.iter_rows():
        shown = template_of(template, outcome)
        answer = given.get((group_id(server, tool, shown), definition))
        if answer is not None and is_informative(template):
            yield server, tool, template, outcome, definition, answer


def is_informative(template: str | None) -> bool:
    """Return whether a template is specific enough for one answer to apply to all its calls."""
    if template is None:
        return False
    return sum(map(str.isalpha, _PLACEHOLDER.sub("", template))) >= LEAST_LETTERS


def _changes() -> list[pl.Expr]:
    """Return the expressions for the columns that an answer (`_answer`) changes."""
    answer, answered = pl.col("_answer"), pl.col("_answer").is_not_null()
    cleared = answer == NOT_AN_ERROR
    blamed = answered & ~cleared
    same_fault = Judged.fault.col.eq_missing(answer) & Judged.verdict.col.is_not_null()
    outcome = Judged.outcome.col

    def told(column: str, default: pl.Expr) -> pl.Expr:
        """Keep the column's value if mcptally found the same fault; otherwise use `default`."""
        return (
            pl.when(cleared)
            .then(None)
            .when(blamed & ~same_fault)
            .then(default)
            .otherwise(column)
            .alias(column)
        )

    def default(place: int) -> pl.Expr:
        values = {str(name): meaning[place] for name, meaning in _MEANINGS.items()}
        return answer.replace_strict(values, default=None, return_dtype=pl.String)

    fault = pl.when(answer != CANNOT_TELL).then(answer)
    return [
        pl.when(cleared & outcome.is_in(ERRORS))
        .then(pl.lit("ok"))
        .when(cleared & outcome.is_in(FAILED))
        .then(pl.lit("cancelled"))
        .when(blamed & (outcome == "ok"))
        .then(pl.lit("hidden_error"))
        .otherwise(outcome)
        .alias(Judged.outcome.name),
        pl.when(cleared)
        .then(None)
        .when(blamed & (outcome == "ok"))
        .then(Judged.first_text.col.str.slice(0, 2000))
        .otherwise(Judged.error_text.col)
        .alias(Judged.error_text.name),
        pl.when(~cleared.fill_null(value=False))
        .then(Judged.template.col)
        .alias(Judged.template.name),
        told(Judged.verdict.name, default(0)),
        told(Judged.reason.name, default(1)),
        told(Judged.retryable.name, default(2)),
        told(Judged.fault.name, fault),
        pl.when(blamed)
        .then(pl.col("_by").replace_strict(CERTAINTY, default=None, return_dtype=pl.Float64))
        .when(cleared)
        .then(None)
        .otherwise(Judged.certainty.col)
        .alias(Judged.certainty.name),
        pl.when(answered).then(pl.col("_by")).otherwise(Judged.rule.col).alias(Judged.rule.name),
    ]
