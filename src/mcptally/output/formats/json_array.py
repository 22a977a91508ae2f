"""Writes a JSON array with one indented object per row; control characters are escaped."""

import json
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from mcptally.output.formats.written import Written
from mcptally.redaction.display import escape_controls
from mcptally.tables.values import plain


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (the rows contain the names)
    file: BinaryIO,
) -> Written:
    """Write all rows."""
    before = "[\n"
    for batch in batches:
        for row in batch.to_pylist():
            text = json.dumps(plain(row), indent=1, ensure_ascii=False).replace("\n", "\n ")
            file.write(f"{before} {escape_controls(text)}".encode())
            before = ",\n"
    file.write(b"[]\n" if before == "[\n" else b"\n]\n")
    return Written()
