"""How a table and its columns are declared.

Write `Calls.method.col` where an expression is wanted and `Calls.method.name` where a name is.
"""

import functools
from typing import ClassVar, Final

import polars as pl

TIME: Final = pl.Datetime("us", "UTC")
"""Points in time: UTC, microseconds (what DuckDB and Parquet readers agree on)."""


class Column:
    """A column of a table."""

    __slots__ = ("dtype", "meaning", "name", "unit")

    name: str

    def __init__(
        self, dtype: pl.DataType | type[pl.DataType], meaning: str, unit: str = ""
    ) -> None:
        self.dtype = dtype() if isinstance(dtype, type) else dtype
        self.meaning = meaning
        self.unit = unit

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def col(self) -> pl.Expr:
        """The column as an expression."""
        return pl.col(self.name)


class Table:
    """A table of a store: its columns, in order, are the class's `Column` attributes."""

    name: ClassVar[str]
    meaning: ClassVar[str]
    key: ClassVar[tuple[str, ...]]
    """What the rows are sorted by, and what tells them apart."""

    @classmethod
    @functools.cache
    def columns(cls) -> dict[str, Column]:
        """Name → column, in order."""
        return {
            name: column
            for base in reversed(cls.__mro__)
            for name, column in vars(base).items()
            if isinstance(column, Column)
        }

    @classmethod
    @functools.cache
    def schema(cls) -> pl.Schema:
        """Name → type, in order."""
        return pl.Schema({name: column.dtype for name, column in cls.columns().items()})

    @classmethod
    def frame(cls, data: pl.DataFrame) -> pl.DataFrame:
        """`data` with exactly this table's columns and types; what it lacks is null."""
        if data.schema == cls.schema():
            return data
        missing = [
            pl.lit(None, dtype=column.dtype).alias(name)
            for name, column in cls.columns().items()
            if name not in data.columns
        ]
        return data.with_columns(missing).select(
            pl.col(name).cast(column.dtype) for name, column in cls.columns().items()
        )
