"""Converts numbers between Arrow and NumPy, for the functions that DuckDB calls.

pyarrow's own conversions import pandas if it is installed, and that import takes longer than most
questions.
"""

import itertools
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_TYPES: Final[Mapping[type, pa.DataType]] = {
    np.float64: pa.float64(),
    np.int32: pa.int32(),
    np.int64: pa.int64(),
    np.uint64: pa.uint64(),
    np.bool_: pa.bool_(),
}
_KINDS: Final = {type_: kind for kind, type_ in _TYPES.items() if kind is not np.bool_}


def numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the numbers in an Arrow column as a NumPy array; null becomes NaN."""
    return values(column.combine_chunks())


def number_lists(column: pa.ChunkedArray) -> list[npt.NDArray[Any]]:
    """Return one NumPy array for each list of numbers in a column; the arrays share its memory."""
    lists = column.combine_chunks()
    of_all = values(lists.values)
    return [of_all[i:j] for i, j in itertools.pairwise(values(lists.offsets))]


def values(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers in an Arrow array as a NumPy array; null becomes NaN."""
    kind, part = _KINDS[array.type], slice(array.offset, array.offset + len(array))
    validity, data = array.buffers()
    if not len(array):
        return np.empty(0, kind)
    found: npt.NDArray[Any] = np.frombuffer(data, kind)[part]
    if not array.null_count:
        return found
    valid = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[part]
    return np.where(valid, found, np.nan)


def array(found: npt.ArrayLike, kind: type = np.float64) -> pa.Array:
    """Return numbers as an Arrow array with values of the type `kind`; NaN becomes null."""
    given: npt.NDArray[Any] = np.ascontiguousarray(found, kind)
    missing = np.isnan(given) if kind is np.float64 else np.zeros(0, np.bool_)
    validity = pa.py_buffer(_bits(~missing)) if missing.any() else None
    data = _bits(given) if kind is np.bool_ else given
    return pa.Array.from_buffers(_TYPES[kind], len(given), [validity, pa.py_buffer(data)])


def list_array(rows: Sequence[Sequence[float | None]]) -> pa.Array:
    """Return an Arrow array with one list of numbers per row; None becomes null."""
    return _grouped(rows, array(np.array([*itertools.chain(*rows)], np.float64)))


def struct_array(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return an Arrow array with one struct per row, built from one column for each field."""
    fields = pa.struct([(name, column.type) for name, column in columns.items()])
    rows = len(next(iter(columns.values())))
    return pa.Array.from_buffers(fields, rows, [None], children=list(columns.values()))


def struct_list_array(
    rows: Sequence[Sequence[tuple[Any, ...]]], kinds: Mapping[str, type]
) -> pa.Array:
    """Return an Arrow array with one list of structs per row.

    Args:
        rows: for each row, the structs in its list, each as a tuple of field values.
        kinds: maps each field's name to the NumPy type of its values, in order.
    """
    structs = [*itertools.chain(*rows)]
    columns = zip(*structs, strict=True) if structs else [()] * len(kinds)
    fields = {
        name: array(np.array(column, kind), kind)
        for (name, kind), column in zip(kinds.items(), columns, strict=True)
    }
    return _grouped(rows, struct_array(fields))


def _grouped(rows: Sequence[Sized], found: pa.Array) -> pa.Array:
    """Split `found`, which contains the items of all rows, into one list per row."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return pa.ListArray.from_arrays(array(ends, np.int32), found)


def _bits(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")
