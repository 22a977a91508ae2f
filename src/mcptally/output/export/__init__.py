"""Exports a table of a store as OTLP, HAR, CSV, Parquet or JSON Lines.

    store → SQL → batches → the writer of the format → one file

May import what `output` may import, and the modules of `output` itself. Memory use is that of one
batch. Rows that a format cannot hold are left out and counted.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from mcptally.analytics.store import Store, open_store, retry_if_replaced
from mcptally.errors import UsageError, near
from mcptally.output.export import csv, har, jsonl, otlp, parquet
from mcptally.output.whole_file import whole_file
from mcptally.tables.all_tables import TABLES

__all__ = ["FORMATS", "Exported", "export"]

_BATCH: Final = 20_000
_ORDER: Final = {table.name: ", ".join(f'"{key}"' for key in table.key) for table in TABLES}

_URL: Final = (
    ", (SELECT any_value(r.url) FROM recordings AS r WHERE r.recording = exported.recording) "
    "AS server_url"
)

Writer = Callable[[Iterator[pa.RecordBatch], pa.Schema, BinaryIO], Mapping[str, int]]
"""Writes all batches of a table; returns reason → number of rows that it left out."""


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """A format of an export."""

    name: str
    title: str
    """What the file contains."""
    write: Writer
    calls_only: bool = False
    """Whether the format can hold the table `calls` only."""


FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        Format(
            "otlp", "OTLP JSON: spans, one export request per line", otlp.write, calls_only=True
        ),
        Format(
            "otlp-metrics",
            "OTLP JSON: durations, one export request per line",
            otlp.write_metrics,
            calls_only=True,
        ),
        Format("har", "HAR 1.2, one entry per call", har.write, calls_only=True),
        Format("csv", "CSV that is safe to open in a spreadsheet", csv.write),
        Format("parquet", "Parquet, one file", parquet.write),
        Format("jsonl", "JSON Lines, one object per row", jsonl.write),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """The numbers of rows of an export."""

    rows: int
    """Rows of the table that met the condition, including those that were left out."""
    left_out: Mapping[str, int]
    """Reason → rows that the format cannot hold."""


def export(
    store: str | Path | Store,
    *,
    to: str,
    out: str | Path | BinaryIO,
    table: str = "calls",
    where: str | None = None,
    raw: bool = False,
) -> Exported:
    """Write a table of a store in another format.

    Args:
        store: an open store, or its path.
        to: the name of a format, one of `FORMATS`.
        out: a path, or a binary stream. A regular file is replaced atomically.
        table: a table or a predefined question; `otlp` and `har` can hold `calls` only.
        where: a condition in SQL that selects rows.
        raw: whether secrets are written as they were recorded (`redaction.display`).

    Raises:
        StoreError: there is no store.
        QueryError: the table or question does not exist, or DuckDB rejects the condition.
        UsageError: the format does not exist or cannot hold this table, or `out` cannot be written.
    """
    if to not in FORMATS:
        raise UsageError(
            f"no format is called {to!r}{near(to, FORMATS)} (formats: {', '.join(FORMATS)})"
        )
    form = FORMATS[to]
    if form.calls_only and table != "calls":
        raise UsageError(
            f"{to} can hold the table calls only; export {table} as csv, parquet or jsonl"
        )
    opened = store if isinstance(store, Store) else open_store(store)
    if opened.masked == raw:
        opened = open_store(*opened.paths, memory=opened.memory, masked=not raw)
    name = '"' + table.replace('"', '""') + '"'
    condition = f" WHERE ({where})" if where else ""
    order = f" ORDER BY {_ORDER[table]}" if table in _ORDER else ""
    url = _URL if form.calls_only else ""

    def write(file: BinaryIO) -> Exported:
        reader = opened.sql(
            f"SELECT exported.*{url} FROM (SELECT * FROM {name}{condition}) AS exported{order}"
        ).to_arrow_reader(_BATCH)
        schema = _in_utc(reader.schema)
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in reader:
                rows += batch.num_rows
                yield batch.cast(schema)

        left_out = form.write(counted(), schema, file)
        return Exported(rows, {reason: count for reason, count in left_out.items() if count})

    if not isinstance(out, (str, Path)):
        return write(out)
    path = Path(out)
    if path.exists() and not path.is_file():
        return whole_file(path, write)  # no retry: bytes written to a pipe cannot be taken back
    return retry_if_replaced([opened], lambda: whole_file(path, write))


def _in_utc(schema: pa.Schema) -> pa.Schema:
    """The schema with times in UTC instead of the local time zone, and enums as texts."""

    def converted(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return kind.value_type
        is_time = pa.types.is_timestamp(kind) and kind.tz
        return pa.timestamp("us", "UTC") if is_time else kind

    return pa.schema([field.with_type(converted(field.type)) for field in schema])
