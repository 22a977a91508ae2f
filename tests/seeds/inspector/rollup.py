"""The seed score per tool and server: overall confidence, scenario status, health.

`queries/_seed_results.sql` turns calls into scenario results, `queries/_seed_sums.sql` sums those
of a session (a store keeps the sums in its table `usage`), and `queries/_seed_scores.sql` turns the
sums into scores.
"""

from importlib import resources

import duckdb
import polars as pl

VIEWS = {"_seed_results": "_seed_results", "usage": "_seed_sums", "_seed_scores": "_seed_scores"}
"""Views and their SQL files, in order: each reads the one before, the first reads `calls`."""


def tool_rollup(calls: pl.DataFrame) -> pl.DataFrame:
    """One row per tool (`level` is `tool`) and one per server, from scored calls."""
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
