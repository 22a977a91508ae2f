"""Defines base classes for tables: a table is a class, and a column is a class attribute.

`Calls.method.col` is the column as an expression, `Calls.method.name` is its name. The reference
page of tables and the metadata of Parquet files are generated from the declarations.

Declaring a store's tables imports neither polars nor pyarrow; see `column_types`.
"""

import functools
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from mcptally.tables.column_types import ColumnType

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


class Column:
    """A column of a table, with its name, type, meaning and unit; the unit may be empty."""

    name: str

    def __init__(
        self,
        kind: "ColumnType | pl.DataType | type[pl.DataType]",
        meaning: str,
        unit: str = "",
    ) -> None:
        self.kind = kind
        self.meaning = meaning
        self.unit = unit

    @functools.cached_property
    def dtype(self) -> "pl.DataType":
        """The column's polars type."""
        if isinstance(self.kind, ColumnType):
            return self.kind.dtype
        return self.kind() if isinstance(self.kind, type) else self.kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @functools.cached_property
    def col(self) -> "pl.Expr":
        """The polars expression that selects this column."""
        import polars as pl  # noqa: PLC0415  (see `column_types`)

        return pl.col(self.name)


class Aggregate(Column):
    """A column of `Usage`: an SQL value, and the function that aggregates it over calls.

    `tables.usage_sums` generates SQL and polars expressions from these declarations.
    """

    def __init__(
        self,
        how: Literal["rows", "count", "sum", "min", "max", "list"],
        value: str,
        kind: ColumnType,
        meaning: str,
        unit: str = "",
    ) -> None:
        """Declare an aggregate.

        Args:
            how: `rows` counts calls, `count` counts calls for which `value` is true, `list`
                collects values that are not null.
            value: SQL over the columns of `Calls` and `tables.usage_sums.FACTS`, in the dialect
                that DuckDB and `polars.sql_expr` share.
            kind: the column's type.
            meaning: what the column contains.
            unit: the column's unit.
        """
        super().__init__(kind, meaning, unit)
        self.how: Final = how
        self.value: Final = value


class StageTable:
    """A table that is passed between stages. Its `Column` attributes are its columns, in order."""

    meaning: ClassVar[str]
    """The meaning of a row: the class's docstring on one line."""

    def __init_subclass__(cls) -> None:
        cls.meaning = " ".join((cls.__doc__ or "").split())

    @classmethod
    @functools.cache
    def columns(cls) -> dict[str, Column]:
        """Map each column's name to its declaration, in order."""
        return {
            name: column
            for base in reversed(cls.__mro__)
            for name, column in vars(base).items()
            if isinstance(column, Column)
        }

    @classmethod
    @functools.cache
    def schema(cls) -> "pl.Schema":
        """Map each column's name to its type, in order."""
        import polars as pl  # noqa: PLC0415

        return pl.Schema({name: column.dtype for name, column in cls.columns().items()})

    @classmethod
    def select(cls, data: "pl.DataFrame") -> "pl.DataFrame":
        """Return only this table's columns, in order, from `data`.

        Raises:
            TypeError: a column is missing or has the wrong type, which is a bug in the stage.
        """
        schema = data.schema
        if schema == cls.schema():
            return data
        wrong = [
            f"{name} is {schema.get(name, 'missing')} instead of {dtype}"
            for name, dtype in cls.schema().items()
            if schema.get(name) != dtype
        ]
        if wrong:
            raise TypeError(f"{cls.__name__}: {'; '.join(wrong)}")
        return data[cls.schema().names()]

    @classmethod
    def empty(cls) -> "pl.DataFrame":
        """Return an empty table with the declared columns."""
        return cls._empty().clone()

    @classmethod
    @functools.cache
    def _empty(cls) -> "pl.DataFrame":
        import polars as pl  # noqa: PLC0415

        return pl.DataFrame(schema=cls.schema())

    @classmethod
    def nulls(cls, height: int) -> "pl.DataFrame":
        """Return a table of `height` rows in which every value is null."""
        return cls.empty().clear(height)

    @classmethod
    def shared_with(cls, other: type["StageTable"]) -> list[str]:
        """Return the names of the columns that this table and `other` declare identically."""
        theirs = other.columns()
        return [name for name, column in cls.columns().items() if theirs.get(name) is column]


class Table(StageTable):
    """A table in a store."""

    name: ClassVar[str]
    key: ClassVar[tuple[str, ...]]
    """Names of the columns that identify a row; rows are sorted by these columns."""

    @classmethod
    def frame(cls, data: "pl.DataFrame") -> "pl.DataFrame":
        """Return `data` with exactly this table's columns and types.

        Missing columns are filled with null; columns that this table does not declare are dropped.
        """
        import polars as pl  # noqa: PLC0415

        if data.schema == cls.schema():
            return data
        if not data.height:
            return cls.empty()
        known = data.schema
        if all(known.get(name) == dtype for name, dtype in cls.schema().items()):
            return data[cls.schema().names()]
        return data.select(
            pl.col(name).cast(dtype) if name in known else pl.lit(None, dtype).alias(name)
            for name, dtype in cls.schema().items()
        )

    @classmethod
    def described(cls, schema: "pa.Schema") -> "pa.Schema":
        """Add each column's `meaning` and `unit` to the field metadata of an Arrow schema."""
        import pyarrow as pa  # noqa: PLC0415

        fields = []
        for field in schema:
            column = cls.columns()[field.name]
            unit = {"unit": column.unit} if column.unit else {}
            fields.append(field.with_metadata({"meaning": column.meaning, **unit}))
        return pa.schema(fields)
