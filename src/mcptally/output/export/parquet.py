"""Writes one Parquet file, compressed with zstd, with the column types of the store."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


def write(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO
) -> Mapping[str, int]:
    """Write all rows."""
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
    return {}
