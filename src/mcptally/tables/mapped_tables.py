"""Moves the columns of a large recording's tables to files that are mapped into memory."""

import bisect
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa

from mcptally.process_memory import map_file, mapped_files
from mcptally.tables.arrow import series_from_arrow

_ALIGNMENT: Final = 64
"""Alignment in bytes of buffers in a file, as Arrow recommends."""


class MappedTables:
    """Moves columns to temporary files once a recording is known to be large.

    A moved column has the same values. The system reads a page of the file when it is used, and may
    drop it from memory at any time. The files have no names; their space is free as soon as no
    column uses them, even if the process is killed.
    """

    def __init__(self, folder: Path) -> None:
        """Use this folder for the files; it is created when it is needed."""
        self.folder = folder
        self.is_large = False
        """Whether `move` moves columns. Otherwise, it returns the tables as they are."""

    def move(self, tables: Sequence[pl.DataFrame]) -> Sequence[pl.DataFrame]:
        """Return the same tables, with all columns except lists in files.

        Raises:
            OSError: a file cannot be written, for example because the disk is full.
        """
        if not self.is_large:
            return tables
        arrays = [{column.name: _chunks(column) for column in table} for table in tables]
        chunks = (chunk for columns in arrays for each in columns.values() for chunk in each)
        places = self._places(chunks)
        return [
            table.with_columns(
                pl.concat(_moved(chunk, places) for chunk in each).alias(name)
                for name, each in columns.items()
                if each
            )
            for table, columns in zip(tables, arrays, strict=True)
        ]

    def _places(self, chunks: Iterable[pa.Array]) -> dict[int, pa.Buffer]:
        """Map the addresses of the arrays' buffers to equal buffers in files."""
        buffers: dict[int, pa.Buffer] = {}
        for buffer in (each for chunk in chunks for each in chunk.buffers() if each):
            if buffer.size > buffers.setdefault(buffer.address, buffer).size:
                buffers[buffer.address] = buffer
        places = dict(_known_places(buffers.values()))
        self.folder.mkdir(parents=True, exist_ok=True)
        offsets: dict[int, int] = {}
        with tempfile.TemporaryFile(dir=self.folder) as file:
            for address, buffer in buffers.items():
                if address not in places:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    offsets[address] = file.tell()
                    file.write(buffer)
            file.flush()
            if offsets:
                whole = pa.py_buffer(map_file(file))
                places |= {address: whole.slice(offset) for address, offset in offsets.items()}
        return places


def _known_places(buffers: Iterable[pa.Buffer]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield the address of each buffer that is already in a file, and its place in that file."""
    files = sorted(map(pa.py_buffer, mapped_files()), key=lambda file: file.address)
    starts = [file.address for file in files]
    for buffer in buffers:
        before = bisect.bisect(starts, buffer.address)
        if before:
            offset = buffer.address - starts[before - 1]
            if offset < files[before - 1].size:
                yield buffer.address, files[before - 1].slice(offset)


def _chunks(column: pl.Series) -> list[pa.Array]:
    """Return the column's chunks as Arrow arrays; none if its type is not moved."""
    if not column.len() or not (column.dtype.is_numeric() or column.dtype in _TYPES):
        return []
    arrow = column.to_arrow(compat_level=pl.CompatLevel.newest())
    return arrow.chunks if isinstance(arrow, pa.ChunkedArray) else [arrow]


_TYPES: Final = (pl.String, pl.Boolean)


def _moved(array: pa.Array, places: dict[int, pa.Buffer]) -> pl.Series:
    # An empty buffer stays, because its address may be that of another one.
    buffers = [
        places[each.address].slice(0, each.size) if each else each for each in array.buffers()
    ]
    moved = pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)
    return series_from_arrow(moved)
