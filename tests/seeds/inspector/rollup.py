"""The seed score per tool and server: overall confidence, scenario status, health.

DuckDB computes it: `queries/_seed_results.sql` takes scenario results from `seed_scores`, and
`queries/_seed_rollup.sql` computes scores from them.
"""

from typing import Any

import duckdb
import polars as pl

from mcptally.analytics.views import all_texts, connect, create_questions
from mcptally.seeds.inspector import document
from mcptally.tables.seed_scores import SeedScores

_MACROS = {name: all_texts()[name] for name in ("_mean_margin", "_seed_rollup")}


def rollup(scores: pl.DataFrame, per: str = "tool") -> pl.DataFrame:
    """One row per tool or per server from rows of `seed_scores`."""
    with connect() as connection:
        connection.register("seed_scores", scores)
        create_questions(connection, {"_seed_results": all_texts()["_seed_results"], **_MACROS})
        return _asked(connection, per)


def rollup_of_results(results: list[dict[str, Any]]) -> pl.DataFrame:
    """One row per tool from rows of `_seed_results`."""
    with connect() as connection:
        connection.register("seed_scores", SeedScores.empty())
        schema = connection.sql(all_texts()["_seed_results"]).pl().schema
        connection.register("_seed_results", pl.DataFrame(results, schema=schema))
        create_questions(connection, _MACROS)
        return _asked(connection, "tool")


def health(executed: int, passed: int, validation_errors: int) -> str:
    """A tool's health, in the document's terms, from its counts of calls."""
    too_few, broken, validation, functional = document.ROWS.part("health")
    if executed < too_few.value:
        return too_few.title
    if passed <= executed * broken.value:
        return broken.title
    return validation.title if validation_errors else functional.title


def _asked(connection: duckdb.DuckDBPyConnection, per: str) -> pl.DataFrame:
    rows = "SELECT * FROM _seed_rollup(?) ORDER BY server, tool"
    return connection.sql(rows, params=[per]).pl()
