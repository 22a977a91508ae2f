"""Names column types without importing polars.

`mcptally query` needs the names of tables and columns, but not polars: importing polars would
double the command's run time.
"""

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import polars as pl


class ColumnType(msgspec.Struct, frozen=True):
    """The name of a polars type and its arguments; the type itself is looked up on first use."""

    name: str
    """Name of a polars class."""
    arguments: "tuple[str | ColumnType, ...]" = ()
    """Arguments for the class's constructor."""

    @property
    def dtype(self) -> "pl.DataType":
        """The polars type that the name and arguments describe."""
        import polars as pl  # noqa: PLC0415  (see above)

        given = [each.dtype if isinstance(each, ColumnType) else each for each in self.arguments]
        found: pl.DataType = getattr(pl, self.name)(*given)
        return found

    @property
    def is_float(self) -> bool:
        """Whether the values are floating-point numbers."""
        return self.name.startswith("Float")


STRING: Final = ColumnType("String")
BOOLEAN: Final = ColumnType("Boolean")
FLOAT64: Final = ColumnType("Float64")
INT64: Final = ColumnType("Int64")
UINT32: Final = ColumnType("UInt32")
TIME: Final = ColumnType("Datetime", ("us", "UTC"))
"""Times in UTC, in microseconds, which both DuckDB and Parquet can represent."""


def list_of(items: ColumnType) -> ColumnType:
    """Return the type of lists with items of the type `items`."""
    return ColumnType("List", (items,))
