"""Generates the SQL that computes the rows of `Usage` from the table's declaration.

`pipeline.usage` computes the stored table `usage` with polars. When filters select calls, DuckDB
computes its rows again from the selected calls. The two computations agree, because both use
`AGGREGATES` and `FACTS`.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from mcptally.tables.column_types import ColumnType
from mcptally.tables.declaration import Aggregate
from mcptally.tables.outcomes import ENDED, sql_list
from mcptally.tables.usage import Usage

KEYS: Final = tuple(
    name for name, column in Usage.columns().items() if not isinstance(column, Aggregate)
)
"""The columns that identify a row: recording, session, server, tool and hour (UTC)."""

AGGREGATES: Final[Mapping[str, Aggregate]] = MappingProxyType(
    {name: column for name, column in Usage.columns().items() if isinstance(column, Aggregate)}
)

TOOL_CALL: Final = (
    "method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND continued_by IS NULL"
)
"""SQL condition for the calls that `Usage` counts. Calls without a tool name are not counted, and a
chain of calls with input counts once."""

FACTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ended": f"outcome IN {sql_list(ENDED)}",
        "input_checked": "coalesce(input_schema_state IN ('valid', 'invalid'), false)",
        "output_checked": (
            "coalesce(output_schema_state IN ('valid', 'invalid', 'missing_output'), false)"
        ),
        "is_retry": "coalesce(attempt_why = 'retry', false)",
    }
)
"""Maps the name of a fact about a call to the SQL that derives it, before calls are aggregated. The
SQL of a fact may use the facts before it."""

_HOUR_SQL: Final = "time_bucket(INTERVAL 1 HOUR, requested_at) AS hour"


def calls_sql() -> str:
    """Return the SELECT for the calls that `Usage` counts, with `hour` and `FACTS` as columns."""
    facts = ",\n    ".join(f"{value} AS {name}" for name, value in FACTS.items())
    return f"SELECT *,\n    {_HOUR_SQL},\n    {facts}\nFROM calls\nWHERE {TOOL_CALL}"


def usage_sql(source: str) -> str:
    """Return the SELECT that computes the rows of `Usage` from the columns of `calls_sql`.

    DuckDB omits the join, and the calls that it reads, for questions that count no chains. It does
    not do so for common table expressions.
    """
    keys, place = ", ".join(KEYS), f"hash({', '.join(KEYS)})"
    columns = (
        f"coalesce({name}, 0) AS {name}" if name in _OF_CHAINS else name
        for name in (*KEYS, *AGGREGATES)
    )
    sums = (
        f"{_SQL[column.how](column)} AS {name}"
        for name, column in AGGREGATES.items()
        if name not in _OF_CHAINS
    )
    counts = (f"count(*) FILTER (of = '{name}') AS {name}" for name in _OF_CHAINS)
    firsts = (
        f"arg_min({place}, (requested_at, call_id)) FILTER ({condition})"
        for condition in _OF_CHAINS.values()
    )
    return (
        f"SELECT\n    {_lines(columns)}\nFROM (\n"
        f"    SELECT\n    {keys}, {place} AS place,\n    {_lines(sums)}\n"
        f"    FROM {source} GROUP BY {keys}\n"
        ")\nLEFT JOIN (\n"
        f"    SELECT\n    place,\n    {_lines(counts)}\n"
        f"    FROM (\n    SELECT unnest({list(_OF_CHAINS)}) AS of, unnest(places) AS place\n"
        f"    FROM (\n    SELECT [\n    {_lines(firsts)}\n    ] AS places\n"
        f"    FROM {source} WHERE is_retry GROUP BY server, tool, attempt_of\n"
        "    ))\n    GROUP BY place\n) USING (place)"
    )


_OF_CHAINS: Final[Mapping[str, str]] = {
    "retried_calls": "true",
    "recovered_calls": "outcome = 'ok'",
}
"""Maps columns that count a chain of retries once to the condition for the retries that count. A
chain is counted where its first such retry is."""


def _lines(items: Iterable[str]) -> str:
    return ",\n    ".join(items)


def _sum_sql(column: Aggregate) -> str:
    if isinstance(column.kind, ColumnType) and column.kind.is_float:
        return f"coalesce(fsum({column.value}), 0)"
    return f"coalesce(sum({column.value}), 0)::BIGINT"


_SQL: Final[Mapping[str, Callable[[Aggregate], str]]] = {
    "rows": lambda _: "count(*)",
    "count": lambda column: f"count(*) FILTER ({column.value})",
    "sum": _sum_sql,
    "min": lambda column: f"min({column.value})",
    "max": lambda column: f"max({column.value})",
    "list": lambda column: f"list({column.value}) FILTER ({column.value} IS NOT NULL)",
}
