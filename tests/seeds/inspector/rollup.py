"""The seed score per tool and server: overall confidence, scenario status, health.

The sums are DuckDB's: queries/_seed_results.sql makes scenario results of calls,
queries/_seed_sums.sql adds up those of a session, which a store keeps as its table `usage`, and
queries/_seed_scores.sql makes scores of that.
"""

from importlib import resources

import duckdb
import polars as pl

VIEWS = {"_seed_results": "_seed_results", "usage": "_seed_sums", "_seed_scores": "_seed_scores"}
"""View → the file that makes it of the one before; the first is made of `calls`."""


def tool_rollup(calls: pl.DataFrame) -> pl.DataFrame:
    """One row a tool (`level` = tool) and one a server, of scored calls."""
    with duckdb.connect() as connection:
        connection.register("calls", calls)
        for view, file in VIEWS.items():
            connection.execute(f'CREATE VIEW "{view}" AS SELECT * FROM ({sql(file)})')
        found: pl.DataFrame = connection.sql(
            "SELECT * FROM _seed_scores ORDER BY level DESC, server, tool"
        ).pl()
    return found


def sql(file: str) -> str:
    """The text of one of the files of `VIEWS`."""
    folder = resources.files("mcptally.analytics").joinpath("queries")
    return folder.joinpath(f"{file}.sql").read_text(encoding="utf-8")
