"""Writes CSV that is safe to open in a spreadsheet: no cell is a formula.

Lists are written as JSON. A text that starts with `=`, `+`, `-`, `@`, their full-width forms, a tab
or a line break is prefixed with an apostrophe, as OWASP recommends against CSV injection. Numbers
are not changed. CSV has no escapes, so control, invisible and bidirectional characters become
U+FFFD. In lines of more than `LINE` bytes, the longest texts are cut. The file is UTF-8 without a
byte order mark.
"""

import json
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mcptally.output.formats.values import plain
from mcptally.output.formats.written import Written
from mcptally.redaction.display import CONTROL_CHARACTERS
from mcptally.tables.values import FORMULA

LINE: Final = 2_000_000
"""Maximum bytes per line; by default, DuckDB rejects more than 2,097,152."""
_CELL: Final = 3
"""Number of bytes around each text: two quotes and a comma."""
_NUMBER: Final = 64
"""Maximum number of bytes for a number or time."""


def write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> Written:
    """Write a header and all rows."""
    import pyarrow.csv  # noqa: PLC0415  (other formats do not need it)

    names = _safe(pa.array(schema.names, pa.string())).to_pylist()
    types = [kind if _keeps_type(kind) else pa.string() for kind in schema.types]
    flat = pa.schema(list(zip(names, types, strict=True)))
    cut = 0
    with pyarrow.csv.CSVWriter(file, flat) as writer:
        for batch in batches:
            columns = [c if _keeps_type(c.type) else _safe(_text(c)) for c in batch.columns]
            columns, long_rows = _short_lines(columns)
            cut += long_rows
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
    return Written(cut=cut)


_CONTROL: Final = CONTROL_CHARACTERS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f").replace(
    "\ud800-\udfff", ""
)
"""`CONTROL_CHARACTERS` except tab and line feed, for RE2, which does not support surrogates."""


def _keeps_type(kind: pa.DataType) -> bool:
    """Return whether CSV preserves values of this type (numbers, booleans and times)."""
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind))


def _text(column: pa.Array) -> pa.Array:
    """Convert a column to text: lists and structs to JSON, bytes with escapes."""
    if pa.types.is_nested(column.type):
        texts = [
            None if v is None else json.dumps(plain(v), ensure_ascii=False)
            for v in column.to_pylist()
        ]
        return pa.array(texts, pa.string())
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array([plain(value) for value in column.to_pylist()], pa.string())
    return pc.cast(column, pa.string())


def _safe(texts: pa.Array) -> pa.Array:
    """Make texts safe: no text is a formula or contains control characters."""
    texts = pc.replace_substring(texts, "\r\n", "\n")
    texts = pc.replace_substring_regex(texts, _CONTROL, "\N{REPLACEMENT CHARACTER}")
    quoted = pc.binary_join_element_wise(pa.scalar("'"), texts, "")
    return pc.if_else(pc.match_substring_regex(texts, FORMULA), quoted, texts)


def _short_lines(columns: list[pa.Array]) -> tuple[list[pa.Array], int]:
    """Cut long strings so that each line fits; return the columns and the number of cut rows."""
    texts = {i: column for i, column in enumerate(columns) if pa.types.is_string(column.type)}
    sizes = {i: _quoted_bytes(column) for i, column in texts.items()}
    room_for_texts = LINE - _NUMBER * (len(columns) - len(texts))
    if sum(size.max() for size in sizes.values() if size.size) <= room_for_texts:
        return columns, 0
    long_rows = np.flatnonzero(sum(sizes.values()) > room_for_texts)
    values = {i: column.to_pylist() for i, column in texts.items()}
    for row in long_rows:
        room = room_for_texts
        shortest_first = sorted(texts, key=lambda i: sizes[i][row])
        for place, i in enumerate(shortest_first):
            share = min(int(sizes[i][row]), room // (len(shortest_first) - place))
            room -= share
            if share < sizes[i][row]:
                values[i][row] = _cut(values[i][row], share)
    if len(long_rows):
        columns = [
            pa.array(values[i], pa.string()) if i in texts else column
            for i, column in enumerate(columns)
        ]
    return columns, len(long_rows)


def _quoted_bytes(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return how many bytes each text takes up in a line, including quotes and a comma."""
    size = pc.add(pc.binary_length(texts), pc.count_substring(texts, '"'))
    return np.asarray(pc.fill_null(size, 0), np.int64) + _CELL


def _cut(text: str, size: int) -> str:
    """Truncate text to `size` bytes of its CSV line, including an appended remark."""
    remark = f"\N{HORIZONTAL ELLIPSIS} [cut: {len(text)} characters]"
    room = size - _CELL - len(remark.encode()) - 1  # the cut may have separated a pair of quotes
    kept = text.replace('"', '""').encode()[:room].decode(errors="ignore")
    return kept.replace('""', '"') + remark
