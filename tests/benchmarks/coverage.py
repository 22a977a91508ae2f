"""Do the intervals cover, and are the discoveries real? Simulated archives, the real SQL.

    python -m tests.benchmarks.coverage [--replicates 4000] [--runs 200]

Calls of a session share its luck: a session's failure rate is drawn from a Beta distribution whose
mean is the tool's and whose intra-class correlation is rho (clustered Bernoulli). Prints the
coverage of nominal 95 % intervals, the false-discovery rate of `compare` where nothing changed and
where one tool in ten did, and the false alarms of `failure_trend` in a year of nightly looks.
"""

import argparse
import datetime
import sys
import time
from collections.abc import Iterator

import duckdb
import numpy as np
import polars as pl

from mcptally import compare, query

SESSIONS = (8, 20, 60)
RATES = (0.02, 0.1, 0.3)
CORRELATIONS = (0.05, 0.3)
SIZES = {
    "6 calls a session": lambda _, shape: np.full(shape, 6),
    "1 + Poisson(5)": lambda random, shape: 1 + random.poisson(5, shape),
    "geometric, mean 6": lambda random, shape: random.geometric(1 / 6, shape),
}


def failures(random, n, p, rho):
    """Failures per session of `n` calls each."""
    a, b = p * (1 - rho) / rho, (1 - p) * (1 - rho) / rho
    return random.binomial(n, random.beta(a, b, np.shape(n)))


def sums(tool, n, y, metric="failure_rate") -> pl.DataFrame:
    """Rows as `_sums` has them, of arrays (tool, session)."""
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


def rates_view(connection: duckdb.DuckDBPyConnection, data: pl.DataFrame) -> None:
    """Makes `_sums` of rows, and `_rates` as in every store."""
    connection.register("rows", data)
    connection.execute("CREATE OR REPLACE TABLE _sums AS SELECT * FROM rows")
    connection.unregister("rows")
    connection.execute(f"CREATE OR REPLACE VIEW _rates AS {query._texts()['_rates']}")


def coverage(random, replicates: int) -> Iterator[tuple[str, float, float, int, float, float]]:
    """Share of intervals that hold the true rate, and their mean width, a cell of the design."""
    connection = query.connect()
    for size, draw in SIZES.items():
        for p in RATES:
            for rho in CORRELATIONS:
                for g in SESSIONS:
                    n = draw(random, (replicates, g))
                    rates_view(connection, sums("t", n, failures(random, n, p, rho)))
                    covered, width = connection.sql(
                        f"SELECT avg(({p} BETWEEN low AND high)::INT), avg(high - low) FROM _rates"
                    ).fetchall()[0]
                    yield size, p, rho, g, covered, width


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
            ("error_rate", np.minimum(n, y + random.binomial(n, 0.1))),
            ("ln_latency_ms", logs),
            ("ln_response_bytes", sizes),
        ):
            parts.append(sums(f"t{number}_", n, value, metric))
    return pl.concat(parts)


def discoveries(random, tools: int, *, change: float) -> tuple[int, int, int]:
    """False and true discoveries of one comparison, and how many there were to make."""
    changed = random.random(tools) < change
    connection = query.connect()
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
        "'both' AS presence FROM base._sums"
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
        for metric in ("failure_rate", "error_rate", "latency_ms", "latency_vs_session")
    }
    found = set(rows)
    return len(found - truly), len(found & truly), len(truly)


def alarms(random, tools: int, days: int, sessions: int) -> tuple[int, int, int]:
    """Tools with a false alarm in `days` nightly looks; days until a real change is told."""
    connection = query.connect()
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
        "CREATE TABLE _judged AS "
        "SELECT 's' AS server, tool, session, true AS judged, i < k AS failed, "
        "TIMESTAMPTZ '2026-01-01 12:00:00+00' + to_days(day::INTEGER) AS requested_at "
        "FROM (SELECT *, unnest(range(n)) AS i FROM sessions)"
    )
    trend = query._texts()["failure_trend"]
    found, looks, breaches = connection.sql(
        "SELECT count(DISTINCT tool) FILTER (alarm), count(*), count(*) FILTER (breach) "
        f"FROM ({trend}) WHERE period = 'day' AND level = 'tool'"
    ).fetchall()[0]
    connection.close()
    return found, looks, breaches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tools", type=int, default=60)
    given = parser.parse_args()
    random = np.random.default_rng(20261121)
    began = time.perf_counter()

    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {given.replicates:,} replicates a cell")
    print("\nCoverage of nominal 95 % intervals of a failure rate (mean width)\n")
    print("| session size | rate | rho | " + " | ".join(f"G = {g}" for g in SESSIONS) + " |")
    print("|---|---|---|" + "---|" * len(SESSIONS))
    cells: dict[tuple[str, float, float], list[str]] = {}
    every: dict[str, list[float]] = {}
    for size, p, rho, _, covered, width in coverage(random, given.replicates):
        cells.setdefault((size, p, rho), []).append(f"{covered:.3f} ({width:.2f})")
        every.setdefault(size, []).append(covered)
    for (size, p, rho), texts in cells.items():
        print(f"| {size} | {p} | {rho} | " + " | ".join(texts) + " |")
    for size, shares in every.items():
        print(f"\n{size}: {min(shares):.3f} to {max(shares):.3f}", end="")
    print("\n\nDiscoveries of compare (60 tools, 4 metrics, 8 to 60 sessions of geometric size)\n")
    for name, change in (("nothing changed", 0.0), ("one tool in ten changed", 0.1)):
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
    found, looks, breaches = alarms(random, given.tools * 5, 365, 8)
    print(
        f"\nNightly looks for a year at {given.tools * 5} tools that never change "
        f"(8 sessions a night): {breaches / looks:.2%} of looks beyond their limit, "
        f"{found / (given.tools * 5):.1%} of tools with a false alarm in the year"
    )
    sys.stderr.write(f"{time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()
