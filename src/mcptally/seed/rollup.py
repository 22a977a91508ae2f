"""The seed score per tool and server: overall confidence, scenario status, health.

The sums are DuckDB's: queries/_seed_results.sql makes scenario results of calls, and
queries/_seed_scores.sql sums them up; both are views of every store.
"""

from importlib import resources

import duckdb
import polars as pl

VIEWS = ("_seed_results", "_seed_scores")


def tool_rollup(calls: pl.DataFrame) -> pl.DataFrame:
    """One row a tool (`level` = tool) and one a server, of scored calls."""
    with duckdb.connect() as connection:
        connection.register("calls", calls)
        for view in VIEWS:
            connection.execute(f'CREATE VIEW "{view}" AS {sql(view)}')
        found: pl.DataFrame = connection.sql(
            "SELECT * FROM _seed_scores ORDER BY level DESC, server, tool"
        ).pl()
    return found


def sql(view: str) -> str:
    """The text of one of the `VIEWS`."""
    folder = resources.files("mcptally").joinpath("queries")
    return folder.joinpath(f"{view}.sql").read_text(encoding="utf-8")
