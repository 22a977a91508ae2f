"""Calls against the schemas of their tools: arguments and output, each distinct value once.

jsonschema-rs judges (offline: nothing is ever fetched; formats are annotations, as JSON Schema
2020-12 has them by default). A schema it refuses is a finding about the tool, never about a call.
"""

from collections.abc import Iterable
from typing import Any, Final

import jsonschema_rs
import msgspec
import polars as pl

UNUSABLE: Final = "unusable_schema"

Verdicts = tuple[str, str | None, str | None]
"""State, first error's text, first error's path (JSON Pointer)."""


def compile_schema(text: str) -> jsonschema_rs.Validator | str:
    """A validator for a schema's JSON text, or why there can be none."""
    try:
        schema: Any = msgspec.json.decode(text)
        return jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        return f"{getattr(error, 'message', None) or error}"
    except (msgspec.DecodeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        return f"{error}"


def judge_value(validator: jsonschema_rs.Validator, text: str) -> Verdicts:
    """Whether one JSON text satisfies a schema."""
    try:
        value: Any = msgspec.json.decode(text)
        if validator.is_valid(value):
            return "valid", None, None
        broken = next(iter(validator.iter_errors(value)))
    except (msgspec.DecodeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        return "invalid", f"{error}", None
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in broken.instance_path)
    return "invalid", broken.message[:500], "".join(f"/{part}" for part in parts)


def validate(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """The `input_schema_*` and `output_schema_*` columns of calls.

    `calls` has `definition`, `arguments`, `outcome`, `structured_content`, `text`;
    `definitions` has `definition`, `input_schema`, `output_schema`.
    """
    schemas = definitions.select("definition", "input_schema", "output_schema").unique("definition")
    rows = calls.select(
        "call_id",
        "definition",
        "outcome",
        # A call without arguments is a call with none: servers see an empty object.
        given=pl.when(pl.col("tool").is_not_null()).then(pl.coalesce("arguments", pl.lit("{}"))),
        output=pl.coalesce(
            "structured_content",
            pl.when(pl.col("text").str.contains(r"^\s*[\[{]")).then(pl.col("text")),
        ),
    ).join(schemas, on="definition", how="left", maintain_order="left")
    asked = rows.filter(pl.col("input_schema").is_not_null() & pl.col("given").is_not_null())
    answered = rows.filter(
        pl.col("output_schema").is_not_null() & pl.col("outcome").is_in(["ok", "hidden_error"])
    )
    inputs = _judged(asked.select("call_id", schema="input_schema", value="given"), "input_schema")
    outputs = _judged(
        answered.select("call_id", schema="output_schema", value="output"), "output_schema"
    )
    return (
        calls.join(inputs, on="call_id", how="left", maintain_order="left")
        .join(outputs, on="call_id", how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("tool").is_not_null())
            .then(pl.col("input_schema_state", "output_schema_state").fill_null("none"))
            .name.keep()
        )
    )


def _judged(rows: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Judgements of (schema, value) pairs, joined back to their calls."""
    states: list[tuple[str, str | None, str, str | None, str | None]] = []
    distinct = rows.select("schema", "value").unique(maintain_order=True)
    for (schema,), group in distinct.group_by("schema", maintain_order=True):
        validator = compile_schema(str(schema))
        values: Iterable[Any] = group.get_column("value")
        if isinstance(validator, str):
            states += [(str(schema), v, UNUSABLE, validator[:500], None) for v in values]
            continue
        for value in values:
            if value is None:
                states.append((str(schema), None, "missing_output", None, None))
            else:
                states.append((str(schema), value, *judge_value(validator, value)))
    names = ("state", "error", "path")
    columns = ["schema", "value", *(f"{prefix}_{name}" for name in names)]
    judged = pl.DataFrame(states, schema=dict.fromkeys(columns, pl.String), orient="row")
    return rows.join(judged, on=["schema", "value"], how="left", nulls_equal=True).drop(
        "schema", "value"
    )
