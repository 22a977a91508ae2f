"""Writes an answer to stdout as table, JSON, CSV, Parquet or Markdown.

Recorded text is untrusted: control characters, terminal escapes, invisible characters and
bidirectional overrides never reach a terminal, and Markdown markup is escaped.
"""

import io
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, Literal

import duckdb
import pyarrow as pa

from mcptally.errors import QueryError
from mcptally.output.text_table import text_table
from mcptally.plural import count
from mcptally.redaction.display import CONTROL_CHARACTERS, clean_line, escape_controls
from mcptally.tables.values import FORMULA, cell_of, distinct_names, plain

Format = Literal["table", "json", "csv", "parquet", "markdown"]
"""The formats of an answer, named as in the option `--format`."""

ROWS: Final = 50
"""Rows of a table that are printed in a terminal by default."""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unsupported_as_text(table: pa.Table) -> pa.Table:
    """The table with intervals and unions as text: neither CSV nor Parquet can hold them."""
    for index, name in enumerate(table.column_names):
        column = table.column(index)
        if pa.types.is_union(column.type) or pa.types.is_interval(column.type):
            texts = [None if v is None else str(plain(v)) for v in column.to_pylist()]
            table = table.set_column(index, name, pa.array(texts, pa.string()))
    return table


def default_limit(form: Format) -> int:
    """Rows that are written by default: `ROWS` for a table in a terminal, otherwise 0 (all)."""
    return ROWS if form == "table" and sys.stdout.isatty() else 0


def write(
    answer: duckdb.DuckDBPyRelation,
    form: Format,
    *,
    shown: Sequence[str] = (),
    limit: int = 0,
) -> None:
    """Write an answer to stdout.

    Args:
        answer: the rows to write.
        form: the format.
        shown: the columns of a table; all if empty. A terminal shows those that fit.
        limit: the maximum number of rows; 0: all.

    Raises:
        QueryError: DuckDB cannot compute the rows, or Parquet cannot hold them.
    """
    try:
        table = (answer.limit(limit + 1) if limit else answer).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(f"{error}") from error
    table = table.rename_columns(distinct_names(table.column_names))
    more = bool(limit) and table.num_rows > limit
    table = table.slice(0, limit) if limit else table
    table = _unsupported_as_text(table)
    if form == "table":
        _terminal(table, shown)
    elif form == "json":
        text = json.dumps(plain_rows(table), indent=1, ensure_ascii=False)
        sys.stdout.write(escape_controls(text) + "\n")
    elif form == "csv":
        sys.stdout.buffer.write(_csv(table))
    elif form == "parquet":
        sys.stdout.buffer.write(_parquet(table))
    else:
        sys.stdout.write(markdown(table))
    if not table.num_rows and form == "table":
        sys.stdout.flush()
        sys.stderr.write("no rows\n")
    if more:
        sys.stdout.flush()
        rows = count(limit, "row")
        sys.stderr.write(f"only the first {rows} shown; --limit 0 shows all\n")


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an answer as JSON values."""
    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq  # noqa: PLC0415  (the other formats do not need it)

    buffer = io.BytesIO()
    try:
        pq.write_table(table, buffer)
    except pa.ArrowException as error:
        raise QueryError(f"Parquet cannot store this answer ({error}); cast it to text") from error
    return buffer.getvalue()


def _csv(table: pa.Table) -> bytes:
    import pyarrow.csv  # noqa: PLC0415  (the other formats do not need it)

    buffer = io.BytesIO()
    pyarrow.csv.write_csv(_flat(table), buffer)
    return buffer.getvalue()


def _flat(table: pa.Table) -> pa.Table:
    """The table as CSV can hold it: nested values as JSON text, no formulas, no control characters.

    A text that a spreadsheet may run as a formula gets an apostrophe before it. CSV has no escapes:
    characters of `CONTROL_CHARACTERS` become U+FFFD, also in a file.
    """

    def safe(text: str | None) -> str | None:
        if text is None:
            return None
        text = CONTROL_CHARACTERS.sub(
            lambda found: found[0] if found[0] in "\n\t" else "\N{REPLACEMENT CHARACTER}", text
        )
        return f"'{text}" if re.match(FORMULA, text) else text

    def flat(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        if pa.types.is_nested(column.type):
            texts = [
                None if v is None else json.dumps(plain(v), ensure_ascii=False)
                for v in column.to_pylist()
            ]
            return pa.array([safe(text) for text in texts], pa.string())
        if _is_text(column.type) or pa.types.is_binary(column.type):
            texts = [None if v is None else plain(v) for v in column.to_pylist()]
            return pa.array([safe(text) for text in texts], pa.string())
        return column

    names = [str(safe(name)) for name in table.column_names]
    return pa.table([flat(column) for column in table.columns], names=names)


_MARKUP: Final = re.compile(r"[\\`*\[\]|~]")
_LINK: Final = re.compile(r":(?=//)|(?<=www)\.|@", re.IGNORECASE)
"""Matches the character that makes Markdown renderers turn an address into a link."""


def markdown(table: pa.Table) -> str:
    """A Markdown table; markup, links and images in cells are escaped."""
    names = table.column_names
    lines = [[_escape_markdown(name) for name in names], ["---"] * len(names)]
    lines += [[_escape_markdown(cell_of(n, row)) for n in names] for row in table.to_pylist()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escape_markdown(text: str) -> str:
    text = clean_line(text).replace("&", "&amp;").replace("<", "&lt;")
    text = _LINK.sub(lambda found: f"&#{ord(found[0])};", text)
    return _MARKUP.sub(lambda found: f"\\{found[0]}", text)


def _terminal_width() -> tuple[int | None, bool]:
    """Characters per line of stdout (None: not a terminal), and whether it has colours."""
    if not (sys.stdout.isatty() or os.environ.keys() & _FORCED):
        return None, False
    from rich.console import Console  # noqa: PLC0415  (slow to import)

    console = Console(highlight=False)
    if not console.is_terminal:
        return None, False
    return console.width, not console.no_color


_FORCED: Final = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})
"""Variables with which rich writes to a file as to a terminal."""


def _terminal(table: pa.Table, shown: Sequence[str]) -> None:
    width, colour = _terminal_width()
    sys.stdout.write(text_table(table, shown, width=width, colour=colour))
    sys.stdout.flush()
    names = [name for name in shown or table.column_names if name in table.column_names]
    intervals = {n for name in names for n in (f"{name}_low", f"{name}_high")}
    if hidden := [n for n in table.column_names if n not in names and n not in intervals]:
        columns = count(len(hidden), "more column")
        sys.stderr.write(f"{columns} with --format json, csv or parquet\n")
