"""Computes both interpretations' scores of regular replies with polars.

The decoder's columns describe a regular reply completely, so its response is not read.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from mcptally.seeds import javascript
from mcptally.seeds.inspector import document, inspector, wording
from mcptally.seeds.inspector.factors import decisions
from mcptally.seeds.inspector.model import OutputSchemaValidation, ResponseMetadata
from mcptally.seeds.inspector.score_columns import (
    COLUMNS,
    LIST,
    ROW,
    result_columns,
    score_distinct,
)
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Judged


class _Errors(StageTable):
    """The columns of error replies from which scores are computed."""

    message = Column(pl.String, "Message of a JSON-RPC error, as the program words it.")
    rejected = Column(pl.Boolean, "Whether the error is what the scenario expects.")
    sentence = Column(pl.String, "Evidence with the beginning of the text.")
    seed_is_business_error = Column(pl.Boolean, "Whether the document sees business logic.")
    seed_business_confidence = Column(pl.Float64, "Share of the points in the document.")


def successes(rows: pl.DataFrame) -> pl.DataFrame:
    """Score replies without an error; compute each distinct kind of content once."""
    facts = rows.select(
        ROW,
        pl.col("text_blocks", "image_blocks", "resource_blocks").fill_null(0),
        pl.col("has_structured_content", "has_meta").fill_null(value=False),
        "refused",
        array=Judged.content_kind.col == "array",
        empty=(Judged.content_types.col.list.len() == 0).fill_null(value=True),
        validated="has_schema",
    )
    return score_distinct(facts, _score_parts)


def _score_parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return both interpretations' scores of a reply with the content in `row`."""
    scored: dict[str, Any] = {}
    for interpretation in ("seed", "inspector"):
        is_validated = row["validated"] and not (row["refused"] and interpretation == "inspector")
        found = ResponseMetadata(
            text_block_count=row["text_blocks"],
            image_count=row["image_blocks"],
            resource_count=row["resource_blocks"],
            has_structured_content=row["has_structured_content"],
            has_meta=row["has_meta"],
            output_schema_validation=(
                OutputSchemaValidation(has_output_schema=True, is_valid=True)
                if is_validated
                else None
            ),
        )
        if not row["array"]:
            result = inspector.broken(wording.NO_CONTENT, found)
        elif row["empty"]:
            result = inspector.broken(wording.EMPTY_CONTENT, found)
        else:
            result = inspector.responded(found)
        scored |= result_columns(interpretation, result)
    return scored


def tool_errors(rows: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Score replies that have isError and a text.

    Args:
        rows: the replies.
        decided: the decisions on whether these replies are business errors.
    """
    sentence = _error_sentence(rows.get_column(Judged.first_text.name))
    inspected = {
        "classification": pl.lit("fully_working"),
        "confidence": pl.lit(inspector.ROWS.confidence("fully_working")),
        "is_valid": pl.lit(value=True),
        "is_error": pl.lit(value=True),
        "issues": pl.lit([], dtype=LIST),
        "evidence": pl.concat_list(pl.lit(wording.RESPONDED_ERROR), "sentence"),
    }
    scored = rows[[ROW]].hstack([sentence.alias("sentence")]).lazy()
    return (
        scored.join(decided.lazy(), on=ROW, how="left", maintain_order="left")
        .with_columns(
            *(value.alias(f"inspector_{name}") for name, value in inspected.items()),
            *_document_error(
                otherwise="error",
                confidence=100 * _Errors.seed_business_confidence.col,
                issues=pl.lit([document.NOT_VALIDATION], dtype=LIST),
                evidence=pl.concat_list("sentence"),
            ),
        )
        .pipe(run_query)
    )


def protocol_errors(rows: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Score calls that were answered with a JSON-RPC error.

    Args:
        rows: the calls.
        decided: the decisions on whether these errors are business errors.
    """
    message = formatted(
        "MCP error {}: {}",
        Judged.error_code.col.cast(pl.String).fill_null("undefined"),
        "error_text",
    )
    rejected = (Judged.scenario.col == "error_case").fill_null(value=False) & ~message.str.contains(
        wording.TIMEOUT, literal=True
    )
    (rule,) = inspector.ROWS.part("rejected")
    scored = (
        rows.lazy()
        .select(
            ROW,
            sentence=_error_sentence(rows.get_column(Judged.error_text.name)),
            rejected=rejected,
            message=message,
        )
        .join(decided.lazy(), on=ROW, how="left", maintain_order="left")
    )
    when_rejected = pl.when("rejected")
    inspected = {
        "classification": when_rejected.then(pl.lit(rule.classification)).otherwise(
            pl.lit("broken")
        ),
        "confidence": when_rejected.then(rule.value).otherwise(inspector.ROWS.confidence("broken")),
        "is_valid": _Errors.rejected.col,
        "is_error": pl.lit(value=True),
        "issues": pl.concat_list(pl.lit(wording.EXECUTION_ERROR) + _Errors.message.col),
        "evidence": when_rejected.then(pl.lit([wording.REJECTED], dtype=LIST)).otherwise(
            pl.lit([], dtype=LIST)
        ),
    }
    return scored.with_columns(
        *(value.alias(f"inspector_{name}") for name, value in inspected.items()),
        *_document_error(
            otherwise="connectivity_only",
            confidence=pl.lit(document.ROWS.confidence("connectivity_only")),
            issues=pl.concat_list(pl.lit(document.CALL_FAILED) + _Errors.message.col),
            evidence=pl.lit([], dtype=LIST),
        ),
    ).pipe(run_query)


def _document_error(
    *, otherwise: str, confidence: pl.Expr, issues: pl.Expr, evidence: pl.Expr
) -> list[pl.Expr]:
    """Return the document's columns for an error.

    The classification is `fully_working` for business logic, and `otherwise` for other errors.
    """
    when_business = pl.when("seed_is_business_error")
    found = {
        "classification": when_business.then(pl.lit("fully_working")).otherwise(pl.lit(otherwise)),
        "confidence": when_business.then(document.ROWS.confidence("fully_working")).otherwise(
            confidence
        ),
        "is_valid": _Errors.seed_is_business_error.col,
        "is_error": pl.lit(value=True),
        "issues": when_business.then(pl.lit([], dtype=LIST)).otherwise(issues),
        "evidence": when_business.then(
            pl.concat_list(pl.lit(wording.RESPONDED_ERROR), "sentence")
        ).otherwise(evidence),
    }
    return [value.alias(f"seed_{name}") for name, value in found.items()]


def unanswered(rows: pl.DataFrame) -> pl.DataFrame:
    """Score unanswered calls.

    The program's score for a timeout is the same in all scenarios.
    """
    if not rows.height:
        return rows[[ROW]]
    scored = result_columns("seed", document.unanswered()) | result_columns(
        "inspector", inspector.failed_call(wording.TIMEOUT, None)
    )
    return rows.select(
        ROW, *(pl.lit(value, dtype=COLUMNS[name]).alias(name) for name, value in scored.items())
    )


def decided(examined: Iterable[tuple[pl.DataFrame, str]]) -> pl.DataFrame:
    """Decide whether replies are business errors; return the decisions with row numbers.

    Args:
        examined: pairs of a table of replies and the name of the column with the text to examine.
    """
    inputs = pl.concat(
        rows.lazy().select(
            ROW,
            "tool",
            "arguments",
            text=pl.col(text),
            rpc=Judged.outcome.col == "protocol_error",
            error_code=pl.when(Judged.outcome.col == "protocol_error").then("error_code"),
        )
        for rows, text in examined
    ).pipe(run_query)
    return inputs[[ROW]].hstack(decisions(inputs))


def _error_sentence(texts: pl.Series) -> pl.Series:
    """Return evidence sentences, which quote the first 100 UTF-16 units of each error's text."""
    heads = texts.str.head(wording.ERROR_UNITS)
    distinct = heads.drop_nulls().unique()
    sentences = [
        wording.ERROR_MESSAGE
        + javascript.printable(javascript.cut(head or wording.UNKNOWN_ERROR, wording.ERROR_UNITS))
        for head in distinct
    ]
    return heads.replace_strict(
        distinct, pl.Series(sentences, dtype=pl.String), default=None, return_dtype=pl.String
    )
