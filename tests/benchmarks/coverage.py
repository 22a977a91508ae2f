"""Do the intervals cover, and are the discoveries real? Simulated archives, the real SQL.

    python -m tests.benchmarks.coverage [--replicates 4000] [--runs 200] [--latencies 1000]

Calls of a session share its luck: a session's failure rate is drawn from a Beta distribution whose
mean is the tool's and whose intra-class correlation is rho (clustered Bernoulli); its latencies
share a pace (log-normal). Prints the coverage of nominal 95 % intervals, the false-discovery rate
of `compare` where nothing changed and where one tool in ten did, and the false alarms of
`failure_trend` in a year of nightly looks.
"""

import argparse
import datetime
import sys
import time
from collections.abc import Iterator

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from mcptally.analytics import compare, views
from mcptally.statistics import bootstrap
from mcptally.tables.usage import Usage

SESSIONS = (8, 20, 60)
RATES = (0.02, 0.1, 0.3)
CORRELATIONS = (0.05, 0.3)
SIZES = {
    "6 calls a session": lambda _, shape: np.full(shape, 6),
    "1 + Poisson(5)": lambda random, shape: 1 + random.poisson(5, shape),
    "geometric, mean 6": lambda random, shape: random.geometric(1 / 6, shape),
}

LATENCY_SESSIONS = (30, 120, 600)
LATENCY_SIZES = {
    "10 calls a session": lambda _, shape: np.full(shape, 10),
    "geometric, mean 10": lambda random, shape: random.geometric(1 / 10, shape),
}
PACES = (0.3, 1.0)
"""Standard deviation of the logarithm of a session's pace."""
TIMES = {
    "log-normal": lambda random, n: random.normal(0, 1, n),
    "Pareto, 1.5": lambda random, n: random.exponential(1 / 1.5, n),
    "3 % time out": lambda random, n: (
        random.normal(0, 0.5, n) + np.log(30) * (random.random(n) < 0.03)
    ),
}
"""Logarithm of a call's latency at pace 1."""


def failures(random, n, p, rho):
    """Failures per session of `n` calls each."""
    a, b = p * (1 - rho) / rho, (1 - p) * (1 - rho) / rho
    return random.binomial(n, random.beta(a, b, np.shape(n)))


def sums(tool, n, y, metric="failure_rate") -> pl.DataFrame:
    """Rows as `_session_metrics` has them, of arrays (tool, session)."""
    tools, sessions = np.indices(n.shape)
    return pl.DataFrame(
        {
            "level": "tool",
            "server": "s",
            "tool": np.char.add(tool, tools.ravel().astype(str)),
            "session": np.char.add("x", sessions.ravel().astype(str)),
            "metric": metric,
            "n": n.ravel().astype(np.int64),
            "y": y.ravel().astype(float),
        }
    )


USED = {
    "calls": "sum(n) FILTER (metric = 'failure_rate')",
    "tool_failures": "sum(y) FILTER (metric = 'failure_rate')",
    "ok": "sum(y) FILTER (metric = 'success_rate')",
    "tool_errors": "sum(n - y) FILTER (metric = 'success_rate')",
    "ln_latency_ms": "sum(y) FILTER (metric = 'ln_latency_ms')",
    "sized": "sum(n) FILTER (metric = 'ln_response_bytes')",
    "ln_response_bytes": "sum(y) FILTER (metric = 'ln_response_bytes')",
}
"""Columns of `usage` from the metrics of `sums`; the other numbers are 0."""


def rates_view(connection: duckdb.DuckDBPyConnection, data: pl.DataFrame) -> None:
    """Makes `usage` and `_session_metrics` of rows, and `_rates` as in every store."""
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


def coverage(random, replicates: int) -> Iterator[tuple[str, float, float, int, float, float]]:
    """Share of intervals that hold the true rate, and their mean width, a cell of the design."""
    connection = views.connect()
    for size, draw in SIZES.items():
        for p in RATES:
            for rho in CORRELATIONS:
                for g in SESSIONS:
                    n = draw(random, (replicates, g))
                    rates_view(connection, sums("t", n, failures(random, n, p, rho)))
                    covered, width = connection.sql(
                        f"SELECT avg(({p} BETWEEN low AND high)::INT), avg(high - low) "
                        "FROM _rates_per('tool') WHERE metric = 'failure_rate'"
                    ).fetchall()[0]
                    yield size, p, rho, g, covered, width


def slow(random, replicates: int) -> Iterator[tuple[str, str, float, int, list[str]]]:
    """Coverage of the intervals of p50, p95 and p99, where most archives have one."""
    connection = views.connect()
    for kind, draw in TIMES.items():
        for pace in PACES:
            truth = np.exp(
                np.quantile(
                    draw(random, 4_000_000) + random.normal(0, pace, 4_000_000),
                    bootstrap.QUANTILES,
                )
            )
            for size, count in LATENCY_SIZES.items():
                for g in LATENCY_SESSIONS:
                    n = count(random, (replicates, g))
                    own = np.repeat(random.normal(0, pace, n.size), n.ravel())
                    bounds = intervals(connection, n, np.exp(own + draw(random, n.sum())))
                    texts = []
                    for value, (_, low, high) in zip(truth, bounds, strict=True):
                        there = ~np.isnan(low)
                        hit = (low <= value) & (value <= high)
                        texts.append(f"{hit[there].mean():.3f}" if there.mean() > 0.5 else "none")
                    yield kind, size, pace, g, texts
    connection.close()


def intervals(connection: duckdb.DuckDBPyConnection, n, values):
    """Quantile, low and high end of rows of sessions of `n` calls; (quantiles, 3, rows)."""
    inner = pa.ListArray.from_arrays(np.append(0, np.cumsum(n.ravel())), values)
    rows = np.arange(len(n) + 1) * n.shape[1]
    data = pa.table(
        {
            "lists": pa.ListArray.from_arrays(rows, inner),
            "owners": pa.ListArray.from_arrays(
                rows, pa.array(np.tile(np.arange(n.shape[1], dtype=np.uint64), len(n)))
            ),
        }
    )
    connection.register("sampled", data)
    found = connection.sql("SELECT latency_quantiles(lists, owners) AS q FROM sampled").pl()
    connection.unregister("sampled")
    return found["q"].list.to_array(9).to_numpy().reshape(len(n), 3, 3).transpose(1, 2, 0)


def archive(random, tools: int, *, changed=None) -> pl.DataFrame:
    """A side of a comparison: failures, latencies and sizes of `tools`, each its own kind."""
    kind = np.random.default_rng(5)  # the same tools on both sides
    g = kind.choice([8, 15, 30, 60], tools)
    p = kind.choice([0.005, 0.05, 0.15, 0.3], tools)
    rho = kind.choice([0.05, 0.3], tools)
    spread = kind.choice([0.2, 0.8], tools)
    parts = []
    for number in range(tools):
        hit = changed is not None and changed[number]
        n = random.geometric(1 / 6, (1, g[number]))
        y = failures(random, n, min(0.9, p[number] + (0.25 if hit else 0)), rho[number])
        luck = random.normal(0, spread[number], n.shape)
        logs = n * (2 + luck + (np.log(2) if hit else 0)) + random.normal(0, 1, n.shape) * n**0.5
        sizes = n * (6 + random.normal(0, spread[number], n.shape))
        for metric, value in (
            ("failure_rate", y),
            ("success_rate", n - np.minimum(n, y + random.binomial(n, 0.1))),
            ("ln_latency_ms", logs),
            ("ln_response_bytes", sizes),
        ):
            parts.append(sums(f"t{number}_", n, value, metric))
    return pl.concat(parts)


def discoveries(random, tools: int, *, change: float) -> tuple[int, int, int]:
    """False and true discoveries of one comparison, and how many there were to make."""
    changed = random.random(tools) < change
    connection = views.connect()
    for side, data in (
        ("base", archive(random, tools)),
        ("new", archive(random, tools, changed=changed)),
    ):
        connection.execute(f"ATTACH ':memory:' AS {side}")
        connection.execute(f"USE {side}")
        rates_view(connection, data)
    connection.execute("USE memory")
    connection.execute(
        "CREATE TABLE pairs AS SELECT DISTINCT server, tool AS base_tool, tool AS new_tool, "
        "'both' AS presence FROM base._session_metrics"
    )
    rows = connection.sql(
        f"SELECT tool, metric FROM ({compare._sql('changes')}) "
        "WHERE level = 'tool' AND verdict IN ('worse', 'better')",
        params=compare.limits(),
    ).fetchall()
    connection.close()
    truly = {
        (f"t{number}_0", metric)
        for number in np.flatnonzero(changed)
        for metric in (
            *("confidence", "failure_rate", "success_rate", "latency_ms", "latency_vs_session"),
        )
    }
    found = set(rows)
    return len(found - truly), len(found & truly), len(truly)


def alarms(random, tools: int, days: int, sessions: int) -> tuple[int, int, int]:
    """Tools with a false alarm in `days` nightly looks; days until a real change is told."""
    connection = views.connect()
    n = 1 + random.poisson(3, (tools, days, sessions))
    p = np.broadcast_to(random.choice([0.01, 0.1, 0.3], (tools, 1, 1)), n.shape)
    k = failures(random, n, p, 0.2)
    data = pl.DataFrame(
        {
            "tool": np.indices(n.shape)[0].ravel().astype(str),
            "day": np.indices(n.shape)[1].ravel(),
            "session": np.arange(n.size).astype(str),
            "n": n.ravel(),
            "k": k.ravel(),
        }
    )
    connection.register("sessions", data)
    connection.execute(
        "CREATE TABLE usage AS "
        "SELECT 's' AS server, tool, session, session AS recording, n AS judged, k AS failed, "
        "TIMESTAMPTZ '2026-01-01 12:00:00+00' + to_days(day::INTEGER) AS hour FROM sessions"
    )
    trend = views.all_texts()["failure_trend"]
    found, looks, breaches = connection.sql(
        "SELECT count(DISTINCT tool) FILTER (alarm), count(*), count(*) FILTER (breach) "
        f"FROM ({trend}) WHERE period = 'day' AND level = 'tool'"
    ).fetchall()[0]
    connection.close()
    return found, looks, breaches


def parts() -> np.random.Generator:
    """The dice of one part: what one part throws changes no other."""
    return np.random.default_rng(20261121)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tools", type=int, default=60)
    parser.add_argument("--latencies", type=int, default=1000)
    given = parser.parse_args()
    began = time.perf_counter()

    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {given.replicates:,} replicates a cell")
    print("\nCoverage of nominal 95 % intervals of a failure rate (mean width)\n")
    print("| session size | rate | rho | " + " | ".join(f"G = {g}" for g in SESSIONS) + " |")
    print("|---|---|---|" + "---|" * len(SESSIONS))
    cells: dict[tuple[str, float, float], list[str]] = {}
    every: dict[str, list[float]] = {}
    for size, p, rho, _, covered, width in coverage(parts(), given.replicates):
        cells.setdefault((size, p, rho), []).append(f"{covered:.3f} ({width:.2f})")
        every.setdefault(size, []).append(covered)
    for (size, p, rho), texts in cells.items():
        print(f"| {size} | {p} | {rho} | " + " | ".join(texts) + " |")
    for size, shares in every.items():
        print(f"\n{size}: {min(shares):.3f} to {max(shares):.3f}", end="")
    print("\n\nCoverage of nominal 95 % intervals of latency: p50, p95, p99 ", end="")
    print(f"({given.latencies:,} replicates a cell)\n")
    print("| latency | session size | pace | ", end="")
    print(" | ".join(f"G = {g}" for g in LATENCY_SESSIONS) + " |")
    print("|---|---|---|" + "---|" * len(LATENCY_SESSIONS))
    times: dict[tuple[str, str, float], list[str]] = {}
    for kind, size, pace, _, texts in slow(parts(), given.latencies):
        times.setdefault((kind, size, pace), []).append(", ".join(texts))
    for (kind, size, pace), texts in times.items():
        print(f"| {kind} | {size} | {pace} | " + " | ".join(texts) + " |")
    print("\nDiscoveries of compare (60 tools, 4 metrics, 8 to 60 sessions of geometric size)\n")
    for name, change in (("nothing changed", 0.0), ("one tool in ten changed", 0.1)):
        random = parts()
        outcomes = np.array(
            [discoveries(random, given.tools, change=change) for _ in range(given.runs)]
        )
        false, true, there = outcomes.T
        rate = (false / np.maximum(1, false + true)).mean()
        power = f", found {true.sum() / there.sum():.0%} of the changes" if change else ""
        print(
            f"{name}: {given.runs} runs, {(false > 0).sum()} with a false discovery, "
            f"false-discovery rate {rate:.4f} (nominal {compare.ALPHA}){power}"
        )
    found, looks, breaches = alarms(parts(), given.tools * 5, 365, 8)
    print(
        f"\nNightly looks for a year at {given.tools * 5} tools that never change "
        f"(8 sessions a night): {breaches / looks:.2%} of looks beyond their limit, "
        f"{found / (given.tools * 5):.1%} of tools with a false alarm in the year"
    )
    sys.stderr.write(f"{time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()
