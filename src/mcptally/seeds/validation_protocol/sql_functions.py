"""What a dry run says of recorded calls by the meaning of their arguments, as a DuckDB function.

`meaning_error(input_schema, arguments)` gives the first error of `semantic`, or null;
`has_meaning(input_schema)` says whether there can be one. They run when somebody asks
`preventable_failures`, not when an archive is scored: nobody else pays for it. The question asks
each distinct pair once, and nothing is kept: arguments may be large.
"""

import duckdb
import msgspec
import pyarrow as pa
from duckdb.func import ARROW, SPECIAL


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Give a connection the functions `meaning_error` and `has_meaning`."""
    text = "VARCHAR"
    connection.create_function(
        "has_meaning", _have, [text], "BOOLEAN", type=ARROW, null_handling=SPECIAL
    )
    connection.create_function(
        "meaning_error", _errors, [text, text], text, type=ARROW, null_handling=SPECIAL
    )


def _have(schemas: pa.ChunkedArray) -> pa.Array:
    from mcptally.seeds.validation_protocol import argument_semantics  # noqa: PLC0415  (as below)

    return pa.array(
        [
            schema is not None and bool(argument_semantics.plan(schema))
            for schema in schemas.to_pylist()
        ],
        pa.bool_(),
    )


def _errors(schemas: pa.ChunkedArray, arguments: pa.ChunkedArray) -> pa.Array:
    pairs = zip(schemas.to_pylist(), arguments.to_pylist(), strict=True)
    return pa.array([meaning_error(schema, given) for schema, given in pairs], pa.string())


def meaning_error(schema: str | None, arguments: str | None) -> str | None:
    """The first error that the meaning of arguments (JSON text) has, by their schema's plan."""
    from mcptally.seeds.validation_protocol import argument_semantics  # noqa: PLC0415  (schema engines: few ask for them)

    if schema is None or arguments is None or not argument_semantics.plan(schema):
        return None
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    found = argument_semantics.errors(schema, value)
    return f"{found[0].name}: {found[0].words}" if found else None
