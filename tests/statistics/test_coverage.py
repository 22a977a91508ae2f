"""Coverage of intervals of rates, and decisions of gates, in simulated archives."""

from collections.abc import Sequence

import duckdb
import numpy as np
import polars as pl
import pytest

from mcptally.analytics import views
from mcptally.statistics import intervals
from mcptally.tables.usage import Usage

USED = {
    "calls": "sum(n) FILTER (metric = 'failure_rate')",
    "tool_failures": "sum(y) FILTER (metric = 'failure_rate')",
    "ok": "sum(y) FILTER (metric = 'success_rate')",
    "tool_errors": "sum(n - y) FILTER (metric = 'success_rate')",
    "ln_latency_ms": "sum(y) FILTER (metric = 'ln_latency_ms')",
    "sized": "sum(n) FILTER (metric = 'ln_response_bytes')",
    "ln_response_bytes": "sum(y) FILTER (metric = 'ln_response_bytes')",
}
"""Columns of `usage`, with their values from the metrics of `sums`; all other columns are 0."""


def sums(n: np.ndarray, y: np.ndarray) -> pl.DataFrame:
    """Convert arrays (tool, session) to rows of `_session_metrics`."""
    tools, sessions = np.indices(n.shape)
    return pl.DataFrame(
        {
            "level": "tool",
            "server": "s",
            "tool": np.char.add("t", tools.ravel().astype(str)),
            "session": np.char.add("x", sessions.ravel().astype(str)),
            "metric": "failure_rate",
            "n": n.ravel().astype(np.int64),
            "y": y.ravel().astype(float),
        }
    )


def rates_view(connection: duckdb.DuckDBPyConnection, data: pl.DataFrame) -> None:
    """Create `usage` and `_session_metrics` from rows, and `_rates` as in every store."""
    columns = {
        name: f"coalesce({USED.get(name, '0')}, 0)::{'DOUBLE' if 'ln_' in name else 'BIGINT'}"
        for name, kind in Usage.schema().items()
        if kind.is_numeric()
    } | {
        "recording": "session",
        "session": "session",
        "server": "server",
        "tool": "tool",
        "hour": "TIMESTAMPTZ '2026-01-01 12:00:00+00'",
        "latencies_ms": "list_resize([]::DOUBLE[], "
        "coalesce(sum(n) FILTER (metric = 'ln_latency_ms'), 0)::BIGINT, 1)",
    }
    made = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    texts = views.all_texts()
    connection.register("rows", data)
    connection.execute("CREATE OR REPLACE TABLE _session_metrics AS SELECT * FROM rows")
    connection.unregister("rows")
    connection.execute(
        f"CREATE OR REPLACE TABLE usage AS SELECT {made} FROM _session_metrics "
        "GROUP BY server, tool, session"
    )
    connection.execute(f"CREATE OR REPLACE MACRO _moments(n, y) AS {texts['_moments']}")
    for name in ("_session_counts", "_rates_per"):
        connection.execute(f"CREATE OR REPLACE MACRO {name}(per) AS TABLE {texts[name]}")
    connection.execute(f"CREATE OR REPLACE VIEW _rates AS {texts['_rates']}")


TOOLS = 10
LIMIT = 0.05
MEAN_SIZE = 6
SETS = {
    "all fail in 5 % of their calls": [0.05] * TOOLS,
    "all fail in 0.5 %": [0.005] * TOOLS,
    "all fail in 10 %": [0.1] * TOOLS,
    "half never fail, half fail in 10 %": [0.0] * 5 + [0.1] * 5,
    "one always fails, the others never": [1.0] + [0.0] * 9,
}


def drawn(
    random: np.random.Generator, rates: Sequence[float], sessions: int, rho: float, archives: int
) -> tuple[np.ndarray, np.ndarray]:
    """Calls and failures of each session, by archive and tool."""
    n = random.geometric(1 / MEAN_SIZE, (archives, len(rates), sessions))
    y = np.zeros_like(n)
    for tool, rate in enumerate(rates):
        size = n[:, tool]
        if rate in {0, 1}:
            y[:, tool] = size * int(rate)
        else:
            a, b = rate * (1 - rho) / rho, (1 - rate) * (1 - rho) / rho
            y[:, tool] = random.binomial(size, random.beta(a, b, size.shape))
    return n.astype(float), y.astype(float)


def rates_of(n: np.ndarray, y: np.ndarray) -> intervals.RateInterval:
    """The intervals by archive and tool, as `_rates_per.sql` computes them in each archive."""
    calls, hits, sessions = n.sum(2), y.sum(2), n.shape[2]
    mixed = (y * (n - y) / n).sum(2)
    rarer = np.minimum((y > 0).sum(2), (y < n).sum(2)).astype(float)
    binomial = hits / calls * (1 - hits / calls)
    expected = ((calls - sessions) * binomial).sum(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        alike = 1 - mixed.sum(1, keepdims=True) / expected
    known = np.minimum(rarer, sessions - 1).sum(1, keepdims=True)
    every = np.full_like(calls, sessions)
    sums = (calls, hits, (n * n).sum(2), (y * y).sum(2), (y * n).sum(2), mixed, every, rarer)
    return intervals.rate_intervals(*sums, alike + 0 * calls, known + 0 * calls)


def test_the_intervals_of_this_simulation_are_those_of_a_store():
    n, y = drawn(np.random.default_rng(2), [0.0, 0.1, 0.3, 1.0], 12, 0.3, 1)
    with views.connect() as connection:
        rates_view(connection, sums(n[0].astype(int), y[0]))
        stored = connection.sql(
            "SELECT low, high FROM _rates_per('tool') WHERE metric = 'failure_rate' ORDER BY tool"
        ).fetchall()
    found = rates_of(n, y)
    assert stored == [
        (pytest.approx(low), pytest.approx(high))
        for low, high in zip(found.low[0], found.high[0], strict=True)
    ]


@pytest.mark.parametrize("rates", SETS.values(), ids=SETS)
def test_gates_seldom_decide_wrongly_and_intervals_contain_the_rate(rates):
    random = np.random.default_rng(3)
    for sessions, rho in ((3, 0.3), (50, 0.05), (50, 0.6)):
        found = rates_of(*drawn(random, rates, sessions, rho, 100))
        assert ((found.low <= rates) & (rates <= found.high)).mean() > 0.93
        passed = (found.high <= LIMIT) & (np.array(rates) >= LIMIT)
        assert passed.mean() < 0.025
