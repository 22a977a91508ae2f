"""Masks secrets in strings of Arrow tables and record batches.

The recorder imports the rest of the folder, so only this module may import pyarrow.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa

from mcptally.redaction.display import mask_text, mask_value, with_hits

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
_Text = TypeVar("_Text", str, bytes)

_FEW: Final = 1000
"""Number of texts above which Arrow, not Python, finds the distinct texts."""


def mask_rows(rows: _Rows) -> _Rows:
    """Return the table or batch with secrets masked in column names and in text at any depth."""
    for place, name in enumerate(rows.schema.names):
        column = rows.column(place)
        changed = replacements(distinct_texts(column))
        if changed or mask_text(name) != name:
            rows = rows.set_column(place, mask_text(name), replaced(column, changed))
    return rows


def replacements(texts: set[_Text]) -> dict[_Text, _Text]:
    """Map each text that contains a secret to its masked version."""
    return {text: masked for text in with_hits(texts) if (masked := mask_value(text)) != text}


def distinct_texts(column: pa.Array | pa.ChunkedArray) -> set[Any]:
    """Return the distinct non-empty strings and bytes of a column, at any depth."""
    return {text for text in _texts(column) if text}


def _texts(column: pa.Array | pa.ChunkedArray) -> Iterator[str | bytes | None]:
    """Yield a column's strings and bytes at any depth, each distinct value at least once."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            yield from _texts(chunk)
    elif pa.types.is_dictionary(kind):
        yield from _texts(column.dictionary)
    elif _is_text(kind):
        # `unique` imports pyarrow.compute; the import takes as long as masking thousands of short
        # texts.
        yield from (column if len(column) < _FEW else column.unique()).to_pylist()
    elif pa.types.is_map(kind):
        yield from _texts(column.keys)
        yield from _texts(column.items)
    elif pa.types.is_struct(kind):
        for field in column.flatten():
            yield from _texts(field)
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind):
        yield from _texts(column.flatten())


def _is_text(kind: pa.DataType) -> bool:

    tests = (
        *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        *(pa.types.is_binary, pa.types.is_large_binary),
    )
    return any(test(kind) for test in tests)


def replaced(column: Any, changed: Mapping[Any, Any]) -> Any:
    """Return the column with each key of `changed` replaced by its value."""
    if not changed:
        return column

    def within(value: Any) -> Any:
        if isinstance(value, str | bytes):
            return changed.get(value, value)
        if type(value) in {list, tuple}:
            return type(value)(map(within, value))
        return {k: within(v) for k, v in value.items()} if isinstance(value, dict) else value

    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return pa.chunked_array([replaced(each, changed) for each in column.chunks], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type) and not pa.types.is_string_view(column.type):
        encoded = column.dictionary_encode()
        values = pa.array(within(encoded.dictionary.to_pylist()), column.type)
        return values.take(encoded.indices)
    return pa.array(within(column.to_pylist()), column.type)
