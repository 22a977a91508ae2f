"""Formats answers and calls as HTML and as text for notebooks.

The HTML has no scripts, links, images or style sheets. Code hosts therefore show it, and Jupyter
shows it even in untrusted notebooks. Recorded text is escaped; the caller must mask secrets.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from mcptally.redaction.display import clean_line, clean_lines
from mcptally.tables.values import SHARE, cell_of, is_number

MAX_CELL: Final = 160
"""Maximum number of characters that a table cell shows."""
LINE: Final = 32
"""Length in characters above which a text wraps within its table cell."""
FOLDED: Final = 2500
"""Length in characters above which a text is collapsed."""
_BAR: Final = 80
"""Width of a bar in pixels."""
_PERCENT: Final = frozenset({"confidence", "certainty", "hidden_certainty"})
"""Columns of percentages (0 to 100) that get a bar. Shares (0 to 1) are recognised by their names.
"""


def table(rows: pa.Table, names: Sequence[str], *, notes: Sequence[str] = ()) -> str:
    """Format rows as an HTML table; shares and percentages get a bar that shows their interval.

    Args:
        rows: the rows, with secrets masked.
        names: the columns to show.
        notes: lines to show under the table.
    """
    kinds = {name: rows.schema.field(name).type for name in names}
    sides = {name: "right" if is_number(kind) else "left" for name, kind in kinds.items()}
    head = "".join(
        f'<th style="text-align:{side}">{_escaped(name)}</th>' for name, side in sides.items()
    )
    body = "".join(
        f"<tr>{''.join(_cell(name, row, side) for name, side in sides.items())}</tr>"
        for row in rows.to_pylist()
    )
    below = "".join(f"<div><small>{_escaped(note)}</small></div>" for note in notes)
    return (
        f'<div style="overflow-x:auto"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{below}"
    )


def plain_table(rows: pa.Table, names: Sequence[str], *, notes: Sequence[str] = ()) -> str:
    """Format rows as aligned text, with the same columns as `table`, but without bars."""
    cells = [list(names), *([cell_of(name, row) for name in names] for row in rows.to_pylist())]
    cells = [[clean_line(_cut(text)) for text in line] for line in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)
    return "\n".join([*lines, *notes])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}\N{HORIZONTAL ELLIPSIS}"


def _cell(name: str, row: Mapping[str, Any], side: str) -> str:
    text = _cut(cell_of(name, row))
    space = "normal;min-width:22em" if len(text) > LINE else "nowrap"
    return (
        f'<td style="text-align:{side};white-space:{space}">'
        f"{_escaped(text)}{''.join(_bar(name, row))}</td>"
    )


def _bar(name: str, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield HTML for the interval of a value: as text, and as a bar that also shows the value."""
    value = row.get(name)
    whole = 100 if name in _PERCENT else 1 if SHARE.search(name) else 0
    if not whole or not isinstance(value, int | float) or not 0 <= value <= whole:
        return
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    start, mark, end = 0.0, value / whole, value / whole
    if low is not None and high is not None:
        ends = f"{100 * low / whole:.0f}\N{EN DASH}{100 * high / whole:.0f}"
        few = ", too little data" if row.get(f"{name}_insufficient_data") else ""
        yield f"<br><small>95 %: {ends}{few}</small>"
        start, end = max(0.0, min(low / whole, mark)), min(1.0, max(high / whole, mark))
    first, middle, last = (round((_BAR - 2) * place) for place in (start, mark, end))
    yield f'<br><span style="display:inline-block;width:{_BAR}px;background-color:#e4e8ea">'
    for pixels, colour in (
        (first, "transparent"),
        (middle - first, "#79b4c9"),
        (2, "#1f6f8b"),
        (last - middle, "#79b4c9"),
    ):
        yield (
            f'<span style="display:inline-block;height:8px;width:{pixels}px;'
            f'background-color:{colour}"></span>'
        )
    yield "</span>"


def call(title: str, about: str, payloads: Mapping[str, str], evidence: str) -> str:
    """Format a call as HTML: its request, its reply, and the evidence for its verdict.

    Args:
        title: the call's title.
        about: a line about the call.
        payloads: maps the headings of request and reply to their texts.
        evidence: the evidence for the verdict.
    """
    parts = [f"<h4>{_escaped(title)}</h4><div>{_escaped(about)}</div>"]
    for heading, text in payloads.items():
        parts.append(f"<div><b>{_escaped(heading)}</b></div>{_text(text)}")
    parts.append(f"<div><b>Evidence</b></div>{_text(evidence)}")
    return "".join(parts)


def _text(text: str) -> str:
    """Format text as preformatted HTML, collapsed if it is long."""
    block = (
        '<pre style="white-space:pre-wrap;padding:6px;border:1px solid #b0b7bd">'
        f"{html.escape(clean_lines(text))}</pre>"
    )
    if len(text) <= FOLDED:
        return block
    return f"<details><summary>{len(text):,} characters</summary>{block}</details>"


def _escaped(text: str) -> str:
    return html.escape(clean_line(text))
