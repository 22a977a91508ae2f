"""Writes a store's Parquet files: parts of tables, and summaries of partitions."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, cast

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from mcptally.process_memory import release_memory
from mcptally.store.manifest import SUMMARIES
from mcptally.tables.all_tables import TABLES
from mcptally.tables.declaration import Table
from mcptally.tables.recordings import Recordings

ARCHIVE_PART: Final = "tools"
"""The part that contains the archive's tools and the findings about their definitions."""
EMPTY: Final = "empty"
"""Prefix of the names of files without rows; every table has at least one file."""

SKIPPED: Final = "skipped"
"""The part that contains the findings about paths of the archive that were not read."""

_PAYLOADS: Final = frozenset({"response", "text"})
"""Columns with payloads, for which Parquet dictionaries and statistics cost more than they save."""

_ENCODINGS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("call_id", "attempt_of"), "DELTA_LENGTH_BYTE_ARRAY")
    | dict.fromkeys(
        ("line", "seq", "requested_at", "first_call", "last_call"), "DELTA_BINARY_PACKED"
    )
    | dict.fromkeys(("answered_at", "at", "latency_ms"), "PLAIN")
)
"""Encodings of columns whose values rarely repeat, so that a dictionary would be as large as the
column. Differences are smaller than line numbers, and faster to read than times; ids are smaller
and faster to read if their lengths are stored separately."""

_FEW_ROWS: Final = 4096
"""Number of rows below which a table is written without dictionaries. The file is about as large as
with dictionaries, and writing takes two thirds of the time."""

_DICTIONARY_BYTES: Final = 4 << 20
"""Maximum size of a column's dictionary in bytes: large enough for the error texts of a row group.
"""

_FIRST_KEYS: Final = 5
"""Number of key columns that distinguish most rows; the key of findings has 14."""

_VALUES_AT_A_TIME: Final = 256
"""Number of values after which the writer checks a page's size. With the default of 1,024, a page
of long responses takes tens of megabytes."""


class Written(msgspec.Struct, frozen=True):
    """How many rows were written to a store, per table and per outcome."""

    rows: dict[str, int]
    """Maps each table's name to its number of rows."""
    outcomes: dict[str, int]
    """Maps each outcome to its number of calls."""
    broken: int
    """Number of findings with severity `error` about files."""


class PartWriter:
    """Writes one part of each table to the work folder; the rows may arrive in several frames."""

    def __init__(self, work: Path, part: str) -> None:
        self.work = work
        self.part = part
        self.writers: dict[str, pq.ParquetWriter] = {}
        self.files = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.files.close()

    def write(self, table: type[Table], frame: pl.DataFrame) -> int:
        """Write rows of a table, sorted by the table's key, and return the number of rows."""
        data = table.frame(frame)
        order = _order(table, data)
        is_sorted = order.is_sorted()
        # Write one row group at a time: sorting and converting the whole frame would copy it twice.
        for start in range(0, max(1, data.height), ROW_GROUP):
            rows = data.slice(start, ROW_GROUP)
            if not is_sorted:
                rows = data[order.slice(start, ROW_GROUP)]
            rows = _with_new_empty_lists(rows)
            arrow = rows.to_arrow(compat_level=pl.CompatLevel.newest())
            self._writer(table, arrow.schema, data.height).write_table(arrow)
            release_memory()
        return data.height

    def _writer(self, table: type[Table], schema: pa.Schema, rows: int) -> pq.ParquetWriter:
        """Return the table's writer; the first call, for a frame with `rows` rows, opens it."""
        writer = self.writers.get(table.name)
        if writer is None:
            target = self.work / table.name / f"{self.part}.parquet"
            # Do not create parent folders, because a removed work folder must not be created again.
            target.parent.mkdir(exist_ok=True)
            options = _options(schema, rows)
            writer = pq.ParquetWriter(target, table.described(schema), **options)
            self.writers[table.name] = self.files.enter_context(contextlib.closing(writer))
        return writer


def _with_new_empty_lists(rows: pl.DataFrame) -> pl.DataFrame:
    """Build columns anew whose lists are all empty.

    polars may leave offsets in them beyond the end of the elements, which pyarrow rejects.
    """
    lists = [name for name, dtype in rows.schema.items() if dtype == pl.List]
    if not lists:
        return rows
    sizes = rows.select(pl.col(lists).list.len().sum()).row(0, named=True)
    new = {name: pl.lit([], rows.schema[name]) for name in lists if not sizes[name]}
    if not new:
        return rows
    return rows.with_columns(
        pl.when(pl.col(name).is_not_null()).then(none).alias(name) for name, none in new.items()
    )


def _order(table: type[Table], data: pl.DataFrame) -> pl.Series:
    """Return the row indices sorted by the table's key."""
    # polars copies the sorted columns, so sort by all columns only if the first ones have ties.
    first = table.key[:_FIRST_KEYS]
    order = data.select(pl.arg_sort_by(first, nulls_last=True)).to_series()
    if first != table.key:
        rows = data[list(first)][order]
        same = rows.select(pl.all_horizontal(pl.all().eq_missing(pl.all().shift()))).to_series()
        if same[1:].any():
            order = data.select(pl.arg_sort_by(table.key, nulls_last=True)).to_series()
    return order


def write_part(work: Path, table: type[Table], part: str, frame: pl.DataFrame) -> int:
    """Write a part of a table, sorted by its key, to the work folder, and return its row count."""
    with PartWriter(work, part) as writer:
        return writer.write(table, frame)


def copy_part(source: Path, target: Path, keep: Callable[[pl.DataFrame], pl.DataFrame]) -> int:
    """Copy the rows of a part for which the filter `keep` is true, and return their number."""
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        with pq.ParquetWriter(target, schema, **_options(schema, file.metadata.num_rows)) as writer:
            for batch in file.iter_batches(batch_size=_rows_at_a_time(file.metadata)):
                kept = keep(cast("pl.DataFrame", pl.from_arrow(batch)))
                if kept.height:
                    arrow = kept.to_arrow(compat_level=pl.CompatLevel.newest()).cast(schema)
                    writer.write_table(arrow)
                    rows += kept.height
    return rows


_COPIED_BYTES: Final = 32 << 20
"""Uncompressed size of the row groups that `copy_part` copies one at a time. Its peak memory is a
few times this size."""


def _rows_at_a_time(part: pq.FileMetaData) -> int:
    """Return how many rows of a part have an uncompressed size of about `_COPIED_BYTES`."""
    size = sum(part.row_group(number).total_byte_size for number in range(part.num_row_groups))
    return max(1, min(ROW_GROUP, int(part.num_rows) * _COPIED_BYTES // max(1, int(size))))


_FILTERED: Final = frozenset(
    {"server", "tool", "recording", "session", "seq", "requested_at", "at", "outcome", "rule", "id"}
)
"""Columns by which queries filter. They get statistics, so that a reader can skip row groups."""

ROW_GROUP: Final = 50_000


def _options(schema: pa.Schema, rows: int) -> dict[str, Any]:
    """Return the Parquet writer's options for a table with `rows` rows in the first frame."""
    names = schema.names
    repeating = [name for name in names if name not in _PAYLOADS | _ENCODINGS.keys()]
    # Texts in lists repeat, but not numbers.
    lists = [field for field in schema if pa.types.is_nested(field.type)]
    repeating += [
        f"{field.name}.list.element"
        for field in lists
        if not pa.types.is_primitive(field.type.value_type)
    ]
    return {
        "version": "2.6",
        "data_page_version": "1.0",
        "writer_engine_version": "V2",
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": repeating if rows >= _FEW_ROWS else False,
        "column_encoding": {name: _ENCODINGS[name] for name in names if name in _ENCODINGS},
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "write_batch_size": _VALUES_AT_A_TIME,
        "write_statistics": [name for name in names if name in _FILTERED],
    }


def write_summary(work: Path, part: str, frames: Mapping[str, pl.DataFrame]) -> None:
    """Write a part's summary to the work folder, in one Parquet file per kind of summary."""
    for kind, frame in frames.items():
        target = work / SUMMARIES / kind / f"{part}.parquet"
        target.parent.mkdir(exist_ok=True)
        frame.write_parquet(target, compression="zstd", compression_level=1)


def remove_orphan_summaries(work: Path) -> None:
    """Remove the summaries of unfinished partitions from a work folder."""
    for path in (work / SUMMARIES).rglob("*.parquet"):
        if not (work / Recordings.name / path.name).exists():
            path.unlink()


def part_files(work: Path) -> Iterator[tuple[str, Path]]:
    """Yield the relative name and the path of each Parquet file in a work folder."""
    for name in (*(table.name for table in TABLES), SUMMARIES):
        for path in sorted((work / name).rglob("*.parquet")):
            yield path.relative_to(work).as_posix(), path
