"""Finds the times at which a rate changed, in series of calls clustered by session.

docs/explanation/statistics.md explains the test; docs/design/statistics.md explains the choice.
"""

import functools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mcptally.statistics.intervals import PRIOR_SESSIONS

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

MIN_CALLS: Final = 5
MIN_SESSIONS: Final = 3
"""Minimum number of sessions on each side of a change; likewise, `MIN_CALLS` for calls."""
MIN_DIFFERENCE: Final = 0.05
"""The smallest change in a rate that is reported, as a difference between shares."""
MAX_P_VALUE: Final = 0.01
"""The largest p-value at which a change is reported and the series is split for a further search.
"""
MAX_ENDS: Final = 25
"""Number of grid positions at which a range of sessions may begin or end."""
STAGES: Final = (49, 950)
"""Number of permutations in each stage; a test stops after the first stage if its p-value is
clearly too large."""
CLEARLY_TOO_LARGE: Final = 10 * MAX_P_VALUE
BLOCKS: Final = (3, 5)
"""Lengths of session blocks that are tried if neighbouring sessions have similar rates."""
SIMILAR: Final = 1.5
"""Number of standard errors above which neighbouring sessions are considered similar."""
PENALTY: Final = 4.0
"""Amount by which the statistic of a pair of changes must exceed that of a single change."""
SEED: Final = 20261124
"""A fixed seed, so that the same series always gives the same changes."""
SLICES: Final = 32
"""Number of time slices with about equally many calls. Changes within sessions are sought only at
the boundaries of slices."""
MIN_SPANNING: Final = 8
"""Minimum number of sessions with calls both before and after a change within sessions; with fewer
sessions, no change is significant."""
EPSILON: Final = 1e-9
"""Largest difference that is attributed to rounding."""
_CELLS: Final = 1 << 14
"""Maximum number of elements in an intermediate array."""


class Change(NamedTuple):
    """A change in a rate.

    Attributes:
        at: time of the first call after the change, in the unit of the series' times.
        difference: the rate after the change minus the rate before it, for the same tools.
        p_value: probability that chance produces such a change anywhere between the neighbouring
            changes.
    """

    at: float
    difference: float
    p_value: float


class Series(NamedTuple):
    """Calls in chronological order; calls with the same session, tool and time form one element."""

    at: Floats
    calls: Floats
    hits: Floats
    """The number of hits among the calls; the rate is their share."""
    tool: Whole
    session: Whole

    def piece(self, chosen: slice | npt.NDArray[np.bool_]) -> "Series":
        """Return a series of only the chosen elements."""
        return Series(
            self.at[chosen],
            self.calls[chosen],
            self.hits[chosen],
            self.tool[chosen],
            self.session[chosen],
        )


def change_points(series: Series) -> list[Change]:
    """Return the changes in the hit rate of a series, in chronological order.

    Each tool is compared with itself, so a change in the mix of tools does not look like a change
    in the rate. Changes are found by binary segmentation: the series is split at its most certain
    change, and both segments are searched again.
    """
    return list(_changes(series))


def _changes(series: Series) -> Iterator[Change]:
    """Yield the changes in a series, or in a segment of one, in chronological order."""
    calls, hits = series.calls.sum(), series.hits.sum()
    if calls < 2 * MIN_CALLS or not 0 < hits < calls:
        return
    tests = [cut for cut in (_between_sessions(series), _within_sessions(series)) if cut]
    if not tests:
        return
    found = min(tests, key=lambda cut: cut.p_value)
    p_value = min(1.0, len(tests) * found.p_value)
    if p_value > MAX_P_VALUE:
        return
    onset = _onset(series, found)
    yield from _changes(series.piece(slice(onset)))
    yield Change(float(series.at[onset]), found.difference, p_value)
    yield from _changes(series.piece(slice(onset, None)))


class _Sessions(NamedTuple):
    """The sessions of a series, ordered by the mean timestamp of their calls."""

    weight: Floats
    """For each session, the number of independent calls that carry as much information."""
    score: Floats
    """For each session, the weighted number of hits minus the number expected from the tools'
    rates. The sum over all sessions is 0."""
    calls: Floats
    place: Whole
    """For each element, the position of its session when ordered by mean timestamp."""


def _sessions(series: Series) -> _Sessions:
    tool, session = _renumbered(series.tool), _renumbered(series.session)
    rate = (np.bincount(tool, series.hits) / np.bincount(tool, series.calls))[tool]
    calls = np.bincount(session, series.calls).astype(np.float64)
    # With several tools, sessions are ordered by the times of their calls; session numbers break
    # ties.
    order = np.argsort(np.bincount(session, series.at * series.calls) / calls, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    place = places[session]
    calls = calls[order]
    excess, known, hits = (
        np.bincount(place, values).astype(np.float64)
        for values in (
            series.hits - rate * series.calls,
            rate * (1 - rate) * series.calls,
            series.hits,
        )
    )
    alike = _correlation(excess, known, calls, hits)
    share = 1 / (1 + (calls - 1) * alike)
    weight, score = share * calls, share * excess
    return _Sessions(weight, score - weight * score.sum() / weight.sum(), calls, place)


def _renumbered(numbers: Whole) -> Whole:
    """Number the distinct values from 0, in ascending order, and return the number for each."""
    return np.asarray((np.cumsum(np.bincount(numbers) > 0) - 1)[numbers], np.int64)


def _correlation(excess: Floats, known: Floats, calls: Floats, hits: Floats) -> float:
    """Return the correlation of hits within a session (method of moments), shrunk towards 1/2."""
    pairs = (known * (calls - 1)).sum()
    found = ((excess**2).sum() - known.sum()) / pairs if pairs > 0 else 0.0
    sessions = min(int((hits > 0).sum()), int((hits < calls).sum()), len(calls) - 1)
    shrunk = sessions * np.clip(found, 0, 1) + PRIOR_SESSIONS / 2
    return float(shrunk / (sessions + PRIOR_SESSIONS))


class _Cut(NamedTuple):
    first: int
    """Position of the first session or slice after the change."""
    difference: float
    p_value: float
    place: Whole
    """For each element, the position of its session or slice in chronological order."""


class _Ranges(NamedTuple):
    """Ranges of session positions, from `low` up to but not including `high`.

    Each range is compared with all sessions outside it.
    """

    low: Whole
    high: Whole

    def sums(self, values: Floats) -> Floats:
        """Sum `values` over each range; a matrix gives one row of sums for each of its rows."""
        running = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
        np.cumsum(values, axis=-1, out=running[..., 1:])
        return np.asarray(running.take(self.high, -1) - running.take(self.low, -1), np.float64)


@functools.lru_cache(maxsize=128)
def _ranges(sessions: int) -> _Ranges:
    """Return the ranges to test; a range that ends with the last session means a single change."""
    single = np.arange(MIN_SESSIONS, sessions - MIN_SESSIONS + 1)
    ends = np.unique(np.linspace(0, sessions, min(sessions + 1, MAX_ENDS)).round().astype(np.int64))
    low, high = (ends[side] for side in np.triu_indices(len(ends), 1))
    inside = high - low
    pair = (low > 0) & (high < sessions)
    pair &= (inside >= MIN_SESSIONS) & (sessions - inside >= MIN_SESSIONS)
    return _Ranges(
        np.concatenate((single, low[pair])),
        np.concatenate((np.full_like(single, sessions), high[pair])),
    )


def _close_to(low: int, high: int, sessions: int) -> _Ranges:
    """Return all ranges whose ends are within one grid step of the ends of the given range."""
    step = -(-sessions // (MAX_ENDS - 1))
    lows = np.arange(max(1, low - step), low + step + 1)
    highs = np.arange(high - step, min(sessions - 1, high + step) + 1)
    found = _Ranges(*(side.ravel() for side in np.meshgrid(lows, highs)))
    inside = found.high - found.low
    enough = (inside >= MIN_SESSIONS) & (sessions - inside >= MIN_SESSIONS)
    return _Ranges(found.low[enough], found.high[enough])


def _statistics(score: Floats, weight: Floats, ranges: _Ranges) -> Floats:
    """Return each range's squared CUSUM, divided by its variance under the null hypothesis.

    There are many more pairs of changes than single changes, so pairs get a `PENALTY`.
    """
    inside, total = ranges.sums(weight), weight.sum(-1, keepdims=True)
    spread = inside * (total - inside) / total
    unit = (score**2).sum(-1, keepdims=True) / total
    pair = ranges.high < score.shape[-1]
    found = ranges.sums(score) ** 2 / np.maximum(spread, 1e-12) / unit - PENALTY * pair
    return np.asarray(found, np.float64)


def _differences(sessions: _Sessions, ranges: _Ranges) -> Floats:
    """Return each range's rate minus the rate outside it; 0 if there is too little data."""
    inside, total = ranges.sums(sessions.weight), sessions.weight.sum()
    found = ranges.sums(sessions.score) * total / (inside * (total - inside))
    calls = ranges.sums(sessions.calls)
    few = np.minimum(calls, sessions.calls.sum() - calls) < MIN_CALLS
    return np.where(few | (np.abs(found) < MIN_DIFFERENCE), 0, found)


def _between_sessions(series: Series) -> _Cut | None:
    """Return the most certain change between two sessions, or None if no change can be tested."""
    sessions = _sessions(series)
    count = len(sessions.calls)
    if count < 2 * MIN_SESSIONS or not np.abs(sessions.score).max() > EPSILON:
        return None
    ranges = _ranges(count)
    seen, low, high, change = _largest(sessions, ranges)
    if not change:
        return None
    if high < count:
        _, low, high, change = _largest(sessions, _close_to(low, high, count))
    p_value = _p_value(sessions, ranges, seen, low, high)
    # A range has a change at each end. Report the change that has more calls beyond it; the other
    # change is found when the segments are searched.
    outer = sessions.calls[:low].sum(), sessions.calls[high:].sum()
    cut, change = (low, change) if outer[0] >= outer[1] else (high, -change)
    return _Cut(cut, change, p_value, sessions.place)


def _largest(sessions: _Sessions, ranges: _Ranges) -> tuple[float, int, int, float]:
    """Return the largest statistic, the ends of its range, and the difference between the rates.

    The difference is 0 if no range has enough data.
    """
    differences = _differences(sessions, ranges)
    seen = _statistics(sessions.score, sessions.weight, ranges)
    best = int(np.argmax(np.where(differences != 0, seen, -np.inf)))
    found = float(seen[best]), int(ranges.low[best]), int(ranges.high[best])
    return *found, float(differences[best])


def _within_sessions(series: Series) -> _Cut | None:
    """Return the most certain change during sessions, or None if too few sessions overlap.

    Each session and tool is compared with itself. Each draw flips the signs of random sessions. The
    p-value is the share of draws in which the statistic is, at any time, at least as large.
    """
    new = np.concatenate(([0], np.diff(series.at) > 0)).astype(np.int64)
    before = np.cumsum(series.calls) - series.calls
    starts = before[np.searchsorted(np.cumsum(new), np.cumsum(new))]
    place = _renumbered((starts * SLICES / series.calls.sum()).astype(np.int64))
    session = _renumbered(series.session)
    # Only sessions that are in several slices can show a change.
    any_place = np.zeros(int(session.max()) + 1, np.int64)
    any_place[session] = place
    several = np.zeros(len(any_place), np.bool_)
    several[session[place != any_place[session]]] = True
    if several.sum() < MIN_SPANNING:
        return None
    chosen = several[session]
    series, session = series.piece(chosen), _renumbered(session[chosen])
    own = np.unique(session * (int(series.tool.max()) + 1) + series.tool, return_inverse=True)[1]
    rate = (np.bincount(own, series.hits) / np.bincount(own, series.calls))[own]
    shape = int(session.max()) + 1, int(place.max()) + 1
    cell = session * shape[1] + place[chosen]

    def early(values: Floats) -> Floats:
        """Sum `values` over each session's calls before each slice boundary."""
        sums = np.bincount(cell, values, minlength=shape[0] * shape[1]).reshape(shape)
        return np.asarray(sums.cumsum(1)[:, :-1], np.float64)

    excess = early(series.hits - rate * series.calls)
    if not ((np.abs(excess) > EPSILON).sum(0) >= MIN_SPANNING).any():
        return None
    calls, hits = early(series.calls), early(series.hits)
    all_calls = np.bincount(session, series.calls)[:, None]
    all_hits = np.bincount(session, series.hits)[:, None]
    spans = (calls > 0) & (calls < all_calls)
    # Each session's difference, scaled so that independent calls would have equal variance.
    excess = excess / np.sqrt(np.where(spans, calls * (all_calls - calls) / all_calls, np.inf))
    spread = np.sqrt((excess**2).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        first = (hits * spans).sum(0) / (calls * spans).sum(0)
        second = ((all_hits - hits) * spans).sum(0) / ((all_calls - calls) * spans).sum(0)
        enough = (spans.sum(0) >= MIN_SPANNING) & (np.abs(second - first) >= MIN_DIFFERENCE)
        # Choose the cut by the difference, which is largest at the change; the ratio of the
        # difference to its spread may be equally large elsewhere.
        best = int(np.where(enough, np.abs(excess.sum(0)), 0).argmax())
        seen = float(np.abs(excess[:, best].sum()) / spread[best]) if enough[best] else 0.0
        random = np.random.default_rng((SEED, len(several)))
        signs = random.integers(0, 2, (sum(STAGES), len(several)))[:, several]
        found = np.abs((2.0 * signs - 1) @ excess) / spread
    extreme = int((np.nanmax(np.where(spread > 0, found, 0), 1) >= seen - EPSILON).sum())
    p_value = (extreme + 1) / (len(signs) + 1)
    changed = excess[:, best][spans[:, best]]
    if seen > 0 and np.abs(changed.sum()) >= np.abs(changed).sum() - EPSILON:
        # All sessions changed in the same direction. With few sessions, random signs often agree
        # too, so the share of draws is too large; use the p-value of Student's t if it is smaller.
        p_value = min(p_value, _t_tail(len(changed) + 1, seen**2) * shape[1])
    return _Cut(best + 1, float((second - first)[best]), p_value, place)


def _p_value(sessions: _Sessions, ranges: _Ranges, seen: float, low: int, high: int) -> float:
    """Return the share of session permutations whose statistic is at least `seen`.

    If neighbouring sessions are similar, for example because each client's sessions are adjacent,
    blocks of sessions are permuted. Similarity due to the change from `low` to `high` is ignored.
    """
    count = len(sessions.score)
    length = _block_length(sessions, low, high)
    random = np.random.default_rng((SEED, count))
    extreme = tried = 0
    for stage in STAGES:
        step = max(1, _CELLS // (count + len(ranges.low)))
        for first in range(0, stage, step):
            order = _orders(random, min(step, stage - first), count, length)
            found = _statistics(
                sessions.score.take(order), sessions.weight.take(order), ranges
            ).max(1)
            extreme += int((found >= seen - EPSILON).sum())
            if extreme > CLEARLY_TOO_LARGE * (tried + stage):
                return 1.0
        tried += stage
    p_value = (extreme + 1) / (tried + 1)
    if extreme or length > 1:
        return p_value
    return min(p_value, _t_tail(count, seen) * len(ranges.low))


def _orders(random: np.random.Generator, rows: int, count: int, length: int) -> Whole:
    """Return random orders of the sessions, one per row; blocks of `length` stay together."""
    # Blocks begin at a random position, so the first block may be shorter.
    block = (np.arange(count) + random.integers(length)) // length
    keys = random.random((rows, int(block[-1]) + 1))[:, block]
    # Keys are equal within blocks, so blocks need a stable sort, which is slower.
    return np.argsort(keys, axis=1, kind="stable" if length > 1 else None)


def _block_length(sessions: _Sessions, low: int, high: int) -> int:
    """Return the block length at which the rates of blocks are no longer similar.

    This is the length whose blocks vary most in comparison with independent sessions.
    """
    inside = np.zeros(len(sessions.score), np.bool_)
    inside[low:high] = True
    rest = sessions.score.copy()
    for side in (inside, ~inside):
        weight = sessions.weight[side]
        rest[side] -= weight * rest[side].sum() / weight.sum()
    total = (rest**2).sum()
    if total <= EPSILON * (sessions.score**2).sum():
        return 1
    count, best, length = len(rest), SIMILAR, 1
    for size in BLOCKS:
        if count < 4 * size:
            break
        lags = np.arange(1, size)
        products = np.array([rest[lag:] @ rest[:-lag] for lag in lags]) / total + 3 / count
        # If sessions are independent, each product has variance 1 / count, and subtracting the
        # means lowers the product by about 3 / count.
        taper = 1 - lags / size
        similar = (taper * products).sum() / np.sqrt((taper**2).sum() / count)
        if similar > best:
            best, length = similar, size
    return length


def _t_tail(sessions: int, seen: float) -> float:
    """Return the two-sided p-value of a squared statistic, from Student's t-distribution.

    Args:
        sessions: number of sessions.
        seen: the squared statistic.
    """
    from scipy.special import stdtr  # noqa: PLC0415  (takes 0.2 s, and few questions need it)

    z2 = seen * (sessions - 1) / sessions
    t = np.sqrt(z2 * (sessions - 2) / max(sessions - 1 - z2, 1e-9))
    return float(2 * stdtr(sessions - 2, -t))


def _onset(series: Series, cut: _Cut) -> int:
    """Return the position of the first element after a change, which is near the cut."""
    near = np.flatnonzero((cut.place >= cut.first - 1) & (cut.place <= cut.first))
    low, high = int(near[0]), int(near[-1]) + 1
    sides = (cut.place < cut.first, cut.place >= cut.first)
    rates = [float(series.hits[side].sum() / series.calls[side].sum()) for side in sides]
    excess = (series.hits - sum(rates) / 2 * series.calls)[low:high] * np.sign(cut.difference)
    # The cumulative sum has its minimum just before the change.
    sums = np.concatenate(([0.0], np.cumsum(excess)[:-1]))
    same_time = np.diff(series.at[max(low - 1, 0) : high], prepend=-np.inf)[-len(sums) :] == 0
    sums[same_time] = np.inf
    sums[: max(0, 1 - low)] = np.inf  # the series' first element cannot follow a change
    return int(low + np.argmin(sums))
