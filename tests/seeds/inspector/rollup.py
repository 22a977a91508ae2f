"""The seed score per tool and server: overall confidence, scenario status, health.

DuckDB computes it: `queries/_seed_results.sql` takes scenario results from `seed_scores`, and
`queries/_seed_rollup.sql` computes scores from them.
"""

import polars as pl

from mcptally.analytics.views import all_texts, connect, create_questions
from mcptally.seeds.inspector import document
from mcptally.tables.seed_scores import SeedScores

_MACROS = {name: all_texts()[name] for name in ("_mean_margin", "_seed_rollup")}


def rollup(scores: pl.DataFrame, per: str = "tool") -> pl.DataFrame:
    """One row per tool or per server from rows of `seed_scores`."""
    return _asked("seed_scores", SeedScores.frame(scores), per, "_seed_results")


def rollup_of_results(results: pl.DataFrame) -> pl.DataFrame:
    """One row per tool from rows of `_seed_results`."""
    return _asked("_seed_results", results, "tool")


def health(executed: int, passed: int, validation_errors: int) -> str:
    """A tool's health, in the document's terms, from its counts of calls."""
    too_few, broken, validation, functional = document.ROWS.part("health")
    if executed < too_few.value:
        return too_few.title
    if passed <= executed * broken.value:
        return broken.title
    return validation.title if validation_errors else functional.title


def _asked(name: str, rows: pl.DataFrame, per: str, *views: str) -> pl.DataFrame:
    with connect() as connection:
        connection.register(name, rows)
        create_questions(connection, {view: all_texts()[view] for view in views} | _MACROS)
        found: pl.DataFrame = connection.sql(
            "SELECT * FROM _seed_rollup(?) ORDER BY server, tool", params=[per]
        ).pl()
    return found
