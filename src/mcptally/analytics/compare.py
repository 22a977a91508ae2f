"""Compares every metric of every tool and server between two stores, and summarises the changes.

The statistics are computed in SQL (`queries/compare/`) on both stores in one DuckDB connection.
This module runs the SQL and writes the summary. docs/explanation/statistics.md explains the
numbers.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa

from mcptally.analytics.answer import Answer, as_answer
from mcptally.analytics.sql_guard import lock
from mcptally.analytics.views import (
    connect,
    create_questions,
    create_tables,
    reporting_the_version,
    texts_read,
)
from mcptally.plural import count
from mcptally.statistics import sql_functions
from mcptally.store.manifest import LiveFiles

METRICS: Final = (
    ("confidence", "failures", 1.0),
    ("ln_latency_vs_session", "others", 0.45),
    ("hidden_error_rate", "others", 0.1),
    ("ln_latency_ms", "others", 0.1),
    ("ln_response_bytes", "others", 0.1),
    ("success_rate", "others", 0.05),
    ("failure_rate", "others", 0.05),
    ("infrastructure_rate", "others", 0.05),
    ("invalid_output_rate", "others", 0.05),
    ("invalid_input_rate", "others", 0.05),
)
"""The metrics that are compared, each with its family of tests and its weight within the family.

The false-discovery rate is controlled per family. Metrics whose names start with `ln_` are compared
as ratios of geometric means."""

COMPARED: Final = (*(name.removeprefix("ln_") for name, _, _ in METRICS), "latency_p95_ms")
"""Names of the metrics in a comparison. The last of them is reported but not tested."""

HIGHER_IS_BETTER: Final = ("confidence", "success_rate")
"""Metrics for which a higher value is better; a lower value is better for all others."""

OMITTED_CHANGES: Final = ("unclear", "unchanged", "too_little_data", "only_in_base", "only_in_new")
"""Kinds of change that tables for humans omit. SQL embeds the tuple's `repr` as a list."""

MIN_SESSIONS: Final = 5
MIN_CALLS: Final = 10
"""Minimum number of calls with which a tool is tested, in each of the two stores; likewise,
`MIN_SESSIONS` for sessions."""

MIN_EVENTS: Final = 5
MIN_EVENT_SESSIONS: Final = 3
"""Minimum number of sessions with hits (such as failures), and with other calls, with which a rate
is tested.

Both stores are counted together. `MIN_EVENTS` is the minimum number of hits, and of other calls."""

MIN_DIFFERENCE: Final = 0.05
MIN_RATIO: Final = 1.25
ALPHA: Final = 0.05

RANK: Final = (
    "worse",
    "vanished",
    "renamed",
    "definition_changed",
    "better",
    "new",
    "unclear",
    "unchanged",
    "only_in_base",
    "only_in_new",
    "too_little_data",
)
"""Kinds of change in a tool, most important first. The first kind that applies is reported."""


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """The changes between two stores.

    Attributes:
        base: folder of the base store.
        new: folder of the new store.
    """

    base: Path
    new: Path
    _duckdb: duckdb.DuckDBPyConnection

    @property
    def tools(self) -> Answer:
        """One row per tool or server (`level`), with the kind of `change` and a text, `words`."""
        return self._rows("SELECT * FROM summary")

    @property
    def metrics(self) -> Answer:
        """One row per tool or server and metric: both values, the change, interval and q-value."""
        return self._rows(
            "SELECT * FROM changes ORDER BY level DESC, q_value NULLS LAST, server, tool, metric"
        )

    def _rows(self, query: str) -> Answer:
        cursor = self._duckdb.cursor()
        sql_functions.close_at_exit(cursor)
        return as_answer(cursor.sql(query))


class Side(NamedTuple):
    """A store, as one side of a comparison."""

    path: Path
    """The store's folder."""
    files: LiveFiles
    """Maps the names of tables to the store's live files."""
    memory: str | None
    """DuckDB's memory limit, such as `2GB`."""
    made_by: str | None = None
    """Version of mcptally that wrote the store."""
    filters: Collection[str] = ()
    """Names of the filters that select the calls to compare; `compare` receives their values."""


def compare(
    base: Side,
    new: Side,
    parameters: Mapping[str, Any],
    filters: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """Compare two stores.

    Args:
        base: the baseline.
        new: the store to compare with the baseline.
        parameters: the result of `limits`.
        filters: maps the filters named by `Side.filters` to their values, like `Filters.given`.

    Raises:
        StoreError: a table is missing or damaged, or lacks a column.
    """
    pairs, changes, p95 = _sql("pairs"), _sql("changes"), _sql("p95")
    # Create only the questions that are needed, because creating all takes longer than comparing
    # small stores.
    read = texts_read(f"{pairs}{changes}{p95}")
    connection = connect(new.memory or base.memory)
    for name, value in filters.items():
        connection.execute(f"SET VARIABLE {name} = ?", [value])
    for name, side in (("base", base), ("new", new)):
        connection.execute(f"ATTACH ':memory:' AS {name}")
        connection.execute(f"USE {name}")
        with reporting_the_version(side.path, side.made_by):
            created = create_tables(connection, side.files, side.filters)
            create_questions(connection, {n: text for n, text in read.items() if n not in created})
        if side.filters:
            # Store the rows: a view would aggregate the calls again each time it is read.
            connection.execute("CREATE TABLE counted AS FROM usage")
            connection.execute("CREATE OR REPLACE VIEW usage AS FROM counted")
    connection.execute("USE memory")
    lock(connection, (base.path, new.path))
    connection.execute(f"CREATE TABLE pairs AS {pairs}")
    connection.execute(f"CREATE TABLE changes AS {changes}", parameters)
    connection.execute(f"INSERT INTO changes BY NAME {p95}")
    summary = pa.Table.from_pylist(_summary(connection), schema=_SUMMARY)
    connection.register("summarised", summary)
    connection.execute("CREATE TABLE summary AS SELECT * FROM summarised")
    connection.unregister("summarised")
    return Comparison(base.path, new.path, connection)


def limits(
    *, min_difference: float = MIN_DIFFERENCE, min_ratio: float = MIN_RATIO, alpha: float = ALPHA
) -> dict[str, Any]:
    """Return the parameters for the SQL in `queries/compare/changes.sql`.

    Args:
        min_difference: smallest change in a rate to report (0.05: five percentage points).
        min_ratio: smallest ratio of latencies or sizes to report (1.25: 25 % more).
        alpha: false-discovery rate: the expected share of reported changes that are due to chance.
    """
    return {
        "metrics": [dict(zip(("metric", "family", "weight"), row, strict=True)) for row in METRICS],
        "higher_is_better": list(HIGHER_IS_BETTER),
        "min_sessions": MIN_SESSIONS,
        "min_calls": MIN_CALLS,
        "min_events": MIN_EVENTS,
        "min_event_sessions": MIN_EVENT_SESSIONS,
        "min_difference": min_difference,
        "min_ratio": min_ratio,
        "alpha": alpha,
    }


def _sql(name: str) -> str:
    folder = resources.files("mcptally.analytics").joinpath("queries", "compare")
    return folder.joinpath(f"{name}.sql").read_text(encoding="utf-8")


_SUMMARY: Final = pa.schema(
    {
        "level": pa.string(),
        "server": pa.string(),
        "tool": pa.string(),
        "change": pa.string(),
        "words": pa.string(),
        "worse": pa.list_(pa.string()),
        "better": pa.list_(pa.string()),
        "definition_changed": pa.list_(pa.string()),
        "base_tool": pa.string(),
        "base_calls": pa.int64(),
        "new_calls": pa.int64(),
        "base_sessions": pa.int64(),
        "new_sessions": pa.int64(),
        "q_value": pa.float64(),
    }
)


_SIZES: Final = ("base_calls", "new_calls", "base_sessions", "new_sessions")


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
    return rows


def _summary(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    changes: dict[tuple[str | None, str | None], list[dict[str, Any]]] = {}
    for row in _rows(connection, "SELECT * FROM changes ORDER BY q_value NULLS LAST, metric"):
        changes.setdefault((row["server"], row["tool"]), []).append(row)
    rows = []
    for pair in _rows(connection, "SELECT * FROM pairs"):
        tool = pair["new_tool"] or pair["base_tool"]
        rows.append(_of_tool(pair, changes.get((pair["server"], tool), [])))
    for (server, tool), found in changes.items():
        if tool is None:
            rows.append(_of_server(server, found))
    rows.sort(
        key=lambda r: (
            RANK.index(r["change"]),
            2.0 if r["q_value"] is None else r["q_value"],
            r["server"] or "",
            r["level"],
            r.get("tool") or "",
        )
    )
    return rows


def _of_tool(pair: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    presence, fields = pair["presence"], pair["definition_changed"]
    found = _combined(changes)
    in_one_store = {
        "vanished": f"no longer listed; it had {count(pair['base_calls'], 'call')}",
        "new": f"new; {count(pair['new_calls'], 'call')} so far",
        "only_in_base": "not called in the new archive",
        "only_in_new": "not called in the base archive",
    }
    if presence in in_one_store:
        change, words = presence, [in_one_store[presence]]
    else:
        noted = {}
        if presence == "renamed":
            noted["renamed"] = f"was called {pair['base_tool']}"
        if fields:
            noted["definition_changed"] = f"definition changed: {', '.join(fields)}"
        change = min((found["change"], *noted), key=RANK.index)
        sentences, worse = found["sentences"], len(found["worse"])
        words = [*sentences[:worse], *noted.values(), *sentences[worse:]]
    return {
        "level": "tool",
        "server": pair["server"],
        "tool": pair["new_tool"] or pair["base_tool"],
        "base_tool": pair["base_tool"],
        "change": change,
        "words": "; ".join(words) if words else _reason_for_no_change(pair, changes),
        "definition_changed": fields,
        **{key: found[key] for key in ("worse", "better", "q_value")},
        **{name: pair[name] for name in _SIZES},
    }


def _of_server(server: str | None, changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the tests of a server into its summary row.

    Each tool has the same weight in both stores.
    """
    found = _combined(changes)
    sizes = {name: max(row[name] for row in changes) for name in _SIZES}
    common = min(row["calls_of_common_tools"] for row in changes)
    words = list(found["sentences"]) or [_reason_for_no_change(sizes, changes)]
    if common < 0.995:
        words.append(f"only tools that are in both archives: {common:.0%} of calls")
    return {
        "level": "server",
        "server": server,
        "change": found["change"],
        "words": "; ".join(words),
        "definition_changed": [],
        **{key: found[key] for key in ("worse", "better", "q_value")},
        **sizes,
    }


def _combined(changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the tests of all metrics of a tool or server into a single change."""
    by: dict[str, list[Mapping[str, Any]]] = {}
    for row in changes:
        by.setdefault(row["verdict"], []).append(row)
    worse, better = by.get("worse", []), by.get("better", [])
    sentences = [_sentence(row) for same in (worse, better) for row in _without_repeated(same)]
    if worse or better:
        change = "worse" if worse else "better"
    elif "unclear" in by:
        change, sentences = "unclear", [_unclear_sentence(by["unclear"])]
    elif "unchanged" in by:
        change = "unchanged"
    else:
        change = "too_little_data"
    qs = [row["q_value"] for row in changes if row["q_value"] is not None]
    return {
        "change": change,
        "sentences": sentences,
        "worse": [row["metric"] for row in worse],
        "better": [row["metric"] for row in better],
        "q_value": min(qs, default=None),
    }


def _without_repeated(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Leave out the failure rate if the confidence has changed too, because both say the same."""
    has_confidence = any(row["metric"] == "confidence" for row in rows)
    return (row for row in rows if not (has_confidence and row["metric"] == "failure_rate"))


_BESIDE: Final = "relative to the session's other calls"
_PHRASES: Final = {
    "confidence": ("lower confidence", "higher confidence"),
    "success_rate": ("fewer calls work", "more calls work"),
    "failure_rate": ("fails more", "fails less"),
    "infrastructure_rate": ("more infrastructure failures", "fewer infrastructure failures"),
    "hidden_error_rate": ("hides more errors", "hides fewer errors"),
    "invalid_input_rate": (
        "more calls violate its input schema",
        "fewer calls violate its input schema",
    ),
    "invalid_output_rate": (
        "more answers violate its output schema",
        "fewer answers violate its output schema",
    ),
    "latency_ms": ("slower", "faster"),
    "latency_vs_session": (f"slower {_BESIDE}", f"faster {_BESIDE}"),
    "response_bytes": ("larger answers", "smaller answers"),
}
"""Maps metrics, most important first, to two phrases: the metric got worse, or better."""
_NAMES: Final = {
    "latency_ms": "latency",
    "latency_vs_session": f"latency {_BESIDE}",
    "response_bytes": "size of answers",
}
"""Maps metrics to their names in sentences, where these differ."""


def _sentence(row: Mapping[str, Any]) -> str:
    worse, better = _PHRASES[row["metric"]]
    what = worse if row["verdict"] == "worse" else better
    q = "q < 0.001" if row["q_value"] < 0.001 else f"q {row['q_value']:.3f}"
    if row["scale"] == "difference":
        scale = _scale(row)
        return (
            f"{what}: {scale * row['base']:.1f}% \N{RIGHTWARDS ARROW} {scale * row['new']:.1f}% "
            f"({_points(row)}, {q})"
        )
    if row["metric"] == "latency_vs_session":
        return f"{what}: {row['change']:.2f} times ({_times(row)}, {q})"
    unit = " ms" if row["metric"] == "latency_ms" else " bytes"
    return (
        f"{what}: {_short(row['base'])} \N{RIGHTWARDS ARROW} {_short(row['new'])}{unit} "
        f"({_times(row)}, {q})"
    )


def _unclear_sentence(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence about the most important metric whose change is unclear."""
    row = min(rows, key=lambda r: list(_PHRASES).index(r["metric"]))
    span = _points(row) if row["scale"] == "difference" else _times(row)
    metric = _NAMES.get(row["metric"], row["metric"])
    return f"no certain change; the data cannot rule out {metric} {span}"


def _reason_for_no_change(sizes: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> str:
    if any(row["verdict"] == "unchanged" for row in changes):
        return "no relevant change, and there is enough data to detect one"
    return (
        f"too little data: {sizes['base_calls']} and {sizes['new_calls']} calls in "
        f"{sizes['base_sessions']} and {sizes['new_sessions']} sessions "
        f"(each side needs {MIN_CALLS} calls in {MIN_SESSIONS} sessions)"
    )


def _points(row: Mapping[str, Any]) -> str:
    scale = _scale(row)
    return f"{scale * row['change_low']:+.0f} to {scale * row['change_high']:+.0f} points"


def _scale(row: Mapping[str, Any]) -> int:
    """Return the factor that converts a rate (0 to 1) or a confidence (0 to 100) to percent."""
    return 1 if row["metric"] == "confidence" else 100


def _times(row: Mapping[str, Any]) -> str:
    return f"{row['change_low']:.2f} to {row['change_high']:.2f} times"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
