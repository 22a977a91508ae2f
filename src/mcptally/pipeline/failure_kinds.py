"""Assigns each failed call to a kind, so that questions read millions of failures as few kinds."""

from typing import Final

import polars as pl

from mcptally.tables import ids
from mcptally.tables.calls import Calls
from mcptally.tables.outcomes import FAILED
from mcptally.tables.queries import run_query

_COLUMNS: Final = tuple(
    column.name
    for column in (
        *(Calls.server, Calls.method, Calls.tool, Calls.template, Calls.outcome),
        *(Calls.verdict, Calls.reason, Calls.fault, Calls.rule),
        *(Calls.certainty, Calls.hidden_certainty),
        *(Calls.input_schema_state, Calls.input_schema_error, Calls.input_schema_path),
    )
)


def failure_kind(calls: pl.DataFrame) -> pl.Series:
    """Return `Calls.failure_kind` for rows of `Calls` that lack this column."""
    failed = Calls.outcome.col.is_in(FAILED) & (Calls.dir.col == "c2s")
    texts = calls.lazy().filter(failed).select(pl.struct(*_COLUMNS).struct.json_encode())
    kinds = ids.digests(texts.pipe(run_query).to_series())
    place = pl.when(failed).then(failed.cum_sum() - 1)
    return calls.select(pl.lit(kinds).gather(place).alias(Calls.failure_kind.name)).to_series()
