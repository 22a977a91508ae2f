"""Decides which answers count when people disagree or when programs have answered too."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from mcptally.review.answers import Answer, CallKey, Reviewer, Reviews, Scope
from mcptally.statistics.agreement import Agreement, agreement
from mcptally.statistics.intervals import share_interval

COMMON_ITEMS: Final = 20
"""Number of calls that a program and people must both answer before the program's answers count."""
LEAST_AGREEMENT: Final = 0.8
"""Minimum lower bound of the 95 % interval for the agreement of program and people."""


class GroupKey(NamedTuple):
    """Identifies the calls to which an answer about a group applies."""

    group: str
    definition: str | None


class Conflict(msgspec.Struct, frozen=True):
    """A call on which people disagree; answers about it do not count until they agree."""

    key: CallKey
    answers: dict[str, str]
    """Maps reviewers to answers."""
    server: str | None = None
    tool: str | None = None


class Pair(msgspec.Struct, frozen=True):
    """The agreement between two reviewers on the calls that both have answered."""

    first: str
    second: str
    agreement: Agreement


class Settled(msgspec.Struct, frozen=True):
    """The answers that count, and why the others do not."""

    calls: dict[CallKey, Answer]
    groups: dict[GroupKey, Answer]
    """The answers that apply to other calls in their group."""
    conflicts: tuple[Conflict, ...] = ()
    split: frozenset[str] = frozenset()
    """Groups with contradictory answers, which therefore apply to no other calls."""
    waiting: dict[str, Agreement] = msgspec.field(default_factory=dict)
    """Maps programs whose answers do not count yet to their agreement with people."""


def settle(reviews: Reviews) -> Settled:
    """Return the answers that count: those of people, and of programs that agree with people."""
    current = list(reviews.current().values())
    people = [row for row in current if row.by is Reviewer.PERSON]
    calls, conflicts = _agreed(people)
    waiting: dict[str, Agreement] = {}
    for name in sorted({row.who for row in current if row.by is Reviewer.PROGRAM}):
        own = [row for row in current if row.who == name and row.by is Reviewer.PROGRAM]
        found = _agreement(own, calls)
        if counts(found):
            known = calls.keys() | {each.key for each in conflicts}
            calls |= {row.key: row for row in own if row.key not in known}
        else:
            waiting[name] = found
    by_group: dict[str, list[Answer]] = defaultdict(list)
    for row in calls.values():
        if row.group is not None:
            by_group[row.group].append(row)
    split = frozenset(
        group for group, rows in by_group.items() if len({row.answer for row in rows}) > 1
    ) | {row.group for row in people for each in conflicts if row.key == each.key and row.group}
    groups = {
        GroupKey(row.group, row.definition): row
        for row in sorted(calls.values(), key=lambda row: row.at)
        if row.scope is Scope.GROUP and row.group is not None and row.group not in split
    }
    return Settled(calls, groups, tuple(conflicts), split, waiting)


def counts(found: Agreement) -> bool:
    """Return whether a program agrees with people often enough for its answers to count."""
    if found.n < COMMON_ITEMS:
        return False
    low, _ = share_interval(found.share, found.n)
    return bool(low >= LEAST_AGREEMENT)


def pairs(reviews: Reviews) -> list[Pair]:
    """Return the agreement between each two reviewers who answered the same calls."""
    by_reviewer: dict[str, dict[CallKey, str]] = defaultdict(dict)
    for row in reviews.current().values():
        by_reviewer[row.who][row.key] = row.answer
    found = []
    for first, second in itertools.combinations(sorted(by_reviewer), 2):
        one, other = by_reviewer[first], by_reviewer[second]
        common = [(one[key], other[key]) for key in one.keys() & other.keys()]
        if common:
            found.append(Pair(first, second, agreement(common)))
    return found


def _agreed(people: Iterable[Answer]) -> tuple[dict[CallKey, Answer], list[Conflict]]:
    """Return the answers on which people agree, keyed by call, and the conflicts."""
    by_call: dict[CallKey, list[Answer]] = defaultdict(list)
    for row in people:
        by_call[row.key].append(row)
    agreed: dict[CallKey, Answer] = {}
    conflicts = []
    for key, rows in by_call.items():
        if len({row.answer for row in rows}) == 1:
            # An answer about the whole group takes precedence over the same answer about the call.
            agreed[key] = max(rows, key=lambda row: (row.scope is Scope.GROUP, row.at))
        else:
            said = {row.who: row.answer for row in rows}
            conflicts.append(Conflict(key, said, rows[0].server, rows[0].tool))
    return agreed, conflicts


def _agreement(rows: Iterable[Answer], calls: Mapping[CallKey, Answer]) -> Agreement:
    return agreement([(row.answer, calls[row.key].answer) for row in rows if row.key in calls])
