"""Normalises errors: category, code, HTTP equivalent, retryability, hint and details.

If an error contains a JSON structure that describes the error, the structure's values are used
unchanged: `error_source` is `structured`, or `partial` if the structure is incomplete. All other
values are inferred with the rows in `rules/regular.toml`. The categories come from the
validation-logic document. `verdict` is determined independently and may disagree.
"""

import functools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from mcptally import rules as rule_files
from mcptally.seeds.validation_logic.error_categories import CATEGORIES
from mcptally.seeds.validation_logic.structured_error import (
    MEMBERS,
    NOTHING,
    StructuredError,
    read_first,
)
from mcptally.tables.outcomes import UNSUCCESSFUL
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Judged, NormalisedErrors
from mcptally.verdict import error_text, match
from mcptally.verdict.rule_model import TextRule, status_in

FILE: Final = "regular.toml"


_STRUCTURES: Final = ("structured_content", "text", "error_text", "error_data")
"""Columns that may contain a structured error, in the order in which they are read."""

READ: Final = ("outcome", "error_code", "http_status", "reason", *_STRUCTURES)
"""The columns of `Judged` that `normalise_errors` reads."""


class CategoryRule(TextRule, frozen=True, kw_only=True):
    """A rule row that assigns a category to unstructured errors."""

    category: str
    code: str = ""
    """Name of the error's code; by default that of the category."""
    http: int = 0
    """HTTP equivalent of the error; by default that of the category."""
    codes: tuple[int, ...] = ()
    statuses: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()


@functools.cache
def category_rules() -> tuple[CategoryRule, ...]:
    """Return the rule rows, in the order in which they are tried."""
    return tuple(sorted(rule_files.load(CategoryRule, FILE), key=lambda rule: rule.order))


def normalise_errors(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the `NormalisedErrors` of calls, one row per call; null for calls that worked."""
    structure = pl.any_horizontal(pl.col(*_STRUCTURES).str.contains(MEMBERS.pattern))
    errors = (
        calls.lazy()
        .select(READ)
        .with_row_index("row")
        .filter(Judged.outcome.col.is_in(UNSUCCESSFUL))
        .with_columns(key=pl.struct(READ).hash())
        .pipe(run_query)
    )
    if not errors.height:
        return NormalisedErrors.nulls(calls.height)
    distinct = (
        errors.lazy()
        .unique("key", maintain_order=True)
        .with_columns(
            is_structured=structure | Judged.error_data.col.str.contains(r"^[{\[]"),
            text=Judged.error_text.col.fill_null(""),
        )
        .pipe(run_query)
    )
    deciding = _deciding_rules(distinct)
    is_structured = distinct.get_column("is_structured").to_list()
    structured = {
        place: read_first(*sources)
        for place, sources in enumerate(distinct[list(_STRUCTURES)].iter_rows())
        if is_structured[place]
    }
    has_code = distinct.get_column(Judged.error_code.name).is_not_null().to_list()
    values = [
        _combined(structured.get(place, NOTHING), rule, has_code=coded)
        for place, (rule, coded) in enumerate(zip(deciding, has_code, strict=True))
    ]
    normalised = pl.DataFrame(values, schema=NormalisedErrors.schema(), orient="row")
    place = pl.Series([None], dtype=pl.UInt32).new_from_index(0, calls.height)
    places = distinct.lazy().select("key").with_row_index("place")
    of_error = errors.lazy().select("row", "key").join(places, on="key", maintain_order="left")
    found = of_error.pipe(run_query)
    return normalised[place.scatter(found.get_column("row"), found.get_column("place"))]


def _deciding_rules(errors: pl.DataFrame) -> list[CategoryRule]:
    """Return, for each error, the first rule that matches it; the last rule matches every error."""
    rules = category_rules()
    texts = (
        errors.lazy()
        .select("text")
        .unique(maintain_order=True)
        .with_row_index("number")
        .with_columns(status_in_text=error_text.http_status(Judged.text.col))
        .pipe(run_query)
    )
    matched = match.match_rules(rules, texts["text"], texts["text"])
    # Use the HTTP status only if it is at least 400, because tool errors are sent with status 200.
    exchange_status = pl.when(Judged.http_status.col >= 400).then("http_status")
    rows = (
        errors.lazy()
        .join(texts.lazy(), on="text", how="left", maintain_order="left")
        .with_columns(status=pl.coalesce(pl.col("status_in_text").cast(pl.Int64), exchange_status))
        .pipe(run_query)
    )
    number = rows["number"].to_numpy()
    conditions = {place: list(_conditions(rule)) for place, rule in enumerate(rules)}
    fulfilled = rows.select(
        pl.all_horizontal(each).fill_null(value=False).alias(f"{place}")
        for place, each in conditions.items()
        if each
    )
    first = np.full(rows.height, len(rules) - 1)
    for place in range(len(rules) - 2, -1, -1):
        holds = match.with_texts(matched[place], number, texts.height)
        if conditions[place]:
            holds = holds & fulfilled[f"{place}"].to_numpy()
        first[holds] = place
    return [rules[place] for place in first.tolist()]


def _conditions(rule: CategoryRule) -> Iterator[pl.Expr]:
    for column, allowed in (
        ("error_code", rule.codes),
        ("reason", rule.reasons),
        ("outcome", rule.outcomes),
    ):
        if allowed:
            yield pl.col(column).is_in(list(allowed))
    if rule.statuses:
        yield status_in(rule.statuses)


def _combined(error: StructuredError, rule: CategoryRule, *, has_code: bool) -> tuple[Any, ...]:
    """Combine a structured error and a rule to a row of `NormalisedErrors`.

    Each value comes from the error's structure, or else from the rule, or else is a default.
    """
    category = error.category or rule.category
    defaults = CATEGORIES[category]
    agrees = category == rule.category
    code = error.code or (agrees and rule.code) or defaults.code
    http = error.http or (agrees and not error.code and rule.http)
    http = http or _PATCH_STATUS.get(code) or defaults.http
    retryable = defaults.retryable if error.retryable is None else error.retryable
    partial = error.category or error.code or error.http or error.retryable is not None
    source = "structured" if error.complete else "partial" if has_code or partial else "inferred"
    return category, code, http, retryable, error.hint or defaults.hint, error.details, source


_PATCH_STATUS: Final = {"PATCH_EMPTY": 400, "PATCH_MALFORMED": 400, "FILE_NOT_FOUND": 404}
"""HTTP equivalents of patch codes, where they differ from that of the category."""
