"""Computes the `usage` table: aggregates of tool calls per session, tool and hour.

Questions about rates read this table instead of ten million calls. `tables.usage.Usage` declares
the aggregates; `tables.usage_sums` computes the same aggregates in SQL, and a test compares the
results.
"""

from collections.abc import Iterator

import polars as pl

from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Aggregate
from mcptally.tables.queries import run_query
from mcptally.tables.usage import Usage
from mcptally.tables.usage_sums import AGGREGATES, FACTS, KEYS, TOOL_CALL


def usage(calls: pl.DataFrame) -> pl.DataFrame:
    """Compute the rows of `Usage` from the `Calls` rows of whole recordings."""
    tools = calls.lazy().filter(pl.sql_expr(TOOL_CALL))
    hour = Calls.requested_at.col.dt.truncate("1h").alias(Usage.hour.name)
    tools = tools.with_columns(hour, *_chain_flags(tools))
    for name, value in FACTS.items():
        tools = tools.with_columns(pl.sql_expr(value).alias(name))
    # Compute the values of all rows before aggregating, because the groups are many and small.
    values = {
        f"value_{name}": _value(column)
        for name, column in AGGREGATES.items()
        if column.how != "rows"
    }
    found = (
        tools.select(*KEYS, **values)
        .group_by(KEYS, maintain_order=True)
        .agg(_aggregated(name, column) for name, column in AGGREGATES.items())
    )
    lists = [name for name, column in AGGREGATES.items() if column.how == "list"]
    found = found.with_columns(pl.when(pl.col(name).list.len() > 0).then(name) for name in lists)
    return Usage.frame(found.pipe(run_query))


def _value(column: Aggregate) -> pl.Expr:
    value = pl.sql_expr(column.value)
    return value.cast(pl.UInt32) if column.how == "count" else value


def _aggregated(name: str, column: Aggregate) -> pl.Expr:
    value = pl.col(f"value_{name}")
    match column.how:
        case "rows":
            found = pl.len()
        case "min":
            found = value.min()
        case "max":
            found = value.max()
        case "list":
            found = value.drop_nulls()
        case _:
            found = value.sum()
    return found.alias(name)


def _chain_flags(tools: pl.LazyFrame) -> Iterator[pl.Expr]:
    """Yield flags for the first retry of each chain, and for the first successful retry.

    Each chain is counted once, in the hour of the flagged call.
    """
    chain = (Calls.server.name, Calls.tool.name, Calls.attempt_of.name)
    retries = (
        tools.filter(Calls.attempt_why.col == "retry")
        .select(*chain, Calls.call_id.col, Calls.requested_at.col, Calls.outcome.col)
        .sort(Calls.requested_at.name, Calls.call_id.name, nulls_last=True)
        .pipe(run_query)
    )
    for name, rows in (
        ("is_first_retry", retries),
        ("is_first_recovery", retries.filter(Calls.outcome.col == "ok")),
    ):
        ids = rows.unique(chain, keep="first").get_column(Calls.call_id.name)
        yield Calls.call_id.col.is_in(ids.to_list()).alias(name)
