"""The six factors of both readings as polars expressions over distinct texts and tools.

The results must equal those of `inspector.decide` and `document.decide`. A test compares them on
recorded traffic.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from mcptally.seeds import javascript
from mcptally.seeds.inspector import document, inspector
from mcptally.seeds.inspector.model import FACTORS
from mcptally.seeds.inspector.rows import RuleRows
from mcptally.tables.arrow import series_from_numpy
from mcptally.tables.queries import run_query

BUSINESS: Final = (
    "is_business_error",
    "business_confidence",
    "threshold",
    *(f"factor_{name}" for name in FACTORS),
)
"""Names of the business-error columns, without the prefix of the reading."""

_LOW: Final = pl.col("low")


def decisions(inputs: pl.DataFrame) -> pl.DataFrame:
    """The business-error columns of both readings, one row for each row of `inputs`, in order.

    Args:
        inputs: `text` (what is examined), `tool`, `arguments` (JSON text or null), `error_code`,
            and `rpc` (whether the text is the message of a JSON-RPC error; the program makes no
            decision about those).
    """
    rows = (
        inputs.lazy()
        .join(_texts(inputs.get_column("text")), on="text", how="left", maintain_order="left")
        .join(_tools(inputs), on="tool", how="left", maintain_order="left")
        .join(_references(inputs).lazy(), on=["text", "arguments"], how="left", nulls_equal=True,
              maintain_order="left")
        .with_columns(pl.col("s_tested").fill_null(value=False))
        .with_columns(*_program_points(), *_document_points())
        .pipe(run_query)
    )  # fmt: skip
    return rows.with_columns(
        i_share=_share(rows.get_column("i_points"), inspector.ROWS.value("total")),
        s_share=_share(rows.get_column("s_points"), document.ROWS.value("total")),
    ).select(*_program_columns(), *_document_columns())


def _share(points: pl.Series, total: float) -> pl.Series:
    """Points divided by the total, at most 1, with the same rounding as in Python."""
    # polars multiplies by the inverse of a constant divisor: 5/9 and 5/6 would differ in the last
    # digit. NumPy divides.
    return series_from_numpy(np.minimum(1.0, points.to_numpy() / total))


def _holds(rows: RuleRows, *parts: str) -> pl.Expr:
    """Whether any row of the parts matches the column `low`, the text in lower case."""
    tests: list[pl.Expr] = []
    for part in parts:
        # JavaScript compares after toLowerCase. A case-insensitive search differs from that for
        # U+017F (matches s) and U+212A (does not match k).
        if members := rows.members(part):
            tests.append(_LOW.str.contains_any(list(members)))
        tests += [_LOW.str.contains(regex) for regex in rows.regexes(part)]
    return pl.any_horizontal(tests)


def _texts(texts: pl.Series) -> pl.LazyFrame:
    """Which rows match each distinct text, in both readings."""
    program, written = inspector.ROWS, document.ROWS
    text = pl.col("text")
    found = (
        texts.to_frame("text")
        .lazy()
        .unique()
        .with_columns(
            low=text.str.to_lowercase(),
            object=pl.when(text.str.contains(r"^[ \t\r\n]*\{")).then("text"),
        )
        .pipe(run_query)
    )
    is_json = [
        bool(text) and document.is_structured_error(text) for text in found.get_column("object")
    ]
    return found.lazy().select(
        "text",
        i_code=_holds(program, "mcp_code_named") & _holds(program, "mcp_code"),
        i_pattern=_holds(program, "pattern"),
        i_status=_holds(program, "http_status"),
        i_structured=_holds(program, "structured_what")
        & _holds(program, "structured_kind")
        & _holds(program, "structured_mark"),
        i_tested=(_holds(program, "test_word") & _holds(program, "test_complaint"))
        | _holds(program, "test_value", "test_shape"),
        i_strong=_holds(program, "strong"),
        i_high=_holds(program, "high_confidence"),
        s_code=_holds(written, "mcp_code"),
        s_pattern=_holds(written, "pattern", "high_confidence"),
        s_status=_holds(written, "http_status"),
        s_structured=pl.Series(is_json, dtype=pl.Boolean),
        s_strong=_holds(written, "strong"),
        s_high=_holds(written, "high_confidence"),
    )


def _tools(inputs: pl.DataFrame) -> pl.LazyFrame:
    """Whether the name of each distinct tool says that it validates its input."""
    names = inputs.lazy().select(pl.col("tool").unique())
    return names.with_columns(low=pl.col("tool").str.to_lowercase()).select(
        "tool",
        i_expected=_holds(inspector.ROWS, "tool_keyword"),
        s_expected=_holds(document.ROWS, "tool_keyword"),
    )


_MAY_HOLD_IDS: Final = (
    r'[iI][dD][sS]?"[ \t\r\n]*:',
    "-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-",
    r"\\u00",
)
"""Only arguments that match one are parsed: a name that ends in `id`, a UUID, an escaped letter.

A single pattern for all three takes five times as long, because it has no literal prefix."""


def _references(inputs: pl.DataFrame) -> pl.DataFrame:
    """The pairs of text and arguments in which the text contains an id from the arguments."""
    worth = pl.any_horizontal(pl.col("arguments").str.contains(each) for each in _MAY_HOLD_IDS)
    pairs = (
        inputs.lazy()
        .select("text", "arguments")
        .filter(worth & pl.col("text").is_not_null())
        .unique()
        .pipe(run_query)
    )
    if not pairs.height:
        return pairs.hstack([pl.Series("s_tested", [], dtype=pl.Boolean)])
    held = (
        pairs.lazy()
        .join(_ids(pairs.get_column("arguments").unique()).lazy(), on="arguments")
        .filter(pl.col("text").str.to_lowercase().str.contains(pl.col("id"), literal=True))
        .pipe(run_query)
    )
    # Check the word boundaries of the few that are left.
    found = [
        document.references_ids(text.lower(), (each,))
        for text, each in held[["text", "id"]].iter_rows()
    ]
    return (
        held.lazy()
        .filter(pl.Series(found, dtype=pl.Boolean))
        .select("text", "arguments", s_tested=pl.lit(value=True))
        .unique()
        .pipe(run_query)
    )


def _ids(arguments: pl.Series) -> pl.DataFrame:
    rows = [(text, each) for text in arguments for each in _ids_of(text)]
    return pl.DataFrame(rows, schema={"arguments": pl.String, "id": pl.String}, orient="row")


def _ids_of(text: str) -> Sequence[str]:
    try:
        return tuple(map(javascript.printable, document.ids(javascript.parse(text))))
    except (ValueError, RecursionError):
        return ()


def _points(weight: float, column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float64) * weight


def _program_points() -> list[pl.Expr]:
    rows = inspector.ROWS
    points = (
        _points(rows.weight("pattern"), "i_pattern")
        + _points(rows.weight("http_status"), "i_status")
        + _points(rows.weight("structured_what"), "i_structured")
        + _points(rows.weight("test_word"), "i_tested")
        + _points(rows.weight("tool_keyword"), "i_expected")
    )
    threshold = (
        pl.when(pl.col("i_pattern") & pl.col("i_strong"))
        .then(rows.threshold("strong"))
        .when(pl.col("i_pattern") & pl.col("i_high"))
        .then(rows.threshold("high_confidence"))
        .when("i_expected")
        .then(rows.threshold("tool_keyword"))
        .otherwise(rows.threshold("threshold"))
    )
    return [points.alias("i_points"), threshold.alias("i_threshold")]


def _program_columns() -> list[pl.Expr]:
    is_decided = ~pl.col("rpc")
    # If the text has an MCP code, the program returns at once and evaluates no other factor.
    weighed = is_decided & ~pl.col("i_code")
    by_code = {"factor_mcp_code": pl.col("i_code")}
    by_weight = {
        "business_confidence": pl.col("i_share"),
        "threshold": pl.col("i_threshold"),
        "factor_business_pattern": pl.col("i_pattern"),
        "factor_http_status": pl.col("i_status"),
        "factor_structured_error": pl.col("i_structured"),
        "factor_validates_test_data": pl.col("i_tested"),
        "factor_validation_expected": pl.col("i_expected"),
    }
    decided = pl.col("i_code") | (pl.col("i_share") >= pl.col("i_threshold"))
    found = (
        {"is_business_error": pl.when(is_decided).then(decided)}
        | {name: pl.when(is_decided).then(value) for name, value in by_code.items()}
        | {name: pl.when(weighed).then(value) for name, value in by_weight.items()}
    )
    return [found[name].alias(f"inspector_{name}") for name in BUSINESS]


def _document_points() -> list[pl.Expr]:
    rows = document.ROWS
    code = pl.col("s_code") | pl.col("error_code").is_in(list(document.CODES)).fill_null(
        value=False
    )
    structured = pl.col("s_structured") | pl.col("rpc")
    points = (
        code.cast(pl.Float64) * rows.weight("mcp_code")
        + _points(rows.weight("pattern"), "s_pattern")
        + _points(rows.weight("http_status"), "s_status")
        + structured.cast(pl.Float64) * rows.weight("structured_error")
        + _points(rows.weight("test_id_name"), "s_tested")
    )
    with_tool = (
        pl.when(~pl.col("s_expected"))
        .then(points)
        .when(points > 0)
        .then(points + rows.weight("tool_keyword"))
        .otherwise(rows.value("alone"))
    )
    threshold = (
        pl.when("s_strong")
        .then(rows.threshold("strong"))
        .when("s_high")
        .then(rows.threshold("high_confidence"))
        .when("s_expected")
        .then(rows.threshold("tool_keyword"))
        .otherwise(rows.threshold("threshold"))
    )
    return [
        code.alias("s_any_code"),
        structured.alias("s_any_structure"),
        with_tool.alias("s_points"),
        threshold.alias("s_threshold"),
    ]


def _document_columns() -> list[pl.Expr]:
    found = {
        "is_business_error": pl.col("s_share") >= pl.col("s_threshold"),
        "business_confidence": pl.col("s_share"),
        "threshold": pl.col("s_threshold"),
        "factor_mcp_code": pl.col("s_any_code"),
        "factor_business_pattern": pl.col("s_pattern"),
        "factor_http_status": pl.col("s_status"),
        "factor_structured_error": pl.col("s_any_structure"),
        "factor_validates_test_data": pl.col("s_tested"),
        "factor_validation_expected": pl.col("s_expected"),
    }
    return [found[name].alias(f"seed_{name}") for name in BUSINESS]
