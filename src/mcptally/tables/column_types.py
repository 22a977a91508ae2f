"""Types of columns by name, so that declaring a table does not import polars.

`mcptally query` needs the names of tables and columns, and not polars, whose import takes as long
as the rest of the command.
"""

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import polars as pl


class ColumnType(msgspec.Struct, frozen=True):
    """A type of polars that is looked up when it is used."""

    name: str
    """Name of a class of polars."""
    arguments: "tuple[str | ColumnType, ...]" = ()
    """The arguments of the class."""

    @property
    def dtype(self) -> "pl.DataType":
        """The type itself."""
        import polars as pl  # noqa: PLC0415  (see above)

        given = [each.dtype if isinstance(each, ColumnType) else each for each in self.arguments]
        found: pl.DataType = getattr(pl, self.name)(*given)
        return found

    @property
    def is_float(self) -> bool:
        """Whether its values are floating-point numbers."""
        return self.name.startswith("Float")


STRING: Final = ColumnType("String")
BOOLEAN: Final = ColumnType("Boolean")
FLOAT64: Final = ColumnType("Float64")
INT64: Final = ColumnType("Int64")
UINT32: Final = ColumnType("UInt32")
TIME: Final = ColumnType("Datetime", ("us", "UTC"))
"""Points in time: UTC, in microseconds, which both DuckDB and Parquet can represent."""


def list_of(items: ColumnType) -> ColumnType:
    """The type of a list whose items have the type `items`."""
    return ColumnType("List", (items,))
