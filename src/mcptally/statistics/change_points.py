"""Finds the times at which a rate changed, in series of calls with sessions as clusters.

docs/explanation/statistics.md explains the test.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

MAX_PARTS: Final = 64
"""The test looks for a change between this many parts of a series, of about equally many calls."""
MIN_CALLS: Final = 5
MIN_CLUSTERS: Final = 3
"""Calls, and clusters of them, that a change needs before it and after it."""
MIN_DIFFERENCE: Final = 0.05
"""The smallest change of a rate that is reported."""
MIN_SESSIONS: Final = 5
MIN_DIFFERENCE_OF_FEW: Final = 0.8
"""With fewer sessions, the pieces of sessions that lie in one part count as sessions, and only a
change of this size is reported."""
MAX_P_VALUE: Final = 0.01
"""The largest p-value of a change that is reported, and that is searched for further changes."""
_CELLS: Final = 1 << 21
"""Limit of the size of an intermediate array."""
_SLICE: Final = 1 << 18
"""Number of multiplications that NumPy's linear algebra does in one thread."""


class Change(NamedTuple):
    """A change of a rate.

    Attributes:
        at: time of the first call after it, in the unit of the series.
        difference: by how much the rate of the same tools is higher after it than before it.
        p_value: probability of such a change by chance at any time between its neighbours.
    """

    at: float
    difference: float
    p_value: float


class Series(NamedTuple):
    """Calls in order of time; calls of a session and tool with the same time form one element."""

    at: Floats
    calls: Floats
    hits: Floats
    """The calls of the kind whose share of all calls is the rate."""
    tool: Whole
    session: Whole

    def piece(self, chosen: slice) -> "Series":
        """The part of the series with the chosen elements."""
        return Series(
            self.at[chosen],
            self.calls[chosen],
            self.hits[chosen],
            self.tool[chosen],
            self.session[chosen],
        )


def change_points(series: Series) -> list[Change]:
    """Return the changes of the rate of hits in a series, in order of time.

    Each tool is compared with itself, so a change of the mix of tools is no change of the rate.
    Changes are found by binary segmentation: a series is cut at its most certain change, and its
    two pieces are searched again.
    """
    return list(_changes(series))


def _changes(series: Series) -> Iterator[Change]:
    """Yield the changes in a series or in a piece of one."""
    if series.calls.sum() < 2 * MIN_CALLS:
        return
    part = _parts(series)
    found = _most_certain(series, part)
    if found is None or found.p_value > MAX_P_VALUE:
        return
    onset = _onset(series, part, found)
    yield from _changes(series.piece(slice(onset)))
    yield Change(float(series.at[onset]), found.difference, found.p_value)
    yield from _changes(series.piece(slice(onset, None)))


def _parts(series: Series) -> Whole:
    """The part of each element; elements with the same time are in the same part."""
    new = np.diff(series.at) > 0
    instant = np.cumsum(np.concatenate(([0], new)))
    before = np.cumsum(series.calls) - series.calls
    first = before[np.concatenate(([0], np.flatnonzero(new) + 1))]
    wanted = (first * MAX_PARTS / series.calls.sum()).astype(np.int64)
    parts: Whole = np.unique(wanted, return_inverse=True)[1].astype(np.int64)[instant]
    return parts


class _Cut(NamedTuple):
    part: int
    """The first part after the cut."""
    difference: float
    p_value: float


def _most_certain(series: Series, part: Whole) -> _Cut | None:
    """The most certain change between two parts; None if none can be tested.

    A range of consecutive parts is compared with all other parts. The range ends at a single change
    or lies between two changes.
    """
    parts = int(part[-1]) + 1
    tools, tool = np.unique(series.tool, return_inverse=True)
    calls = _running(tool, part, series.calls, len(tools), parts)
    each = calls[:, -1]
    rate = np.bincount(tool, series.hits) / each
    deviation = np.sqrt(rate * (1 - rate))
    residual = series.hits - rate[tool] * series.calls
    # Ranges of parts: from `low` up to, but not including, `high`.
    low, high = np.triu_indices(parts, 1)
    inside = calls[:, high] - calls[:, low]
    share = inside / each[:, None]
    weight = inside * (1 - share)
    sums = _running(np.zeros_like(part), part, residual, 1, parts)[0]
    total = sums[high] - sums[low]
    known = deviation**2 @ weight

    session = np.unique(series.session, return_inverse=True)[1].astype(np.int64)
    piece = np.unique(session * parts + part, return_inverse=True)[1].astype(np.int64)
    few = session.max() + 1 < MIN_SESSIONS
    cluster = piece if few else session
    clusters = int(cluster.max()) + 1
    if clusters < 2 * MIN_CLUSTERS:
        return None
    rho = _correlation(series, residual, rate[tool], cluster)
    scale = deviation[tool] * series.calls
    alike = _squares(cluster, tool, part, scale, low, high, share)
    variance = np.maximum(known, (1 - rho) * known + rho * alike)

    excess = np.bincount(piece, residual)
    part_of_piece = np.zeros(len(excess), np.int64)
    part_of_piece[piece] = part
    pieces = np.concatenate(([0], np.cumsum(np.bincount(part_of_piece, minlength=parts))))
    pieces_inside = pieces[high] - pieces[low]
    calls_inside = inside.sum(0)
    smallest = MIN_DIFFERENCE_OF_FEW if few else MIN_DIFFERENCE
    enough = (
        (np.minimum(calls_inside, each.sum() - calls_inside) >= MIN_CALLS)
        & (np.minimum(pieces_inside, len(excess) - pieces_inside) >= MIN_CLUSTERS)
        & (np.abs(total) >= smallest * weight.sum(0))
        & (known > 0)
    )
    if not enough.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.where(enough, np.abs(total) / np.sqrt(variance), 0)
        # As in the t test of two groups of clusters: without the change, the variance is smaller.
        # It is at least that of independent calls.
        t = z * np.sqrt((clusters - 2) / np.maximum(clusters - 1 - z**2, 1e-9))
        t = np.where(enough, np.minimum(t, np.abs(total) / np.sqrt(known)), 0)
    # Half of the error probability belongs to single changes, half to pairs of changes.
    pair = low > 0
    tries = 2 * np.where(pair, (enough & pair).sum(), (enough & ~pair).sum())
    p_values = np.where(enough, _t_tail(t, clusters - 2) * tries, np.inf)
    best = int(np.lexsort((-t, p_values))[0])  # p-values of large series may all be zero
    begin, end = int(low[best]), int(high[best])
    within = (begin <= part_of_piece) & (part_of_piece < end)
    rank = _rank_tail(excess > 0, within if total[best] > 0 else ~within)
    p_value = min(1.0, max(float(p_values[best]), rank * float(tries[best])))
    difference = float(total[best] / weight.sum(0)[best])
    # Of two changes, take the one with more calls on its outer side; the other is found next.
    if begin > 0 and calls[:, begin].sum() >= (each - calls[:, end]).sum():
        return _Cut(begin, difference, p_value)
    return _Cut(end, -difference, p_value)


def _correlation(series: Series, residual: Floats, rate: Floats, cluster: Whole) -> float:
    """The correlation of hits within a cluster, by the method of moments; 0 to 1."""
    single = series.hits * (1 - rate) ** 2 + (series.calls - series.hits) * rate**2
    variance = rate * (1 - rate)
    together = np.bincount(cluster, np.sqrt(variance) * series.calls) ** 2
    pairs = together.sum() - (variance * series.calls).sum()
    observed = (np.bincount(cluster, residual) ** 2).sum() - single.sum()
    return float(np.clip(observed / pairs, 0, 1)) if pairs > 0 else 0.0


def _squares(
    cluster: Whole, tool: Whole, part: Whole, values: Floats, low: Whole, high: Whole, share: Floats
) -> Floats:
    """The squared contributions of clusters to sums over parts, added up over all clusters.

    The contribution of a cluster is its own sum minus a share of its sum over the whole series,
    because each sum is compared with the rate of the whole series.

    Args:
        cluster: cluster of each element.
        tool: tool of each element.
        part: part of each element.
        values: what is summed.
        low: first part of each sum.
        high: part after the last one of each sum.
        share: share of the calls of each tool (row) that are in the parts of each sum (column).
    """
    parts, tools = int(part.max()) + 1, len(share)
    order = np.argsort(cluster, kind="stable")
    cluster, tool, part, values = cluster[order], tool[order], part[order], values[order]
    # Products of the running sums over parts and of the sums by tool, summed over clusters.
    width = parts + 1 + tools
    products = np.zeros((width, width))
    for first in range(0, int(cluster[-1]) + 1, max(1, _CELLS // width)):
        some = slice(*np.searchsorted(cluster, (first, first + max(1, _CELLS // width))))
        row = cluster[some] - first
        rows = int(row[-1]) + 1
        of_part = _running(row, part[some], values[some], rows, parts)
        of_tool = np.diff(_running(row, tool[some], values[some], rows, tools), axis=1)
        sums = np.hstack([of_part, of_tool])
        # A product with one slice is small enough for one thread.
        step = max(1, _SLICE // width**2)
        for begin in range(0, rows, step):
            products += sums[begin : begin + step].T @ sums[begin : begin + step]
    of_parts, mixed, of_tools = (
        products[: parts + 1, : parts + 1],
        products[: parts + 1, parts + 1 :],
        products[parts + 1 :, parts + 1 :],
    )
    own = of_parts[high, high] + of_parts[low, low] - 2 * of_parts[low, high]
    both = (share * (mixed[high] - mixed[low]).T).sum(0)
    return np.asarray(own - 2 * both + (share * (of_tools @ share)).sum(0), np.float64)


def _running(row: Whole, column: Whole, values: Floats, rows: int, columns: int) -> Floats:
    """For each row, the running sums of its values over the columns, from 0."""
    sums = np.bincount(row * columns + column, values, minlength=rows * columns)
    found = np.zeros((rows, columns + 1))
    np.cumsum(sums.reshape(rows, columns), axis=1, out=found[:, 1:])
    return found


def _t_tail(t: Floats, freedom: int) -> Floats:
    """The two-sided p-values of values of Student's t that are not negative."""
    from scipy.special import stdtr  # noqa: PLC0415  (takes 0.2 s, and few questions need it)

    return np.asarray(2 * stdtr(freedom, -t), np.float64)


def _rank_tail(high: npt.NDArray[np.bool_], late: npt.NDArray[np.bool_]) -> float:
    """The two-sided p-value of Fisher's exact test of whether `high` clusters tend to be late.

    The t test mistakes a burst of failures in few clusters for a change; this test does not.
    """
    from scipy.special import gammaln  # noqa: PLC0415  (as above)

    def ln_choose(n: int, k: Whole | int) -> Floats:
        return np.asarray(gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n + 1, k)))

    total, highs, lates = len(high), int(high.sum()), int(late.sum())
    both = np.arange(int((high & late).sum()), min(highs, lates) + 1)
    ln_p = ln_choose(lates, both) + ln_choose(total - lates, highs - both)
    return min(1.0, float(2 * np.exp(ln_p - ln_choose(total, highs)).sum()))


def _onset(series: Series, part: Whole, cut: _Cut) -> int:
    """The first element after a change, which lies within the two parts next to the cut."""
    low, high = np.searchsorted(part, (cut.part - 1, cut.part + 1))
    sides = (part < cut.part, part >= cut.part)
    rates = [float(series.hits[side].sum() / series.calls[side].sum()) for side in sides]
    excess = (series.hits - sum(rates) / 2 * series.calls)[low:high] * np.sign(cut.difference)
    # The sum of what comes before the change is the lowest.
    sums = np.concatenate(([0.0], np.cumsum(excess)[:-1]))
    same_time = np.diff(series.at[max(low - 1, 0) : high], prepend=-np.inf)[-len(sums) :] == 0
    sums[same_time] = np.inf
    sums[: max(0, 1 - low)] = np.inf  # the first element of the series has nothing before it
    return int(low + np.argmin(sums))
