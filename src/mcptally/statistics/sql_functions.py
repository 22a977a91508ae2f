"""Registers DuckDB functions for intervals, tests and quantiles of distributions.

`register` adds `t_quantile`, `t_test`, `beta_quantile`, `wilson_low`, `wilson_high`,
`rate_interval`, `rate_change`, `latency_quantiles`, `change_points` and `contrasts` to a
connection. These functions expect aggregated input, for example one row per tool. SciPy is imported
on first use, since most questions do not need it.
"""

import atexit
import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import ARROW, DEFAULT, SPECIAL

from mcptally.statistics import arrow_values as arrow
from mcptally.statistics import bootstrap, intervals, permutation, quantiles
from mcptally.statistics import contrasts as contrast_search
from mcptally.statistics.change_points import Change, Series
from mcptally.statistics.change_points import change_points as changes_of

Floats = npt.NDArray[np.float64]

_CHANGES: Final = "STRUCT(" + ", ".join(f'"{name}" DOUBLE' for name in Change._fields) + ")[]"

_CONTRASTS_TAKES: Final = (
    *("UBIGINT[]", "UBIGINT[]", "BIGINT[]", "BIGINT[]"),
    *("DOUBLE[]", "BIGINT[]", "UBIGINT[]", "BIGINT[]", "BIGINT[]", "UBIGINT[]"),
)
_CONTRASTS: Final = (
    "STRUCT(class_hash UBIGINT, fact BIGINT, absent BOOLEAN, other BIGINT, other_absent BOOLEAN, "
    "effect DOUBLE, one_of BOOLEAN, p_value DOUBLE)[]"
)
_CONTRAST_KINDS: Final = {
    "class_hash": np.uint64,
    "fact": np.int64,
    "absent": np.bool_,
    "other": np.int64,
    "other_absent": np.bool_,
    "effect": np.float64,
    "one_of": np.bool_,
    "p_value": np.float64,
}

_open: Final[weakref.WeakSet[duckdb.DuckDBPyConnection]] = weakref.WeakSet()


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Add this module's functions to a DuckDB connection."""
    number, numbers = "DOUBLE", "DOUBLE[]"
    rate = "STRUCT(n_eff DOUBLE, t DOUBLE, low DOUBLE, high DOUBLE)"
    functions: tuple[tuple[str, Callable[..., Any], tuple[str, ...], str], ...] = (
        ("t_quantile", t_quantile, (number, number), number),
        ("t_test", t_test, (number, number), number),
        ("beta_quantile", beta_quantile, (number, number, number), number),
        ("rate_interval", rate_interval, (number,) * 10, rate),
        ("wilson_low", wilson_low, (number,) * 3, number),
        ("wilson_high", wilson_high, (number,) * 3, number),
        ("latency_quantiles", latency_quantiles, ("DOUBLE[][]", "UBIGINT[]"), numbers),
        ("rate_change", rate_change, (numbers,) * 4, numbers),
        ("contrasts", contrasts, _CONTRASTS_TAKES, _CONTRASTS),
        ("change_points", change_points, (numbers,) * 3 + ("UBIGINT[]",) * 2, _CHANGES),
    )
    for name, function, takes, gives in functions:
        # Functions that take numbers receive null as NaN, and return NaN for it. DuckDB itself
        # returns null for null lists.
        nulls = DEFAULT if gives.endswith("[]") else SPECIAL
        connection.create_function(
            name, function, list(takes), gives, type=ARROW, null_handling=nulls
        )
    close_at_exit(connection)


def close_at_exit(connection: duckdb.DuckDBPyConnection) -> None:
    """Make sure that a connection is closed before the interpreter exits.

    If it stays open, DuckDB reports its registered Python functions as leaks on stderr.
    """
    _open.add(connection)


@atexit.register
def _close() -> None:
    for connection in list(_open):
        connection.close()


# DuckDB counts a function's parameters; with `wraps`, they are those of the NumPy function.


def _of_numbers(function: Callable[..., Any]) -> Callable[..., pa.Array]:
    """Return a function of Arrow columns that calls a function of NumPy arrays."""

    @functools.wraps(function)
    def run(*columns: pa.ChunkedArray) -> pa.Array:
        return arrow.array(function(*map(arrow.numbers, columns)))

    return run


t_quantile: Final = _of_numbers(quantiles.t_quantile)


@_of_numbers
def t_test(t: Floats, df: Floats) -> Any:
    """Return the two-sided p-value of the statistic `t` with `df` degrees of freedom."""
    from scipy.special import stdtr  # noqa: PLC0415

    return 2 * stdtr(df, -np.abs(t))


@_of_numbers
def beta_quantile(p: Floats, a: Floats, b: Floats) -> Any:
    """Return the quantile `p` of the beta distribution with parameters `a` and `b`."""
    from scipy.special import betaincinv  # noqa: PLC0415

    return betaincinv(a, b, p)


@_of_numbers
def wilson_low(rate: Floats, n_eff: Floats, t: Floats) -> Floats:
    """Return the lower end of Wilson's interval; see `intervals.wilson`."""
    return intervals.wilson(rate, n_eff, t)[0]


@_of_numbers
def wilson_high(rate: Floats, n_eff: Floats, t: Floats) -> Floats:
    """Return the upper end of Wilson's interval; see `intervals.wilson`."""
    return intervals.wilson(rate, n_eff, t)[1]


@functools.wraps(intervals.rate_intervals)
def rate_interval(*sums: pa.ChunkedArray) -> pa.Array:
    """Compute the intervals of rates from sums over sessions; see `intervals.rate_intervals`."""
    found = intervals.rate_intervals(*map(arrow.numbers, sums))._asdict()
    return arrow.struct_array({name: arrow.array(column) for name, column in found.items()})


@functools.wraps(permutation.rate_change)
def rate_change(*sessions: pa.ChunkedArray) -> pa.Array:
    """Return, for each row, a list with the p-value and interval of a change in a rate.

    A row has four lists: hits and calls per session, before and after.
    """
    rows = zip(*map(arrow.number_lists, sessions), strict=True)
    return arrow.list_array([permutation.rate_change(*row) for row in rows])


@functools.wraps(Series, updated=())
def change_points(*elements: pa.ChunkedArray) -> pa.Array:
    """Return, for each row, a list of structs with the changes in a rate over time.

    A row has five lists of equal length, in any order: times, calls, hits, and hashes of the tool
    and the session.
    """
    found: list[list[Change]] = []
    for row in zip(*map(arrow.number_lists, elements), strict=True):
        if not 0 < row[2].sum() < row[1].sum():
            found.append([])
            continue
        order = _chronological(row[0], row[3], row[4])
        times, counts, positive, tools, sessions = (column[order] for column in row)
        series = Series(times, counts, positive, _codes(tools), _codes(sessions))
        found.append(changes_of(series))
    return arrow.struct_list_array(found, dict.fromkeys(Change._fields, np.float64))


def _chronological(
    at: Floats, tool: npt.NDArray[np.uint64], session: npt.NDArray[np.uint64]
) -> npt.NDArray[np.intp]:
    """Return the positions in the order of time, tool and session."""
    order = np.argsort(at)
    tie = np.diff(at[order]) == 0
    tied = order[np.append(tie, False) | np.append(False, tie)]
    tied = tied[np.lexsort((session[tied], tool[tied], at[tied]))]
    order[np.append(tie, False) | np.append(False, tie)] = tied
    return order


def latency_quantiles(latencies: pa.ChunkedArray, sessions: pa.ChunkedArray) -> pa.Array:
    """Return, for each row, latency quantiles with 95 % intervals, as `bootstrap.quantiles` does.

    A row has several lists of latencies, one per session, and the hash of each session.
    """
    lists, hashes = latencies.combine_chunks(), sessions.combine_chunks()
    rows, parts = arrow.values(lists.offsets), arrow.values(lists.values.offsets)
    milliseconds = arrow.values(lists.values.values)
    owners, places = arrow.values(hashes.values), arrow.values(hashes.offsets)
    samples = [
        bootstrap.Sample(
            milliseconds[parts[first] : parts[last]],
            owners[places[row] : places[row + 1]],
            np.diff(parts[first : last + 1]),
        )
        for row, (first, last) in enumerate(itertools.pairwise(rows))
    ]
    return arrow.list_array(bootstrap.quantiles(samples))


@functools.wraps(contrast_search.Calls, updated=())
def contrasts(*facts: pa.ChunkedArray) -> pa.Array:
    """Return, for each row, a list with the strongest contrast of each group of a tool's failures.

    The lists of a row are the fields of `statistics.contrasts.Calls`, with hashes of sessions.
    """
    found = []
    for row in zip(*map(arrow.number_lists, facts), strict=True):
        calls = contrast_search.Calls(*row)
        found.append(contrast_search.strongest(calls._replace(session=_codes(calls.session))))
    return arrow.struct_list_array(found, _CONTRAST_KINDS)


def _codes(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Number the distinct hashes from 0, and return the number for each value."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
