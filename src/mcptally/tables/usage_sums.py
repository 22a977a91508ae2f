"""Generates the SQL that computes the rows of `Usage` from the table's declaration.

`pipeline.usage` computes the stored table `usage` with polars. When filters select calls, DuckDB
computes its rows again from the selected calls. The two computations agree, because both use
`AGGREGATES` and `FACTS`.
"""

from collections.abc import Callable, Mapping
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
    """Return the SELECT that computes the rows of `Usage` from the columns of `calls_sql`."""
    sums = [f"{_SQL[column.how](column)} AS {name}" for name, column in AGGREGATES.items()]
    columns = ",\n    ".join([*KEYS, *sums])
    return (
        "WITH chains AS (\n"
        "    SELECT arg_min(call_id, (requested_at, call_id)) AS first_retry,\n"
        "        arg_min(call_id, (requested_at, call_id)) FILTER (outcome = 'ok')\n"
        "            AS first_recovery\n"
        f"    FROM {source} WHERE is_retry GROUP BY server, tool, attempt_of\n"
        "),\n"
        "counted AS NOT MATERIALIZED (\n"
        "    SELECT *, call_id IN (SELECT first_retry FROM chains) AS is_first_retry,\n"
        "        call_id IN (SELECT first_recovery FROM chains) AS is_first_recovery\n"
        f"    FROM {source}\n"
        f")\nSELECT\n    {columns}\nFROM counted\nGROUP BY {', '.join(KEYS)}"
    )


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
