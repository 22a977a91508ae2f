"""What a dry run would have said of every recorded call, by its definition alone.

Schema first, then meaning; each distinct (definition, arguments) once, and only where the
definition has something to look at.
"""

from typing import Final

import msgspec
import polars as pl

from mcptally.contracts import semantic

COLUMNS: Final = {"dry_run_phase": pl.String(), "dry_run_error": pl.String()}


def refused(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `dry_run_phase` and `dry_run_error`; null where nothing refuses them."""
    schemas = definitions.select("definition", "input_schema").unique("definition").drop_nulls()
    worth = schemas.filter(
        pl.Series(
            [bool(semantic.plan(text)) for text in schemas.get_column("input_schema")],
            dtype=pl.Boolean,
        )
    )
    asked = calls.filter(
        pl.col("tool").is_not_null(),
        pl.col("arguments").str.starts_with("{"),
        pl.col("input_schema_state") == "valid",
    ).join(worth, on="definition")
    distinct = asked.select("definition", "arguments", "input_schema").unique(
        ["definition", "arguments"], maintain_order=True
    )
    said = [
        _first(schema, arguments)
        for schema, arguments in distinct.select("input_schema", "arguments").iter_rows()
    ]
    known = distinct.select("definition", "arguments").with_columns(
        meant=pl.Series(said, dtype=pl.String)
    )
    calls = calls.join(
        known.drop_nulls("meant"),
        on=["definition", "arguments"],
        how="left",
        maintain_order="left",
    )
    by_schema = pl.col("input_schema_state") == "invalid"
    place = pl.col("input_schema_path").replace("", None)
    words = pl.concat_str(place + ": ", "input_schema_error", ignore_nulls=True)
    return calls.with_columns(
        dry_run_phase=pl.when(by_schema)
        .then(pl.lit("schema"))
        .when(pl.col("meant").is_not_null())
        .then(pl.lit("semantic")),
        dry_run_error=pl.when(by_schema).then(words).otherwise("meant"),
    ).drop("meant")


def _first(schema: str, arguments: str) -> str | None:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    found = semantic.errors(schema, value)
    return f"{found[0].name}: {found[0].words}" if found else None
