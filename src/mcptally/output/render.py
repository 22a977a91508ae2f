"""Answers on stdout: a table for people, and json, csv, parquet, markdown for machines.

Everything from an archive is hostile: control characters, terminal escapes, invisible characters
and bidirectional overrides never reach a terminal, markup never a Markdown reader.
"""

import io
import json
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, Literal

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from mcptally.errors import QueryError
from mcptally.output.text_table import text_table
from mcptally.output.values import cell, plain
from mcptally.redaction.arrow_masking import masked_rows
from mcptally.redaction.display import CONTROLS, clean, escaped

Format = Literal["table", "json", "csv", "parquet", "markdown"]
"""How an answer is written; the option `--format` has the same names."""

ROWS: Final = 50
"""Rows of a table in a terminal, unless told otherwise."""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _as_files_have_it(table: pa.Table) -> pa.Table:
    """Intervals and unions, which neither CSV nor Parquet has, as text."""
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if pa.types.is_union(column.type) or pa.types.is_interval(column.type):
            texts = [None if v is None else str(plain(v)) for v in column.to_pylist()]
            table = table.set_column(place, name, pa.array(texts, pa.string()))
    return table


def default_limit(form: Format) -> int:
    """Rows that are written unless told otherwise: `ROWS` of a table in a terminal; else 0, all."""
    return ROWS if form == "table" and sys.stdout.isatty() else 0


def write(
    answer: duckdb.DuckDBPyRelation,
    form: Format,
    *,
    shown: Sequence[str] = (),
    limit: int = 0,
    raw: bool = False,
) -> None:
    """Write an answer to stdout.

    Args:
        answer: what to write.
        form: how.
        shown: columns of a table; all if empty. In a terminal, as far as they fit.
        limit: rows at the most; 0: all.
        raw: whether secrets are written as they were recorded (`sanitise`).

    Raises:
        QueryError: DuckDB cannot give the rows.
    """
    try:
        table = (answer.limit(limit + 1) if limit else answer).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(f"{error}") from error
    table = table.rename_columns(_told_apart(table.column_names))
    more = bool(limit) and table.num_rows > limit
    table = table.slice(0, limit) if limit else table
    table = _as_files_have_it(table)
    table = table if raw else masked_rows(table)
    if form == "table":
        _terminal(table, shown)
    elif form == "json":
        sys.stdout.write(
            escaped(json.dumps(plain_rows(table), indent=1, ensure_ascii=False)) + "\n"
        )
    elif form == "csv":
        buffer = io.BytesIO()
        pyarrow.csv.write_csv(_flat(table), buffer)
        sys.stdout.buffer.write(buffer.getvalue())
    elif form == "parquet":
        buffer = io.BytesIO()
        try:
            pq.write_table(table, buffer)
        except pa.ArrowException as error:
            raise QueryError(
                f"Parquet cannot hold this answer ({error}); cast it to text"
            ) from error
        sys.stdout.buffer.write(buffer.getvalue())
    else:
        sys.stdout.write(markdown(table))
    if not table.num_rows and form == "table":
        sys.stdout.flush()
        sys.stderr.write("no rows\n")
    if more:
        sys.stdout.flush()
        sys.stderr.write(f"the first {limit:,} rows; --limit 0 prints all\n")


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an answer as JSON values."""
    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


_FORMULA: Final = re.compile("[\\s\x00-\x1f]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How a text begins that a spreadsheet may take for a formula; `export --to csv` says the same."""


def _flat(table: pa.Table) -> pa.Table:
    """Nested values as JSON text: CSV has none. Texts that a spreadsheet would run are quoted.

    CSV has no escapes: characters of `CONTROLS` become U+FFFD, in a file as in a terminal.
    """

    def safe(text: str | None) -> str | None:
        if text is None:
            return None
        text = CONTROLS.sub(
            lambda found: found[0] if found[0] in "\n\t" else "\N{REPLACEMENT CHARACTER}", text
        )
        return f"'{text}" if _FORMULA.match(text) else text

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


def _told_apart(names: Sequence[str]) -> list[str]:
    """Column names, each once: SQL may give several columns one name."""
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name}_{seen[name] - 1}")
    return told


_MARKUP: Final = re.compile(r"[\\`*\[\]|~]")


_LINK: Final = re.compile(r":(?=//)|(?<=www)\.|@", re.IGNORECASE)
"""What makes readers of Markdown see an address and link to it."""


def markdown(table: pa.Table) -> str:
    """A Markdown table; nothing in a cell is markup, a link or an image."""
    names = table.column_names
    lines = [[_unmarked(name) for name in names], ["---"] * len(names)]
    lines += [[_unmarked(cell(n, row[n])) for n in names] for row in table.to_pylist()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _unmarked(text: str) -> str:
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;")
    text = _LINK.sub(lambda found: f"&#{ord(found[0])};", text)
    return _MARKUP.sub(lambda found: f"\\{found[0]}", text)


def _terminal(table: pa.Table, shown: Sequence[str]) -> None:
    from rich.console import Console  # noqa: PLC0415  (the other formats do without)

    console = Console(highlight=False)
    sys.stdout.write(
        text_table(
            table,
            shown,
            # A file or a pipe has no width to fit into.
            width=console.width if console.is_terminal else None,
            colour=console.is_terminal and not console.no_color,
        )
    )
    sys.stdout.flush()
    names = [name for name in shown or table.column_names if name in table.column_names]
    merged = {n for name in names for n in (f"{name}_low", f"{name}_high")}
    if hidden := [n for n in table.column_names if n not in names and n not in merged]:
        sys.stderr.write(f"{len(hidden)} more columns with --format json, csv or parquet\n")
