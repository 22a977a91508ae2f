"""Computes the seed scores of the document and of the original program for a table of calls.

The decoder's columns describe most replies completely: plain blocks, an isError that is true, false
or absent, a first text that was not truncated. `regular_replies` scores such replies from their
columns. A few replies per thousand are irregular; the modules `inspector` and `document` score
them, each distinct reply once.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from mcptally.messages.content_blocks import ERROR_TEXT_LIMIT
from mcptally.seeds import javascript
from mcptally.seeds.inspector import document, inspector, regular_replies
from mcptally.seeds.inspector.ajv import schemas as ajv
from mcptally.seeds.inspector.model import BusinessDecision, ValidationContext, ValidationResult
from mcptally.seeds.inspector.score_columns import (
    COLUMNS,
    ROW,
    decision_columns,
    result_columns,
    score_distinct,
)
from mcptally.tables.arrow import indices
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Definitions, Judged

_ANSWERED: Final = ("ok", "tool_error", "hidden_error", "input_required", "task")
_INTERIM: Final = ("input_required", "task")


class _Replies(StageTable):
    """One row per tool call, with the facts that determine how its reply is scored."""

    seed_row = Column(pl.UInt32, "Number of the call, by which its scores are joined.")
    outcome = Judged.outcome
    tool = Judged.tool
    arguments = Judged.arguments
    error_code = Judged.error_code
    error_text = Judged.error_text
    is_error = Judged.is_error
    content_kind = Judged.content_kind
    content_types = Judged.content_types
    blocks_plain = Judged.blocks_plain
    text_blocks = Judged.text_blocks
    image_blocks = Judged.image_blocks
    resource_blocks = Judged.resource_blocks
    first_text = Judged.first_text
    has_structured_content = Judged.has_structured_content
    has_meta = Judged.has_meta
    output_schema_state = Judged.output_schema_state
    definition = Judged.definition
    scenario = Judged.scenario
    replied = Column(pl.Boolean, "Whether the reply was kept.")
    is_object = Column(pl.Boolean, "Whether the reply is an object.")
    output_schema = Definitions.output_schema
    has_schema = Column(pl.Boolean, "Whether the tool has an output schema.")
    refused = Column(pl.Boolean, "Whether AJV rejects that schema.")
    interpretations_agree = Column(
        pl.Boolean,
        "Whether every value is valid by that schema in both interpretations or in neither.",
    )
    failed = Column(pl.Boolean, "Whether `isError` is true.")
    is_answered = Column(pl.Boolean, "Whether the reply is a result.")
    is_rejected = Column(pl.Boolean, "Whether the reply is a JSON-RPC error.")
    is_unanswered = Column(pl.Boolean, "Whether there is no reply.")
    is_interim = Column(pl.Boolean, "Whether a later reply is the final one.")
    is_irregular = Column(pl.Boolean, "Whether the other columns describe the reply incompletely.")
    is_cut = Column(pl.Boolean, "Whether the decoder may have cut the first text.")


def add_seed_scores(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """Add the `seed_*` and `inspector_*` columns to `calls`, keeping the order of rows.

    The columns are null for methods other than tools/call, for cancelled calls, and for replies
    that were too large to keep.

    Args:
        calls: one row per call (`Judged`).
        definitions: `definition` and `output_schema` (JSON text) of the tools.
    """
    # Responses may be large, so copy only the responses of irregular replies.
    responses = calls.get_column(Judged.response.name)
    rows = (
        _with_schemas(
            calls.lazy()
            .select(
                *_Replies.shared_with(Judged),
                replied=Judged.response.col.is_not_null(),
                is_object=Judged.response.col.str.starts_with("{"),
            )
            .with_row_index(ROW)
            .filter(Judged.tool.col.is_not_null()),
            definitions,
        )
        .with_columns(
            failed=_Replies.is_error.col.eq("true").fill_null(value=False),
            is_answered=_Replies.outcome.col.is_in(_ANSWERED) & _Replies.replied.col,
            is_rejected=_Replies.outcome.col == "protocol_error",
            is_unanswered=_Replies.outcome.col.is_in(["timeout", "no_response"]),
            is_interim=_Replies.outcome.col.is_in(_INTERIM),
        )
        .with_columns(
            is_irregular=_is_irregular(),
            is_cut=_Replies.failed.col
            & (_Replies.first_text.col.str.len_chars() >= ERROR_TEXT_LIMIT).fill_null(value=False),
            error_text=_Replies.error_text.col.fill_null(""),
        )
        .pipe(run_query)
    )
    answered = _with_whole_text(rows[_indices(rows, _Replies.is_answered)], responses)
    regular = answered[_indices(answered, _Replies.is_irregular, is_not=True)]
    irregular = answered[_indices(answered, _Replies.is_irregular)]
    del answered  # each of these frames copies its rows
    errors = regular[_indices(regular, _Replies.failed)]
    without_error = regular[_indices(regular, _Replies.failed, is_not=True)]
    del regular
    rejected = rows[_indices(rows, _Replies.is_rejected)]
    unanswered = rows[_indices(rows, _Replies.is_unanswered)]
    # Few archives have all kinds of replies.
    parts: list[pl.DataFrame] = []
    if irregular.height:
        parts.append(_irregular(_with_responses(irregular, responses)))
    if without_error.height:
        parts.append(regular_replies.successes(without_error))
    if errors.height or rejected.height:
        decided = regular_replies.decided([(errors, "first_text"), (rejected, "error_text")])
        parts.append(regular_replies.tool_errors(errors, decided))
        parts.append(regular_replies.protocol_errors(rejected, decided))
    if unanswered.height:
        parts.append(regular_replies.unanswered(unanswered))
    none = pl.LazyFrame(schema={ROW: pl.UInt32(), **COLUMNS})
    found = _without_interim(pl.concat([none, *map(_with_all_columns, parts)], rechunk=True), rows)
    numbers = pl.int_range(calls.height, dtype=pl.UInt32, eager=True).alias(ROW).to_frame()
    return calls.hstack(left_join_columns(numbers, found.pipe(run_query), ROW).drop(ROW))


def _indices(rows: pl.DataFrame, column: Column, *, is_not: bool = False) -> pl.Series:
    """Return the indexes of the rows in which a column is true or, if `is_not`, is not true."""
    mask = rows.get_column(column.name).to_numpy()
    return indices(np.flatnonzero(~mask if is_not else mask))


# --- irregular replies ---


def _is_irregular() -> pl.Expr:
    """Return an expression that is true if the decoder's columns do not describe all of a reply."""
    plain_error = _Replies.is_error.col.is_null() | _Replies.is_error.col.is_in(
        ["true", "false", "null"]
    )
    array = _Replies.content_kind.col == "array"
    irregular_shape = (
        ~_Replies.is_object.col
        | ~plain_error
        | (_Replies.content_kind.col == "other")
        | (array & ~_Replies.blocks_plain.col)
    )
    # Without a first text, the content's JSON text is examined.
    no_text = _Replies.first_text.col.is_null() | (_Replies.first_text.col == "")
    # If it is not certain that the result is valid in both interpretations, each interpretation
    # validates it.
    schema = (
        ~_Replies.failed.col
        & array
        & (_Replies.content_types.col.list.len() > 0)
        & _Replies.has_schema.col
        & ~(
            (_Replies.output_schema_state.col == "valid")
            & _Replies.has_structured_content.col
            & _Replies.interpretations_agree.col
        )
    )
    return (irregular_shape | (_Replies.failed.col & no_text) | schema).fill_null(value=True)


def _with_responses(rows: pl.DataFrame, responses: pl.Series) -> pl.DataFrame:
    return rows.hstack([responses[rows.get_column(ROW)].alias("response")])


def _with_whole_text(answered: pl.DataFrame, responses: pl.Series) -> pl.DataFrame:
    """Replace each first text that the decoder may have cut (`is_cut`) with the whole text."""
    cut = _indices(answered, _Replies.is_cut)
    if not len(cut):
        return answered
    texts = _with_responses(answered[[ROW, "first_text"]][cut], responses).select(
        pl.coalesce(Judged.response.col.str.json_path_match("$.content[0].text"), "first_text")
    )
    first_text = (
        answered.get_column(_Replies.first_text.name).clone().scatter(cut, texts.to_series())
    )
    return answered.with_columns(first_text)


def _with_schemas(rows: pl.LazyFrame, definitions: pl.DataFrame) -> pl.LazyFrame:
    """Add the columns `output_schema`, `has_schema`, `refused` and `interpretations_agree`."""
    schemas = dict.fromkeys(
        definitions.get_column(Definitions.output_schema.name).drop_nulls().to_list()
    )
    statuses = pl.LazyFrame(
        [(text, *ajv.compile_status(text)) for text in schemas],
        schema={
            "output_schema": pl.String,
            "refused": pl.Boolean,
            "interpretations_agree": pl.Boolean,
        },
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
        has_schema=Definitions.output_schema.col.is_not_null(),
        refused=_Replies.refused.col.fill_null(value=False),
        interpretations_agree=_Replies.interpretations_agree.col.fill_null(value=True),
    )


def _irregular(rows: pl.DataFrame) -> pl.DataFrame:
    """Score irregular replies, each distinct combination of call and response once."""
    return score_distinct(
        rows.select(ROW, "tool", "output_schema", "arguments", "response"), _score_one
    )


def _score_one(row: Mapping[str, Any]) -> dict[str, Any]:
    scored: dict[str, Any] = dict.fromkeys(COLUMNS)
    definition = {"name": row["tool"]}
    try:
        if row["output_schema"] is not None:
            definition["outputSchema"] = javascript.parse(row["output_schema"])
        context = ValidationContext(
            tool=definition,
            input=_parsed(row["arguments"]),
            response=javascript.parse(row["response"]),
        )
    except (ValueError, RecursionError) as error:
        message = f"cannot be read: {error}"
        return scored | dict.fromkeys(("seed_error", "inspector_error"), message)
    for interpretation, module in (("seed", document), ("inspector", inspector)):
        try:
            result: ValidationResult = module.validate(context)
            scored |= result_columns(interpretation, result)
            if result.is_error is not False:
                decision: BusinessDecision = module.business(context)
                scored |= decision_columns(interpretation, decision)
                scored[f"{interpretation}_error"] = result.throws or decision.throws
        except RecursionError as error:
            scored[f"{interpretation}_error"] = f"cannot be read: {error}"
    return scored


def _parsed(arguments: str | None) -> Any:
    try:
        return {} if arguments is None else javascript.parse(arguments)
    except (ValueError, RecursionError):
        return {}


def _without_interim(found: pl.LazyFrame, rows: pl.DataFrame) -> pl.LazyFrame:
    """Set the `seed_*` columns of interim answers to null: the document does not score them."""
    interim = rows.get_column(ROW)[_indices(rows, _Replies.is_interim)]
    if not len(interim):
        return found
    hidden = [name for name in COLUMNS if name.startswith("seed_")]
    keep = ~pl.col(ROW).is_in(interim.implode())
    return found.with_columns(pl.when(keep).then(pl.col(hidden)).name.keep())


def _with_all_columns(part: pl.DataFrame) -> pl.LazyFrame:
    """Return the rows with all columns of `COLUMNS`, in order; fill missing columns with null."""
    known = set(part.columns)
    return part.lazy().select(
        ROW,
        *(
            pl.col(name).cast(kind) if name in known else pl.lit(None, kind).alias(name)
            for name, kind in COLUMNS.items()
        ),
    )
