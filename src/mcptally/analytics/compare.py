"""What changed between two stores: every metric of every tool and server, and what may be said.

The arithmetic is SQL (`queries/compare/`), run over both stores in one DuckDB connection; this
module puts its rows into words. What each number means: docs/explanation/statistics.md.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from mcptally.analytics.sql_guard import lock
from mcptally.analytics.store import Store, open_store, steadily
from mcptally.analytics.views import connect, create_views
from mcptally.statistics import sql_functions

METRICS: Final = (
    ("failure_rate", "failures", 1.0),
    ("ln_latency_vs_session", "others", 0.5),
    ("hidden_error_rate", "others", 0.15),
    ("ln_latency_ms", "others", 0.1),
    ("ln_response_bytes", "others", 0.1),
    ("error_rate", "others", 0.05),
    ("invalid_output_rate", "others", 0.05),
    ("invalid_input_rate", "others", 0.05),
)
"""What is compared (`ln_` metrics as ratios of geometric means), the family whose false
discoveries are held down together, and the metric's share of them."""

COMPARED: Final = (*(name.removeprefix("ln_") for name, _, _ in METRICS), "latency_p95_ms")
"""The metrics as a comparison names them; the last is told beside the others, and never tested."""

MIN_SESSIONS: Final = 5
MIN_CALLS: Final = 10
"""Less on either side is too little data: no test is made, and none counts towards q."""

MIN_EVENTS: Final = 5
MIN_EVENT_SESSIONS: Final = 3
"""A share is tested where, both archives together, so much happened (and did not happen)."""

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
"""What a tool's change can be, the most pressing first; a tool gets the first that holds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Two stores compared.

    Attributes:
        base: the folder of the store before; the first, where several were opened as one.
        new: the folder of the store after, likewise.
    """

    base: Path
    new: Path
    _duckdb: duckdb.DuckDBPyConnection

    @property
    def tools(self) -> duckdb.DuckDBPyRelation:
        """One row a tool and a server (`level`): `change`, and the verdict in words."""
        return self._rows("SELECT * FROM summary")

    @property
    def metrics(self) -> duckdb.DuckDBPyRelation:
        """One row a tool or server and metric: both values, the change, its interval, q."""
        return self._rows(
            "SELECT * FROM changes ORDER BY level DESC, q_value NULLS LAST, server, tool, metric"
        )

    def _rows(self, query: str) -> duckdb.DuckDBPyRelation:
        cursor = self._duckdb.cursor()
        sql_functions.close_at_exit(cursor)
        return cursor.sql(query)


def compare(
    base: Store | str | Path,
    new: Store | str | Path,
    *,
    min_difference: float = MIN_DIFFERENCE,
    min_ratio: float = MIN_RATIO,
    alpha: float = ALPHA,
) -> Comparison:
    """What changed from one store to another.

    Args:
        base: the store before; or several opened as one, as `new` may be.
        new: the store after.
        min_difference: a share that moved by less is no change worth a word (0.05: five points).
        min_ratio: the same for latency and size (1.25: a quarter more).
        alpha: the share of the changes called one that may be chance (false discovery rate).

    Raises:
        StoreError: one of the two is no store.
    """
    bounds = limits(min_difference=min_difference, min_ratio=min_ratio, alpha=alpha)
    before, after = (one if isinstance(one, Store) else open_store(one) for one in (base, new))
    return steadily([before, after], lambda: _compare(before, after, bounds), whole=True)


def _compare(before: Store, after: Store, bounds: Mapping[str, Any]) -> Comparison:
    connection = connect(after.memory or before.memory)
    for name, opened in (("base", before), ("new", after)):
        connection.execute(f"ATTACH ':memory:' AS {name}")
        connection.execute(f"USE {name}")
        create_views(connection, opened.files)
    connection.execute("USE memory")
    lock(connection, (*before.paths, *after.paths))
    connection.execute(f"CREATE TABLE pairs AS {_sql('pairs')}")
    connection.execute(f"CREATE TABLE changes AS {_sql('changes')}", bounds)
    connection.execute(f"INSERT INTO changes BY NAME {_sql('p95')}")
    summary = pa.Table.from_pylist(_summary(connection), schema=_SUMMARY)
    connection.register("summarised", summary)
    connection.execute("CREATE TABLE summary AS SELECT * FROM summarised")
    connection.unregister("summarised")
    return Comparison(before.path, after.path, connection)


def limits(
    *, min_difference: float = MIN_DIFFERENCE, min_ratio: float = MIN_RATIO, alpha: float = ALPHA
) -> dict[str, Any]:
    """The parameters of `queries/compare/changes.sql`."""
    return {
        "metrics": [dict(zip(("metric", "family", "weight"), row, strict=True)) for row in METRICS],
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
    order = {name: place for place, name in enumerate(RANK)}
    rows.sort(
        key=lambda r: (
            order[r["change"]],
            2.0 if r["q_value"] is None else r["q_value"],
            r["server"] or "",
            r["level"],
            r.get("tool") or "",
        )
    )
    return rows


def _of_tool(pair: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    presence, fields = pair["presence"], pair["definition_changed"]
    found = _found(changes)
    words = list(found["said"])
    change = found["change"]
    if presence == "vanished":
        change = "vanished"
        words = [f"no longer listed; it had {_count(pair['base_calls'], 'call')}"]
    elif presence == "new":
        change, words = "new", [f"new; {_count(pair['new_calls'], 'call')} so far"]
    elif presence == "only_in_base":
        change, words = presence, ["not called in the new archive"]
    elif presence == "only_in_new":
        change, words = presence, ["not called in the base archive"]
    else:
        if fields:
            words.insert(len(found["worse"]), f"definition changed: {', '.join(fields)}")
        if presence == "renamed":
            words.insert(len(found["worse"]), f"was called {pair['base_tool']}")
        change = min(
            (
                change,
                "definition_changed" if fields else change,
                "renamed" if presence == "renamed" else change,
            ),
            key=RANK.index,
        )
    return {
        "level": "tool",
        "server": pair["server"],
        "tool": pair["new_tool"] or pair["base_tool"],
        "base_tool": pair["base_tool"],
        "change": change,
        "words": "; ".join(words) if words else _silence(pair, changes),
        "definition_changed": fields,
        **{key: found[key] for key in ("worse", "better", "q_value")},
        **{
            name: pair[name]
            for name in ("base_calls", "new_calls", "base_sessions", "new_sessions")
        },
    }


def _of_server(server: str | None, changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A server's tools together, each weighing the same on both sides."""
    found = _found(changes)
    sizes = {
        name: max(row[name] for row in changes)
        for name in ("base_calls", "new_calls", "base_sessions", "new_sessions")
    }
    common = min(row["calls_of_common_tools"] for row in changes)
    words = list(found["said"]) or [_silence(sizes, changes)]
    if common < 0.995:
        words.append(f"tools of both archives only: {common:.0%} of calls")
    return {
        "level": "server",
        "server": server,
        "change": found["change"],
        "words": "; ".join(words),
        "definition_changed": [],
        **{key: found[key] for key in ("worse", "better", "q_value")},
        **sizes,
    }


def _found(changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the tests of one tool's metrics say together."""
    by: dict[str, list[Mapping[str, Any]]] = {}
    for row in changes:
        by.setdefault(row["verdict"], []).append(row)
    worse, better = by.get("worse", []), by.get("better", [])
    said = [_sentence(row) for row in (*worse, *better)]
    if worse or better:
        change = "worse" if worse else "better"
    elif "unclear" in by:
        change, said = "unclear", [_open_question(by["unclear"])]
    elif "unchanged" in by:
        change = "unchanged"
    else:
        change = "too_little_data"
    qs = [row["q_value"] for row in changes if row["q_value"] is not None]
    return {
        "change": change,
        "said": said,
        "worse": [row["metric"] for row in worse],
        "better": [row["metric"] for row in better],
        "q_value": min(qs, default=None),
    }


_NOUNS: Final = {
    "failure_rate": ("fails more", "fails less", "failure rate"),
    "error_rate": ("more errors", "fewer errors", "error rate"),
    "hidden_error_rate": ("hides more errors", "hides fewer errors", "rate of hidden errors"),
    "invalid_input_rate": (
        "more calls break its input schema",
        "fewer calls break its input schema",
        "rate of invalid arguments",
    ),
    "invalid_output_rate": (
        "more answers break its output schema",
        "fewer answers break its output schema",
        "rate of invalid outputs",
    ),
    "latency_ms": ("slower", "faster", "latency"),
    "latency_vs_session": (
        "slower beside the session's other calls",
        "faster beside the session's other calls",
        "latency beside the session's other calls",
    ),
    "response_bytes": ("larger answers", "smaller answers", "size of answers"),
}


def _sentence(row: Mapping[str, Any]) -> str:
    more, less, _ = _NOUNS[row["metric"]]
    what = more if row["verdict"] == "worse" else less
    q = "q < 0.001" if row["q_value"] < 0.001 else f"q {row['q_value']:.3f}"
    if row["scale"] == "difference":
        return (
            f"{what}: {row['base']:.1%} \N{RIGHTWARDS ARROW} {row['new']:.1%} ({_points(row)}, {q})"
        )
    if row["metric"] == "latency_vs_session":
        return f"{what}: {row['change']:.2f} times ({_times(row)}, {q})"
    unit = " ms" if row["metric"] == "latency_ms" else " bytes"
    return (
        f"{what}: {_short(row['base'])} \N{RIGHTWARDS ARROW} {_short(row['new'])}{unit} "
        f"({_times(row)}, {q})"
    )


def _open_question(rows: Iterable[Mapping[str, Any]]) -> str:
    """What the data cannot rule out: the most important metric that is not settled."""
    row = min(rows, key=lambda r: list(_NOUNS).index(r["metric"]))
    span = _points(row) if row["scale"] == "difference" else _times(row)
    return f"no sure change; these data cannot rule out {_NOUNS[row['metric']][2]} {span}"


def _silence(sizes: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> str:
    if any(row["verdict"] == "unchanged" for row in changes):
        return "no change of a size that matters, and these data would show one"
    return (
        f"too little data: {sizes['base_calls']} and {sizes['new_calls']} calls in "
        f"{sizes['base_sessions']} and {sizes['new_sessions']} sessions "
        f"({MIN_CALLS} calls in {MIN_SESSIONS} sessions needed on either side)"
    )


def _points(row: Mapping[str, Any]) -> str:
    return f"{100 * row['change_low']:+.0f} to {100 * row['change_high']:+.0f} points"


def _times(row: Mapping[str, Any]) -> str:
    return f"{row['change_low']:.2f} to {row['change_high']:.2f} times"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
