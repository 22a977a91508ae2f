"""Writes JSON Lines: one object per row, without nulls, and with times as ISO 8601 in UTC."""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from mcptally.output.formats.values import dumps, plain
from mcptally.output.formats.written import Written


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (the lines need no schema)
    file: BinaryIO,
) -> Written:
    """Write all rows."""
    for batch in batches:
        for row in batch.to_pylist():
            members = {name: plain(value) for name, value in row.items() if value is not None}
            file.write(dumps(members) + b"\n")
    return Written()
