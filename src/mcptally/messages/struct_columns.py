"""Structs to columns: lists of decoded structs turned over by native calls, payloads as bytes."""

import functools
from collections.abc import Sequence
from typing import Any, Final, Literal, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from msgspec import Raw, Struct
from msgspec.structs import astuple

from mcptally.transcript.events import ABSENT


def transpose(items: Sequence[Struct]) -> list[tuple[Any, ...]]:
    """Structs to columns, natively."""
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


@functools.cache
def plain_types(shape: type[Struct]) -> dict[str, pl.DataType]:
    """The fields of `shape` that are strings, numbers, truths or raw JSON."""
    hints = get_type_hints(shape)
    return {name: _TYPES[hint] for name, hint in hints.items() if hint in _TYPES}


def plain(items: Sequence[Struct], shape: type[Struct]) -> dict[str, pl.Series]:
    """The columns of `shape` that are strings, numbers, truths or raw JSON."""
    types = plain_types(shape)
    return {
        field.name: json_texts(values)
        if field.default is ABSENT
        else pl.Series(values, dtype=types[field.name])
        for field, values in zip(msgspec.structs.fields(shape), transpose(items), strict=True)
        if field.name in types
    }


def marked(places: list[int], size: int) -> npt.NDArray[np.bool_]:
    """True at these places of `size`."""
    mask = np.zeros(size, np.bool_)
    mask[places] = True
    return mask


def lengths(raws: Sequence[Raw]) -> npt.NDArray[np.int64]:
    """How many bytes each of the members has; 0 if it is not there."""
    return np.fromiter(map(len, raws), np.int64, len(raws))


def present(raws: Sequence[Raw]) -> npt.NDArray[np.bool_]:
    """Which of the members are there."""
    return lengths(raws) > 0


def json_texts(raws: Sequence[Raw], sizes: npt.NDArray[np.int64] | None = None) -> pl.Series:
    """Raw JSON values as a String column; null where the member is absent.

    The values are joined by one native call and become one Arrow buffer. `sizes` are their
    `lengths`, where these are known.
    """
    sizes = lengths(raws) if sizes is None else sizes
    offsets = np.zeros(len(raws) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if not offsets[-1]:
        return pl.Series(dtype=pl.String).clear(len(raws))  # so many nulls
    valid = np.packbits(sizes > 0, bitorder="little")
    data = b"".join(raws)
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.large_string(), len(raws), buffers)
    return pl.Series(array)
