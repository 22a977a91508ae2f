"""Lets a person or a program review a store: gives the next items, and takes and undoes answers.

The command line, notebooks and the browser call the same few methods. All state is in the answers
file, so a review can be stopped and continued at any time, and several people may review at once.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from mcptally.errors import UsageError, near
from mcptally.review import estimates, items, sample, settled
from mcptally.review.answers import (
    ANSWERS,
    WITHDRAWN,
    Answer,
    CallKey,
    Reviewer,
    Reviews,
    Sample,
    Scope,
    append,
    now,
    read,
    user_name,
)
from mcptally.review.items import Item
from mcptally.review.place import file_for_answers
from mcptally.review.sample import ReviewedStore

Mode = Literal["largest", "sample"]


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How much of a review is done."""

    mode: Mode
    answered: int
    """Number of answered calls in the sample; without a sample, number of groups decided by an
    answer."""
    total: int
    """Number of calls in the sample; without a sample, number of groups of failed calls."""
    decided: float
    """Share of the failed calls that answers decide, from 0 to 1."""
    next_share: float
    """Share of the failed calls that answers about the next ten groups would decide."""


class Session:
    """A review of a store.

    Attributes:
        store: the store, with texts as recorded.
        path: the file of answers.
        who: name of the reviewer.
        by: whether the reviewer is a person or a program.
        server: only calls to this server; None for all.
        tool: only calls to this tool.
    """

    def __init__(
        self,
        store: ReviewedStore,
        path: str | Path | None = None,
        *,
        who: str | None = None,
        server: str | None = None,
        tool: str | None = None,
    ) -> None:
        """Begin or continue a review.

        Args:
            store: the store, with texts as recorded (not masked).
            path: the file of answers; by default the file in the archive's folder.
            who: name of the reviewer; by default the user's name.
            server: only calls to this server.
            tool: only calls to this tool.

        Raises:
            UsageError: no file is given, and the archive's folder is missing or not writable.
            UnreadableError: the file has a line that is not an answer.
        """
        self.store = store
        self.path = file_for_answers(store.manifest, path, store.path)
        self.who = who or user_name()
        self.by = Reviewer.PERSON
        self.server = server
        self.tool = tool
        self._skipped: set[CallKey] = set()
        self._skipped_calls: set[str] = set()
        self._groups: tuple[object, list[items.Group]] = (None, [])
        read(self.path)

    @property
    def reviews(self) -> Reviews:
        """All answers and samples that are now in the file."""
        return read(self.path)

    @property
    def settled(self) -> settled.Settled:
        """The answers that count."""
        return settled.settle(self.reviews)

    def next_items(self, n: int = 1, *, mode: Mode = "largest", second: bool = False) -> list[Item]:
        """Return the next items to answer.

        Args:
            n: the number of items.
            mode: `largest` for groups of failed calls by size and doubt (to correct verdicts, not
                to estimate rates); `sample` for the calls in the last sample.
            second: whether to return only calls that another reviewer has answered, to measure
                agreement.

        Raises:
            UsageError: there is no sample.
        """
        reviews = self.reviews
        closed = self._skipped | {key for key, who in reviews.current() if who == self.who}
        theirs = dict.fromkeys(key for key, who in reviews.current() if who != self.who)
        if mode == "sample":
            found = self.sample(reviews)
            if found is None:
                raise UsageError("there is no sample of these calls yet; draw one with --sample N")
            left = [
                each
                for each in found.drawn
                if each.key not in closed and (each.key in theirs) == second
            ]
            return _first(n, left, lambda part: items.of_sample(self.store, part, found.id))
        if second:
            open_ = [key for key in theirs if key not in closed]
            return _first(n, open_, lambda part: items.of_keys(self.store, part))
        groups = [
            each for each in self._open_groups(reviews) if each.call_id not in self._skipped_calls
        ]
        return items.of_groups(self.store, groups[:n])

    def item(self, call: str) -> Item:
        """Return the call with this id as an item, with the size of its group.

        Raises:
            UsageError: the store has no such call.
        """
        found = items.of_calls(self.store, [call])
        if not found:
            raise UsageError(f"the store has no call {call!r}")
        (item,) = found
        for each in self._every_group():
            if (each.group, each.definition) == (item.group, item.definition):
                return dataclasses.replace(item, calls=each.calls, share=each.share)
        return item

    def answer(self, item: Item, answer: str, *, why: str = "", group: bool = False) -> Answer:
        """Append an answer to the file.

        Args:
            item: the item that is answered.
            answer: the party at fault, `not_an_error` or `cannot_tell`.
            why: a reason, in the reviewer's words.
            group: whether the answer is about all calls of the item's group.

        Raises:
            UsageError: `answer` is invalid, the item has no group, or the file cannot be written.
        """
        if answer not in ANSWERS:
            known = ", ".join(ANSWERS)
            raise UsageError(
                f"{answer!r} is not an answer{near(answer, ANSWERS)}; known are {known}"
            )
        if group and item.group is None:
            raise UsageError("only failed calls have groups; answer about this call alone")
        row = Answer(
            recording=item.key.recording,
            seq=item.key.seq,
            dir=item.key.dir,
            index=item.key.place,
            answer=answer,
            who=self.who,
            at=now(),
            scope=Scope.GROUP if group else Scope.CALL,
            server=item.server,
            tool=item.tool,
            group=item.group,
            definition=item.definition,
            text=item.text,
            why=why,
            by=self.by,
            verdict=item.verdict if item.is_ours else None,
            rule=item.rule if item.is_ours else None,
        )
        append(self.path, [row])
        return row

    def skip(self, item: Item) -> None:
        """Do not offer this item again in this session."""
        self._skipped.add(item.key)
        self._skipped_calls.add(item.call_id)

    def undo(self) -> Answer | None:
        """Withdraw this reviewer's newest answer and return it; None if there is no answer."""
        reviews = self.reviews
        own = [row for (_, who), row in reviews.current().items() if who == self.who]
        if not own:
            return None
        newest = max(own, key=lambda row: row.at)
        append(self.path, [msgspec.structs.replace(newest, answer=WITHDRAWN, at=now(), why="")])
        return newest

    def draw(self, n: int, *, seed: int | None = None) -> Sample:
        """Draw a sample of `n` calls and write it to the file; its size is then final.

        Raises:
            UsageError: `n` is too small, or there is no such call.
        """
        now_ = sample.frame(self.store, server=self.server, tool=self.tool)
        before = [each for each in self._samples(self.reviews) if sample.is_current(each, now_)]
        drawn = sample.draw(
            self.store,
            n,
            who=self.who,
            server=self.server,
            tool=self.tool,
            seed=seed,
            look=len(before) + 1,
        )
        append(self.path, [drawn])
        return drawn

    def ensure_sample(self, n: int) -> Sample:
        """Return the last sample if it is current and asks for `n` answers, or draw a new one."""
        found = self.sample()
        if found is not None and found.n == n:
            frame = sample.frame(self.store, server=self.server, tool=self.tool)
            if sample.is_current(found, frame):
                return found
        return self.draw(n)

    def sample(self, reviews: Reviews | None = None) -> Sample | None:
        """Return the last sample of the calls that this review covers."""
        return max(self._samples(reviews or self.reviews), key=lambda each: each.at, default=None)

    def rates(self) -> list[estimates.ReviewedRate]:
        """Return the rates from the last sample; the list is empty while an answer is missing."""
        found = self.sample()
        return [] if found is None else estimates.rates(self.store, found, self.settled)

    def progress(self, mode: Mode = "largest") -> Progress:
        """Return the review's progress, and how much the next answers would decide.

        Progress stays the same when a run of `score` applies the answers, although the answered
        groups then disappear from the store.
        """
        reviews = self.reviews
        known = settled.settle(reviews)
        every, open_ = self._every_group(), self._open_groups(reviews)
        own = [row for (_, who), row in reviews.current().items() if who == self.who]
        answered = len(
            {row.group for row in (*own, *known.groups.values()) if row.group and self._has(row)}
        )
        of = answered + len(open_)
        # Answered calls outside answered groups, and calls that a run of `score` has already
        # updated.
        calls = {
            key: row
            for key, row in known.calls.items()
            if self._has(row) and (row.group, row.definition) not in known.groups
        }
        found = items.of_keys(self.store, list(calls))
        applied = [calls[item.key].group for item in found if not item.is_ours]
        by_review = items.decided_calls(self.store, server=self.server, tool=self.tool)
        by_review -= applied.count(None)  # mcptally counts these calls as successful
        decided = sum(row.group is not None for row in calls.values()) - sum(map(bool, applied))
        decided += sum(
            each.calls for each in every if (each.group, each.definition) in known.groups
        )
        failed = max(1, sum(each.calls for each in every) + by_review)
        following = sum(each.calls for each in open_[:10]) / failed
        drawn = self.sample(reviews)
        if mode == "sample" and drawn is not None:
            answered = len(drawn.drawn) - len(estimates.missing(drawn, known))
            of = len(drawn.drawn)
        return Progress(mode, answered, of, (decided + by_review) / failed, following)

    def _has(self, row: Answer) -> bool:
        """Return whether an answer is about a call that this review covers."""
        return self.server in (None, row.server) and self.tool in (None, row.tool)

    def _samples(self, reviews: Reviews) -> list[Sample]:
        return [
            each for each in reviews.samples if (each.server, each.tool) == (self.server, self.tool)
        ]

    def _every_group(self) -> list[items.Group]:
        """Return the groups of failed calls.

        They are read again only after a run of `score` has replaced the store.
        """
        scored_at = self.store.manifest.get("scored_at", "")
        if self._groups[0] != scored_at:
            found = items.largest(self.store, server=self.server, tool=self.tool)
            self._groups = (scored_at, found)
        return self._groups[1]

    def _open_groups(self, reviews: Reviews) -> list[items.Group]:
        """Return the groups that no answer decides and whose example call has no answer."""
        known = settled.settle(reviews)
        groups = {(key.group, key.definition) for key in known.groups}
        called = {row.group for row in reviews.current().values() if row.who == self.who}
        return [
            each
            for each in self._every_group()
            if (each.group, each.definition) not in groups and each.group not in called
        ]


_Place = TypeVar("_Place")


def _first(
    n: int, places: Sequence[_Place], read: Callable[[list[_Place]], list[Item]]
) -> list[Item]:
    """Read the first `n` items from `places`. Skip calls that are no longer in the store."""
    found: list[Item] = []
    left = list(places)
    while left and len(found) < n:
        part, left = left[: n - len(found)], left[n - len(found) :]
        found += read(part)
    return found
