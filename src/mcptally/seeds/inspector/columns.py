"""The seed scores of a table of calls, in both readings.

The decoder's columns describe most replies completely: plain blocks, an isError that is true, false
or absent, a first text that was not cut. `regular_replies` scores these. The others are irregular,
a few in a thousand: the modules `inspector` and `document` score each distinct one.
"""

from typing import Any, Final, Literal

import numpy as np
import polars as pl

from mcptally.messages.content_blocks import ERROR_TEXT_LIMIT, TEXT_LIMIT
from mcptally.seeds import javascript
from mcptally.seeds.inspector import document, inspector, regular_replies
from mcptally.seeds.inspector.ajv import schemas as ajv
from mcptally.seeds.inspector.model import BusinessDecision, ValidationContext, ValidationResult
from mcptally.seeds.inspector.score_columns import COLUMNS, ROW, decision_columns, result_columns
from mcptally.tables.arrow import indices
from mcptally.tables.queries import run_query

Business = Literal["errors", "every"]
"""Which replies get a business-error decision: errors only, as in both readings, or every reply,
for which all texts must be searched."""

_ANSWERED: Final = ("ok", "tool_error", "hidden_error", "input_required", "task")
_INTERIM: Final = ("input_required", "task")

_INPUTS: Final = (
    *("outcome", "tool", "arguments", "response", "error_code", "error_text", "is_error"),
    *("content_kind", "content_types", "blocks_plain", "text_blocks", "image_blocks"),
    *("resource_blocks", "first_text", "has_structured_content", "has_meta"),
    *("output_schema_state", "definition", "scenario"),
)


def add_seed_scores(
    calls: pl.DataFrame, definitions: pl.DataFrame | None = None, *, business: Business = "errors"
) -> pl.DataFrame:
    """`calls` with the `seed_*` and `inspector_*` columns, in the same order.

    The columns are null for methods other than tools/call, for cancelled calls, and for replies
    that were too large to keep.

    Args:
        calls: one row per call, with the columns of `_INPUTS`; `scenario` may be missing.
        definitions: `definition` and `output_schema` (JSON text) of the tools.
        business: which replies get a business-error decision.
    """
    if "scenario" not in calls.columns:
        calls = calls.with_columns(scenario=pl.lit(None, pl.String))
    # Responses may be large: only those of irregular replies are copied.
    responses = calls.get_column("response")
    is_decided = pl.lit(value=True) if business == "every" else pl.col("failed")
    limit = pl.when("failed").then(ERROR_TEXT_LIMIT).otherwise(TEXT_LIMIT)
    rows = (
        _with_schemas(
            calls.lazy()
            .select(
                *(name for name in _INPUTS if name != "response"),
                replied=pl.col("response").is_not_null(),
                is_object=pl.col("response").str.starts_with("{"),
            )
            .with_row_index(ROW)
            .filter(pl.col("tool").is_not_null()),
            definitions,
        )
        .with_columns(
            failed=pl.col("is_error").eq("true").fill_null(value=False),
            is_answered=pl.col("outcome").is_in(_ANSWERED) & pl.col("replied"),
            is_rejected=pl.col("outcome") == "protocol_error",
            is_unanswered=pl.col("outcome").is_in(["timeout", "no_response"]),
            is_interim=pl.col("outcome").is_in(_INTERIM),
        )
        .with_columns(
            is_irregular=_is_irregular(business),
            is_cut=is_decided
            & (pl.col("first_text").str.len_chars() >= limit).fill_null(value=False),
            error_text=pl.col("error_text").fill_null(""),
        )
        .pipe(run_query)
    )
    answered = _with_whole_text(rows[_indices(rows, "is_answered")], responses)
    regular = answered[_indices(answered, "is_irregular", is_not=True)]
    errors = regular[_indices(regular, "failed")]
    without_error = regular[_indices(regular, "failed", is_not=True)]
    rejected = rows[_indices(rows, "is_rejected")]
    examined = [(errors, "first_text"), (rejected, "error_text")]
    if business == "every":
        examined.append((without_error, "first_text"))
    decided = regular_replies.decided(examined)
    successes = regular_replies.successes(without_error)
    if business == "every":
        successes = successes.join(decided, on=ROW, how="left", maintain_order="left")
    irregular = answered[_indices(answered, "is_irregular")]
    parts = [
        _irregular(_with_responses(irregular, responses), business),
        successes,
        regular_replies.tool_errors(errors, decided),
        regular_replies.protocol_errors(rejected, decided),
        regular_replies.unanswered(rows[_indices(rows, "is_unanswered")]),
    ]
    found = _without_interim(pl.concat([_with_all_columns(part) for part in parts]), rows)
    scores = (
        calls.lazy()
        .select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(ROW))
        .join(found, on=ROW, how="left", maintain_order="left")
        .drop(ROW)
        .pipe(run_query)
    )
    return calls.hstack(scores)


def _indices(rows: pl.DataFrame, name: str, *, is_not: bool = False) -> pl.Series:
    """The indices of the rows for which the column `name` is true, or for which it `is_not`."""
    mask = rows.get_column(name).to_numpy()
    return indices(np.flatnonzero(~mask if is_not else mask))


# --- irregular replies ---


def _is_irregular(business: Business) -> pl.Expr:
    """Whether the decoder's columns do not describe the reply completely."""
    plain_error = pl.col("is_error").is_null() | pl.col("is_error").is_in(["true", "false", "null"])
    array = pl.col("content_kind") == "array"
    irregular_shape = (
        ~pl.col("is_object")
        | ~plain_error
        | (pl.col("content_kind") == "other")
        | (array & ~pl.col("blocks_plain"))
    )
    # Without a first text, the JSON text of the content is examined.
    no_text = pl.col("first_text").is_null() | (pl.col("first_text") == "")
    is_decided = pl.lit(value=True) if business == "every" else pl.col("failed")
    # Unless the result is known to be valid in both readings, each validates it again.
    schema = (
        ~pl.col("failed")
        & array
        & (pl.col("content_types").list.len() > 0)
        & pl.col("has_schema")
        & ~(
            (pl.col("output_schema_state") == "valid")
            & pl.col("has_structured_content")
            & pl.col("readings_agree")
        )
    )
    return (irregular_shape | (is_decided & no_text) | schema).fill_null(value=True)


def _with_responses(rows: pl.DataFrame, responses: pl.Series) -> pl.DataFrame:
    return rows.hstack([responses[rows.get_column(ROW)].alias("response")])


def _with_whole_text(answered: pl.DataFrame, responses: pl.Series) -> pl.DataFrame:
    """`answered` with the whole first text where the decoder may have cut it (`is_cut`)."""
    cut = _indices(answered, "is_cut")
    if not len(cut):
        return answered
    texts = _with_responses(answered[[ROW, "first_text"]][cut], responses).select(
        pl.coalesce(pl.col("response").str.json_path_match("$.content[0].text"), "first_text")
    )
    first_text = answered.get_column("first_text").clone().scatter(cut, texts.to_series())
    return answered.with_columns(first_text)


def _with_schemas(rows: pl.LazyFrame, definitions: pl.DataFrame | None) -> pl.LazyFrame:
    """`rows` with `output_schema`, `has_schema`, `refused` and `readings_agree`.

    `refused` is whether AJV rejects the schema, `readings_agree` whether every value is valid in
    both readings or in neither.
    """
    if definitions is None:
        return rows.with_columns(
            output_schema=pl.lit(None, pl.String), has_schema=False, readings_agree=True,
            refused=False,
        )  # fmt: skip
    schemas = dict.fromkeys(definitions.get_column("output_schema").drop_nulls().to_list())
    statuses = pl.LazyFrame(
        [(text, *ajv.compile_status(text)) for text in schemas],
        schema={"output_schema": pl.String, "refused": pl.Boolean, "readings_agree": pl.Boolean},
        orient="row",
    )
    known = (
        definitions.lazy()
        .select("definition", "output_schema")
        .drop_nulls()
        .unique("definition")
        .join(statuses, on="output_schema", how="left")
    )
    return rows.join(known, on="definition", how="left", maintain_order="left").with_columns(
        has_schema=pl.col("output_schema").is_not_null(),
        refused=pl.col("refused").fill_null(value=False),
        readings_agree=pl.col("readings_agree").fill_null(value=True),
    )


def _irregular(rows: pl.DataFrame, business: Business) -> pl.DataFrame:
    """Scores of irregular replies, computed once per distinct call and response."""
    keys = ["tool", "output_schema", "arguments", "response"]
    keyed = rows[[ROW, *keys]]
    if not keyed.height:
        return keyed[[ROW]]
    distinct = keyed[keys].unique()
    scored = [_score_one(*row, business=business) for row in distinct.iter_rows()]
    found = pl.DataFrame(
        {
            name: pl.Series([row[name] for row in scored], dtype=kind)
            for name, kind in COLUMNS.items()
        }
    )
    table = distinct.hstack(found).lazy()
    query = keyed.lazy().join(table, on=keys, how="left", nulls_equal=True).drop(keys)
    return query.pipe(run_query)


def _score_one(
    tool: str, schema: str | None, arguments: str | None, response: str, *, business: Business
) -> dict[str, Any]:
    scored: dict[str, Any] = dict.fromkeys(COLUMNS)
    definition = {"name": tool}
    try:
        if schema is not None:
            definition["outputSchema"] = javascript.parse(schema)
        context = ValidationContext(
            tool=definition,
            input=_parsed(arguments),
            response=javascript.parse(response),
        )
    except (ValueError, RecursionError) as error:
        message = f"cannot be read: {error}"
        return scored | dict.fromkeys(("seed_error", "inspector_error"), message)
    for reading, module in (("seed", document), ("inspector", inspector)):
        try:
            result: ValidationResult = module.validate(context)
            scored |= result_columns(reading, result)
            if business == "every" or result.is_error is not False:
                decision: BusinessDecision = module.business(context)
                scored |= decision_columns(reading, decision)
                scored[f"{reading}_error"] = result.throws or decision.throws
        except RecursionError as error:
            scored[f"{reading}_error"] = f"cannot be read: {error}"
    return scored


def _parsed(arguments: str | None) -> Any:
    try:
        return {} if arguments is None else javascript.parse(arguments)
    except (ValueError, RecursionError):
        return {}


def _without_interim(found: pl.LazyFrame, rows: pl.DataFrame) -> pl.LazyFrame:
    """`found` without `seed_*` values for interim answers: the document scores final ones only."""
    interim = rows.get_column(ROW)[_indices(rows, "is_interim")]
    if not len(interim):
        return found
    hidden = [name for name in COLUMNS if name.startswith("seed_")]
    keep = ~pl.col(ROW).is_in(interim.implode())
    return found.with_columns(pl.when(keep).then(pl.col(hidden)).name.keep())


def _with_all_columns(part: pl.DataFrame) -> pl.LazyFrame:
    """A part with every column of `COLUMNS`, in order."""
    known = set(part.columns)
    return part.lazy().select(
        ROW,
        *(
            pl.col(name).cast(kind) if name in known else pl.lit(None, kind).alias(name)
            for name, kind in COLUMNS.items()
        ),
    )
