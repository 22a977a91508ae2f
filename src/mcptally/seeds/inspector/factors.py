"""The six factors as polars expressions: each distinct text is looked at once, each tool once.

What the expressions say must be what inspector.decide and document.decide say, which are the
reference; a test holds the two together on all the recorded traffic there is.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from mcptally.seeds.inspector import document, inspector, javascript
from mcptally.seeds.inspector.model import FACTORS
from mcptally.seeds.inspector.rows import Rows

BUSINESS: Final = (
    "is_business_error",
    "business_confidence",
    "threshold",
    *(f"factor_{name}" for name in FACTORS),
)
"""Ends of the columns that say what a business-error decision came to."""

_LOW: Final = pl.col("low")


def decisions(asked: pl.DataFrame) -> pl.DataFrame:
    """The business-error decision of both readings, a row for each row of `asked`, in order.

    `asked` has `text` (what is examined), `tool`, `arguments` (JSON text or null), `error_code`,
    and `rpc`: whether the text is the message of a JSON-RPC error, on which the program never
    decides.
    """
    rows = (
        asked.join(_texts(asked.get_column("text")), on="text", how="left", maintain_order="left")
        .join(_tools(asked.get_column("tool")), on="tool", how="left", maintain_order="left")
        .join(_references(asked), on=["text", "arguments"], how="left", nulls_equal=True,
              maintain_order="left")
        .with_columns(pl.col("s_tested").fill_null(value=False))
    )  # fmt: skip
    rows = rows.with_columns(*_program_points(), *_document_points())
    return rows.with_columns(
        i_share=_share(rows.get_column("i_points"), inspector.ROWS.value("total")),
        s_share=_share(rows.get_column("s_points"), document.ROWS.value("total")),
    ).select(*_program_columns(), *_document_columns())


def _share(points: pl.Series, total: float) -> pl.Series:
    """Points of the total, 1 at most, to the last digit."""
    # polars divides by a constant by multiplying with its inverse: 5/9 and 5/6 come out one
    # digit off. There are ten different numbers of points at most, so Python divides.
    distinct = points.unique()
    shares = [min(1.0, each / total) for each in distinct]
    return points.replace_strict(distinct, pl.Series(shares, dtype=pl.Float64))


def _holds(rows: Rows, *parts: str) -> pl.Expr:
    """Whether any row of the parts holds of the text in lower case."""
    tests: list[pl.Expr] = []
    for part in parts:
        # JavaScript compares after toLowerCase. Searching without regard to case is not the
        # same: it takes U+017F for an s, or does not take U+212A for a k.
        if members := rows.members(part):
            tests.append(_LOW.str.contains_any(list(members)))
        tests += [_LOW.str.contains(regex) for regex in rows.regexes(part)]
    return pl.any_horizontal(tests)


def _texts(texts: pl.Series) -> pl.DataFrame:
    """What holds of each distinct text, in either reading."""
    program, written = inspector.ROWS, document.ROWS
    found = pl.DataFrame({"text": texts.unique()}).with_columns(
        low=pl.col("text").str.to_lowercase()
    )
    is_json = [
        bool(text) and document.is_structured_error(text)
        for text in found.select(
            pl.when(pl.col("text").str.contains(r"^[ \t\r\n]*\{")).then("text")
        ).to_series()
    ]
    return found.with_columns(
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
    ).drop("low")


def _tools(tools: pl.Series) -> pl.DataFrame:
    """Whether each distinct tool is expected to validate."""
    names = pl.DataFrame({"tool": tools.unique()}).with_columns(
        low=pl.col("tool").str.to_lowercase()
    )
    return names.select(
        "tool",
        i_expected=_holds(inspector.ROWS, "tool_keyword"),
        s_expected=_holds(document.ROWS, "tool_keyword"),
    )


_MAY_HOLD_IDS: Final = (
    r'[iI][dD][sS]?"[ \t\r\n]*:',
    "-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-",
    r"\\u00",
)
"""Arguments that are worth parsing: a name that ends like an id, a UUID, a letter in disguise.

Three searches, because one for all three loses its fast start and takes five times as long."""


def _references(asked: pl.DataFrame) -> pl.DataFrame:
    """Which texts reference an id that their request carried."""
    worth = pl.any_horizontal(pl.col("arguments").str.contains(each) for each in _MAY_HOLD_IDS)
    pairs = asked.select("text", "arguments").filter(worth & pl.col("text").is_not_null()).unique()
    carried = _ids(pairs.get_column("arguments").unique())
    held = pairs.join(carried, on="arguments").filter(
        pl.col("text").str.to_lowercase().str.contains(pl.col("id"), literal=True)
    )
    # Few are left, and only these need the word boundary.
    found = [
        document.references_ids(text.lower(), (each,))
        for text, each in held.select("text", "id").iter_rows()
    ]
    return (
        held.filter(pl.Series(found, dtype=pl.Boolean))
        .select("text", "arguments", s_tested=pl.lit(value=True))
        .unique()
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
    asked = ~pl.col("rpc")
    # On a code the program returns at once: nothing else is ever computed.
    weighed = asked & ~pl.col("i_code")
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
        {"is_business_error": pl.when(asked).then(decided)}
        | {name: pl.when(asked).then(value) for name, value in by_code.items()}
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
