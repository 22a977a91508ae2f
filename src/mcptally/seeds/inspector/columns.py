"""Calls to calls with the seed score beside them, in both readings, without a loop over calls.

    calls → settled by columns | odd, by the reference once per distinct response → one frame

`settled` are the calls whose reply the decoder's columns describe in full: blocks that are
plain, an isError that is true, false or absent, a first text of which all is there. What is left
(single calls in a thousand) goes through seed/inspector.py and seed/document.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import polars as pl

from mcptally.messages.content_blocks import ERROR_TEXT_LIMIT, TEXT_LIMIT
from mcptally.seeds.inspector import ajv, document, inspector, javascript, wording
from mcptally.seeds.inspector.factors import BUSINESS, decisions
from mcptally.seeds.inspector.model import (
    BusinessDecision,
    OutputSchemaValidation,
    ResponseMetadata,
    ValidationContext,
    ValidationResult,
)
from mcptally.tables.formatting import formatted

Business = Literal["errors", "every"]
"""Of which replies the business-error question is asked: of errors, as both readings' callers
do, or of every reply, which costs a search of all the text there is."""

_LIST: Final = pl.List(pl.String)
_RESULT: Final[dict[str, Any]] = {
    "classification": pl.String,
    "confidence": pl.Float64,
    "is_valid": pl.Boolean,
    "is_error": pl.Boolean,
    "issues": _LIST,
    "evidence": _LIST,
}
_DECISION: Final[dict[str, Any]] = {
    name: pl.Float64 if name in ("business_confidence", "threshold") else pl.Boolean
    for name in BUSINESS
}
_ENDS: Final = _RESULT | _DECISION | {"error": pl.String}
COLUMNS: Final = pl.Schema(
    {f"{reading}_{name}": kind for reading in ("seed", "inspector") for name, kind in _ENDS.items()}
)
"""Every column that `score` adds."""

_ANSWERED: Final = ("ok", "tool_error", "hidden_error", "input_required", "task")
_INTERIM: Final = ("input_required", "task")
_ROW: Final = "seed_row"

_USED: Final = (
    *("outcome", "tool", "arguments", "response", "error_code", "error_text", "is_error"),
    *("content_kind", "content_types", "blocks_plain", "text_blocks", "image_blocks"),
    *("resource_blocks", "first_text", "has_structured_content", "has_meta"),
    *("output_schema_state", "definition", "scenario"),
)


def score(
    calls: pl.DataFrame, definitions: pl.DataFrame | None = None, *, business: Business = "errors"
) -> pl.DataFrame:
    """`calls` with the `seed_*` and `inspector_*` columns; rows and their order stay.

    Calls of other methods than tools/call, calls that were cancelled, and calls whose reply was
    too large to keep have nulls.

    Args:
        calls: one row a call, with the columns of `_USED`; `scenario` may be missing.
        definitions: `definition` and `output_schema` (JSON text) of the tools.
        business: of which replies the business-error question is asked.
    """
    if "scenario" not in calls.columns:
        calls = calls.with_columns(scenario=pl.lit(None, pl.String))
    # Without responses, which may be large: only what is odd is read in full.
    responses = calls.get_column("response")
    rows = calls.select(
        *(name for name in _USED if name != "response"),
        replied=pl.col("response").is_not_null(),
        curly=pl.col("response").str.starts_with("{"),
    )
    rows = rows.with_row_index(_ROW).filter(pl.col("tool").is_not_null())
    rows = _with_schemas(rows, definitions)
    answered = _with_text(
        rows.filter(pl.col("outcome").is_in(_ANSWERED) & pl.col("replied")), responses, business
    )
    odd = _is_odd(business)
    settled = answered.filter(~odd)
    parts = [
        _oddities(_with_responses(answered.filter(odd), responses), business),
        _successes(settled.filter(~pl.col("failed"))),
        _errors(settled.filter("failed")),
        _refusals(rows.filter(pl.col("outcome") == "protocol_error")),
        _silences(rows.filter(pl.col("outcome").is_in(["timeout", "no_response"]))),
    ]
    if business == "every":
        parts[1] = _with_decisions(parts[1], settled.filter(~pl.col("failed")), "first_text")
    found = pl.concat([_complete(part) for part in parts])
    found = _without_interim(found, rows)
    every = calls.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROW))
    beside = every.join(found, on=_ROW, how="left", maintain_order="left").drop(_ROW)
    return calls.hstack(beside)


# ----------------------------------------------------------------------------- what is odd


def _is_odd(business: Business) -> pl.Expr:
    """Whether the decoder's columns do not settle the reply."""
    plain_error = pl.col("is_error").is_null() | pl.col("is_error").is_in(["true", "false", "null"])
    array = pl.col("content_kind") == "array"
    odd_shape = (
        ~pl.col("curly")
        | ~plain_error
        | (pl.col("content_kind") == "other")
        | (array & ~pl.col("blocks_plain"))
    )
    # Without a first text the content's JSON is what is examined.
    no_text = pl.col("first_text").is_null() | (pl.col("first_text") == "")
    asked = pl.lit(value=True) if business == "every" else pl.col("failed")
    # A schema that is not known to be satisfied is judged anew, as each reading judges it.
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
    return (odd_shape | (asked & no_text) | schema).fill_null(value=True)


def _with_responses(rows: pl.DataFrame, responses: pl.Series) -> pl.DataFrame:
    return rows.with_columns(responses.gather(rows.get_column(_ROW)).alias("response"))


def _with_text(answered: pl.DataFrame, responses: pl.Series, business: Business) -> pl.DataFrame:
    """Adds `failed`; a first text that the decoder may have cut is read again in full."""
    answered = answered.with_columns(failed=pl.col("is_error").eq("true").fill_null(value=False))
    limit = pl.when("failed").then(ERROR_TEXT_LIMIT).otherwise(TEXT_LIMIT)
    asked = pl.lit(value=True) if business == "every" else pl.col("failed")
    cut = answered.filter(asked & (pl.col("first_text").str.len_chars() >= limit))
    if not cut.height:
        return answered
    whole = _with_responses(cut.select(_ROW), responses).select(
        _ROW, whole=pl.col("response").str.json_path_match("$.content[0].text")
    )
    return answered.join(whole, on=_ROW, how="left", maintain_order="left").with_columns(
        first_text=pl.coalesce("whole", "first_text")
    )


def _with_schemas(rows: pl.DataFrame, definitions: pl.DataFrame | None) -> pl.DataFrame:
    """Adds `output_schema`, whether there is one for either reading, and whether AJV refuses it."""
    if definitions is None:
        return rows.with_columns(
            output_schema=pl.lit(None, pl.String), has_schema=False, readings_agree=True,
            refused=False,
        )  # fmt: skip
    known = definitions.select("definition", "output_schema").drop_nulls().unique("definition")
    schemas = known.get_column("output_schema").unique()
    judged = pl.DataFrame(
        [(text, *ajv.compile_status(text)) for text in schemas],
        schema={"output_schema": pl.String, "refused": pl.Boolean, "readings_agree": pl.Boolean},
        orient="row",
    )
    known = known.join(judged, on="output_schema", how="left")
    return rows.join(known, on="definition", how="left", maintain_order="left").with_columns(
        has_schema=pl.col("output_schema").is_not_null(),
        refused=pl.col("refused").fill_null(value=False),
        readings_agree=pl.col("readings_agree").fill_null(value=True),
    )


def _oddities(rows: pl.DataFrame, business: Business) -> pl.DataFrame:
    """Odd replies by the reference, each distinct (request, response) once."""
    keys = ["tool", "output_schema", "arguments", "response"]
    distinct = rows.select(keys).unique()
    scored = [_reference(*row, business=business) for row in distinct.iter_rows()]
    found = pl.DataFrame(
        {
            name: pl.Series([row[name] for row in scored], dtype=kind)
            for name, kind in COLUMNS.items()
        }
    )
    table = pl.concat([distinct, found], how="horizontal")
    return rows.select(_ROW, *keys).join(table, on=keys, how="left", nulls_equal=True).drop(keys)


def _reference(
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
        why = f"cannot be read: {error}"
        return scored | dict.fromkeys(("seed_error", "inspector_error"), why)
    for reading, module in (("seed", document), ("inspector", inspector)):
        try:
            result: ValidationResult = module.validate(context)
            scored |= _result(reading, result)
            if business == "every" or result.is_error is not False:
                decision: BusinessDecision = module.business(context)
                scored |= _decision(reading, decision)
                scored[f"{reading}_error"] = result.throws or decision.throws
        except RecursionError as error:
            scored[f"{reading}_error"] = f"cannot be read: {error}"
    return scored


def _parsed(arguments: str | None) -> Any:
    try:
        return {} if arguments is None else javascript.parse(arguments)
    except (ValueError, RecursionError):
        return {}


def _result(reading: str, result: ValidationResult) -> dict[str, Any]:
    judged = result.classification is not None
    return {
        f"{reading}_classification": result.classification,
        f"{reading}_confidence": result.confidence,
        f"{reading}_is_valid": result.is_valid,
        f"{reading}_is_error": result.is_error,
        f"{reading}_issues": [*map(javascript.printable, result.issues)] if judged else None,
        f"{reading}_evidence": [*map(javascript.printable, result.evidence)] if judged else None,
        f"{reading}_error": result.throws,
    }


def _decision(reading: str, decision: BusinessDecision) -> dict[str, Any]:
    return {
        f"{reading}_{end}": getattr(
            decision, {"business_confidence": "confidence"}.get(end, end.removeprefix("factor_"))
        )
        for end in BUSINESS
    }


# ------------------------------------------------------------------------ what is settled


def _successes(rows: pl.DataFrame) -> pl.DataFrame:
    """Replies without an error: one result for each distinct make-up of a reply."""
    counts = ["text_blocks", "image_blocks", "resource_blocks"]
    flags = ["has_structured_content", "has_meta", "empty", "array", "validated", "refused"]
    keyed = rows.select(
        _ROW,
        pl.col(counts).fill_null(0),
        pl.col("has_structured_content", "has_meta").fill_null(value=False),
        "refused",
        array=pl.col("content_kind") == "array",
        empty=(pl.col("content_types").list.len() == 0).fill_null(value=True),
        validated=pl.col("has_schema"),
    )
    keys = [*counts, *flags]
    distinct = keyed.select(keys).unique()
    made = [_made_up(**row) for row in distinct.iter_rows(named=True)]
    found = pl.DataFrame(
        {
            f"{reading}_{end}": pl.Series([row[f"{reading}_{end}"] for row in made], dtype=kind)
            for reading in ("seed", "inspector")
            for end, kind in _RESULT.items()
        }
    )
    table = pl.concat([distinct, found], how="horizontal")
    return keyed.join(table, on=keys, how="left", nulls_equal=True).drop(keys)


def _made_up(
    *,
    text_blocks: int,
    image_blocks: int,
    resource_blocks: int,
    has_structured_content: bool,
    has_meta: bool,
    empty: bool,
    array: bool,
    validated: bool,
    refused: bool,
) -> dict[str, Any]:
    """Both readings of a reply that is made up so."""
    scored: dict[str, Any] = {}
    for reading in ("seed", "inspector"):
        held = validated and not (refused and reading == "inspector")
        found = ResponseMetadata(
            text_block_count=text_blocks,
            image_count=image_blocks,
            resource_count=resource_blocks,
            has_structured_content=has_structured_content,
            has_meta=has_meta,
            output_schema_validation=(
                OutputSchemaValidation(has_output_schema=True, is_valid=True) if held else None
            ),
        )
        if not array:
            result = inspector.broken(wording.NO_CONTENT, found)
        elif empty:
            result = inspector.broken(wording.EMPTY_CONTENT, found)
        else:
            result = inspector.responded(found)
        scored |= _result(reading, result)
    return scored


def _errors(rows: pl.DataFrame) -> pl.DataFrame:
    """Replies that say isError, with a text."""
    said = _error_message(rows.get_column("first_text"))
    inspected = {
        "classification": pl.lit("fully_working"),
        "confidence": pl.lit(inspector.ROWS.confidence("fully_working")),
        "is_valid": pl.lit(value=True),
        "is_error": pl.lit(value=True),
        "issues": pl.lit([], dtype=_LIST),
        "evidence": pl.concat_list(pl.lit(wording.RESPONDED_ERROR), "said"),
    }
    scored = _with_decisions(rows.select(_ROW), rows, "first_text").with_columns(said=said)
    return scored.with_columns(
        *(value.alias(f"inspector_{name}") for name, value in inspected.items()),
        *_document_error(
            otherwise="error",
            confidence=100 * pl.col("seed_business_confidence"),
            issues=pl.lit([document.NOT_VALIDATION], dtype=_LIST),
            evidence=pl.concat_list("said"),
        ),
    )


def _refusals(rows: pl.DataFrame) -> pl.DataFrame:
    """Calls that were answered with a JSON-RPC error."""
    rows = rows.with_columns(pl.col("error_text").fill_null(""))
    message = formatted(
        "MCP error {}: {}",
        pl.col("error_code").cast(pl.String).fill_null("undefined"),
        "error_text",
    )
    rejected = (pl.col("scenario") == "error_case").fill_null(value=False) & ~message.str.contains(
        wording.TIMEOUT, literal=True
    )
    (rule,) = inspector.ROWS.part("rejected")
    scored = _with_decisions(
        rows.select(_ROW, "error_code", "error_text", "scenario"), rows, "error_text"
    ).with_columns(
        said=_error_message(rows.get_column("error_text")), rejected=rejected, message=message
    )
    either = pl.when("rejected")
    inspected = {
        "classification": either.then(pl.lit(rule.classification)).otherwise(pl.lit("broken")),
        "confidence": either.then(rule.value).otherwise(inspector.ROWS.confidence("broken")),
        "is_valid": pl.col("rejected"),
        "is_error": pl.lit(value=True),
        "issues": pl.concat_list(pl.lit(wording.EXECUTION_ERROR) + pl.col("message")),
        "evidence": either.then(pl.lit([wording.REJECTED], dtype=_LIST)).otherwise(
            pl.lit([], dtype=_LIST)
        ),
    }
    return scored.with_columns(
        *(value.alias(f"inspector_{name}") for name, value in inspected.items()),
        *_document_error(
            otherwise="connectivity_only",
            confidence=pl.lit(document.ROWS.confidence("connectivity_only")),
            issues=pl.concat_list(pl.lit(document.CALL_FAILED) + pl.col("message")),
            evidence=pl.lit([], dtype=_LIST),
        ),
    ).drop("error_code", "error_text", "scenario", "rejected", "message")


def _document_error(
    *, otherwise: str, confidence: pl.Expr, issues: pl.Expr, evidence: pl.Expr
) -> list[pl.Expr]:
    """The document on an error: fully working if it is business logic, or what is given."""
    business = pl.when("seed_is_business_error")
    found = {
        "classification": business.then(pl.lit("fully_working")).otherwise(pl.lit(otherwise)),
        "confidence": business.then(document.ROWS.confidence("fully_working")).otherwise(
            confidence
        ),
        "is_valid": pl.col("seed_is_business_error"),
        "is_error": pl.lit(value=True),
        "issues": business.then(pl.lit([], dtype=_LIST)).otherwise(issues),
        "evidence": business.then(
            pl.concat_list(pl.lit(wording.RESPONDED_ERROR), "said")
        ).otherwise(evidence),
    }
    return [value.alias(f"seed_{name}") for name, value in found.items()]


def _silences(rows: pl.DataFrame) -> pl.DataFrame:
    """Calls that never got an answer: the program's own timeout strikes, in any scenario."""
    scored = _result("seed", document.unanswered()) | _result(
        "inspector", inspector.failed_call(wording.TIMEOUT, None)
    )
    return rows.select(
        _ROW, *(pl.lit(value, dtype=COLUMNS[name]).alias(name) for name, value in scored.items())
    )


def _with_decisions(scored: pl.DataFrame, rows: pl.DataFrame, text: str) -> pl.DataFrame:
    """`scored` with the business-error columns of `rows`; both are in the same order."""
    asked = rows.select(
        _ROW,
        "tool",
        "arguments",
        text=pl.col(text),
        rpc=pl.col("outcome") == "protocol_error",
        error_code=pl.when(pl.col("outcome") == "protocol_error").then("error_code"),
    )
    found = pl.concat([asked.select(_ROW), decisions(asked)], how="horizontal")
    return scored.join(found, on=_ROW, how="left", maintain_order="left")


def _error_message(texts: pl.Series) -> pl.Series:
    """Evidence of what an error says: the first 100 UTF-16 units of its text."""
    # polars counts characters: the same unless some of them are two units long.
    heads = texts.str.head(wording.ERROR_UNITS)
    wide = heads.str.contains("[\U00010000-\U0010ffff]").fill_null(value=False)
    if wide.any():
        cut: Callable[[str], str] = lambda text: javascript.printable(  # noqa: E731
            javascript.cut(text, wording.ERROR_UNITS)
        )
        narrowed = [cut(head) if two else head for head, two in zip(heads, wide, strict=True)]
        heads = pl.Series(narrowed, dtype=pl.String)
    return wording.ERROR_MESSAGE + heads.replace("", wording.UNKNOWN_ERROR)


def _without_interim(found: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The document judges responses: an answer that only asks for more is none yet."""
    interim = rows.filter(pl.col("outcome").is_in(_INTERIM)).get_column(_ROW)
    if not len(interim):
        return found
    hidden = [name for name in COLUMNS if name.startswith("seed_")]
    keep = ~pl.col(_ROW).is_in(interim.implode())
    return found.with_columns(pl.when(keep).then(pl.col(hidden)).name.keep())


def _complete(part: pl.DataFrame) -> pl.DataFrame:
    """A part with every column of the score, in order."""
    missing: Sequence[pl.Expr] = [
        pl.lit(None, dtype=kind).alias(name)
        for name, kind in COLUMNS.items()
        if name not in part.columns
    ]
    return part.with_columns(missing).select(
        _ROW, *(pl.col(name).cast(kind) for name, kind in COLUMNS.items())
    )
