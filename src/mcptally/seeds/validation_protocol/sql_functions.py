"""Defines the DuckDB functions that check the meaning of arguments for `preventable_failures`.

`meaning_error(input_schema, arguments)` returns the first error from `argument_semantics`, or null;
`has_meaning(input_schema)` returns whether an error is possible. Both functions run when the
question is asked, not during scoring. Results are not cached: each distinct pair is checked once,
and arguments may be large.
"""

import duckdb
import pyarrow as pa
from duckdb.func import ARROW, SPECIAL


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the functions `meaning_error` and `has_meaning` to a DuckDB connection."""
    text = "VARCHAR"
    connection.create_function(
        "has_meaning", _has_meaning, [text], "BOOLEAN", type=ARROW, null_handling=SPECIAL
    )
    connection.create_function(
        "meaning_error", _meaning_errors, [text, text], text, type=ARROW, null_handling=SPECIAL
    )


def _has_meaning(schemas: pa.ChunkedArray) -> pa.Array:
    from mcptally.seeds.validation_protocol import argument_semantics  # noqa: PLC0415  (as below)

    return pa.array(
        [
            schema is not None and bool(argument_semantics.semantic_parameters(schema))
            for schema in schemas.to_pylist()
        ],
        pa.bool_(),
    )


def _meaning_errors(schemas: pa.ChunkedArray, arguments: pa.ChunkedArray) -> pa.Array:
    pairs = zip(schemas.to_pylist(), arguments.to_pylist(), strict=True)
    return pa.array([meaning_error(schema, given) for schema, given in pairs], pa.string())


def meaning_error(schema: str | None, arguments: str | None) -> str | None:
    """Return the first error in the meaning of arguments, or None if there is none.

    Args:
        schema: the tool's inputSchema, as JSON text.
        arguments: the arguments, as JSON text.
    """
    # Import late: these modules load the schema engine, which most connections do not need.
    from mcptally.seeds.validation_protocol import argument_semantics  # noqa: PLC0415
    from mcptally.wire.json_text import json_value  # noqa: PLC0415

    if schema is None or arguments is None or not argument_semantics.semantic_parameters(schema):
        return None
    found = argument_semantics.errors(schema, json_value(arguments))
    return f"{found[0].name}: {found[0].message}" if found else None
