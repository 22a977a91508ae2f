"""What SQL has no function for: quantiles of distributions and the bootstrap, as DuckDB functions.

`register` gives a connection `t_quantile`, `t_test`, `beta_quantile`, `bootstrap_quantiles` and
`bootstrap_ratio`. They see aggregated rows, one a tool. SciPy is imported when one is first used:
most questions need none.
"""

import atexit
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
        ("bootstrap_quantiles", bootstrap_quantiles, counts, numbers),
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


def bootstrap_quantiles(
    clusters: pa.ChunkedArray, bins: pa.ChunkedArray, counts: pa.ChunkedArray
) -> pa.Array:
    """Low and high 95 % bound of each of `QUANTILES`, from resampled sessions; a list a row.

    A row has three lists of one length: session, bin (`BINS_PER_E` a factor of e) and calls.
    """

    def bounds(histogram: _Histogram) -> list[float]:
        low, high = np.quantile(histogram.resampled(), (0.025, 0.975), axis=0)
        # A bin is an interval: its lower end bounds from below, its upper end from above.
        pairs = zip(_edge(low), _edge(high + 1), strict=True)
        return [float(end) for pair in pairs for end in pair]

    return pa.array(
        [bounds(row) for row in _histograms(clusters, bins, counts)], pa.list_(pa.float64())
    )


def bootstrap_ratio(
    base_clusters: pa.ChunkedArray,
    base_bins: pa.ChunkedArray,
    base_counts: pa.ChunkedArray,
    new_clusters: pa.ChunkedArray,
    new_bins: pa.ChunkedArray,
    new_counts: pa.ChunkedArray,
) -> pa.Array:
    """Low and high 95 % bound of new over base for each of `QUANTILES`; a list a row.

    The lists are those of `bootstrap_quantiles`.
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


def _edge(bins: Floats) -> Floats:
    """Lower end of a bin in ms."""
    return np.exp(bins / BINS_PER_E)


def _floats(column: pa.ChunkedArray) -> Floats:
    values: Floats = column.to_numpy(zero_copy_only=False)
    return values


def _array(values: Any) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null
