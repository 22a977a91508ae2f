"""Writes rows as JSON, JSON Lines or Parquet, and maps each row format to its writer."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa

from mcptally.errors import QueryError
from mcptally.output.formats import csv, markdown
from mcptally.output.formats.values import dumps, plain
from mcptally.output.formats.written import Written
from mcptally.redaction.display import escape_controls
from mcptally.tables import values as cell_values

Writer = Callable[[Iterator[pa.RecordBatch], pa.Schema, BinaryIO], Written]
"""Function that writes a table's batches to a file."""


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _write_json(batches: Iterator[pa.RecordBatch], _: pa.Schema, file: BinaryIO) -> Written:
    """Write an array with one indented object per row; escape control characters."""
    before = "[\n"
    for row in _rows(batches):
        text = json.dumps(cell_values.plain(row), indent=1, ensure_ascii=False)
        indented = escape_controls(text.replace("\n", "\n "))
        file.write(f"{before} {indented}".encode())
        before = ",\n"
    file.write(b"[]\n" if before == "[\n" else b"\n]\n")
    return Written()


def _write_jsonl(batches: Iterator[pa.RecordBatch], _: pa.Schema, file: BinaryIO) -> Written:
    """Write one object per row, without nulls, and with times as ISO 8601 in UTC."""
    for row in _rows(batches):
        members = {name: plain(value) for name, value in row.items() if value is not None}
        file.write(dumps(members) + b"\n")
    return Written()


def _write_parquet(batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> Written:
    """Write a Parquet file, compressed with zstd, with the store's column types.

    Raises:
        QueryError: Parquet has no type for a column.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415  (the other formats do not need it)

    try:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
    except pa.ArrowException as error:
        raise QueryError(f"Parquet cannot store this answer ({error}); cast it to text") from error
    return Written()


WRITERS: Final[Mapping[str, Writer]] = {
    "json": _write_json,
    "jsonl": _write_jsonl,
    "csv": csv.write,
    "parquet": _write_parquet,
    "markdown": markdown.write,
}
"""Maps each row format to its writer."""
