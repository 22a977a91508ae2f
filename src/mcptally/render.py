"""Answers as text: a table for people, and json, csv, parquet, markdown for machines.

Everything from an archive is hostile: control characters, terminal escapes and bidirectional
overrides never reach a terminal.
"""

import datetime
import io
import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

Format = Literal["table", "json", "csv", "parquet", "markdown"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)

_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_SHARE: Final = re.compile(r"_rate(_|$)")
_PERCENT: Final = re.compile(r"confidence")


def clean(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would act on."""
    return _CONTROLS.sub(lambda m: " " if m[0] in "\n\r\t" else "\N{REPLACEMENT CHARACTER}", text)


def write(answer: duckdb.DuckDBPyRelation, form: Format, *, shown: Sequence[str] = ()) -> None:
    """Write an answer to stdout; a table has the columns `shown`, or all, as far as they fit."""
    table = answer.to_arrow_table()
    if form == "table":
        _terminal(table, shown)
    elif form == "json":
        rows = table.to_pylist()
        sys.stdout.write(json.dumps(rows, default=_plain, indent=1, ensure_ascii=False) + "\n")
    elif form == "csv":
        buffer = io.BytesIO()
        pyarrow.csv.write_csv(_flat(table), buffer)
        sys.stdout.buffer.write(buffer.getvalue())
    elif form == "parquet":
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        sys.stdout.buffer.write(buffer.getvalue())
    else:
        _markdown(table)


def _plain(value: object) -> Any:
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)


def _flat(table: pa.Table) -> pa.Table:
    """Lists as JSON text: CSV has no lists. Texts that a spreadsheet would run are quoted."""

    def flat(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            return pa.array([None if v is None else json.dumps(v) for v in column.to_pylist()])
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            safe = [f"'{v}" if v and v[0] in "=+-@\t\r" else v for v in column.to_pylist()]
            return pa.array(safe, pa.string())
        return column

    return pa.table([flat(column) for column in table.columns], names=table.column_names)


def cell(name: str, value: object) -> str:
    """One value as a person reads it: shares and confidences in percent, times short."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if _SHARE.search(name):
            return f"{value:.1%}"
        if _PERCENT.search(name):
            return f"{value:.0f} %"
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return clean(", ".join(str(v) for v in value))
    return clean(str(value))


def _markdown(table: pa.Table) -> None:
    names = table.column_names
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in table.to_pylist():
        cells = [cell(n, row[n]).replace("\\", "\\\\").replace("|", "\\|") for n in names]
        cells = [c.replace("<", "&lt;").replace("`", "\\`") for c in cells]
        lines.append("| " + " | ".join(cells) + " |")
    sys.stdout.write("\n".join(lines) + "\n")


def _terminal(table: pa.Table, shown: Sequence[str]) -> None:
    from rich.console import Console  # noqa: PLC0415  (the other formats do without)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    names = [name for name in shown or table.column_names if name in table.column_names]
    rows = table.to_pylist()
    cells = {name: [_with_interval(name, row) for row in rows] for name in names}
    console = Console(highlight=False)
    if console.is_terminal:
        fitting = _fitting(cells, console.width)
    else:  # a file or a pipe has no width to fit into
        fitting = names
        console = Console(highlight=False, width=10_000)
    view = Table(box=None, pad_edge=False, header_style="bold")
    for name in fitting:
        kind = table.schema.field(name).type
        number = (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        )
        view.add_column(
            Text(_HEADINGS.get(name, name)),
            justify="right" if number else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in zip(*(cells[name] for name in fitting), strict=True):
        view.add_row(*map(Text, row))
    console.print(view)
    merged = {n for name in fitting for n in (f"{name}_low", f"{name}_high")}
    if hidden := [n for n in table.column_names if n not in fitting and n not in merged]:
        sys.stderr.write(f"{len(hidden)} more columns with --format json, csv or parquet\n")


_HEADINGS: Final = {
    "insufficient_data": "too little data",
    "latency_p50_ms": "p50 ms",
    "latency_p95_ms": "p95 ms",
    "infrastructure": "infra",
    "hidden_errors": "hidden",
    "tool_failures": "failures",
}


def _with_interval(name: str, row: dict[str, Any]) -> str:
    """A cell, and beside an estimate its interval where the answer has one."""
    text = cell(name, row[name])
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if not text or low is None or high is None:
        return text
    scale = 100 if _SHARE.search(name) else 1
    return f"{text} ({scale * low:.0f}\N{EN DASH}{scale * high:.0f})"


def _fitting(cells: dict[str, list[str]], width: int) -> list[str]:
    """The columns, from the left, that fit into a terminal's width; two at the least."""
    names: list[str] = []
    used = 0
    for name, texts in cells.items():
        heading = _HEADINGS.get(name, name)
        used += min(40, max(map(len, [heading, *texts]))) + 2
        if used - 2 > width and len(names) > 1:
            break
        names.append(name)
    return names
