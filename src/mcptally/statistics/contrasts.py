"""Finds facts that are true for a tool's failing calls but not for its working calls.

A *fact* is a statement that is true for some calls, such as "`path` is empty". For each group of a
tool's failures, `strongest` chooses the fact, or absence of a fact, that best separates the group
from the calls that worked. Hundreds of facts are tried, so a fact is accepted only if it separates
better than the best fact in nearly all of `DRAWS` random data sets without any effect.
docs/design/contrasts.md explains the test.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

MIN_CALLS: Final = 5
"""Minimum number of distinct failing calls of a group, and of working calls to its tool."""
MIN_SUPPORT: Final = 3
"""Minimum number of calls for which a fact must be true, and for which it must be false."""
MIN_EFFECT: Final = 0.3
"""Minimum difference between a fact's share of the failing calls and its share of the working
calls."""
CLEAR_EFFECT: Final = 0.9
"""Effect above which no second fact is added to a contrast."""
GAIN: Final = 0.15
"""Amount by which two facts together must exceed the effect of the better fact alone."""
ABOUT_CALL: Final = 1_000_000
"""Facts with lower numbers are about the arguments, which are not known for all calls."""
AROUND: Final = 2_000_000
"""Facts with this number or a larger one are about a call's context, such as the preceding call.

A fact about the context is reported only if it separates failing from working calls markedly
better than facts about the call itself: if clients repeat a sequence of calls, a context fact also
holds for calls that fail for other reasons."""
NAMED: Final = 0.1
"""How much smaller the effect of a fact may be if the error message names it."""
NEAR: Final = 0.02
"""Largest difference between two effects that are treated as equal."""
DRAWS: Final = 199
LEVEL: Final = 0.05
MIN_SESSIONS: Final = 8
"""Number of sessions from which random signs are drawn for the sessions' scores, too."""
SEED: Final = 20261124


class Calls(NamedTuple):
    """The distinct calls to a tool, and the facts that are true for them."""

    group: Hashes
    """For each call, the hash of its group of failures; 0 if the call worked."""
    session: Integers
    """For each call, the index of its session."""
    fact_call: Integers
    """For each pair of a call and a fact that is true for it, the index of the call."""
    fact: Integers
    """For each pair, the number of the fact. Facts with lower numbers are preferred."""
    share: Floats = np.ones(1)
    """For each pair, or for all, the share of the call's repetitions that the pair is about."""
    unread: Integers = np.empty(0, np.int64)
    """The indices of calls whose arguments are too large to be read."""
    named_group: Hashes = np.empty(0, np.uint64)
    """For each pair of a group and a fact that its error message names, the group."""
    named_fact: Integers = np.empty(0, np.int64)
    """For each such pair, the number of the fact."""
    value_fact: Integers = np.empty(0, np.int64)
    """The facts that an argument has a certain value, or ends in a certain text. That it has not is
    no cause, because other values do not fail for that reason."""
    value_path: Hashes = np.empty(0, np.uint64)
    """For each such fact, a hash of the argument's path and of the kind of fact."""


class Contrast(NamedTuple):
    """The fact that best separates a group of failures from the calls that worked."""

    group: int
    fact: int = -1
    """Number of the fact; -1 if no fact separates the group."""
    absent: bool = False
    """Whether the absence of the fact, not its presence, marks the failing calls."""
    other: int = -1
    """Number of a second fact that must hold too; -1 if there is none."""
    other_absent: bool = False
    effect: float = 0.0
    """Share of the failing calls with the fact, minus share of the working calls with the fact."""
    one_of: bool = False
    """Whether the argument's value is the fact's, or another one that no working call has."""
    p_value: float = 1.0
    """Probability that, by chance, the best of all facts separates at least as well."""


def strongest(calls: Calls) -> list[Contrast]:
    """Return the strongest contrast for each group of failures with enough calls.

    For a group that no fact separates, the contrast has the fact -1.
    """
    worked = np.flatnonzero(calls.group == 0)
    if len(worked) < MIN_CALLS:
        return []
    facts, column = np.unique(calls.fact, return_inverse=True)
    size = len(calls.group), len(facts)
    share = np.broadcast_to(calls.share, column.shape)
    pairs = np.bincount(calls.fact_call * size[1] + column, share, size[0] * size[1])
    holds = pairs.astype(np.float32).reshape(size)
    filled = holds
    if len(calls.unread):
        holds[np.ix_(calls.unread, facts < ABOUT_CALL)] = np.nan
        filled = np.nan_to_num(holds, nan=0.5)
    found = []
    groups, counts = np.unique(calls.group[calls.group != 0], return_counts=True)
    failing = filled[calls.group != 0].sum(0)
    is_value = np.zeros(len(facts), np.bool_)
    is_value[of_values := np.searchsorted(facts, calls.value_fact)] = True
    values = filled[:, of_values]
    for group, count in zip(groups, counts, strict=True):
        if count < MIN_CALLS:
            continue
        own = np.flatnonzero(calls.group == group)
        named = np.zeros(len(facts), np.bool_)
        named[np.searchsorted(facts, calls.named_fact[calls.named_group == group])] = True
        elsewhere = (failing - filled[own].sum(0)) / max(counts.sum() - count, 1)
        about = _Facts(facts, named, is_value, elsewhere.astype(np.float64))
        rows = np.append(own, worked)
        contrast = _contrast(int(group), _table(calls, holds, about, rows))
        one_value = contrast.fact < 0 or bool(np.isin(contrast.fact, calls.value_fact))
        if one_value and contrast.effect < CLEAR_EFFECT and contrast.other < 0:
            contrast = _one_of(contrast, calls, values, rows)
        found.append(contrast)
    return found


class _Facts(NamedTuple):
    """What is known about facts, which are the columns of a matrix."""

    number: Integers
    named: npt.NDArray[np.bool_]
    """Whether the group's error message names the fact."""
    is_value: npt.NDArray[np.bool_]
    """Whether the fact is in `Calls.value_fact`."""
    elsewhere: Floats
    """Share of the calls that fail otherwise for which the fact is true or, if the group's calls
    lack it more often than working calls, is not true."""

    def chosen(self, columns: npt.NDArray[Any]) -> "_Facts":
        named, is_value = self.named[columns], self.is_value[columns]
        return _Facts(self.number[columns], named, is_value, self.elsewhere[columns])


class _Table(NamedTuple):
    """The failing calls of one group and all working calls, with facts that may tell them apart."""

    failed: Floats
    """1 for each failing call, 0 for each working call."""
    session: Integers
    """For each call, the number of its session, in ascending order."""
    holds: Floats
    """Matrix with one row per call and one column per fact: 1 where the fact is true."""
    about: _Facts


def _table(calls: Calls, holds: npt.NDArray[np.float32], about: _Facts, rows: Integers) -> _Table:
    """Build a table of the given calls and of the facts whose effect could reach `MIN_EFFECT`.

    Facts that hold for too few or too many calls are left out. The choice uses only the number of
    failed calls, not which calls failed, so the test stays valid.
    """
    rows = rows[np.argsort(calls.session[rows], kind="stable")]
    failed = (calls.group[rows] != 0).astype(np.float64)
    chosen = holds[rows]
    if len(calls.unread):
        # What is not known neither supports a fact nor speaks against it.
        unknown = np.isnan(chosen)
        known = np.where(unknown, 0, chosen).sum(0) / np.maximum((~unknown).sum(0), 1)
        chosen = np.where(unknown, known, chosen)
    support = chosen.sum(0)
    bad, good = failed.sum(), len(rows) - failed.sum()
    above = np.minimum(support, bad) / bad - np.maximum(support - bad, 0) / good
    below = np.minimum(support, good) / good - np.maximum(support - good, 0) / bad
    kept = (support >= MIN_SUPPORT) & (len(rows) - support >= MIN_SUPPORT)
    kept &= np.maximum(above, below) >= MIN_EFFECT
    columns = chosen[:, kept].astype(np.float64)
    about = about.chosen(kept)
    lacking = _effects(failed, columns) < 0
    elsewhere: Floats = np.where(lacking, 1 - about.elsewhere, about.elsewhere).round(2)
    about = about._replace(elsewhere=elsewhere)
    # Merge facts that hold for the same calls.
    keys = np.random.default_rng(SEED).random(len(rows)) @ columns
    unusable = about.is_value & lacking
    order = np.lexsort((about.number, about.elsewhere, ~about.named, unusable))
    first = np.sort(order[np.unique(keys[order], return_index=True)[1]])
    session = np.unique(calls.session[rows], return_inverse=True)[1]
    return _Table(failed, session, columns[:, first], about.chosen(first))


def _contrast(group: int, table: _Table) -> Contrast:
    none = Contrast(group)
    if not table.holds.shape[1]:
        return none
    effects = _effects(table.failed, table.holds)
    if np.abs(effects).max() < MIN_EFFECT:
        return none
    p_values = _p_values(table)
    usable = (np.abs(effects) >= MIN_EFFECT) & (p_values <= LEVEL)
    usable &= (effects > 0) | ~table.about.is_value
    if not usable.any():
        return none
    own = usable & (table.about.number < AROUND)
    found = [_best(group, table, each, effects, p_values) for each in (own, usable) if each.any()]
    return found[-1] if found[-1].effect >= found[0].effect + GAIN else found[0]


def _best(
    group: int, table: _Table, usable: npt.NDArray[np.bool_], effects: Floats, p_values: Floats
) -> Contrast:
    """Return the contrast with the largest effect among the usable facts."""
    # Among facts with nearly the same effect, prefer a fact that is rare in calls that fail
    # otherwise, then one that is true for failing calls, then the first fact.
    ranks = np.where(usable, np.abs(effects) + NAMED * table.about.named, 0)
    near = np.flatnonzero(ranks >= ranks.max() - NEAR)
    elsewhere = table.about.elsewhere[near]
    near = near[elsewhere <= elsewhere.min() + NEAR]
    chosen = int(near[np.argmax(effects[near] > 0)])
    effect = float(effects[chosen])
    single = Contrast(
        group,
        int(table.about.number[chosen]),
        absent=effect < 0,
        effect=abs(effect),
        p_value=float(p_values[chosen]),
    )
    return single if abs(effect) >= CLEAR_EFFECT else _conjunction(single, chosen, table)


def _effects(failed: Floats, holds: Floats) -> Floats:
    """Return each fact's share of the failing calls minus its share of the working calls."""
    among_failed: Floats = failed @ holds / failed.sum()
    among_worked: Floats = (1 - failed) @ holds / (1 - failed).sum()
    return among_failed - among_worked


def _p_values(table: _Table) -> Floats:
    """Return each fact's p-value: the share of draws in which some fact separates as well.

    If there are enough sessions for two tests, the smaller of their p-values counts twice.
    """
    random = np.random.default_rng(SEED)
    sessions = int(table.session.max()) + 1
    tests = [_within_sessions(table, random)]
    if sessions >= MIN_SESSIONS:
        tests.append(_by_sessions(table, sessions, random))
    p_values = [
        (1 + (drawn[None, :] >= seen[:, None] - 1e-9).sum(1)) / (1 + DRAWS) for seen, drawn in tests
    ]
    smallest: Floats = np.minimum(1, len(tests) * np.minimum.reduce(p_values))
    return smallest


def _by_sessions(
    table: _Table, sessions: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return each fact's statistic, and the largest statistic in each draw of random session signs.

    A session's score is the sum over its calls of (failed - mean)(holds - mean). Without an effect,
    the score is as often positive as negative, regardless of the correlation within the session.
    """
    centred = table.failed - table.failed.mean()
    scores = _sums(table.session, centred[:, None] * (table.holds - table.holds.mean(0)))
    spread = np.sqrt((scores**2).sum(0))
    spread[spread == 0] = np.inf
    signs = random.integers(0, 2, (DRAWS, sessions)) * 2.0 - 1
    return np.abs(scores.sum(0)) / spread, (np.abs(signs @ scores) / spread).max(1)


def _within_sessions(table: _Table, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Return each fact's statistic, and the largest statistic in each permutation."""
    sizes, totals = np.bincount(table.session), np.bincount(table.session, table.failed)
    # Skip sessions that cannot be permuted.
    mixed = ((totals > 0) & (totals < sizes))[table.session]
    failed, holds, session = table.failed[mixed], table.holds[mixed], table.session[mixed]
    if not len(failed):
        return np.zeros(table.holds.shape[1]), np.zeros(DRAWS)
    rates = (totals / sizes)[session]
    session = np.unique(session, return_inverse=True)[1]
    size = np.bincount(session)[session]
    centred = holds - (_sums(session, holds) / np.bincount(session)[:, None])[session]
    variance = (rates * (1 - rates) * size / (size - 1)) @ centred**2
    spread = np.sqrt(variance)
    spread[spread <= 1e-12] = np.inf
    # Sorting random numbers within sessions permutes each session's calls. The highest bits are the
    # session, the lowest says whether the call failed.
    bits = int(session[-1]).bit_length()
    keys = random.integers(0, 1 << (31 - bits), (DRAWS, len(failed)), np.uint32) << 1
    keys += ((session << (32 - bits)) + failed.astype(np.int64)).astype(np.uint32)
    keys.sort(axis=1)
    permuted = (keys & 1).astype(np.float64)
    return np.abs(failed @ centred) / spread, (np.abs(permuted @ centred) / spread).max(1)


def _sums(session: Integers, values: Floats) -> Floats:
    """Return the sums of rows by session; sessions are in ascending order."""
    sums: Floats = np.add.reduceat(values, np.flatnonzero(np.diff(session, prepend=-1)), axis=0)
    return sums


def _conjunction(single: Contrast, chosen: int, table: _Table) -> Contrast:
    """Add a second fact if the two together separate failing from working calls markedly better.

    The second fact is chosen on half of the sessions (or calls) and must also improve the
    separation on the other half.

    Args:
        single: the contrast of one fact, which is returned if no second fact helps.
        chosen: the column of its fact.
        table: the calls and facts.
    """
    one = 1 - table.holds[:, chosen] if single.absent else table.holds[:, chosen]
    unit = table.session if table.session.max() + 1 >= MIN_SESSIONS else np.arange(len(one))
    half = unit % 2 == 0
    best, facts = (0.0, -1, False), table.holds.shape[1]
    if not all(0 < table.failed[part].sum() < part.sum() for part in (half, ~half)):
        return single
    base = _effects(table.failed[half], one[half, None])[0]
    for absent in (False, True):
        both = one[:, None] * (1 - table.holds if absent else table.holds)
        gains = _effects(table.failed[half], both[half]) - base
        gains[table.about.is_value & absent] = 0
        place = int(np.argmax(gains))
        if gains[place] > best[0] and place < facts:
            best = (float(gains[place]), place, absent)
    gain, place, absent = best
    if gain < GAIN:
        return single
    second = 1 - table.holds[:, place] if absent else table.holds[:, place]
    both = (one * second)[:, None]
    rest = ~half
    tested = _effects(table.failed[rest], both[rest])[0]
    if tested - _effects(table.failed[rest], one[rest, None])[0] < GAIN:
        return single
    effect, alone = _effects(table.failed, np.hstack((both, second[:, None])))
    if alone >= effect - NEAR:  # the second fact (nearly) implies the first
        return single._replace(
            fact=int(table.about.number[place]), absent=absent, effect=float(alone)
        )
    return single._replace(
        other=int(table.about.number[place]), other_absent=absent, effect=float(effect)
    )


def _one_of(
    single: Contrast, calls: Calls, values: npt.NDArray[np.float32], rows: Integers
) -> Contrast:
    """Return a contrast of several values of one argument, if it separates markedly better.

    The values are those that failing calls have repeatedly and working calls never. They are chosen
    on half of the sessions, and must separate the calls of the other half. Of several arguments,
    the one is chosen whose values are rarest in calls that fail otherwise.

    Args:
        single: the contrast of one fact, or of none, which is returned if no set of values helps.
        calls: the calls and facts.
        values: a matrix with one row per call and one column per value.
        rows: the indices of the group's calls, and of the calls that worked.
    """
    rows = rows[np.argsort(calls.session[rows], kind="stable")]
    holds, failed = values[rows], (calls.group[rows] != 0).astype(np.float64)
    session = np.unique(calls.session[rows], return_inverse=True)[1]
    rest = (session if session[-1] else np.arange(len(rows))) % 2 == 1
    half = ~rest
    if min(failed[rest].sum(), (1 - failed[rest]).sum()) < MIN_SUPPORT:
        return single
    chosen = (failed[half] @ holds[half] >= 2) & ((1 - failed[half]) @ holds[half] == 0)
    if not chosen.any():
        return single
    of_chosen = calls.value_path[chosen]
    paths = of_chosen[np.sort(np.unique(of_chosen, return_index=True)[1])]
    sets = [np.flatnonzero(chosen & (calls.value_path == path)) for path in paths]
    columns = [holds[rest][:, each].max(1) for each in sets]
    no = np.zeros(len(sets), np.bool_)
    about = _Facts(np.arange(len(sets)), no, no, np.zeros(len(sets)))
    of_rest = np.unique(session[rest], return_inverse=True)[1]
    table = _Table(failed[rest], of_rest, np.array(columns, np.float64).T, about)
    p_values, effects = _p_values(table), _effects(table.failed, table.holds)
    others = np.flatnonzero((calls.group != 0) & (calls.group != single.group))
    elsewhere = [values[np.ix_(others, each)].max(1).sum() / max(len(others), 1) for each in sets]
    usable = (p_values <= LEVEL) & (effects >= MIN_EFFECT)
    ranks = np.where(usable, effects - elsewhere, -2)
    best = int(np.argmax(ranks >= ranks.max() - NEAR))
    counts = failed @ holds
    members = (counts >= 2) & ((1 - failed) @ holds == 0) & (calls.value_path == paths[best])
    if not usable[best] or members.sum() < 2:
        return single
    effect = float(failed @ holds[:, members].max(1) / failed.sum())
    if effect < single.effect + GAIN:
        return single
    return Contrast(
        single.group,
        int(calls.value_fact[np.argmax(np.where(members, counts, 0))]),
        effect=effect,
        one_of=True,
        p_value=float(p_values[best]),
    )
