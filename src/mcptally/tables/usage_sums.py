"""The SQL that computes the rows of `Usage`, generated from the table's declaration.

A store keeps `usage` as `pipeline.usage` computes it with polars. If filters choose calls, DuckDB
computes it again from the chosen calls. Both read `AGGREGATES` and `FACTS`, so they agree.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final

from mcptally.tables.calls import FAILED_OUTCOMES, Calls
from mcptally.tables.declaration import Aggregate
from mcptally.tables.usage import Usage

KEYS: Final = tuple(
    name for name, column in Usage.columns().items() if not isinstance(column, Aggregate)
)
"""What one row is about: recording, session, server, tool, and the hour in UTC."""

AGGREGATES: Final[Mapping[str, Aggregate]] = MappingProxyType(
    {name: column for name, column in Usage.columns().items() if isinstance(column, Aggregate)}
)

TOOL_CALL: Final = "method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL"
"""Condition of the calls that are counted. A call without a tool's name belongs to no tool."""

_ENDED: Final = ", ".join(f"'{name}'" for name in ("ok", *FAILED_OUTCOMES) if name != "cancelled")

FACTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ended": f"outcome IN ({_ENDED})",
        # Neither failures of a dependency nor those of unknown cause count against the tool.
        "judged": "ended AND coalesce(verdict, '') NOT IN ('infrastructure', 'ambiguous')",
        "input_checked": "coalesce(input_schema_state IN ('valid', 'invalid'), false)",
        "output_checked": (
            "coalesce(output_schema_state IN ('valid', 'invalid', 'missing_output'), false)"
        ),
        "is_retry": "coalesce(attempt_why = 'retry', false)",
        "planned_scenario": "coalesce(scenario, 'happy_path')",
        "seed_executed": "seed_classification IS NOT NULL",
        # If the original program throws, its own engine calls the scenario executed and broken.
        "inspector_executed": "inspector_classification IS NOT NULL OR inspector_error IS NOT NULL",
        "inspector_class": (
            "coalesce(inspector_classification, "
            "CASE WHEN inspector_error IS NOT NULL THEN 'broken' END)"
        ),
        "inspector_points": (
            "coalesce(inspector_confidence, CASE WHEN inspector_error IS NOT NULL THEN 0.0 END)"
        ),
    }
)
"""What is derived from each call before it is counted: name → SQL, which may use facts above it."""

FIRST: Final = "planned_scenario = 'happy_path' AND inspector_class IS NOT NULL"
FIRST_ORDER: Final = (Calls.requested_at.name, Calls.seq.name, Calls.index.name)
"""Condition and order of the call that aggregates of kind `first` take their values from."""

_HOUR_SQL: Final = "date_trunc('hour', requested_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS hour"


def calls_sql(source: str = "calls", *, where: str = TOOL_CALL) -> str:
    """The SELECT of the calls to count, with `hour` and the facts beside their own columns."""
    facts = ",\n    ".join(f"{value} AS {name}" for name, value in FACTS.items())
    return f"SELECT *,\n    {_HOUR_SQL},\n    {facts}\nFROM {source}\nWHERE {where}"


def usage_sql(source: str) -> str:
    """The SELECT of the rows of `Usage` from a table as `calls_sql` makes it."""
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
        f")\n{sums_sql('counted', AGGREGATES)}"
    )


def sums_sql(source: str, names: Collection[str]) -> str:
    """The SELECT of some aggregates from a table that has the keys and the facts they use."""
    chosen = {name: AGGREGATES[name] for name in names}
    firsts = {name: column.value for name, column in chosen.items() if column.how == "first"}
    parts = [f"{_SQL[c.how](c)} AS {name}" for name, c in chosen.items() if name not in firsts]
    if firsts:
        fields = ", ".join(f"{name}: {value}" for name, value in firsts.items())
        order = ", ".join(f'"{name}"' for name in FIRST_ORDER)
        parts.append(f"unnest(arg_min({{{fields}}}, ({order})) FILTER ({FIRST}))")
    columns = ",\n    ".join([*KEYS, *parts])
    return f"SELECT\n    {columns}\nFROM {source}\nGROUP BY {', '.join(KEYS)}"


def _sum_sql(column: Aggregate) -> str:
    if column.dtype.is_float():
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
