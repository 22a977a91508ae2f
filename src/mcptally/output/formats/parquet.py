"""Writes a Parquet file, compressed with zstd, with the store's column types."""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from mcptally.errors import QueryError
from mcptally.output.formats.written import Written


def write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> Written:
    """Write all rows.

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
