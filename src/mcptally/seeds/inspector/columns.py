"""The seed scores of a table of calls, in both readings.

The decoder's columns describe most replies completely: plain blocks, an isError that is true, false
or absent, a first text that was not cut. Expressions score those. The others, a few in a thousand,
are irregular: the modules `inspector` and `document` score each distinct one.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import polars as pl

from mcptally.messages.content_blocks import ERROR_TEXT_LIMIT, TEXT_LIMIT
from mcptally.seeds import javascript
from mcptally.seeds.inspector import document, inspector, wording
from mcptally.seeds.inspector.ajv import schemas as ajv
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
"""Which replies get a business-error decision: errors only, as in both readings, or every reply,
for which all texts must be searched."""

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
"""Every column that `add_seed_scores` adds."""

_ANSWERED: Final = ("ok", "tool_error", "hidden_error", "input_required", "task")
_INTERIM: Final = ("input_required", "task")
_ROW: Final = "seed_row"

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
    rows = calls.select(
        *(name for name in _INPUTS if name != "response"),
        replied=pl.col("response").is_not_null(),
        is_object=pl.col("response").str.starts_with("{"),
    )
    rows = rows.with_row_index(_ROW).filter(pl.col("tool").is_not_null())
    rows = _with_schemas(rows, definitions)
    answered = _with_text(
        rows.filter(pl.col("outcome").is_in(_ANSWERED) & pl.col("replied")), responses, business
    )
    irregular = _is_irregular(business)
    regular = answered.filter(~irregular)
    errors, without_error = regular.filter("failed"), regular.filter(~pl.col("failed"))
    rejected = rows.filter(pl.col("outcome") == "protocol_error").with_columns(
        pl.col("error_text").fill_null("")
    )
    examined = [(errors, "first_text"), (rejected, "error_text")]
    if business == "every":
        examined.append((without_error, "first_text"))
    decided = _decided(examined)
    successes = _successes(without_error)
    if business == "every":
        successes = successes.join(decided, on=_ROW, how="left", maintain_order="left")
    parts = [
        _irregular(_with_responses(answered.filter(irregular), responses), business),
        successes,
        _tool_errors(errors, decided),
        _protocol_errors(rejected, decided),
        _unanswered(rows.filter(pl.col("outcome").is_in(["timeout", "no_response"]))),
    ]
    found = pl.concat([_with_all_columns(part) for part in parts])
    found = _without_interim(found, rows)
    every = calls.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROW))
    scores = every.join(found, on=_ROW, how="left", maintain_order="left").drop(_ROW)
    return calls.hstack(scores)


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
    return rows.with_columns(responses.gather(rows.get_column(_ROW)).alias("response"))


def _with_text(answered: pl.DataFrame, responses: pl.Series, business: Business) -> pl.DataFrame:
    """`answered` with `failed`, and with the whole first text where the decoder may have cut it."""
    answered = answered.with_columns(failed=pl.col("is_error").eq("true").fill_null(value=False))
    limit = pl.when("failed").then(ERROR_TEXT_LIMIT).otherwise(TEXT_LIMIT)
    is_decided = pl.lit(value=True) if business == "every" else pl.col("failed")
    cut = answered.filter(is_decided & (pl.col("first_text").str.len_chars() >= limit))
    if not cut.height:
        return answered
    whole = _with_responses(cut.select(_ROW), responses).select(
        _ROW, whole=pl.col("response").str.json_path_match("$.content[0].text")
    )
    return answered.join(whole, on=_ROW, how="left", maintain_order="left").with_columns(
        first_text=pl.coalesce("whole", "first_text")
    )


def _with_schemas(rows: pl.DataFrame, definitions: pl.DataFrame | None) -> pl.DataFrame:
    """`rows` with `output_schema`, `has_schema`, `refused` and `readings_agree`.

    `refused` is whether AJV rejects the schema, `readings_agree` whether both readings validate
    every value alike.
    """
    if definitions is None:
        return rows.with_columns(
            output_schema=pl.lit(None, pl.String), has_schema=False, readings_agree=True,
            refused=False,
        )  # fmt: skip
    known = definitions.select("definition", "output_schema").drop_nulls().unique("definition")
    schemas = known.get_column("output_schema").unique()
    statuses = pl.DataFrame(
        [(text, *ajv.compile_status(text)) for text in schemas],
        schema={"output_schema": pl.String, "refused": pl.Boolean, "readings_agree": pl.Boolean},
        orient="row",
    )
    known = known.join(statuses, on="output_schema", how="left")
    return rows.join(known, on="definition", how="left", maintain_order="left").with_columns(
        has_schema=pl.col("output_schema").is_not_null(),
        refused=pl.col("refused").fill_null(value=False),
        readings_agree=pl.col("readings_agree").fill_null(value=True),
    )


def _irregular(rows: pl.DataFrame, business: Business) -> pl.DataFrame:
    """Scores of irregular replies, computed once per distinct call and response."""
    keys = ["tool", "output_schema", "arguments", "response"]
    distinct = rows.select(keys).unique()
    scored = [_score_one(*row, business=business) for row in distinct.iter_rows()]
    found = pl.DataFrame(
        {
            name: pl.Series([row[name] for row in scored], dtype=kind)
            for name, kind in COLUMNS.items()
        }
    )
    table = pl.concat([distinct, found], how="horizontal")
    return rows.select(_ROW, *keys).join(table, on=keys, how="left", nulls_equal=True).drop(keys)


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
    issues = evidence = None
    if result.classification is not None:
        issues = [*map(javascript.printable, result.issues)]
        evidence = [*map(javascript.printable, result.evidence)]
    return {
        f"{reading}_classification": result.classification,
        f"{reading}_confidence": result.confidence,
        f"{reading}_is_valid": result.is_valid,
        f"{reading}_is_error": result.is_error,
        f"{reading}_issues": issues,
        f"{reading}_evidence": evidence,
        f"{reading}_error": result.throws,
    }


def _decision(reading: str, decision: BusinessDecision) -> dict[str, Any]:
    return {
        f"{reading}_{end}": getattr(
            decision, {"business_confidence": "confidence"}.get(end, end.removeprefix("factor_"))
        )
        for end in BUSINESS
    }


# --- regular replies ---


def _successes(rows: pl.DataFrame) -> pl.DataFrame:
    """Scores of replies without an error, computed once per distinct combination of parts."""
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
    scored = [_score_parts(**row) for row in distinct.iter_rows(named=True)]
    found = pl.DataFrame(
        {
            f"{reading}_{end}": pl.Series([row[f"{reading}_{end}"] for row in scored], dtype=kind)
            for reading in ("seed", "inspector")
            for end, kind in _RESULT.items()
        }
    )
    table = pl.concat([distinct, found], how="horizontal")
    return keyed.join(table, on=keys, how="left", nulls_equal=True).drop(keys)


def _score_parts(
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
    """Both readings of a reply with these parts."""
    scored: dict[str, Any] = {}
    for reading in ("seed", "inspector"):
        is_validated = validated and not (refused and reading == "inspector")
        found = ResponseMetadata(
            text_block_count=text_blocks,
            image_count=image_blocks,
            resource_count=resource_blocks,
            has_structured_content=has_structured_content,
            has_meta=has_meta,
            output_schema_validation=(
                OutputSchemaValidation(has_output_schema=True, is_valid=True)
                if is_validated
                else None
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


def _tool_errors(rows: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Scores of replies with isError and a text; `decided` has their business-error decisions."""
    sentence = _error_sentence(rows.get_column("first_text"))
    inspected = {
        "classification": pl.lit("fully_working"),
        "confidence": pl.lit(inspector.ROWS.confidence("fully_working")),
        "is_valid": pl.lit(value=True),
        "is_error": pl.lit(value=True),
        "issues": pl.lit([], dtype=_LIST),
        "evidence": pl.concat_list(pl.lit(wording.RESPONDED_ERROR), "sentence"),
    }
    scored = rows.select(_ROW).join(decided, on=_ROW, how="left", maintain_order="left")
    return scored.with_columns(sentence=sentence).with_columns(
        *(value.alias(f"inspector_{name}") for name, value in inspected.items()),
        *_document_error(
            otherwise="error",
            confidence=100 * pl.col("seed_business_confidence"),
            issues=pl.lit([document.NOT_VALIDATION], dtype=_LIST),
            evidence=pl.concat_list("sentence"),
        ),
    )


def _protocol_errors(rows: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Scores of calls that were answered with a JSON-RPC error; `decided` as in `_tool_errors`."""
    message = formatted(
        "MCP error {}: {}",
        pl.col("error_code").cast(pl.String).fill_null("undefined"),
        "error_text",
    )
    rejected = (pl.col("scenario") == "error_case").fill_null(value=False) & ~message.str.contains(
        wording.TIMEOUT, literal=True
    )
    (rule,) = inspector.ROWS.part("rejected")
    scored = (
        rows.select(
            _ROW,
            sentence=_error_sentence(rows.get_column("error_text")),
            rejected=rejected,
            message=message,
        )
        .join(decided, on=_ROW, how="left", maintain_order="left")
    )  # fmt: skip
    when_rejected = pl.when("rejected")
    inspected = {
        "classification": when_rejected.then(pl.lit(rule.classification)).otherwise(
            pl.lit("broken")
        ),
        "confidence": when_rejected.then(rule.value).otherwise(inspector.ROWS.confidence("broken")),
        "is_valid": pl.col("rejected"),
        "is_error": pl.lit(value=True),
        "issues": pl.concat_list(pl.lit(wording.EXECUTION_ERROR) + pl.col("message")),
        "evidence": when_rejected.then(pl.lit([wording.REJECTED], dtype=_LIST)).otherwise(
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
    )


def _document_error(
    *, otherwise: str, confidence: pl.Expr, issues: pl.Expr, evidence: pl.Expr
) -> list[pl.Expr]:
    """The document's columns for an error: `fully_working` for business logic, else as given."""
    when_business = pl.when("seed_is_business_error")
    found = {
        "classification": when_business.then(pl.lit("fully_working")).otherwise(pl.lit(otherwise)),
        "confidence": when_business.then(document.ROWS.confidence("fully_working")).otherwise(
            confidence
        ),
        "is_valid": pl.col("seed_is_business_error"),
        "is_error": pl.lit(value=True),
        "issues": when_business.then(pl.lit([], dtype=_LIST)).otherwise(issues),
        "evidence": when_business.then(
            pl.concat_list(pl.lit(wording.RESPONDED_ERROR), "sentence")
        ).otherwise(evidence),
    }
    return [value.alias(f"seed_{name}") for name, value in found.items()]


def _unanswered(rows: pl.DataFrame) -> pl.DataFrame:
    """Scores of calls without an answer: the program's own timeout applies in every scenario."""
    scored = _result("seed", document.unanswered()) | _result(
        "inspector", inspector.failed_call(wording.TIMEOUT, None)
    )
    return rows.select(
        _ROW, *(pl.lit(value, dtype=COLUMNS[name]).alias(name) for name, value in scored.items())
    )


def _decided(examined: Iterable[tuple[pl.DataFrame, str]]) -> pl.DataFrame:
    """The business-error decisions about some replies, and the number of each reply's row.

    Args:
        examined: replies, and the name of the column with the text that decides.
    """
    inputs = pl.concat(
        rows.select(
            _ROW,
            "tool",
            "arguments",
            text=pl.col(text),
            rpc=pl.col("outcome") == "protocol_error",
            error_code=pl.when(pl.col("outcome") == "protocol_error").then("error_code"),
        )
        for rows, text in examined
    )
    return inputs.select(_ROW).hstack(decisions(inputs))


def _error_sentence(texts: pl.Series) -> pl.Series:
    """The evidence sentence with the first 100 UTF-16 code units of an error's text."""
    # polars counts characters, which differ from code units outside the basic plane only.
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
    """`found` without `seed_*` values for interim answers: the document scores final ones only."""
    interim = rows.filter(pl.col("outcome").is_in(_INTERIM)).get_column(_ROW)
    if not len(interim):
        return found
    hidden = [name for name in COLUMNS if name.startswith("seed_")]
    keep = ~pl.col(_ROW).is_in(interim.implode())
    return found.with_columns(pl.when(keep).then(pl.col(hidden)).name.keep())


def _with_all_columns(part: pl.DataFrame) -> pl.DataFrame:
    """A part with every column of `COLUMNS`, in order."""
    known = set(part.columns)
    return part.select(
        _ROW,
        *(
            pl.col(name).cast(kind) if name in known else pl.lit(None, kind).alias(name)
            for name, kind in COLUMNS.items()
        ),
    )
