"""Rows as aligned text: which columns have room, what is cut, and what has which colour."""

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


_WHOLE: Final = frozenset({"call_id", "example_call", "slowest_call", "worst_call", "largest_call"})
"""Columns that are of no use when cut: `mcptally show` takes them."""


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
    scale = 100 if SHARE.search(name) else 1
    return f"{text} ({scale * low:,.0f}\N{EN DASH}{scale * high:,.0f})"
