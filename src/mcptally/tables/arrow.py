"""Makes polars series from Arrow and NumPy arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def series_from_arrow(array: pa.Array) -> pl.Series:
    """Return a polars series that shares the array's memory."""
    return pl.Series(array)


def series_from_numpy(values: npt.NDArray[Any], name: str = "") -> pl.Series:
    """Copy an array of numbers or booleans into a polars series."""
    return pl.Series(name, values.copy())  # polars would share the array's memory


def indices(rows: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Return a series of row numbers, cast to the type of polars' own row index."""
    return pl.Series(rows.astype(np.uint32))
