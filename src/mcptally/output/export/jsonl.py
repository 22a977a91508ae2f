"""Writes JSON Lines: one object per row, without nulls, with times as ISO 8601 in UTC."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO

import pyarrow as pa

from mcptally.output.export.values import dumps, plain


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (the lines need no schema)
    file: BinaryIO,
) -> Mapping[str, int]:
    """Write all rows."""
    for batch in batches:
        for row in batch.to_pylist():
            members = {name: plain(value) for name, value in row.items() if value is not None}
            file.write(dumps(members) + b"\n")
    return {}
