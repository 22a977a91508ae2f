"""Makes polars series from Arrow and NumPy arrays."""

import itertools
import re
from typing import Any, Final

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
        if not texts.null_count():
            return series_from_arrow(pc.match_substring_regex(texts.to_arrow(), pattern))
        known = texts.drop_nulls()  # pyarrow would search null texts as well
        found = series_from_arrow(pc.match_substring_regex(known.to_arrow(), pattern))
        every = pl.Series([None], dtype=pl.Boolean).new_from_index(0, len(texts))
        return every.scatter(texts.is_not_null().arg_true(), found)

    return text.map_batches(search, return_dtype=pl.Boolean, is_elementwise=True)


_ESCAPE_CLASS_OR_GROUP: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|\((?!\?)")


def captured(text: pl.Expr, pattern: str) -> pl.Expr:
    """Return an expression for the first group of a pattern, run by RE2, that is not empty.

    It is empty if all groups are, and null if the text does not match.
    """
    numbers = itertools.count()
    named = _ESCAPE_CLASS_OR_GROUP.sub(
        lambda part: f"(?P<group{next(numbers)}>" if part[0] == "(" else part[0], pattern
    )

    def search(texts: pl.Series) -> pl.Series:
        groups = series_from_arrow(pc.extract_regex(texts.to_arrow(), named)).struct.unnest()
        return groups.select(pl.coalesce(pl.all().replace("", None), pl.first())).to_series()

    return text.map_batches(search, return_dtype=pl.String, is_elementwise=True)
