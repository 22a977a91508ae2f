"""Formats rows as aligned text: chooses the columns that fit, cuts long texts, adds colour."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mcptally.output.values import SHARE, cell, heading

if TYPE_CHECKING:
    from rich.text import Text


def text_table(
    table: pa.Table, shown: Sequence[str] = (), *, width: int | None, colour: bool = False
) -> str:
    """Rows as aligned text, one line per row.

    Args:
        table: the rows.
        shown: columns, the most important first; all if empty.
        width: characters per line. Long texts are cut; if that is not enough, columns are left out,
            the rightmost first. None: no limit.
        colour: whether to colour good and bad values.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    names = [name for name in shown or table.column_names if name in table.column_names]
    rows = table.to_pylist()
    cells = {name: [_with_interval(name, row) for row in rows] for name in names}
    numbers = {name for name in names if _is_number(table.schema.field(name).type)}
    headings = {name: _wrap_heading(heading(name), _width(cells[name])) for name in names}
    fixed = {n for n in names if n in numbers or n in _UNCUT or n.endswith(("_at", "_seen"))}

    def fit() -> dict[str, int]:
        natural = {name: _width([*headings[name].split("\n"), *cells[name]]) for name in names}
        return fit_widths(natural, fixed=fixed, width=width)

    widths = fit()
    flag_left_out = "insufficient_data" in names and "insufficient_data" not in widths
    if marked := flag_left_out and _mark_insufficient(cells, widths, rows):
        widths = fit()
    for name in _NAMES & widths.keys():
        cells[name] = [_cut_middle(text, widths[name]) for text in cells[name]]
    rich_table = Table(box=None, pad_edge=False, header_style="bold")
    for name, size in widths.items():
        rich_table.add_column(
            Text(headings[name]),
            justify="right" if name in numbers else "left",
            vertical="bottom",
            no_wrap=True,
            overflow="ellipsis",
            width=size,
        )
    for number, row in enumerate(rows):
        rich_table.add_row(*(_coloured(name, cells[name][number], row) for name in widths))
    file = io.StringIO()
    console = Console(
        file=file,
        width=width or sum(widths.values()) + 2 * len(widths),
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(rich_table)
    # rich pads each line with spaces up to the table's width.
    text = "".join(line.rstrip(" ") + "\n" for line in file.getvalue().splitlines())
    if marked:
        text += f"{INSUFFICIENT_MARK} {heading('insufficient_data')}\n"
    # The mark replaces this column; without a mark no row lacks data.
    replaced = {"insufficient_data"} if flag_left_out else set()
    left_out = [heading(name) for name in names if name not in widths.keys() | replaced]
    if left_out:
        note = f"columns that do not fit: {', '.join(left_out)}"
        text += f"{textwrap.shorten(note, width or len(note), placeholder=' …')}\n"
    return text


INSUFFICIENT_MARK: Final = "?"
"""Stands before an estimate with too little data if the column `insufficient_data` does not fit."""


def _mark_insufficient(
    cells: dict[str, list[str]], widths: Mapping[str, int], rows: Sequence[Mapping[str, Any]]
) -> bool:
    """Mark the first estimate of each row with too little data; return whether any row has one."""
    insufficient = [bool(row["insufficient_data"]) for row in rows]
    column = next((n for n in widths if any(_has_interval(n, row) for row in rows)), None)
    if column is None or not any(insufficient):
        return False
    cells[column] = [
        f"{INSUFFICIENT_MARK} {text}".rstrip() if marked else text
        for text, marked in zip(cells[column], insufficient, strict=True)
    ]
    return True


def _cut_middle(text: str, width: int) -> str:
    """A name cut to `width` in the middle, so that both ends stay."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) <= width or width < 5:
        return text
    head = set_cell_size(text, width // 2).rstrip()
    tail = set_cell_size(text[::-1], width - 1 - cell_len(head))[::-1].lstrip()
    return f"{head}\N{HORIZONTAL ELLIPSIS}{tail}"


def _wrap_heading(text: str, column_width: int) -> str:
    """A heading on two lines as narrow as possible, if it is wider than the cells below it."""
    words = text.split(" ")
    if len(text) <= column_width or len(words) == 1:
        return text
    splits = [(" ".join(words[:n]), " ".join(words[n:])) for n in range(1, len(words))]
    return "\n".join(min(splits, key=lambda lines: max(map(len, lines))))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


_UNCUT: Final = frozenset({"call_id", "example_call", "slowest_call", "worst_call", "largest_call"})
"""Columns of call ids, which are never cut: readers paste them into `mcptally show`."""


def _width(texts: Sequence[str]) -> int:
    from rich.cells import cell_len  # noqa: PLC0415

    return max(map(cell_len, texts), default=0)


MIN_TEXT_WIDTH: Final = 10
"""Characters to which texts are cut at most; after that, columns are left out."""
MIN_NAME_WIDTH: Final = 16
"""The same for names, which are cut in the middle: related names may differ at either end."""
_NAMES: Final = frozenset({"server", "tool", "client", "path", "file", "session", "recording"})


def fit_widths(natural: Mapping[str, int], *, fixed: set[str], width: int | None) -> dict[str, int]:
    """The width of each column that fits into `width` characters.

    The widest text columns are narrowed first; columns in `fixed` keep their natural width. If that
    is not enough, the rightmost columns are left out; the first two always stay.

    Args:
        natural: column → characters that it needs, in the order of columns.
        fixed: columns that cannot be cut.
        width: characters per line; None: no limit.
    """
    if width is None:
        return dict(natural)
    names = list(natural)
    while True:
        least = {
            n: natural[n]
            if n in fixed
            else min(natural[n], MIN_NAME_WIDTH if n in _NAMES else MIN_TEXT_WIDTH)
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
    """A cell coloured by its value; an estimate with too little data is dimmed."""
    from rich.text import Text  # noqa: PLC0415

    style = ""
    if row.get("insufficient_data") and _has_interval(name, row):
        style = "dim"
    elif text in _BAD:
        style = "red"
    elif text in _DOUBTFUL:
        style = "yellow"
    elif name == "confidence" and _has_interval(name, row) and row[name] is not None:
        # The interval's ends decide, not the estimate.
        if row["confidence_low"] >= 90:
            style = "green"
        elif row["confidence_high"] < 90:
            style = "red" if row["confidence_high"] < 70 else "yellow"
    elif name in _UNCUT:
        style = "dim"
    return Text(text, style=style)


def _has_interval(name: str, row: Mapping[str, Any]) -> bool:
    return row.get(f"{name}_low") is not None and row.get(f"{name}_high") is not None


def _with_interval(name: str, row: Mapping[str, Any]) -> str:
    """The text of a cell, followed by the interval in parentheses if the row has one."""
    text = cell(name, row[name])
    if not text or not _has_interval(name, row):
        return text
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    scale = 100 if SHARE.search(name) else 1
    return f"{text} ({scale * low:,.0f}\N{EN DASH}{scale * high:,.0f})"
