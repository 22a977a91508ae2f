"""The seed score per tool and server: overall confidence, scenario status, health.

DuckDB computes it: `tables.usage_sums` has the SQL of the aggregates per session, which a store
keeps as its table `usage`, and `queries/_seed_scores.sql` computes scores from them.
"""

from importlib import resources

import duckdb
import polars as pl

from mcptally.tables.calls import Calls
from mcptally.tables.usage_sums import calls_sql, usage_sql


def tool_rollup(calls: pl.DataFrame) -> pl.DataFrame:
    """One row per tool (`level` = tool) and per server, from scored calls."""
    views = {
        "_tool_calls": calls_sql(where="tool IS NOT NULL AND dir = 'c2s'"),
        "usage": usage_sql("_tool_calls"),
        "_seed_scores": scores_sql(),
    }
    with duckdb.connect() as connection:
        connection.register("calls", Calls.frame(calls))
        for view, query in views.items():
            connection.execute(f'CREATE VIEW "{view}" AS {query}')
        found: pl.DataFrame = connection.sql(
            "SELECT * FROM _seed_scores ORDER BY level DESC, server, tool"
        ).pl()
    return found


def scores_sql() -> str:
    """The text of `queries/_seed_scores.sql`."""
    folder = resources.files("mcptally.analytics").joinpath("queries")
    return folder.joinpath("_seed_scores.sql").read_text(encoding="utf-8")
