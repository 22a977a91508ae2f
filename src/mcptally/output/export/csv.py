"""Writes CSV that is safe to open in a spreadsheet: no cell is a formula, lists are JSON text.

A text that begins with `=`, `+`, `-`, `@`, their full-width forms, a tab or a line break gets an
apostrophe before it, as OWASP's page on CSV injection recommends. Numbers are not changed. Control
and bidirectional characters become U+FFFD. The file is UTF-8 without a byte order mark.
"""

from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mcptally.output.export.values import nested_as_json
from mcptally.tables.values import FORMULA

_CONTROL: Final = (
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x{9f}"
    "\\x{61c}\\x{200e}\\x{200f}\\x{2028}-\\x{202e}\\x{2066}-\\x{2069}\\x{e0000}-\\x{e007f}]"
)


def write(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO
) -> Mapping[str, int]:
    """Write a header and all rows."""
    flat = pa.schema(
        [
            pa.field(field.name, pa.string() if _is_text(field.type) else field.type)
            for field in schema
        ]
    )
    with pyarrow.csv.CSVWriter(file, flat) as writer:
        for batch in batches:
            columns = [_safe(nested_as_json(column)) for column in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
    return {}


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_nested(kind)
    )


def _safe(column: pa.Array) -> pa.Array:
    if not _is_text(column.type):
        return column
    text = pc.replace_substring_regex(pc.cast(column, pa.string()), _CONTROL, "\ufffd")
    quoted = pc.binary_join_element_wise(pa.scalar("'"), text, "")
    return pc.if_else(pc.match_substring_regex(text, FORMULA), quoted, text)
