"""Transposes lists of decoded structs to columns with native calls; payloads remain JSON text."""

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from msgspec import Raw, Struct
from msgspec.structs import astuple

from mcptally.tables.arrow import series_from_arrow, series_from_numpy
from mcptally.transcript.events import ABSENT


def transpose(items: Sequence[Struct]) -> list[tuple[Any, ...]]:
    """Return one tuple per field, in order, with the values that the structs have in this field."""
    return list(zip(*map(astuple, items), strict=True))


_TYPES: Final[dict[Any, pl.DataType]] = {
    str: pl.String(),
    str | None: pl.String(),
    Literal["c2s", "s2c"]: pl.String(),
    bool | None: pl.Boolean(),
    int: pl.Int64(),
    int | None: pl.Int64(),
    Raw: pl.String(),
}


_REPEATING: Final = "text"
"""The field with a server's output on stderr, or with a raw frame: most of them repeat others."""


@functools.cache
def scalar_types(shape: type[Struct]) -> dict[str, pl.DataType]:
    """Map a struct's fields of strings, numbers, booleans or raw JSON to their polars types."""
    hints = get_type_hints(shape)
    return {name: _TYPES[hint] for name, hint in hints.items() if hint in _TYPES}


def scalar_columns(items: Sequence[Struct], shape: type[Struct]) -> dict[str, pl.Series]:
    """Map each field in `scalar_types` to a column with its values."""
    if len(items) > 1 and all(map(operator.is_, items, itertools.repeat(items[0]))):
        # All absent members are the same default object, so convert it only once.
        one = scalar_columns(items[:1], shape)
        return {name: value.new_from_index(0, len(items)) for name, value in one.items()}
    types = scalar_types(shape)
    return {
        field.name: _repeating_texts(values)
        if field.name == _REPEATING
        else _scalar_column(values, types[field.name], field.default)
        for field, values in zip(msgspec.structs.fields(shape), transpose(items), strict=True)
        if field.name in types
    }


def _scalar_column(values: tuple[Any, ...], dtype: pl.DataType, default: Any) -> pl.Series:
    # In most batches, all events belong to the same recording and lack the same optional members.
    if values[0] == values[-1] and values.count(values[0]) == len(values):
        return _column(values[:1], dtype, default).new_from_index(0, len(values))
    return _column(values, dtype, default)


def _column(values: tuple[Any, ...], dtype: pl.DataType, default: Any) -> pl.Series:
    return json_texts(values) if default is ABSENT else pl.Series(values, dtype=dtype)


def _repeating_texts(texts: Sequence[str | None]) -> pl.Series:
    """Return texts as a String column that contains each distinct text only once."""
    numbers: dict[str | None, int] = {}
    rows = [numbers.setdefault(text, len(numbers)) for text in texts]
    return pl.Series(list(numbers), dtype=pl.String).gather(rows)


def mask_at(places: list[int], size: int) -> npt.NDArray[np.bool_]:
    """Return a mask of length `size` that is true only at `places`."""
    mask = np.zeros(size, np.bool_)
    mask[places] = True
    return mask


def lengths(raws: Sequence[Raw]) -> npt.NDArray[np.int64]:
    """Return the size of each member in bytes, or 0 if the member is absent."""
    return np.fromiter(map(len, raws), np.int64, len(raws))


def present(raws: Sequence[Raw]) -> npt.NDArray[np.bool_]:
    """Return a mask that is true for the members that are present."""
    return lengths(raws) > 0


def json_texts(raws: Sequence[Raw], sizes: npt.NDArray[np.int64] | None = None) -> pl.Series:
    """Return raw JSON values as a String column, in which absent members are null.

    A single native call joins the values into one Arrow buffer.

    Args:
        raws: the values.
        sizes: the result of `lengths` for the values, if already computed.
    """
    sizes = lengths(raws) if sizes is None else sizes
    offsets = np.zeros(len(raws) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if not offsets[-1]:
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(raws))
    valid = np.packbits(sizes > 0, bitorder="little")
    data = b"".join(raws)
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.large_string(), len(raws), buffers)
    return series_from_arrow(array)


def frame_of(columns: Mapping[str, Any]) -> pl.DataFrame:
    """Build a data frame from columns, which may be NumPy arrays."""
    return pl.DataFrame(
        {
            name: series_from_numpy(values) if isinstance(values, np.ndarray) else values
            for name, values in columns.items()
        }
    )
