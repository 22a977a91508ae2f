"""A store in other people's formats: `export`.

    store → SQL, batch by batch → one writer a format → a file

Memory is that of a batch. What a format cannot hold is left out and counted.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from mcptally.analytics.store import Store, open_store, steadily
from mcptally.errors import UsageError, near
from mcptally.output.export import csv, har, jsonl, otlp, parquet
from mcptally.output.whole_file import whole_file
from mcptally.redaction.display import hidden, masked_rows
from mcptally.tables.all_tables import TABLES

__all__ = ["FORMATS", "Exported", "export"]

_BATCH: Final = 20_000
_ORDER: Final = {table.name: ", ".join(f'"{key}"' for key in table.key) for table in TABLES}

Writer = Callable[[Iterator[pa.RecordBatch], pa.Schema, BinaryIO], Mapping[str, int]]
"""Writes all batches of a table; says how many rows it left out, and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """A format that a store can be written in."""

    name: str
    title: str
    """What is written, in a few words."""
    write: Writer
    calls_only: bool = False
    """Whether it holds calls and nothing else."""


FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        Format("otlp", "OTLP JSON, one request a line, OpenTelemetry names", otlp.write, True),  # noqa: FBT003
        Format("har", "HAR 1.2, one entry a call", har.write, True),  # noqa: FBT003
        Format("csv", "CSV that is safe to open in a spreadsheet", csv.write),
        Format("parquet", "Parquet, one file", parquet.write),
        Format("jsonl", "JSON Lines, one row a line", jsonl.write),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    rows: int
    """Rows of the table that met the condition, with those that were left out."""
    left_out: Mapping[str, int]
    """Rows that the format cannot hold, by why."""


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
        store: an open store, or where it is.
        to: a name out of `FORMATS`.
        out: a file, or a stream of bytes. A regular file is there whole or not at all.
        table: a table or a standing question; `otlp` and `har` hold calls.
        where: a condition in SQL on the rows.
        raw: whether secrets are written as they were recorded (`sanitise`).

    Raises:
        StoreError: there is no store.
        QueryError: no such table or question, or DuckDB refuses the condition.
        UsageError: no such format, one that does not hold this table, or `out` cannot be written.
    """
    if to not in FORMATS:
        raise UsageError(
            f"no format is called {to!r}{near(to, FORMATS)} (there are: {', '.join(FORMATS)})"
        )
    form = FORMATS[to]
    if form.calls_only and table != "calls":
        raise UsageError(f"{to} holds calls; write {table} as csv, parquet or jsonl")
    opened = store if isinstance(store, Store) else open_store(store)
    name = '"' + table.replace('"', '""') + '"'
    condition = f" WHERE ({where})" if where else ""
    order = f" ORDER BY {_ORDER[table]}" if table in _ORDER else ""

    def write(file: BinaryIO) -> Exported:
        reader = opened.sql(f"SELECT * FROM {name}{condition}{order}").to_arrow_reader(_BATCH)
        recorded = _in_utc(reader.schema)
        schema = recorded if raw else pa.schema([f.with_name(hidden(f.name)) for f in recorded])
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in reader:
                rows += batch.num_rows
                told = batch.cast(recorded)
                yield told if raw else masked_rows(told)

        left_out = form.write(counted(), schema, file)
        return Exported(rows, {why: count for why, count in left_out.items() if count})

    if not isinstance(out, (str, Path)):
        return write(out)
    path = Path(out)
    if path.exists() and not path.is_file():
        return whole_file(path, write)  # what a pipe was given cannot be taken back
    return steadily([opened], lambda: whole_file(path, write))


def _in_utc(schema: pa.Schema) -> pa.Schema:
    """The schema with times in UTC, as DuckDB puts the machine's zone on them; enums are texts."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return kind.value_type
        is_time = pa.types.is_timestamp(kind) and kind.tz
        return pa.timestamp("us", "UTC") if is_time else kind

    return pa.schema([field.with_type(plain(field.type)) for field in schema])
