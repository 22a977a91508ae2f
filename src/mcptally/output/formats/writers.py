"""Maps each row format to its writer."""

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

import pyarrow as pa

from mcptally.output.formats import csv, json_array, jsonl, markdown, parquet
from mcptally.output.formats.written import Written

Writer = Callable[[Iterator[pa.RecordBatch], pa.Schema, BinaryIO], Written]
"""Function that writes a table's batches to a file."""

WRITERS: Final[Mapping[str, Writer]] = {
    "json": json_array.write,
    "jsonl": jsonl.write,
    "csv": csv.write,
    "parquet": parquet.write,
    "markdown": markdown.write,
}
"""Maps each row format to its writer."""
