"""Builds the comparison page, which shows what got worse between two time ranges or two stores."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from mcptally.analytics import compare
from mcptally.analytics.answer import masked
from mcptally.analytics.compare import OMITTED_CHANGES, Comparison, Side
from mcptally.analytics.filters import BASE, parse_time
from mcptally.analytics.store import Store, retry_if_replaced
from mcptally.errors import UsageError
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html import charts
from mcptally.output.html.text import moment, shown

MOST: Final = 100
"""Maximum number of changes and of new errors on the page."""
_KEY: Final = ["server", "tool", "template"]
_SPLIT: Final = """
SELECT min(first_call) AS first, max(last_call) AS last,
    quantile_disc(first_call, 0.5) AS middle FROM usage
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Ranges:
    """Two time ranges whose calls are compared."""

    base_since: datetime.datetime | None = None
    base_until: datetime.datetime | None = None
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Ranges | None":
        """Parse an address's time ranges; return None if the address contains no times.

        Raises:
            UsageError: a string is not a time, or an end is not after its start.
        """
        names = [one.name for one in dataclasses.fields(cls)]
        found = {name: parse_time(given[name], name) for name in names if given.get(name)}
        if given.get("at"):
            found["base_until"] = found["since"] = parse_time(given["at"], "at")
        for prefix in ("", BASE):
            start, end = found.get(f"{prefix}since"), found.get(f"{prefix}until")
            if start and end and start >= end:
                raise UsageError(f"{moment(end)} is not after {moment(start)}")
        if not {"base_since", "base_until"} & found.keys() and "since" in found:
            found["base_until"] = found["since"]
        if not {"since", "until"} & found.keys() and "base_until" in found:
            found["since"] = found["base_until"]
        return cls(**found) if found else None

    def given(self) -> dict[str, datetime.datetime]:
        """Return the values of the filters that the ranges set, keyed by filter name."""
        pairs = ((one.name, getattr(self, one.name)) for one in dataclasses.fields(self))
        return {name: value for name, value in pairs if value is not None}

    def fields(self) -> dict[str, str]:
        """Return the values of the form's fields."""
        return {name: moment(value).replace(" ", "T") for name, value in self.given().items()}


def page(answers: Answers, given: Mapping[str, str]) -> Page:
    """Return the page that compares two time ranges, or this store with the base store.

    Args:
        answers: the store's answers.
        given: the times as text, named as in `Ranges`, or `at`, which splits the calls in two;
            without times, this store is compared with the base store, or, if there is none, the
            second half of its calls is compared with the first half.

    Raises:
        UsageError: a string is not a time, or an end is not after its start.
    """
    times = answers.light(_SPLIT).row(0, named=True)
    ranges = Ranges.of(given)
    if ranges is None and answers.base is None and times["middle"]:
        ranges = Ranges(base_until=times["middle"], since=times["middle"])
    head = {
        "fields": {} if ranges is None else ranges.fields(),
        "first": times["first"],
        "last": times["last"],
        "base": shown(str(answers.base.path), 300) if answers.base and ranges is None else None,
        "has_base": answers.base is not None,
    }
    if ranges is None and answers.base is None:
        return Page("comparison", "Compare", head=head)
    return Page(
        "comparison",
        "What changed",
        head=head,
        sections=[
            Section(
                "errors",
                "New errors",
                lambda: _new_errors(answers, ranges),
                "No error is new: each occurred before, too.",
            ),
            Section("changes", "Tools and servers", lambda: _changes(answers, ranges)),
        ],
        order=("changes", "errors"),
    )


def _changes(answers: Answers, ranges: Ranges | None) -> dict[str, Any]:
    """Return the changes that are significant and large enough, most important first."""
    tools = answers.kept(("compare", ranges), lambda: _compared(_comparison(answers, ranges)))
    listed = tools.filter(~pl.col("change").is_in(OMITTED_CHANGES))
    rows = listed.head(MOST).to_dicts()
    for row in rows:
        row["rates"] = None if None in (row["base"], row["new"]) else (row["base"], row["new"])
        row["rates_x"] = [charts.rate_x(share) for share in row["rates"]] if row["rates"] else None
    omitted = tools.filter(pl.col("change").is_in(OMITTED_CHANGES))["change"].value_counts()
    return {
        "rows": rows,
        "total": listed.height,
        "omitted": sorted(omitted.iter_rows(), key=lambda row: (-row[1], row[0])),
    }


def _compared(found: Comparison) -> pl.DataFrame:
    """Return the changes in tools and servers, with the success rates before and after."""
    key = ["level", "server", "tool"]
    rates = masked(found.metrics.filter("metric = 'success_rate'")).pl()
    tools: pl.DataFrame = masked(found.tools).pl()
    return tools.join(rates.select(*key, "base", "new"), on=key, how="left", nulls_equal=True)


def _comparison(answers: Answers, ranges: Ranges | None) -> Comparison:
    new = answers.recorded
    if ranges is None and answers.base is not None:
        return answers.base.compare(new)
    given = {} if ranges is None else ranges.given()

    def side(store: Store, *, is_base: bool) -> Side:
        names = tuple(name for name in given if name.startswith(BASE) == is_base)
        return Side(store.folder, store.files, None, store.manifest.get("mcptally"), names)

    return retry_if_replaced(
        [new],
        lambda: compare.compare(
            side(new, is_base=True), side(new, is_base=False), compare.limits(), given
        ),
    )


def _new_errors(answers: Answers, ranges: Ranges | None) -> list[dict[str, Any]] | None:
    """Return the tool errors that occur only in the later calls."""
    if ranges is None:
        errors, before = answers.ask("error_groups"), answers.base_errors()
    else:
        errors = answers.ask("error_groups", since=ranges.since, until=ranges.until)
        before = answers.ask("error_groups", since=ranges.base_since, until=ranges.base_until)
    new = errors.join(before.select(_KEY), on=_KEY, how="anti", nulls_equal=True)
    return new.head(MOST).to_dicts() or None
