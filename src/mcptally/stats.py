"""What SQL has no function for: quantiles of distributions and the bootstrap, as DuckDB functions.

`register` gives a connection `t_quantile`, `t_test`, `beta_quantile`, `latency_quantiles`,
`rate_bounds` and `bootstrap_ratio`. They see aggregated rows, one a tool. SciPy is imported when
one is first used: most questions need none.
"""

import atexit
import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import ARROW, DEFAULT, SPECIAL

RESAMPLES: Final = 400
"""Bootstrap samples; the 2.5 % on either side are ten of them."""
SEED: Final = 20261121
"""The same store gives the same intervals."""
QUANTILES: Final = (0.5, 0.95, 0.99)
SESSIONS: Final = 30
"""Sessions that an interval of a quantile needs."""
BINS_PER_E: Final = 50
"""Bins of latency for a factor of e; the SQL that makes the bins says the same."""

Floats = npt.NDArray[np.float64]

_open: Final[weakref.WeakSet[duckdb.DuckDBPyConnection]] = weakref.WeakSet()


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Give a connection the functions of this module."""
    number, numbers = "DOUBLE", "DOUBLE[]"
    counts = ("INTEGER[]", "INTEGER[]", "BIGINT[]")
    functions: tuple[tuple[str, Callable[..., Any], tuple[str, ...], str], ...] = (
        ("t_quantile", t_quantile, (number, number), number),
        ("t_test", t_test, (number, number), number),
        ("beta_quantile", beta_quantile, (number, number, number), number),
        ("latency_quantiles", latency_quantiles, ("DOUBLE[][]", "UBIGINT[]"), numbers),
        ("rate_bounds", rate_bounds, (numbers, numbers), numbers),
        ("bootstrap_ratio", bootstrap_ratio, (*counts, *counts), numbers),
    )
    for name, function, takes, gives in functions:
        # Numbers see null as NaN and give null for NaN; lists are not asked about null.
        nulls = SPECIAL if gives == number else DEFAULT
        connection.create_function(
            name, function, list(takes), gives, type=ARROW, null_handling=nulls
        )
    close_at_exit(connection)


def close_at_exit(connection: duckdb.DuckDBPyConnection) -> None:
    """Close a connection before the interpreter goes.

    One that still knows Python functions then makes DuckDB report leaks on stderr.
    """
    _open.add(connection)


@atexit.register
def _close() -> None:
    for connection in list(_open):
        connection.close()


def t_quantile(p: pa.ChunkedArray, df: pa.ChunkedArray) -> pa.Array:
    """Quantile `p` of Student's t with `df` degrees of freedom; of the normal where infinite."""
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415  (0.2 s, paid by who needs it)

    level, freedom = _floats(p), _floats(df)
    with np.errstate(invalid="ignore"):
        return _array(np.where(np.isinf(freedom), ndtri(level), stdtrit(freedom, level)))


def t_test(t: pa.ChunkedArray, df: pa.ChunkedArray) -> pa.Array:
    """Two-sided p-value of a `t` with `df` degrees of freedom."""
    from scipy.special import stdtr  # noqa: PLC0415

    return _array(2 * stdtr(_floats(df), -np.abs(_floats(t))))


def beta_quantile(p: pa.ChunkedArray, a: pa.ChunkedArray, b: pa.ChunkedArray) -> pa.Array:
    """Quantile `p` of the Beta distribution with parameters `a` and `b`."""
    from scipy.special import betaincinv  # noqa: PLC0415

    return _array(betaincinv(_floats(a), _floats(b), _floats(p)))


def latency_quantiles(times: pa.ChunkedArray, owners: pa.ChunkedArray) -> pa.Array:
    """Each of `QUANTILES` with the bounds of its 95 % interval, from `SESSIONS` on; a list a row.

    A row has lists of latencies, and for each list whose it is, the hash of a session. How many
    calls are no slower than a quantile is a rate with sessions as clusters, and has the interval
    of one (Woodruff 1952); the bounds are the quantiles at its ends.
    """
    lists, whose = times.combine_chunks(), owners.combine_chunks()
    rows, parts = lists.offsets.to_numpy(), lists.values.offsets.to_numpy()
    values = lists.values.values.to_numpy(zero_copy_only=False)
    names, places = whose.values.to_numpy(zero_copy_only=False), whose.offsets.to_numpy()
    found = []
    for row, (first, last) in enumerate(itertools.pairwise(rows)):
        found.append(
            _quantiles(
                values[parts[first] : parts[last]],
                np.repeat(names[places[row] : places[row + 1]], np.diff(parts[first : last + 1])),
            )
        )
    return pa.array(found, pa.list_(pa.float64()))


def rate_bounds(hits: pa.ChunkedArray, sizes: pa.ChunkedArray) -> pa.Array:
    """Low and high end of a rate's 95 % interval, a list a row; nulls where nothing was counted.

    A row has two lists of one length: of each session, how many calls did what the rate is of, and
    how many there were. The interval is that of `_rates_of.sql`.
    """
    rows = zip(hits.to_pylist(), sizes.to_pylist(), strict=True)
    return pa.array(
        [_rate_bounds(np.asarray(y, float), np.asarray(n, float)) for y, n in rows],
        pa.list_(pa.float64()),
    )


def _rate_bounds(hits: Floats, sizes: Floats) -> list[float | None]:
    hits, sizes = hits[sizes > 0], sizes[sizes > 0]
    if not len(sizes):
        return [None, None]
    # SQL gives sessions in any order, and a sum's last digit depends on it.
    order = np.lexsort((hits, sizes))
    hits, sizes = hits[order], sizes[order]
    p = hits.sum() / sizes.sum()
    centre, half = _wilson(p, *_effective(hits, sizes))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def _effective(hits: Floats, sizes: Floats) -> tuple[float, float]:
    """How many independent calls the sessions of a rate are worth, and the t of its interval."""
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415

    n, sessions = float(sizes.sum()), len(sizes)
    p = float(hits.sum()) / n
    if sessions == 1:
        return 1.0, float(ndtri(0.975))
    if p in {0.0, 1.0}:
        return float(sessions), float(ndtri(0.975))
    spread = ((hits - p * sizes) ** 2).sum() * sessions / (sessions - 1) / n**2
    n_eff = n / max(1.0, spread / (p * (1 - p) / n))
    few = min((hits > 0).sum(), (hits < sizes).sum())
    freedom = max(1.0, min(n**2 / (sizes**2).sum() - 1, 3 * few))
    return float(n_eff), float(ndtri(0.975) if n_eff >= n else stdtrit(freedom, 0.975))


def _wilson(p: float, n_eff: float, t: float) -> tuple[float, float]:
    """The middle of a Wilson interval and half its width."""
    half = math.sqrt(p * (1 - p) / n_eff + t**2 / (4 * n_eff**2))
    scale = 1 + t**2 / n_eff
    return (p + t**2 / (2 * n_eff)) / scale, t / scale * half


def _quantiles(values: Floats, owners: npt.NDArray[np.uint64]) -> list[float | None]:
    ordered = np.sort(values)
    sessions, session = np.unique(owners, return_inverse=True)
    sizes = np.bincount(session).astype(float)
    found: list[float | None] = []
    for q in QUANTILES:
        value = _at(ordered, q)
        found.append(value)
        if len(sessions) < SESSIONS:
            found += [None, None]
            continue
        no_slower = np.bincount(session, weights=values <= value).astype(np.float64)
        centre, half = _wilson(q, *_effective(no_slower, sizes))
        found += [_at(ordered, centre - half), _at(ordered, centre + half)]
    return found


def _at(ordered: Floats, q: float) -> float:
    """The quantile of sorted values, between two of them linearly, as `quantile_cont` has it."""
    place = (len(ordered) - 1) * min(max(q, 0.0), 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def bootstrap_ratio(
    base_clusters: pa.ChunkedArray,
    base_bins: pa.ChunkedArray,
    base_counts: pa.ChunkedArray,
    new_clusters: pa.ChunkedArray,
    new_bins: pa.ChunkedArray,
    new_counts: pa.ChunkedArray,
) -> pa.Array:
    """Low and high 95 % bound of new over base for each of `QUANTILES`; a list a row.

    A side has three lists of one length: session, bin (`BINS_PER_E` a factor of e) and calls.
    """

    def bounds(base: _Histogram, new: _Histogram) -> list[float]:
        ratios = np.exp((new.resampled(stream=1) - base.resampled()) / BINS_PER_E)
        low, high = np.quantile(ratios, (0.025, 0.975), axis=0)
        return [float(end) for pair in zip(low, high, strict=True) for end in pair]

    base = _histograms(base_clusters, base_bins, base_counts)
    new = _histograms(new_clusters, new_bins, new_counts)
    return pa.array([bounds(*pair) for pair in zip(base, new, strict=True)], pa.list_(pa.float64()))


class _Histogram:
    """Calls by session and latency bin."""

    def __init__(self, clusters: list[int], bins: list[int], counts: list[int]) -> None:
        sessions, row = np.unique(np.asarray(clusters), return_inverse=True)
        self.bins, column = np.unique(np.asarray(bins), return_inverse=True)
        self.counts = np.zeros((len(sessions), len(self.bins)))
        np.add.at(self.counts, (row, column), counts)

    def resampled(self, *, stream: int = 0) -> Floats:
        """The bin of each of `QUANTILES` in each resample of the sessions."""
        sessions = len(self.counts)
        random = np.random.default_rng((SEED, stream))
        weights = random.multinomial(sessions, np.full(sessions, 1 / sessions), size=RESAMPLES)
        cumulated = np.cumsum(weights @ self.counts, axis=1)
        ranks = [
            (cumulated < q * cumulated[:, -1:]).sum(axis=1).clip(max=len(self.bins) - 1)
            for q in QUANTILES
        ]
        found: Floats = self.bins[np.stack(ranks, axis=1)].astype(np.float64)
        return found


def _histograms(*lists: pa.ChunkedArray) -> list[_Histogram]:
    return [_Histogram(*row) for row in zip(*(part.to_pylist() for part in lists), strict=True)]


def _floats(column: pa.ChunkedArray) -> Floats:
    values: Floats = column.to_numpy(zero_copy_only=False)
    return values


def _array(values: Any) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null
