"""Validates the arguments and outputs of calls against the schemas of their tools.

Each distinct pair of schema and value is validated once. An unusable schema becomes a finding about
the tool, not about its calls.
"""

from typing import Final

import msgspec
import polars as pl

from mcptally.jsonschemas.validators import (
    UNUSABLE_SCHEMA,
    ValidationResult,
    Validator,
    compile_validator,
    validate_json,
)
from mcptally.rules.findings import concat_findings, make_findings, select_for_findings
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.formatting import formatted
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Definitions, Validated
from mcptally.wire.json_text import ANY, decode_or_none


class _Values(StageTable):
    """One row per call, with the values that are to be validated."""

    row = Column(pl.UInt32, "Number of the call.")
    whole = Column(pl.Boolean, "Whether request and reply were recorded in full.")
    has_input = Column(pl.Boolean, "Whether the call has arguments that were recorded in full.")
    input_number = Column(pl.UInt32, "Number of the text of the input schema.")
    output_number = Column(pl.UInt32, "Number of the text of the output schema.")
    output = Column(pl.String, "JSON text of the output.")
    number = Column(pl.UInt32, "Number of the text of a schema.")
    value = Column(pl.String, "JSON text of a value.")


def validate_calls(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Validate each call's arguments and output; add columns for state, error and path.

    The columns are `input_schema_…` and `output_schema_…`.

    Args:
        calls: needs `call_id`, `tool`, `definition`, `outcome`, `arguments`, `truncated`,
            `structured_content`, `response` and `reply_truncated`.
        definitions: needs `definition`, `input_schema` and `output_schema` (JSON texts).
    """
    number_of: dict[str, int] = {}
    schemas = definitions.select(
        Definitions.definition.col, Definitions.input_schema.col, Definitions.output_schema.col
    ).unique("definition")
    numbers = pl.LazyFrame(
        {"definition": schemas.get_column(Definitions.definition.name)}
        | {
            f"{side}_number": pl.Series(
                [
                    None if text is None else number_of.setdefault(text, len(number_of))
                    for text in schemas.get_column(f"{side}_schema")
                ],
                dtype=pl.UInt32,
            )
            for side in ("input", "output")
        }
    )
    tool = Validated.tool.col.is_not_null()
    # Responses may be large, and only a few are needed, so look them up by `row` later.
    rows = (
        calls.lazy()
        .select(
            "call_id",
            "definition",
            "outcome",
            row=pl.int_range(pl.len(), dtype=pl.UInt32),
            # The client may not have fetched a completed task's result.
            whole=~Validated.truncated.col
            & ~Validated.reply_truncated.col.fill_null(value=False)
            & Validated.response.col.is_not_null(),
            has_input=tool & ~Validated.truncated.col,
            input="arguments",
            output="structured_content",
        )
        .join(numbers, on="definition", how="left", maintain_order="left")
        .pipe(run_query)
    )
    with_input = rows.lazy().filter(_Values.input_number.col.is_not_null() & _Values.has_input.col)
    with_output = _with_json_text(
        rows.filter(
            _Values.output_number.col.is_not_null()
            & Validated.outcome.col.is_in(["ok", "hidden_error"])
            & _Values.whole.col
        ),
        calls.get_column(Validated.response.name),
    )
    schema_texts = list(number_of)
    inputs = _validated(
        with_input.select("call_id", number="input_number", value="input"),
        schema_texts,
        "input_schema",
        # Missing arguments are validated as an empty object.
        missing=b"{}",
    )
    outputs = _validated(
        with_output.lazy().select("call_id", number="output_number", value="output"),
        schema_texts,
        "output_schema",
    )
    return (
        left_join_columns(left_join_columns(calls, inputs, "call_id"), outputs, "call_id")
        .lazy()
        .with_columns(
            _unless_redacted("input_schema_state", "arguments"),
            _unless_redacted("output_schema_state", "response"),
        )
        .with_columns(
            pl.when(tool)
            .then(pl.col("input_schema_state", "output_schema_state").fill_null("none"))
            .name.keep()
        )
        .pipe(run_query)
    )


REDACTED: Final = r"\[(?:redacted|hashed):"
"""Matches the text that replaces a secret in recordings. The original value may have been valid."""


def _unless_redacted(state: str, value: str) -> pl.Expr:
    """Return the expression `state`, but null where redaction may have made the value invalid."""
    invalid = pl.col(state) == "invalid"
    redacted = pl.when(invalid).then(pl.col(value)).str.contains(REDACTED)
    return pl.when(~redacted.fill_null(value=False)).then(pl.col(state))


def _with_json_text(rows: pl.DataFrame, responses: pl.Series) -> pl.DataFrame:
    """Set `output` to a result's first JSON text if the result has no structuredContent.

    Args:
        rows: one row per call; the column `row` is an index into `responses`.
        responses: the responses to all calls.
    """
    row = rows.get_column(_Values.row.name).filter(rows.get_column(_Values.output.name).is_null())
    missing = pl.DataFrame({"row": row, "response": responses[row]}).drop_nulls("response")
    if not missing.height:
        return rows
    texts = missing.get_column(Validated.response.name).unique()
    found = pl.DataFrame(
        {
            "response": texts,
            "first_json": pl.Series([first_json_text(t) for t in texts], dtype=pl.String),
        }
    )
    known = missing.join(found, on="response", how="left").select("row", "first_json")
    return left_join_columns(rows, known, "row").with_columns(
        output=pl.coalesce("output", "first_json")
    )


class _Text(msgspec.Struct):
    """A content block of a tool result."""

    type: object = None
    text: object = None


class _Content(msgspec.Struct):
    """A tool result, of which only the content blocks are decoded."""

    content: list[_Text] = []


_CONTENT: Final = msgspec.json.Decoder(_Content)


def first_json_text(response: str) -> str | None:
    """Return the first text block of a tool result that is a JSON object or array, or None."""
    result = decode_or_none(_CONTENT, response)
    for block in result.content if result else ():
        text = block.text
        if (
            block.type == "text"
            and isinstance(text, str)
            and text.lstrip()[:1] in {"{", "["}
            and decode_or_none(ANY, text) is not None
        ):
            return text
    return None


def _validated(
    rows: pl.LazyFrame, schemas: list[str], prefix: str, *, missing: bytes | None = None
) -> pl.DataFrame:
    """Validate pairs of a schema and a value, and return the results with the column `call_id`.

    Args:
        rows: needs `call_id`, `number` (index into `schemas`) and `value`.
        schemas: JSON texts.
        prefix: prefix for the names of the result columns.
        missing: the value to validate in place of null; if None, nulls get the state
            `missing_output`.
    """
    # Group by value first, then by number, because grouping by value and number at once would copy
    # the values.
    distinct = (
        rows.group_by("value")
        .agg("number", "call_id")
        .with_row_index("text")
        .explode("number", "call_id", empty_as_null=False)
        .group_by("number", "text")
        .agg("call_id", _Values.value.col.first())
        .sort("number")
        .pipe(run_query)
    )
    results: list[ValidationResult] = []
    # Rows are sorted by schema. Keep only the current validator, because patterns take much memory.
    current: int | None = None
    judge: Validator | str = ""
    # Pass bytes, because the decoder would first have to encode non-ASCII text.
    values = distinct.get_column(_Values.value.name).cast(pl.Binary)
    for number, value in zip(
        distinct.get_column(_Values.number.name).to_list(), values, strict=True
    ):
        if number != current:
            current, judge = number, compile_validator(schemas[number])
        text = missing if value is None else value
        if isinstance(judge, str):
            results.append((UNUSABLE_SCHEMA, judge, None))
        elif text is None:
            results.append(("missing_output", None, None))
        else:
            results.append(validate_json(judge, text))
    names = [f"{prefix}_{name}" for name in ("state", "error", "path")]
    validated = pl.DataFrame(results, schema=dict.fromkeys(names, pl.String), orient="row")
    return validated.hstack([distinct.get_column(Validated.call_id.name)]).explode(
        "call_id", empty_as_null=False
    )


_READ_BY_FINDINGS: Final = (
    *("outcome", "arguments", "structured_content", "first_text"),
    *("input_schema_state", "input_schema_error", "input_schema_path"),
    *("output_schema_state", "output_schema_error", "output_schema_path"),
)


def schema_findings(calls: pl.DataFrame) -> pl.DataFrame:
    """Return findings about calls whose arguments or output do not match the tool's schemas."""
    calls = select_for_findings(calls, *_READ_BY_FINDINGS)
    invalid = calls.filter(Validated.input_schema_state.col == "invalid")
    output = Validated.output_schema_state.col
    return concat_findings(
        [
            make_findings(
                "schema.arguments_invalid",
                invalid,
                member_message(
                    Validated.input_schema_path, Validated.input_schema_error, pl.lit("arguments")
                ),
                evidence="arguments",
                path="input_schema_path",
            ),
            make_findings(
                "schema.invalid_arguments_accepted",
                invalid.lazy().filter(Validated.outcome.col == "ok") if invalid.height else invalid,
                "the server accepted arguments that do not match its schema",
                path="input_schema_path",
            ),
            make_findings(
                "schema.output_invalid",
                calls.filter(output == "invalid"),
                member_message(
                    Validated.output_schema_path, Validated.output_schema_error, pl.lit("output")
                ),
                evidence=pl.coalesce("structured_content", "first_text"),
                path="output_schema_path",
            ),
            make_findings(
                "schema.output_missing",
                calls.filter(output == "missing_output"),
                "the tool has an outputSchema, but the result has no structured output",
            ),
        ]
    )


def member_message(path: Column, message: Column, whole: pl.Expr) -> pl.Expr:
    """Return an expression for a message: the name of the invalid member, then the error.

    Args:
        path: the column with the JSON Pointer of the invalid member.
        message: the column with the error.
        whole: the subject if the whole value is invalid.
    """
    member = path.col.str.extract(r"([^/]*)$")
    subject = pl.when(path.col.fill_null("") == "").then(whole).otherwise(member)
    return formatted("{} {}", subject, message.col)
