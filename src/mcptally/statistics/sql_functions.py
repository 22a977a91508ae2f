"""What SQL has no function for: quantiles of distributions and intervals, as DuckDB functions.

`register` gives a connection `t_quantile`, `t_test`, `beta_quantile`, `wilson_low`, `wilson_high`,
`rate_interval`, `rate_bounds` and `latency_quantiles`. They see aggregated rows, one a tool. SciPy
is imported when one is first used: most questions need none.
"""

import atexit
import itertools
import weakref
from collections.abc import Callable
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import ARROW, DEFAULT, SPECIAL

from mcptally.statistics import bootstrap, intervals

Floats = npt.NDArray[np.float64]

_open: Final[weakref.WeakSet[duckdb.DuckDBPyConnection]] = weakref.WeakSet()


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Give a connection the functions of this module."""
    number, numbers = "DOUBLE", "DOUBLE[]"
    rate = "STRUCT(n_eff DOUBLE, t DOUBLE, low DOUBLE, high DOUBLE)"
    functions: tuple[tuple[str, Callable[..., Any], tuple[str, ...], str], ...] = (
        ("t_quantile", t_quantile, (number, number), number),
        ("t_test", t_test, (number, number), number),
        ("beta_quantile", beta_quantile, (number, number, number), number),
        ("rate_interval", rate_interval, (number,) * 7, rate),
        ("wilson_low", wilson_low, (number,) * 3, number),
        ("wilson_high", wilson_high, (number,) * 3, number),
        ("latency_quantiles", latency_quantiles, ("DOUBLE[][]", "UBIGINT[]"), numbers),
        ("rate_bounds", rate_bounds, (numbers, numbers), numbers),
    )
    for name, function, takes, gives in functions:
        # Numbers see null as NaN and give null for NaN; lists are not asked about null.
        nulls = DEFAULT if gives == numbers else SPECIAL
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


def rate_interval(
    n: pa.ChunkedArray,
    y: pa.ChunkedArray,
    nn: pa.ChunkedArray,
    yy: pa.ChunkedArray,
    yn: pa.ChunkedArray,
    sessions: pa.ChunkedArray,
    rarer: pa.ChunkedArray,
) -> pa.Array:
    """What sums over sessions say of rates, as structs: `intervals.of_sums`."""
    found = intervals.of_sums(*map(_floats, (n, y, nn, yy, yn, sessions, rarer)))
    return pa.StructArray.from_arrays([_array(column) for column in found], found._fields)


def wilson_low(rate: pa.ChunkedArray, n_eff: pa.ChunkedArray, t: pa.ChunkedArray) -> pa.Array:
    """The low end of `intervals.wilson`."""
    return _array(intervals.wilson(_floats(rate), _floats(n_eff), _floats(t))[0])


def wilson_high(rate: pa.ChunkedArray, n_eff: pa.ChunkedArray, t: pa.ChunkedArray) -> pa.Array:
    """The high end of `intervals.wilson`."""
    return _array(intervals.wilson(_floats(rate), _floats(n_eff), _floats(t))[1])


def rate_bounds(hits: pa.ChunkedArray, sizes: pa.ChunkedArray) -> pa.Array:
    """Low and high end of a rate's 95 % interval, a list a row; nulls where nothing was counted.

    A row has two lists of one length: of each session, how many calls did what the rate is of, and
    how many there were. The interval is that of `_rates_of.sql`.
    """
    rows = zip(_lists(hits), _lists(sizes), strict=True)
    return pa.array([intervals.rate_bounds(y, n) for y, n in rows], pa.list_(pa.float64()))


def latency_quantiles(times: pa.ChunkedArray, owners: pa.ChunkedArray) -> pa.Array:
    """`bootstrap.quantiles`: each with the bounds of its 95 % interval; a list a row.

    A row has lists of latencies, and for each list whose it is, the hash of a session.
    """
    lists, whose = times.combine_chunks(), owners.combine_chunks()
    rows, parts = lists.offsets.to_numpy(), lists.values.offsets.to_numpy()
    values = lists.values.values.to_numpy(zero_copy_only=False)
    names, places = whose.values.to_numpy(zero_copy_only=False), whose.offsets.to_numpy()
    samples = [
        bootstrap.Sample(
            values[parts[first] : parts[last]],
            names[places[row] : places[row + 1]],
            np.diff(parts[first : last + 1]),
        )
        for row, (first, last) in enumerate(itertools.pairwise(rows))
    ]
    return pa.array(bootstrap.quantiles(samples), pa.list_(pa.float64()))


def _lists(column: pa.ChunkedArray) -> list[Floats]:
    """The lists of a column, without a look at each number."""
    lists = column.combine_chunks()
    values = lists.values.to_numpy(zero_copy_only=False)
    return [values[i:j] for i, j in itertools.pairwise(lists.offsets.to_numpy())]


def _floats(column: pa.ChunkedArray) -> Floats:
    values: Floats = column.to_numpy(zero_copy_only=False)
    return values


def _array(values: Any) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null
