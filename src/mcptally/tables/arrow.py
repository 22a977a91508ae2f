"""Makes polars series from Arrow and NumPy arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


def series_from_arrow(array: pa.Array) -> pl.Series:
    """Return a polars series that shares the array's memory."""
    return pl.Series(array)


def series_from_numpy(values: npt.NDArray[Any], name: str = "") -> pl.Series:
    """Copy an array of numbers or booleans into a polars series."""
    return pl.Series(name, values.copy())  # polars would share the array's memory


def indices(rows: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Return a series of row numbers, cast to the type of polars' own row index."""
    return pl.Series(rows.astype(np.uint32))


def matches(text: pl.Expr, pattern: str) -> pl.Expr:
    r"""Return an expression that is true if a text matches a pattern, by RE2, a part of pyarrow.

    RE2 compiles a pattern several times as fast as polars, which matters if there are few texts.
    Its classes `\w`, `\d`, `\s` and `\b` know only ASCII, and it has no classes within classes.
    """

    def search(texts: pl.Series) -> pl.Series:
        return series_from_arrow(pc.match_substring_regex(texts.to_arrow(), pattern))

    return text.map_batches(search, return_dtype=pl.Boolean, is_elementwise=True)
