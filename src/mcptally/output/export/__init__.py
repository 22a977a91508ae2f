"""Exports a store's table as OTLP or HAR, or in a row format.

    store → SQL → batches → the format's writer → one file

May import the same folders as `output`, and the modules of `output` itself. Only one batch is in
memory at a time. Rows that a format cannot represent are omitted and counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa

from mcptally.analytics.store import Store, open_store, retry_if_replaced
from mcptally.errors import UsageError, near
from mcptally.output.export import har, otlp
from mcptally.output.formats import EXPORTS, ROWS, ExportFormat
from mcptally.output.formats.writers import WRITERS, Writer
from mcptally.output.whole_file import whole_file
from mcptally.tables.all_tables import TABLES

__all__ = ["Exported", "export"]

_BATCH: Final = 20_000
_ORDER: Final = {table.name: ", ".join(f'"{key}"' for key in table.key) for table in TABLES}

_URL: Final = (
    ", (SELECT any_value(r.url) FROM recordings AS r WHERE r.recording = exported.recording) "
    "AS server_url"
)

_WRITERS: Final[Mapping[str, Writer]] = {
    **WRITERS,
    "otlp": otlp.write,
    "otlp-metrics": otlp.write_metrics,
    "har": har.write,
}


class Exported(NamedTuple):
    """How many rows were exported and omitted, and notes on what the format cannot represent."""

    rows: int
    """Number of rows that met the condition, including omitted rows."""
    left_out: Mapping[str, int]
    """Maps each reason to the number of rows omitted for it."""
    notes: Sequence[str]
    """Messages about information that the format cannot represent."""


def export(
    store: str | Path | Store,
    *,
    to: ExportFormat | str,
    out: str | Path | BinaryIO,
    table: str = "calls",
    where: str | None = None,
    raw: bool = False,
) -> Exported:
    """Write a store's table in another format.

    Args:
        store: an open store, or a store's path.
        to: a format's name, one of `EXPORTS`.
        out: a path or a binary stream; a regular file is replaced atomically.
        table: a table or a predefined question; `otlp` and `har` support only `calls`.
        where: an SQL condition that selects rows.
        raw: whether to write secrets as recorded; by default, they are masked.

    Raises:
        StoreError: there is no store.
        QueryError: the table or question does not exist, or DuckDB rejects the condition.
        UsageError: the format does not exist or does not support this table, or `out` is not
            writable.
    """
    if to not in EXPORTS:
        raise UsageError(
            f"no format is called {to!r}{near(to, EXPORTS)} (formats: {', '.join(EXPORTS)})"
        )
    form = EXPORTS[to]
    if form.calls_only and table != "calls":
        raise UsageError(
            f"{to} can only contain the table calls; export {table} as {', '.join(ROWS)}"
        )
    opened = store if isinstance(store, Store) else open_store(store)
    if opened.masked == raw:
        opened = open_store(opened.path, memory=opened.memory, masked=not raw)
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

        written = _WRITERS[to](counted(), schema, file)
        left_out = {reason: count for reason, count in written.left_out.items() if count}
        return Exported(rows, left_out, written.notes)

    if not isinstance(out, (str, Path)):
        return write(out)
    path = Path(out)
    if path.exists() and not path.is_file():
        # Do not retry, because bytes written to a pipe cannot be taken back.
        return whole_file(path, write)
    return retry_if_replaced([opened], lambda: whole_file(path, write))


def _in_utc(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times in UTC, not in local time, and with enums as strings."""

    def converted(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return kind.value_type
        is_time = pa.types.is_timestamp(kind) and kind.tz
        return pa.timestamp("us", "UTC") if is_time else kind

    return pa.schema([field.with_type(converted(field.type)) for field in schema])
