"""Formats rows as aligned text: selects the columns that fit, cuts long texts and adds colour."""

import dataclasses
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from mcptally.redaction.display import clean_line
from mcptally.tables.values import NEVER_WORKED, READ_BESIDE, SHARE, cell_of, is_number


def text_table(
    table: pa.Table, shown: Sequence[str] = (), *, width: int | None, colour: bool = False
) -> str:
    """Return rows as aligned text, one line per row.

    Args:
        table: the rows.
        shown: the columns, the most important first; all columns if empty.
        width: characters per line; None for no limit. Long texts are cut. If the line is still too
            long, the least important columns are omitted (`fit_widths`), but never `ok` and
            `calls`.
        colour: whether to colour good and bad values.
    """
    names = [name for name in shown or table.column_names if name in table.column_names]
    rows = _without_zones(table).to_pylist()
    cells = {name: [_with_interval(name, row) for row in rows] for name in names}
    numbers = {name for name in names if is_number(table.schema.field(name).type)}
    headings = {name: _wrap_heading(clean_line(name), _width(cells[name])) for name in names}
    times = {name for name in names if pa.types.is_temporal(table.schema.field(name).type)}
    fixed = numbers | times | {name for name in names if _CALL_ID.search(name)}

    def fit() -> dict[str, int]:
        natural = {name: _width([*headings[name].split("\n"), *cells[name]]) for name in names}
        return fit_widths(natural, fixed=fixed, width=width, numbers=numbers)

    widths = fit()
    has_marks = any(
        _is_insufficient(name, row) and cells[name][number].startswith(INSUFFICIENT_MARK)
        for name in widths
        for number, row in enumerate(rows)
    )
    for name in _NAMES & widths.keys():
        cells[name] = [_cut_middle(text, widths[name]) for text in cells[name]]
    # Headings are bottom-aligned, with empty lines above shorter headings.
    height = max((headings[name].count("\n") for name in widths), default=0) + 1
    above = {name: height - 1 - headings[name].count("\n") for name in widths}
    top = {name: [*[""] * above[name], *headings[name].split("\n")] for name in widths}
    lines = [[(name, top[name][line], _BOLD) for name in widths] for line in range(height)]
    lines += [
        [(name, cells[name][number], _style(name, cells[name][number], row)) for name in widths]
        for number, row in enumerate(rows)
    ]

    def padded(name: str, cell: str, style: str) -> str:
        cell = _cut_end(cell, widths[name])
        space = " " * (widths[name] - _width([cell]))
        cell = f"{style}{cell}{_PLAIN}" if colour and style and cell else cell
        return space + cell if name in numbers else cell + space

    text = "".join("  ".join(padded(*cell) for cell in line).rstrip(" ") + "\n" for line in lines)
    if has_marks:
        text += f"{INSUFFICIENT_MARK} insufficient_data\n"
    left_out = [clean_line(name) for name in names if name not in widths]
    if left_out:
        note = f"columns that do not fit: {', '.join(left_out)}"
        text += f"{textwrap.shorten(note, width or len(note), placeholder=' …')}\n"
    return text


def columns_read(shown: Sequence[str]) -> set[str]:
    """Return the columns from which a table makes the cells of the columns `shown`."""
    ends = ("", "_low", "_high", "_insufficient_data")
    return {name + end for name in shown for end in ends} | {"calls", *READ_BESIDE}


def _without_zones(table: pa.Table) -> pa.Table:
    """Drop the time zones (all UTC) from a table, because pyarrow would import pandas for them."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz:
            kind = pa.timestamp(field.type.unit)
            parts = [part.view(kind) for part in table.column(number).chunks]
            table = table.set_column(number, field.name, pa.chunked_array(parts, kind))
    return table


INSUFFICIENT_MARK: Final = "?"
"""Prefix of an estimate `x` with too little data (`x_insufficient_data` is true)."""


def _is_insufficient(name: str, row: Mapping[str, Any]) -> bool:
    """Return whether there is too little data for an estimate."""
    return bool(row.get(f"{name}_insufficient_data")) and row.get(name) is not None


def _cut_middle(text: str, width: int) -> str:
    """Shorten a name to `width` by removing its middle."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) <= width or width < 5:
        return text
    head = set_cell_size(text, width // 2).rstrip()
    tail = set_cell_size(text[::-1], width - 1 - cell_len(head))[::-1].lstrip()
    return f"{head}\N{HORIZONTAL ELLIPSIS}{tail}"


def _cut_end(text: str, width: int) -> str:
    """Truncate text to `width` terminal columns."""
    from rich.cells import set_cell_size  # noqa: PLC0415

    if _width([text]) <= width:
        return text
    return f"{set_cell_size(text, width - 1)}\N{HORIZONTAL ELLIPSIS}"


def _wrap_heading(text: str, column_width: int) -> str:
    """Split a heading that is wider than its column into two lines, as narrow as possible.

    Lines end after underscores, so that joining the lines yields the column's name.
    """
    words = re.split(r"(?<=[_ ])", text)
    if len(text) <= column_width or len(words) == 1:
        return text
    splits = [("".join(words[:n]), "".join(words[n:])) for n in range(1, len(words))]
    return "\n".join(min(splits, key=lambda lines: max(map(len, lines))))


_CALL_ID: Final = re.compile(r"(?:^|_)call_id$")
"""Matches columns of call ids, which are never cut: users paste them into `mcptally show`."""
_MESSAGES: Final = frozenset({"template", "example", "message", "error", "error_text"})
"""Columns of messages; at least `MIN_MESSAGE_WIDTH` characters of each message are shown."""
_ALWAYS_KEPT: Final = frozenset({"ok", "calls"})
"""Columns that are never omitted: a rate means little without its number of calls."""


def _width(texts: Sequence[str]) -> int:
    from rich.cells import cell_len  # noqa: PLC0415

    return max(map(cell_len, texts), default=0)


MIN_TEXT_WIDTH: Final = 10
"""Minimum width of a cut text. If the table is still too wide, columns are omitted."""
MIN_NAME_WIDTH: Final = 16
"""Minimum width of names. Names are cut in the middle, because related names may differ at either
end."""
MIN_MESSAGE_WIDTH: Final = 30
"""Minimum width of error messages, because fewer characters rarely suffice to distinguish
errors."""
_LEAST_WIDTH: Final = 4
"""Width to which texts and names are cut if no more columns can be omitted."""
_NAMES: Final = frozenset(
    {"server", "tool", "client", "path", "file", "session", "recording", "rule"}
)


@dataclasses.dataclass(frozen=True)
class _Step:
    """A way to fit a table into a line: which columns are kept, and how far texts are cut."""

    kept: frozenset[str]
    """Columns that must not be omitted."""
    text: int
    """Minimum width of texts that are neither names nor messages."""
    name: int
    message: int


def _steps(names: Sequence[str], numbers: Collection[str]) -> list[_Step]:
    """Return the steps for fitting columns into a line, in the order in which to try them.

    Each step omits or cuts more than the previous step.
    """
    first_number = [name for name in names if name in numbers][:1]
    messages = _MESSAGES & set(names)
    ids = {name for name in names if _CALL_ID.search(name)}
    wanted = _ALWAYS_KEPT | {*first_number, "success_rate"} | messages | ids
    least = _LEAST_WIDTH
    return [
        _Step(frozenset(kept), *widths)
        for kept, widths in (
            (wanted, (MIN_TEXT_WIDTH, MIN_NAME_WIDTH, MIN_MESSAGE_WIDTH)),
            (wanted, (least, least, MIN_MESSAGE_WIDTH)),
            (wanted, (least, least, MIN_TEXT_WIDTH)),
            (_ALWAYS_KEPT | messages, (least, least, MIN_TEXT_WIDTH)),
            (_ALWAYS_KEPT, (least, least, least)),
        )
    ]


def fit_widths(
    natural: Mapping[str, int],
    *,
    fixed: Collection[str],
    width: int | None,
    numbers: Collection[str] = (),
) -> dict[str, int]:
    """Return the widths of the columns that fit into `width` characters.

    The widest text columns are narrowed first; columns in `fixed` retain their natural width. If
    the line is still too long, columns are omitted, rightmost first, except the first two. The
    number of calls, the first number, the error message and the call id are omitted last.

    Args:
        natural: maps columns, in order, to the number of characters that they need.
        fixed: columns that must not be cut.
        width: characters per line; None for no limit.
        numbers: columns that contain numbers.
    """
    if width is None:
        return dict(natural)
    names = list(natural)
    for step in _steps(names, numbers):
        least = {n: natural[n] if n in fixed else _least(n, natural[n], step) for n in names}
        while not (fits := _line(least, names) <= width):
            droppable = [name for name in names[2:] if name not in step.kept]
            if not droppable:
                break
            names.remove(droppable[-1])
        if fits:
            break
    sizes = {n: natural[n] for n in names}
    while _line(sizes, names) > width:
        texts = [n for n in names if n not in fixed and sizes[n] > least[n]]
        if not texts:
            break
        longest = max(texts, key=lambda n: sizes[n])
        sizes[longest] -= 1
    return sizes


def _least(name: str, natural: int, step: _Step) -> int:
    """Return the width to which a step may cut a text column."""
    if name in _MESSAGES:
        return min(natural, step.message)
    return min(natural, step.name if name in _NAMES else step.text)


def _line(sizes: Mapping[str, int], names: Sequence[str]) -> int:
    """Return the length of a line with the given columns, two spaces apart."""
    return sum(sizes[name] for name in names) + 2 * (len(names) - 1)


_BAD: Final = frozenset(
    {"tool_failure", "error", "breaking", "worse", "vanished", "hidden_error", "no_response"}
)
_DOUBTFUL: Final = frozenset(
    {"infrastructure", "ambiguous", "warning", "unclear", "timeout", "tool_error", "protocol_error"}
)


_PLAIN: Final = "\033[0m"
_BOLD: Final = "\033[1m"
_DIM: Final = "\033[2m"
_RED: Final = "\033[31m"
_GREEN: Final = "\033[32m"
_YELLOW: Final = "\033[33m"


def _style(name: str, text: str, row: Mapping[str, Any]) -> str:
    """Return the style for a cell's value; estimates from too little data are dimmed."""
    if text == NEVER_WORKED or (name == "ok" and row[name] == 0 and row.get("calls")):
        return _RED
    if _is_insufficient(name, row):
        return _DIM
    if text in _BAD:
        return _RED
    if text in _DOUBTFUL:
        return _YELLOW
    if name == "confidence" and _has_interval(name, row) and row[name] is not None:
        # The ends of the interval, not the estimate, determine the colour.
        if row["confidence_low"] >= 90:
            return _GREEN
        if row["confidence_high"] < 90:
            return _RED if row["confidence_high"] < 70 else _YELLOW
        return ""
    return _DIM if _CALL_ID.search(name) else ""


def _has_interval(name: str, row: Mapping[str, Any]) -> bool:
    return row.get(f"{name}_low") is not None and row.get(f"{name}_high") is not None


def _with_interval(name: str, row: Mapping[str, Any]) -> str:
    """Return a cell's text with its interval, and with a prefix if there is too little data."""
    text = cell_of(name, row)
    if not text or text == NEVER_WORKED or not _has_interval(name, row):
        return text
    if _is_insufficient(name, row):
        text = f"{INSUFFICIENT_MARK} {text}"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    scale = 100 if SHARE.search(name) else 1
    return f"{text} ({scale * low:,.0f}\N{EN DASH}{scale * high:,.0f})"
