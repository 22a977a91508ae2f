"""Simulate archives, and print the coverage of intervals and the discoveries of `compare`.

    python -m tests.benchmarks.coverage [--replicates 4000] [--runs 200] [--latencies 1000]
        [--stores 30]

The calls of a session are similar: a session's failure rate is drawn from a Beta distribution whose
mean is the tool's and whose intra-class correlation is rho (clustered Bernoulli); its latencies
have a common factor, its pace (log-normal). Prints the coverage of nominal 95 % intervals, computed
from sums and, for a sample of the cells, in stores of calls; the power and the false-discovery rate
of `compare`.
"""

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from mcptally.analytics import compare, views
from mcptally.analytics.store import Store, open_store
from mcptally.pipeline.usage import usage
from mcptally.statistics import bootstrap, intervals, permutation
from mcptally.store import work_folder
from mcptally.store.parts import write_part
from mcptally.tables.calls import Calls
from mcptally.tables.formatting import formatted
from mcptally.tables.tools import Tools
from mcptally.tables.usage import Usage
from tests.analytics.built_stores import BEGAN

SESSIONS = (5, 10, 20, 50, 100, 200)
RATES = (0.01, 0.05, 0.1, 0.3, 0.5, 0.9)
CORRELATIONS = (0.05, 0.3, 0.5)
MEAN_SIZES = (3, 15, 30)
SIZES = {
    "1 + Poisson": lambda random, mean, shape: 1 + random.poisson(mean - 1, shape),
    "geometric": lambda random, mean, shape: random.geometric(1 / mean, shape),
}

POWER_CORRELATIONS = (0.05, 0.1, 0.3, 0.5)
POWER_SIZE = 6
"""Mean number of calls per session."""
POWER_RUNS = 400

LATENCY_SESSIONS = (30, 120, 600)
LATENCY_SIZES = {
    "10 calls per session": lambda _, shape: np.full(shape, 10),
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
    """Convert arrays (tool, session) to rows of `_session_metrics`."""
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
"""Columns of `usage`, with their values from the metrics of `sums`; all other columns are 0."""


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


class Cell(NamedTuple):
    """One cell of the design of `coverage`, with its results."""

    size: str
    mean_size: int
    rate: float
    correlation: float
    sessions: int
    covered: float
    """The share of intervals that contain the rate."""
    width: float
    """The mean width of an interval."""


def design() -> list[tuple[str, int, float, float, int]]:
    """Every cell: shape and mean of session sizes, rate, correlation, number of sessions."""
    return list(itertools.product(SIZES, MEAN_SIZES, RATES, CORRELATIONS, SESSIONS))


def coverage(random, replicates: int, cells) -> Iterator[Cell]:
    """The coverage of the intervals that `rate_interval` computes from sums over sessions."""
    for cell in cells:
        size, mean, p, rho, g = cell
        n = SIZES[size](random, mean, (replicates, g)).astype(float)
        y = failures(random, n.astype(int), p, rho).astype(float)
        mixed = np.round(1e6 * y * (n - y) / n) / 1e6
        sums = (x.sum(1) for x in (n, y, n * n, y * y, y * n, mixed))
        rarer = np.minimum((y > 0).sum(1), (y < n).sum(1))
        rate = intervals.rate_intervals(*sums, np.full(replicates, g), rarer)
        yield Cell(*cell, *covered(rate.low, rate.high, p))


def stored_coverage(random, replicates: int, cells) -> Iterator[Cell]:
    """The coverage of `tool_scores`: each cell is a store of calls with one tool per replicate."""
    for cell in cells:
        size, mean, p, rho, g = cell
        n = SIZES[size](random, mean, (replicates, g))
        with tempfile.TemporaryDirectory() as folder:
            store = built(Path(folder) / "store", n, failures(random, n, p, rho))
            scores = store.ask("tool_scores").pl()
        low, high = scores["failure_rate_low"], scores["failure_rate_high"]
        yield Cell(*cell, *covered(low.to_numpy(), high.to_numpy(), p))


def covered(low, high, p: float) -> tuple[float, float]:
    """The share of intervals that contain `p`, and their mean width."""
    return float(((low <= p) & (p <= high)).mean()), float((high - low).mean())


def built(folder: Path, n, y) -> Store:
    """A store of calls; the first `y` of the `n` calls of each (tool, session) fail."""
    sizes = n.ravel()
    tool, session = (np.repeat(index.ravel(), sizes) for index in np.indices(n.shape))
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    frame = pl.DataFrame({"tool": tool, "session": session, "failed": place < np.repeat(y, sizes)})
    name = formatted("{}-{}", "tool", "session")
    calls = frame.with_row_index("number").select(
        call_id=formatted("{}", "number"),
        attempt_of=formatted("{}", "number"),
        seq=pl.col("number").cast(pl.Int64),
        index=pl.lit(0),
        server=pl.lit("s"),
        tool=formatted("t{}", "tool"),
        session=name,
        recording=name,
        file=name,
        line=pl.lit(1),
        method=pl.lit("tools/call"),
        dir=pl.lit("c2s"),
        requested_at=pl.lit(BEGAN),
        outcome=pl.when("failed").then(pl.lit("tool_error")).otherwise(pl.lit("ok")),
        verdict=pl.when("failed").then(pl.lit("tool_failure")),
    )
    schema = {name: kind for name, kind in Calls.schema().items() if name in calls.columns}
    calls = calls.cast(schema).select(list(schema))
    work = work_folder.create_work_folder(folder)
    write_part(work, Calls, "000000", calls)
    write_part(work, Usage, "000000", usage(Calls.frame(calls)))
    write_part(work, Tools, "000000", pl.DataFrame())
    work_folder.publish(folder, work, sources=[], rows={}, made=work_folder.Provenance())
    return open_store(folder)


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
                    bounds = latency_intervals(connection, n, np.exp(own + draw(random, n.sum())))
                    texts = []
                    for value, (_, low, high) in zip(truth, bounds, strict=True):
                        there = ~np.isnan(low)
                        hit = (low <= value) & (value <= high)
                        texts.append(f"{hit[there].mean():.3f}" if there.mean() > 0.5 else "none")
                    yield kind, size, pace, g, texts
    connection.close()


def latency_intervals(connection: duckdb.DuckDBPyConnection, n, values):
    """Return quantiles with intervals per row of sessions of `n` calls: (quantiles, 3, rows)."""
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
    """One side of a comparison: failures, latencies and sizes of `tools` different tools."""
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
    """Return false discoveries, true discoveries and actual changes of one comparison."""
    changed = random.random(tools) < change
    found = reported(archive(random, tools), archive(random, tools, changed=changed))
    truly = {
        (f"t{number}_0", metric)
        for number in np.flatnonzero(changed)
        for metric in ("failure_rate", "error_rate", "latency_ms", "latency_vs_session")
    }
    return len(found - truly), len(found & truly), len(truly)


def power(random, rho: float, tools: int, changed: int) -> tuple[int, int]:
    """False and true discoveries if the failure rate of some tools rises from 0.1 to 0.3.

    Every tool has 30 sessions of geometric size on each side.
    """
    n = random.geometric(1 / POWER_SIZE, (2, tools, 30))
    p = np.full((2, tools, 1), 0.1)
    p[1, :changed] = 0.3
    y = failures(random, n, p * np.ones(n.shape), rho)
    tests = [
        permutation.rate_change(y[0, i] * 1.0, n[0, i] * 1.0, y[1, i] * 1.0, n[1, i] * 1.0)
        for i in range(tools)
    ]
    import scipy.stats  # takes a second, and tests import this module

    q = scipy.stats.false_discovery_control([test.p_value for test in tests])
    difference = np.abs(np.subtract(*(y.sum(2) / n.sum(2))))
    apart = [test.low > 0 or test.high < 0 for test in tests]
    found = (q <= compare.ALPHA) & (difference >= compare.MIN_DIFFERENCE) & apart
    return int(found[changed:].sum()), int(found[:changed].sum())


def reported(base: pl.DataFrame, new: pl.DataFrame) -> set[tuple[str, str]]:
    """The tools and metrics that `compare` reports as changed."""
    connection = views.connect()
    for side, data in (("base", base), ("new", new)):
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
    return set(rows)


def parts() -> np.random.Generator:
    """Return a random generator per part, so that no part's draws affect another's."""
    return np.random.default_rng(20261121)


def summary(cells: Sequence[Cell]) -> str:
    """Return the range of the coverage, and how many cells are outside 93 to 97 %."""
    shares = np.array([cell.covered for cell in cells])
    return (
        f"{len(cells)} cells: {shares.min():.3f} to {shares.max():.3f}, mean {shares.mean():.3f}; "
        f"{(shares < 0.93).mean():.1%} below 0.93, {(shares > 0.97).mean():.1%} above 0.97, "
        f"{(shares > 0.98).mean():.1%} above 0.98"
    )


def main() -> None:
    """Print the results of every part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tools", type=int, default=60)
    parser.add_argument("--stores", type=int, default=30)
    parser.add_argument("--latencies", type=int, default=1000)
    given = parser.parse_args()
    print("Coverage of nominal 95 % intervals of a failure rate")
    print("from sums:", summary(list(coverage(parts(), given.replicates, design()))))
    sample = [design()[i] for i in parts().permutation(len(design()))[: given.stores]]
    through = list(stored_coverage(parts(), given.tools * 5, sample))
    print(f"a sample through stores of {given.tools * 5} tools:", summary(through))
    print("the same cells from sums:", summary(list(coverage(parts(), given.replicates, sample))))
    print("\nCoverage of nominal 95 % intervals of p50, p95 and p99 of latency")
    for kind, size, pace, g, texts in slow(parts(), given.latencies):
        print(f"{kind}, {size}, pace {pace}, {g} sessions: {', '.join(texts)}")
    print(f"\nDiscoveries of compare ({given.tools} tools, 4 metrics, 8 to 60 sessions)")
    for change in (0.0, 0.1):
        random = parts()
        runs = [discoveries(random, given.tools, change=change) for _ in range(given.runs)]
        print(f"{change:.0%} of the tools changed: {found_and_false(runs)}")
    print("\nA change of a failure rate from 0.1 to 0.3, 30 sessions on each side")
    for rho, (tools, changed) in itertools.product(POWER_CORRELATIONS, ((1, 1), (10, 1), (10, 0))):
        random = parts()
        runs = [(*power(random, rho, tools, changed), changed) for _ in range(POWER_RUNS)]
        print(f"rho {rho}, {changed} of {tools} tools changed: {found_and_false(runs)}")


def found_and_false(runs: Sequence[tuple[int, int, int]]) -> str:
    """The share of changes that were found, and the false-discovery rate."""
    false, true, there = np.array(runs).T
    rate = (false / np.maximum(1, false + true)).mean()
    return f"found {true.sum()} of {there.sum()}, false-discovery rate {rate:.4f}"


if __name__ == "__main__":
    main()
