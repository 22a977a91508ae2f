"""The page of a comparison: what got worse since a moment, or since another store was made."""

import datetime
from collections.abc import Callable
from typing import Any, Final

import polars as pl

from mcptally.analytics import compare
from mcptally.analytics.answer import masked
from mcptally.analytics.compare import OMITTED_CHANGES, Comparison, Side
from mcptally.analytics.filters import parse_time
from mcptally.analytics.store import Store, retry_if_replaced
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html import charts
from mcptally.output.html.text import moment, shown

MOST: Final = 100
"""Changes, and new errors, on the page."""
_KEY: Final = ["server", "tool", "template"]
_SPLIT: Final = """
SELECT min(first_call) AS first, max(last_call) AS last,
    quantile_disc(first_call, 0.5) AS middle FROM usage
"""


def page(answers: Answers, links: Links, at: str) -> Page:
    """The page that compares the calls before and since a moment, or the base store with this one.

    Args:
        answers: the answers of the store.
        links: the addresses.
        at: the moment, as in `Store.ask`; empty: compare with the base store, or at the middle.

    Raises:
        UsageError: the moment is not a time.
    """
    del links
    times = answers.light(_SPLIT).row(0, named=True)
    split = parse_time(at, "at") if at else None if answers.base else times["middle"]
    head = {
        "at": at or (moment(split).replace(" ", "T") if split else ""),
        "first": times["first"],
        "last": times["last"],
        "base": shown(str(answers.base.path), 300) if answers.base and split is None else None,
        "has_base": answers.base is not None,
    }
    if split is None and answers.base is None:
        return Page("comparison", "Compare", head=head)
    return Page(
        "comparison",
        "What changed" if split is None else f"What changed at {moment(split)} UTC",
        head=head,
        sections=[
            Section("errors", "New errors", lambda: _new_errors(answers, split)),
            Section("changes", "Tools and servers", lambda: _changes(answers, split)),
        ],
        order=("changes", "errors"),
    )


def _changes(answers: Answers, split: datetime.datetime | None) -> dict[str, Any]:
    """The changes that are significant and large, the most important first."""
    tools, rates = (
        answers.kept(("compare", what, split), _compared(answers, split, what))
        for what in ("tools", "rates")
    )
    listed = tools.filter(~pl.col("change").is_in(OMITTED_CHANGES))
    known = {(row["level"], row["server"], row["tool"]): row for row in rates.to_dicts()}
    rows = listed.head(MOST).to_dicts()
    for row in rows:
        rate = known.get((row["level"], row["server"], row["tool"]))
        has_rates = rate is not None and None not in (rate["base"], rate["new"])
        row["rates"] = (rate["base"], rate["new"]) if rate and has_rates else None
        row["rates_x"] = [charts.rate_x(share) for share in row["rates"]] if row["rates"] else None
    omitted = tools.filter(pl.col("change").is_in(OMITTED_CHANGES))["change"].value_counts()
    return {
        "rows": rows,
        "total": listed.height,
        "omitted": sorted(omitted.iter_rows(), key=lambda row: (-row[1], row[0])),
    }


def _compared(
    answers: Answers, split: datetime.datetime | None, what: str
) -> Callable[[], pl.DataFrame]:
    """A function that compares, and returns the changes of tools or of their success rates."""

    def computed() -> pl.DataFrame:
        found = _comparison(answers, split)
        rows = found.tools if what == "tools" else found.metrics.filter("metric = 'success_rate'")
        frame: pl.DataFrame = masked(rows).pl()
        return frame

    return computed


def _comparison(answers: Answers, split: datetime.datetime | None) -> Comparison:
    new = answers.recorded
    if split is None and answers.base is not None:
        return answers.base.compare(new)

    def side(store: Store, name: str) -> Side:
        return Side(store.folders, store.files, None, store.manifest.get("mcptally"), (name,))

    return retry_if_replaced(
        [new],
        lambda: compare.compare(
            side(new, "until"),
            side(new, "since"),
            compare.limits(),
            {"until": split, "since": split},
        ),
    )


def _new_errors(answers: Answers, split: datetime.datetime | None) -> list[dict[str, Any]] | None:
    """The errors of tools that did not occur before."""
    errors = answers.ask("error_groups")
    if split is not None:
        new = errors.filter(pl.col("first_seen") >= split)
    else:
        before = answers.base_errors().select(_KEY)
        new = errors.join(before, on=_KEY, how="anti", nulls_equal=True)
    return new.head(MOST).to_dicts() or None
