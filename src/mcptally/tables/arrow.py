"""Makes polars series from Arrow and NumPy arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def series_from_arrow(array: pa.Array) -> pl.Series:
    """Return a series of an array's values, without copying them."""
    return pl.Series(array)


def series_from_numpy(values: npt.NDArray[Any], name: str = "") -> pl.Series:
    """Return a series with a copy of an array of numbers or booleans."""
    return pl.Series(name, values.copy())  # polars would share the array's memory


def indices(rows: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Return row numbers in polars' index type."""
    return pl.Series(rows.astype(np.uint32))
