"""Defines `Answer`, a DuckDB relation that notebooks show as a table."""

import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn

import duckdb
import pyarrow as pa

from mcptally.analytics import notebook
from mcptally.analytics.views import IN_UTC, displayed_columns, question_titles
from mcptally.plural import count
from mcptally.redaction.arrow_masking import mask_rows
from mcptally.tables.values import distinct_names

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

ROWS: Final = 20
"""Maximum number of rows that a notebook shows."""


CONNECTION_IN_USE: Final = threading.RLock()
"""Lock that is held while an answer is requested or computed. Several answers share a DuckDB
connection, which only one thread may use at a time; DuckDB uses all cores for a single query."""


class Answer(duckdb.DuckDBPyRelation):
    """A DuckDB relation that a notebook shows as a table with bars and intervals.

    A notebook shows the first 20 rows with secrets masked and, for a predefined question, the same
    columns as `mcptally query`. `.pl()`, `.df()`, `.arrow()` and `.fetchall()` return all rows,
    with texts as recorded. Threads may share an answer.
    """

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        rows = self.limit(ROWS + 1).to_arrow_table()
        rows = rows.rename_columns(distinct_names(rows.column_names))
        more = rows.num_rows > ROWS
        rows = mask_rows(rows.slice(0, ROWS))
        question = self.alias
        shown = displayed_columns(question) if question in question_titles() else []
        names = shown if shown and set(shown) <= set(rows.column_names) else rows.column_names
        notes = [f"the first {ROWS} rows; .pl() has all"] if more else []
        ends = {f"{name}_{end}" for name in names for end in ("low", "high", "insufficient_data")}
        if left := set(rows.column_names) - set(names) - ends:
            notes.append(f"{count(len(left), 'more column')}: .columns has their names")
        if not rows.num_rows:
            notes.append("no rows")
        return {
            "text/plain": notebook.plain_table(rows, names, notes=notes),
            "text/html": notebook.table(rows, names, notes=notes),
        }

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "an answer is a query of an open store; pickle what .pl() or .arrow() returns"
        )

    # Override DuckDB's methods, which return `Any` or a plain relation.

    def pl(self, *args: Any, **kwargs: Any) -> "pl.DataFrame":
        """Return the rows as a Polars data frame."""
        with CONNECTION_IN_USE:
            frame: pl.DataFrame = super().pl(*args, **kwargs)
            return frame

    def df(self, *args: Any, **kwargs: Any) -> "pd.DataFrame":
        """Return the rows as a Pandas data frame; needs the extra `mcptally[pandas]`."""
        with CONNECTION_IN_USE:
            return super().df(*args, **kwargs)

    def arrow(self, *args: Any, **kwargs: Any) -> pa.Table:
        """Return the rows as an Arrow table; to read batches, use `.to_arrow_reader()`."""
        return self.to_arrow_table(*args, **kwargs)

    def to_arrow_table(self, *args: Any, **kwargs: Any) -> pa.Table:
        """Return the rows as an Arrow table."""
        with CONNECTION_IN_USE:
            return super().to_arrow_table(*args, **kwargs)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples."""
        with CONNECTION_IN_USE:
            return super().fetchall()

    def filter(self, filter_expr: object) -> "Answer":
        """Return only the rows for which an SQL condition is true."""
        with CONNECTION_IN_USE:
            return as_answer(super().filter(filter_expr))

    def limit(self, n: int, offset: int = 0) -> "Answer":
        """Return at most `n` rows, after skipping the first `offset` rows."""
        with CONNECTION_IN_USE:
            return as_answer(super().limit(n, offset))

    def order(self, order_expr: object) -> "Answer":
        """Return the rows in the order of an SQL ORDER BY clause."""
        with CONNECTION_IN_USE:
            return as_answer(super().order(order_expr))

    def sort(self, *args: object) -> "Answer":
        """Return the rows in the order of the given expressions."""
        with CONNECTION_IN_USE:
            return as_answer(super().sort(*args))

    def select(self, *args: object, groups: str = "") -> "Answer":
        """Return only the given columns, or SQL expressions as columns."""
        with CONNECTION_IN_USE:
            return as_answer(super().select(*args, groups=groups))


def as_answer(relation: duckdb.DuckDBPyRelation) -> Answer:
    """Convert a relation to an `Answer` in place."""
    relation.__class__ = Answer
    assert isinstance(relation, Answer)  # noqa: S101  (for mypy)
    return relation


def masked(answer: duckdb.DuckDBPyRelation) -> Answer:
    """Mask the secrets in an answer, if its store was opened without `masked`."""
    return of_table(mask_rows(answer.to_arrow_table()))


def of_table(table: pa.Table) -> Answer:
    """Build an answer from an Arrow table."""
    connection = duckdb.connect()
    connection.execute(IN_UTC)
    return as_answer(connection.from_arrow(table))
