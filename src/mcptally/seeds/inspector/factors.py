"""Computes the six factors of the document and of the program with polars, per text and tool.

The results must equal those of `inspector.decide` and `document.decide`. A test compares them on
recorded traffic.
"""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from mcptally.seeds import javascript
from mcptally.seeds.inspector import document, inspector
from mcptally.seeds.inspector.model import FACTORS
from mcptally.seeds.inspector.rows import RuleRows
from mcptally.tables.arrow import series_from_numpy
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Judged

BUSINESS: Final = (
    "is_business_error",
    "business_confidence",
    "threshold",
    *(f"factor_{name}" for name in FACTORS),
)
"""Names of the columns about business errors, without the interpretation's prefix."""


class Examined(StageTable):
    """One row per text for which to decide whether it reports a business error."""

    text = Column(pl.String, "The text.")
    tool = Judged.tool
    arguments = Judged.arguments
    error_code = Judged.error_code
    rpc = Column(
        pl.Boolean,
        "Whether the text is the message of a JSON-RPC error; the program does not examine these.",
    )


class _Facts(Examined):
    """The rule rows that match a text and a tool: `i_*` for the program, `s_*` for the document."""

    low = Column(pl.String, "The text, or the name of the tool, in lower case.")
    object = Column(pl.String, "The text, if it begins like a JSON object.")
    id = Column(pl.String, "An id in the arguments.")
    i_code = Column(pl.Boolean, "An MCP error code.")
    i_pattern = Column(pl.Boolean, "A phrase of business logic.")
    i_status = Column(pl.Boolean, "An HTTP status.")
    i_structured = Column(pl.Boolean, "A structured error.")
    i_tested = Column(pl.Boolean, "A reference to test data.")
    i_strong = Column(pl.Boolean, "A phrase with a lower threshold.")
    i_high = Column(pl.Boolean, "A phrase with a low threshold.")
    i_expected = Column(pl.Boolean, "A tool that validates.")
    i_points = Column(pl.Float64, "Sum of the weights.")
    i_threshold = Column(pl.Float64, "Minimum share for a business error.")
    i_share = Column(pl.Float64, "Share of the points.")
    s_code = Column(pl.Boolean, "An MCP error code in the text.")
    s_any_code = Column(pl.Boolean, "An MCP error code in the text or the error.")
    s_pattern = Column(pl.Boolean, "A phrase of business logic.")
    s_status = Column(pl.Boolean, "An HTTP status.")
    s_structured = Column(pl.Boolean, "A structured error as text.")
    s_any_structure = Column(pl.Boolean, "A structured error or a JSON-RPC error.")
    s_tested = Column(pl.Boolean, "An id from the arguments.")
    s_strong = Column(pl.Boolean, "A phrase with a lower threshold.")
    s_high = Column(pl.Boolean, "A phrase with a low threshold.")
    s_expected = Column(pl.Boolean, "A tool that validates.")
    s_points = Column(pl.Float64, "Sum of the weights.")
    s_threshold = Column(pl.Float64, "Minimum share for a business error.")
    s_share = Column(pl.Float64, "Share of the points.")


def decisions(inputs: pl.DataFrame) -> pl.DataFrame:
    """Return the business-error decisions of both interpretations, one row per input row.

    Args:
        inputs: `Examined`.
    """
    rows = (
        inputs.lazy()
        .join(_texts(inputs), on="text", how="left", maintain_order="left")
        .join(_tools(inputs), on="tool", how="left", maintain_order="left")
        .with_columns(_references(inputs))
        .with_columns(*_program_points(), *_document_points())
        .pipe(run_query)
    )
    return rows.with_columns(
        i_share=_share(rows.get_column(_Facts.i_points.name), inspector.ROWS.value("total")),
        s_share=_share(rows.get_column(_Facts.s_points.name), document.ROWS.value("total")),
    ).select(*_program_columns(), *_document_columns())


def _share(points: pl.Series, total: float) -> pl.Series:
    """Divide points by the total and cap the quotient at 1; round as Python does."""
    # Divide with NumPy: polars multiplies by the inverse of a constant divisor, which would change
    # the last digit of 5/9 and 5/6.
    return series_from_numpy(np.minimum(1.0, points.to_numpy() / total))


def _holds(rows: RuleRows, *parts: str) -> pl.Expr:
    """Return an expression that is true if `low`, the lower-case text, matches a row of `parts`."""
    tests: list[pl.Expr] = []
    for part in parts:
        # JavaScript compares after toLowerCase. A case-insensitive search would differ: U+017F
        # would match s, and U+212A would not match k.
        if members := rows.members(part):
            tests.append(_Facts.low.col.str.contains_any(members))
        tests += [_Facts.low.col.str.contains(row.regex) for row in rows.part(part) if row.regex]
    return pl.any_horizontal(tests)


def _texts(inputs: pl.DataFrame) -> pl.LazyFrame:
    """Return, for each distinct text, which rule rows of both interpretations match it."""
    program, written = inspector.ROWS, document.ROWS
    text = Examined.text.col
    found = (
        inputs.lazy()
        .select(text)
        .unique()
        .with_columns(
            low=text.str.to_lowercase(),
            object=pl.when(text.str.contains(r"^[ \t\r\n]*\{")).then("text"),
        )
        .pipe(run_query)
    )
    is_json = [
        bool(text) and document.is_structured_error(text)
        for text in found.get_column(_Facts.object.name)
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
    """Return, for each distinct tool name, whether it suggests that the tool checks its input."""
    names = inputs.lazy().select(Examined.tool.col.unique())
    return names.with_columns(low=Examined.tool.col.str.to_lowercase()).select(
        "tool",
        i_expected=_holds(inspector.ROWS, "tool_keyword"),
        s_expected=_holds(document.ROWS, "tool_keyword"),
    )


_MAY_HOLD_IDS: Final = (r'[iI][dD][sS]?"[ \t\r\n]*:', "-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-", r"\\u00")
"""Patterns for arguments that are parsed: they have a name that ends in `id`, a UUID, or an escape.

A single pattern for all three would take five times as long, because it has no literal prefix."""


def _references(inputs: pl.DataFrame) -> pl.Series:
    """Return `s_tested`: whether the text of each row contains an id in the row's arguments."""
    worth = pl.any_horizontal(Examined.arguments.col.str.contains(each) for each in _MAY_HOLD_IDS)
    arguments = inputs.lazy().select("arguments").unique().filter(worth).pipe(run_query)
    held = (
        inputs.lazy()
        .select("text", "arguments")
        .with_row_index("row")
        .join(_ids(arguments.to_series()).lazy(), on="arguments")
        .filter(Examined.text.col.str.to_lowercase().str.contains(_Facts.id.col, literal=True))
        .pipe(run_query)
    )
    contains = np.zeros(inputs.height, dtype=np.bool_)
    # Check the word boundaries in the few remaining rows.
    for row, text, each in held[["row", "text", "id"]].iter_rows():
        contains[row] |= document.references_ids(text.lower(), (each,))
    return series_from_numpy(contains, _Facts.s_tested.name)


def _ids(arguments: pl.Series) -> pl.DataFrame:
    rows = [(text, each) for text in arguments for each in _ids_of(text)]
    return pl.DataFrame(rows, schema={"arguments": pl.String, "id": pl.String}, orient="row")


def _ids_of(text: str) -> Sequence[str]:
    try:
        return tuple(map(javascript.printable, document.ids(javascript.parse(text))))
    except (ValueError, RecursionError):
        return ()


_PROGRAM: Final = (
    *(_Facts.i_code.col, _Facts.i_pattern.col, _Facts.i_status.col),
    *(_Facts.i_structured.col, _Facts.i_tested.col, _Facts.i_expected.col),
)
_DOCUMENT: Final = (
    *(_Facts.s_any_code.col, _Facts.s_pattern.col, _Facts.s_status.col),
    *(_Facts.s_any_structure.col, _Facts.s_tested.col, _Facts.s_expected.col),
)
"""Columns with the document's factors, in the order of `FACTORS`."""


def _points(rows: RuleRows, weights: Mapping[str, pl.Expr]) -> pl.Expr:
    """Return the sum of the weights of matching rule rows, added in the same order as in Python."""
    points = (holds.cast(pl.Float64) * rows.weight(part) for part, holds in weights.items())
    return functools.reduce(operator.add, points)


def _threshold(rows: RuleRows, strong: pl.Expr, high: pl.Expr, expected: pl.Expr) -> pl.Expr:
    return (
        pl.when(strong)
        .then(rows.threshold("strong"))
        .when(high)
        .then(rows.threshold("high_confidence"))
        .when(expected)
        .then(rows.threshold("tool_keyword"))
        .otherwise(rows.threshold("threshold"))
    )


def _program_points() -> list[pl.Expr]:
    parts = ("pattern", "http_status", "structured_what", "test_word", "tool_keyword")
    _, pattern, *_, expected = _PROGRAM
    strong, high = pattern & _Facts.i_strong.col, pattern & _Facts.i_high.col
    return [
        _points(inspector.ROWS, dict(zip(parts, _PROGRAM[1:], strict=True))).alias("i_points"),
        _threshold(inspector.ROWS, strong, high, expected).alias("i_threshold"),
    ]


def _program_columns() -> list[pl.Expr]:
    is_decided = ~Examined.rpc.col
    # If the text has an MCP code, the program returns at once without evaluating any other factor.
    weighed = is_decided & ~_Facts.i_code.col
    decided = _Facts.i_code.col | (_Facts.i_share.col >= _Facts.i_threshold.col)
    conditions = (is_decided, weighed, weighed, is_decided, *[weighed] * 5)
    values = (decided, _Facts.i_share.col, _Facts.i_threshold.col, *_PROGRAM)
    return [
        pl.when(condition).then(value).alias(f"inspector_{name}")
        for name, condition, value in zip(BUSINESS, conditions, values, strict=True)
    ]


def _document_points() -> list[pl.Expr]:
    rows = document.ROWS
    code = _Facts.s_code.col | Examined.error_code.col.is_in(list(document.CODES)).fill_null(
        value=False
    )
    structured = _Facts.s_structured.col | Examined.rpc.col
    weights = {
        "mcp_code": code,
        "pattern": _Facts.s_pattern.col,
        "http_status": _Facts.s_status.col,
        "structured_error": structured,
        "test_id_name": _Facts.s_tested.col,
    }
    points = _points(rows, weights)
    with_tool = (
        pl.when(~_Facts.s_expected.col)
        .then(points)
        .when(points > 0)
        .then(points + rows.weight("tool_keyword"))
        .otherwise(rows.value("alone"))
    )
    found = (_Facts.s_strong.col, _Facts.s_high.col, _Facts.s_expected.col)
    return [
        code.alias("s_any_code"),
        structured.alias("s_any_structure"),
        with_tool.alias("s_points"),
        _threshold(rows, *found).alias("s_threshold"),
    ]


def _document_columns() -> list[pl.Expr]:
    share, threshold = _Facts.s_share.col, _Facts.s_threshold.col
    values = (share >= threshold, share, threshold, *_DOCUMENT)
    return [value.alias(f"seed_{name}") for name, value in zip(BUSINESS, values, strict=True)]
