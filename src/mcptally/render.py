"""Answers as text: a table for people, and json, csv, parquet, markdown for machines.

Everything from an archive is hostile: control characters, terminal escapes, invisible characters
and bidirectional overrides never reach a terminal, markup never a Markdown reader.
"""

import datetime
import decimal
import io
import json
import math
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from mcptally.errors import QueryError
from mcptally.sanitise import CONTROLS, escaped, hidden

if TYPE_CHECKING:
    from rich.text import Text

Format = Literal["table", "json", "csv", "parquet", "markdown"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)

ROWS: Final = 50
"""Rows of a table in a terminal, unless told otherwise."""

_SHARE: Final = re.compile(
    r"_rate(_|$)|(?:^|_)share(_|$)|^(?:valid_worked|invalid_precision|invalid_recall|preventable"
    r"|refusal_precision)(_|$)"
)
_PERCENT: Final = re.compile(r"confidence")


def clean(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would act on."""
    return CONTROLS.sub(lambda m: " " if m[0] in "\n\r\t" else "\N{REPLACEMENT CHARACTER}", text)


def without_secrets(table: pa.Table) -> pa.Table:
    """`table` with token-like values in its texts replaced by `[redacted:NAME]`."""
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        known = pc.unique(column).to_pylist()
        changed = {text: clean for text in known if text and (clean := hidden(text)) != text}
        if changed:
            texts = [changed.get(text, text) for text in column.to_pylist()]
            table = table.set_column(place, name, pa.array(texts, column.type))
    return table


def write(
    answer: duckdb.DuckDBPyRelation,
    form: Format,
    *,
    shown: Sequence[str] = (),
    limit: int | None = None,
) -> None:
    """Write an answer to stdout.

    Args:
        answer: what to write.
        form: how.
        shown: columns of a table; all if empty. In a terminal, as far as they fit.
        limit: rows at the most; 0: all; None: all, but `ROWS` of a table in a terminal.

    Raises:
        QueryError: DuckDB cannot give the rows.
    """
    if limit is None:
        limit = ROWS if form == "table" and sys.stdout.isatty() else 0
    try:
        table = (answer.limit(limit + 1) if limit else answer).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(f"{error}") from error
    table = table.rename_columns(_told_apart(table.column_names))
    more = bool(limit) and table.num_rows > limit
    table = without_secrets(table.slice(0, limit) if limit else table)
    if form == "table":
        _terminal(table, shown)
    elif form == "json":
        sys.stdout.write(
            escaped(json.dumps(plain_rows(table), indent=1, ensure_ascii=False)) + "\n"
        )
    elif form == "csv":
        buffer = io.BytesIO()
        acted_on = CONTROLS if sys.stdout.isatty() else _LOST
        pyarrow.csv.write_csv(_flat(table, acted_on), buffer)
        sys.stdout.buffer.write(buffer.getvalue())
    elif form == "parquet":
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        sys.stdout.buffer.write(buffer.getvalue())
    else:
        sys.stdout.write(markdown(table))
    if not table.num_rows and form == "table":
        sys.stdout.flush()
        sys.stderr.write("no rows\n")
    if more:
        sys.stdout.flush()
        sys.stderr.write(f"the first {limit:,} rows; --limit 0 prints all\n")


def _plain(value: object) -> Any:
    """A value as JSON has it: no NaN, sums as numbers, times as ISO 8601."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an answer as JSON values."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


_FORMULA: Final = re.compile("[\\s\x00-\x1f]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How a text begins that a spreadsheet may take for a formula; `export --to csv` says the same."""
_LOST: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What CSV has no way to show."""


def _flat(table: pa.Table, acted_on: re.Pattern[str]) -> pa.Table:
    """Nested values as JSON text: CSV has none. Texts that a spreadsheet would run are quoted."""

    def safe(text: str | None) -> str | None:
        if text is None:
            return None
        text = acted_on.sub(
            lambda found: found[0] if found[0] in "\n\t" else "\N{REPLACEMENT CHARACTER}", text
        )
        return f"'{text}" if _FORMULA.match(text) else text

    def flat(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        if pa.types.is_nested(column.type):
            texts = [
                None if v is None else json.dumps(_plain(v), ensure_ascii=False)
                for v in column.to_pylist()
            ]
            return pa.array([safe(text) for text in texts], pa.string())
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return pa.array([safe(text) for text in column.to_pylist()], pa.string())
        return column

    names = [str(safe(name)) for name in table.column_names]
    return pa.table([flat(column) for column in table.columns], names=names)


def cell(name: str, value: object) -> str:
    """One value as a person reads it: shares and confidences in percent, times short."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, decimal.Decimal):
        value = _plain(value)
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if _SHARE.search(name):
            return f"{value:.1%}"
        if _PERCENT.search(name):
            return f"{value:.0f} %"
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return _cut(", ".join(cell("", v) for v in value[:CELL]))
    return _cut(str(value))


CELL: Final = 1000
"""Characters of a value that a table shows: one hostile name must not cost minutes of layout."""


def _cut(text: str) -> str:
    return clean(text if len(text) <= CELL else f"{text[:CELL]}\N{HORIZONTAL ELLIPSIS}")


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


def text_table(
    table: pa.Table, shown: Sequence[str] = (), *, width: int | None, colour: bool = False
) -> str:
    """Rows as aligned text.

    Args:
        table: the rows.
        shown: columns, the most important first; all if empty.
        width: characters of a line; long texts are cut, then columns left out from the right.
            None: as wide as it takes.
        colour: whether to say with colour what is good and bad.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    names = [name for name in shown or table.column_names if name in table.column_names]
    rows = table.to_pylist()
    cells = {name: [_with_interval(name, row) for row in rows] for name in names}
    numbers = {name for name in names if _is_number(table.schema.field(name).type)}
    headings = {name: _over_two_lines(heading(name), _width(cells[name])) for name in names}
    fixed = {n for n in names if n in numbers or n in _WHOLE or n.endswith(("_at", "_seen"))}

    def fit() -> dict[str, int]:
        natural = {name: _width([*headings[name].split("\n"), *cells[name]]) for name in names}
        return fitting(natural, fixed=fixed, width=width)

    widths = fit()
    thin = "insufficient_data" in names and "insufficient_data" not in widths
    if marked := thin and _mark(cells, widths, rows):
        widths = fit()
    for name in _NAMES & widths.keys():
        cells[name] = [_middle(text, widths[name]) for text in cells[name]]
    view = Table(box=None, pad_edge=False, header_style="bold")
    for name, size in widths.items():
        view.add_column(
            Text(headings[name]),
            justify="right" if name in numbers else "left",
            vertical="bottom",
            no_wrap=True,
            overflow="ellipsis",
            width=size,
        )
    for number, row in enumerate(rows):
        view.add_row(*(_coloured(name, cells[name][number], row) for name in widths))
    file = io.StringIO()
    console = Console(
        file=file,
        width=width or sum(widths.values()) + 2 * len(widths),
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(view)
    # rich fills a row up to the table's width: nothing to read, and ugly in a file.
    text = "".join(line.rstrip(" ") + "\n" for line in file.getvalue().splitlines())
    if marked:
        text += f"{THIN} {heading('insufficient_data')}\n"
    unsaid = {"insufficient_data"} if thin else set()  # a sign says it, or there is nothing to say
    left_out = [heading(name) for name in names if name not in widths.keys() | unsaid]
    if left_out:
        note = f"no room for: {', '.join(left_out)}"
        text += f"{textwrap.shorten(note, width or len(note), placeholder=' …')}\n"
    return text


THIN: Final = "?"
"""Before an estimate that rests on too little data, where the column that says so has no room."""


def _mark(
    cells: dict[str, list[str]], widths: Mapping[str, int], rows: Sequence[Mapping[str, Any]]
) -> bool:
    """Put `THIN` before the first estimate of each row with too little data; whether any has."""
    thin = [bool(row["insufficient_data"]) for row in rows]
    place = next((n for n in widths if any(_has_interval(n, row) for row in rows)), None)
    if place is None or not any(thin):
        return False
    cells[place] = [
        f"{THIN} {text}".rstrip() if few else text
        for text, few in zip(cells[place], thin, strict=True)
    ]
    return True


def _middle(text: str, width: int) -> str:
    """A name that does not fit, with both of its ends."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) <= width or width < 5:
        return text
    head = set_cell_size(text, width // 2).rstrip()
    tail = set_cell_size(text[::-1], width - 1 - cell_len(head))[::-1].lstrip()
    return f"{head}\N{HORIZONTAL ELLIPSIS}{tail}"


def _over_two_lines(text: str, enough: int) -> str:
    """A heading broken at the space that makes it narrowest, if it is wider than its column."""
    words = text.split(" ")
    if len(text) <= enough or len(words) == 1:
        return text
    broken = [(" ".join(words[:n]), " ".join(words[n:])) for n in range(1, len(words))]
    return "\n".join(min(broken, key=lambda lines: max(map(len, lines))))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


_HEADINGS: Final = {
    "insufficient_data": "too little data",
    "latency_p50_ms": "p50 ms",
    "latency_p95_ms": "p95 ms",
    "infrastructure": "infra",
    "hidden_errors": "hidden",
    "tool_failures": "failures",
}
_WHOLE: Final = frozenset({"call_id", "example_call", "slowest_call", "worst_call", "largest_call"})
"""Columns that are of no use when cut: `mcptally show` takes them."""


def heading(name: str) -> str:
    """A column's name for people."""
    return _HEADINGS.get(name) or clean(name).replace("_", " ").strip() or clean(name)


def _width(texts: Sequence[str]) -> int:
    from rich.cells import cell_len  # noqa: PLC0415

    return max(map(cell_len, texts), default=0)


SHORTEST: Final = 10
"""Characters to which a text may be cut before a column is left out for want of room."""
NAME: Final = 16
"""The same of a name, which is cut in the middle: names of one family differ at either end."""
_NAMES: Final = frozenset({"server", "tool", "client", "path", "file", "session", "recording"})


def fitting(natural: Mapping[str, int], *, fixed: set[str], width: int | None) -> dict[str, int]:
    """How wide each column becomes; one that is not there does not fit.

    Texts share what the fixed columns leave: short ones stay whole, the longest are cut. Where
    even that is too little, columns go from the right; two stay.
    """
    if width is None:
        return dict(natural)
    names = list(natural)
    while True:
        least = {
            n: natural[n] if n in fixed else min(natural[n], NAME if n in _NAMES else SHORTEST)
            for n in names
        }
        room = width - 2 * (len(names) - 1)
        if sum(least.values()) <= room or len(names) <= 2:
            break
        names.pop()
    sizes = {n: natural[n] for n in names}
    while sum(sizes.values()) > room:
        texts = [n for n in names if n not in fixed and sizes[n] > least[n]]
        if not texts:
            break
        longest = max(texts, key=lambda n: sizes[n])
        sizes[longest] -= 1
    return sizes


_BAD: Final = frozenset(
    {"tool_failure", "error", "breaking", "worse", "vanished", "hidden_error", "no_response"}
)
_DOUBTFUL: Final = frozenset(
    {"infrastructure", "ambiguous", "warning", "unclear", "timeout", "tool_error", "protocol_error"}
)


def _coloured(name: str, text: str, row: Mapping[str, Any]) -> "Text":
    """A cell, in the colour of what it says; where the data says too little, in none."""
    from rich.text import Text  # noqa: PLC0415

    style = ""
    if row.get("insufficient_data") and _has_interval(name, row):
        style = "dim"
    elif text in _BAD or (name in {"alarm", "breach"} and text):
        style = "red"
    elif text in _DOUBTFUL:
        style = "yellow"
    elif name == "confidence" and _has_interval(name, row) and row[name] is not None:
        # By what is sure: the interval's ends, not the estimate.
        if row["confidence_low"] >= 90:
            style = "green"
        elif row["confidence_high"] < 90:
            style = "red" if row["confidence_high"] < 70 else "yellow"
    elif name in _WHOLE:
        style = "dim"
    return Text(text, style=style)


def _has_interval(name: str, row: Mapping[str, Any]) -> bool:
    return row.get(f"{name}_low") is not None and row.get(f"{name}_high") is not None


def _with_interval(name: str, row: Mapping[str, Any]) -> str:
    """A cell, and beside an estimate its interval where the answer has one."""
    text = cell(name, row[name])
    if not text or not _has_interval(name, row):
        return text
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    scale = 100 if _SHARE.search(name) else 1
    return f"{text} ({scale * low:,.0f}\N{EN DASH}{scale * high:,.0f})"
