"""Writes an answer to stdout, as a table for humans or in a row format.

Recorded text is untrusted: control characters, terminal escapes, invisible characters and
bidirectional overrides never reach a terminal, and Markdown markup is escaped.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import Final

import duckdb
import pyarrow as pa

from mcptally.analytics.sql_guard import sql_problem
from mcptally.errors import QueryError
from mcptally.output.text_table import columns_read, text_table
from mcptally.plural import count
from mcptally.tables.values import distinct_names, plain

_IN_THE_ENCODING_OF_STDOUT: Final = frozenset({"json", "jsonl", "markdown"})
"""Formats that can escape characters that stdout's encoding lacks; other formats are UTF-8."""

ROWS: Final = 50
"""Default number of table rows in a terminal."""


def _unsupported_as_text(table: pa.Table) -> pa.Table:
    """Convert intervals and unions to text, because CSV and Parquet do not support them."""
    for index, name in enumerate(table.column_names):
        column = table.column(index)
        if pa.types.is_union(column.type) or pa.types.is_interval(column.type):
            texts = [None if v is None else str(plain(v)) for v in column.to_pylist()]
            table = table.set_column(index, name, pa.array(texts, pa.string()))
    return table


def default_limit(form: str) -> int:
    """Return the default limit on rows: `ROWS` for a table in a terminal, else 0 (no limit)."""
    return ROWS if form == "table" and sys.stdout.isatty() else 0


def write(
    answer: duckdb.DuckDBPyRelation,
    form: str,
    *,
    shown: Sequence[str] = (),
    limit: int = 0,
    counts: bool = False,
    empty: str = "no rows",
) -> None:
    """Write an answer to stdout.

    Args:
        answer: the rows to write.
        form: the format, one of `ANSWERS`.
        shown: the columns of a table; all columns if empty. A terminal shows as many columns as
            fit.
        limit: the maximum number of rows; 0 for all.
        counts: whether to report the number of rows beyond the limit.
        empty: the text if there are no rows.

    Raises:
        QueryError: DuckDB cannot compute the rows, or Parquet cannot represent them.
    """
    names = answer.columns
    if form == "table" and shown:
        read = columns_read(shown)
        answer = answer.select(*(f'"{name}"' for name in names if name in read))
    try:
        table = (answer.limit(limit + 1) if limit else answer).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(sql_problem(error)) from error
    table = table.rename_columns(distinct_names(table.column_names))
    more = bool(limit) and table.num_rows > limit
    table = table.slice(0, limit) if limit else table
    table = _unsupported_as_text(table)
    notes = []
    if form == "table":
        _terminal(table, shown, names if shown else table.column_names)
        notes += [] if table.num_rows else [empty]
    else:
        from mcptally.output.formats.writers import WRITERS  # noqa: PLC0415  (tables need no writer)

        buffer = io.BytesIO()
        notes += WRITERS[form](iter(table.to_batches()), table.schema, buffer).notes
        if form in _IN_THE_ENCODING_OF_STDOUT:
            sys.stdout.write(buffer.getvalue().decode())
        else:
            sys.stdout.buffer.write(buffer.getbuffer())
    if more:
        shown_of = count(limit, "row")
        if counts:
            [(total,)] = answer.count("*").fetchall()
            shown_of = f"{limit:,} of {count(total, 'row')}"
        notes.append(f"only the first {shown_of} shown; --limit 0 shows all")
    sys.stdout.flush()
    sys.stderr.writelines(f"{note}\n" for note in notes)


def _terminal_width() -> tuple[int | None, bool]:
    """Return stdout's width (None if it is not a terminal), and whether it supports colours."""
    if not (sys.stdout.isatty() or os.environ.keys() & _FORCED):
        return None, False
    from rich.console import Console  # noqa: PLC0415  (slow to import)

    console = Console(highlight=False)
    if not console.is_terminal:
        return None, False
    return console.width, not console.no_color


_FORCED: Final = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})
"""Environment variables that make rich treat files as terminals."""


def _terminal(table: pa.Table, shown: Sequence[str], of_answer: Sequence[str]) -> None:
    width, colour = _terminal_width()
    sys.stdout.write(text_table(table, shown, width=width, colour=colour))
    sys.stdout.flush()
    names = [name for name in shown or table.column_names if name in table.column_names]
    intervals = {n for name in names for n in (f"{name}_low", f"{name}_high")}
    if hidden := [n for n in of_answer if n not in names and n not in intervals]:
        columns = count(len(hidden), "more column")
        sys.stderr.write(f"{columns} with --format json, csv or parquet\n")
