"""JSON Lines: a row a line, nulls left out, times as ISO 8601 in UTC."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO

import pyarrow as pa

from mcptally.output.export.values import dumps, plain


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (a line says what it has)
    file: BinaryIO,
) -> Mapping[str, int]:
    """All rows."""
    for batch in batches:
        for row in batch.to_pylist():
            kept = {name: plain(value) for name, value in row.items() if value is not None}
            file.write(dumps(kept) + b"\n")
    return {}
