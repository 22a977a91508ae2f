"""Where, if anywhere, is it worth to look closely? Many texts found in one fast scan.

Two engines give the same places. Small frames: a regular expression of the standard library that
stops only at the rarest character of each text, which is a character class, and compares the rest
there, backwards and forwards. Large frames: ahocorasick_rs, which looks at 16 or 32 bytes at a
time; it is loaded when the first one comes, so that starting costs nothing. Where it is missing,
all frames go the first way.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

MOST_TRIES: Final = 16
"""Failures in one long stretch of text after which it is passed over: a peer may have written it
to make the search slow, which would hold up everybody's traffic."""

LARGE: Final = 4096
"""Bytes of a frame that is worth loading the second engine (3 ms, once)."""

LOADED: Final = 400
"""Bytes of a frame from which on it is the faster one, once it is there."""

_COMMON: Final = 'etaoinsrhldcumf"gpyA:,wbv/k1023456789xj.q-_'
"""Characters of JSON and English, commonest first; one that is missing is rarer still."""

_FEW: Final = 4
"""Texts of one anchor that are cheaper to compare than the condition on what follows."""

_TOGETHER: Final = 32
"""Texts in one search: with 50 it is slower, with 65 the library goes byte by byte (measured)."""

_TELLING: Final = 4
"""Bytes of a text that its search looks at; a shorter one makes it look at fewer of them all."""

_Search = Callable[[bytes], list[tuple[int, int, int]]]
"""Which of a group's texts stands where, from and to."""


class Hit(NamedTuple):
    """A place where a text stands."""

    start: int
    end: int
    text: bytes


class Texts:
    """Texts to look for; among those that begin at one place, the first of them comes first."""

    def __init__(self, texts: Iterable[str], *, ahead: str = "") -> None:
        """`ahead` is a regular expression, not longer than what may follow a text's anchor.

        It is a condition that `find` may use to leave out hits, and need not.

        Raises:
            ValueError: a text can overlap itself, and a vectorised search would miss it.
        """
        self._texts = tuple(dict.fromkeys(text.encode() for text in texts))
        for text in self._texts:
            if any(text.endswith(text[:size]) for size in range(1, len(text))):
                raise ValueError(f"{text!r} can overlap itself")
        self._ahead = f"(?={ahead})" if ahead else ""
        self._fast_from = LARGE

    def find(self, data: bytes) -> list[Hit]:
        """Every place where one of the texts stands, from left to right; they may overlap."""
        if len(data) >= self._fast_from and (searches := self._searches):
            found = [
                (start, ranks[index])
                for search, ranks in searches
                for index, start, _ in search(data)
            ]
        elif self._pattern.search(data) is None:
            return []
        else:
            found = [
                (at - offset, rank)
                for at in map(re.Match.start, self._pattern.finditer(data))
                for offset, rank, text in self._by_anchor[data[at]]
                if at >= offset and data.startswith(text, at - offset)
            ]
        found.sort()
        texts = self._texts
        return [Hit(start, start + len(texts[rank]), texts[rank]) for start, rank in found]

    @functools.cached_property
    def _by_anchor(self) -> Mapping[int, Sequence[tuple[int, int, bytes]]]:
        """For the character of an anchor: where in which texts it stands."""
        groups: dict[int, list[tuple[int, int, bytes]]] = {}
        for rank, text in enumerate(self._texts):
            at = max(range(len(text)), key=lambda i: (_rarity(text[i]), i))
            groups.setdefault(text[at], []).append((at, rank, text))
        return groups

    @functools.cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        """Matches the one character where a text has its anchor."""
        return re.compile("|".join(self._branches()).encode() or b"(?!)")

    def _branches(self) -> Iterator[str]:
        for char, group in sorted(self._by_anchor.items()):
            texts = sorted({_around(text.decode(), at) for at, _, text in group})
            one_of = f"(?:{'|'.join(texts)})"
            order = (one_of, self._ahead) if len(texts) <= _FEW else (self._ahead, one_of)
            yield re.escape(chr(char)) + "".join(order)

    @functools.cached_property
    def _searches(self) -> list[tuple[_Search, Sequence[int]]]:
        """A search for each group of texts, and the ranks of its texts; none: not to be had."""
        try:
            from ahocorasick_rs import BytesAhoCorasick, MatchKind  # noqa: PLC0415 - start-up
        except ImportError:
            self._fast_from = sys.maxsize
            return []
        self._fast_from = LOADED
        rank = {text: number for number, text in enumerate(self._texts)}
        # The other kinds of matching go byte by byte; this one tells no hits that overlap.
        kind = MatchKind.LeftmostFirst
        return [
            (BytesAhoCorasick(group, kind).find_matches_as_indexes, [rank[text] for text in group])
            for group in _apart(self._texts)
        ]


def _around(text: str, at: int) -> str:
    """A condition for a match of the character at `at`: the rest of the text stands around it."""
    behind = f"(?<={re.escape(text[: at + 1])})" if at else ""
    return behind + (f"(?={re.escape(text[at + 1 :])})" if text[at + 1 :] else "")


def _rarity(char: int) -> int:
    rank = _COMMON.find(chr(char))
    return len(_COMMON) if rank < 0 else rank


class _Group:
    """Texts of which no two can overlap."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._begin: set[bytes] = set()
        self._end: set[bytes] = set()

    def take(self, text: bytes) -> bool:
        """Take the text in, if it fits."""
        begin = {text[:size] for size in range(1, len(text))}
        end = {text[size:] for size in range(1, len(text))}
        if self.texts and (
            len(self.texts) == _TOGETHER
            or min(len(self.texts[0]), _TELLING) != min(len(text), _TELLING)
            or not begin.isdisjoint(self._end)
            or not end.isdisjoint(self._begin)
            or any(text in other or other in text for other in self.texts)
        ):
            return False
        self.texts.append(text)
        self._begin |= begin
        self._end |= end
        return True


def _apart(texts: Iterable[bytes]) -> list[list[bytes]]:
    """The texts in groups, so that a search for a group that tells no overlaps misses nothing."""
    groups: list[_Group] = []
    for text in sorted(texts, key=lambda text: (min(len(text), _TELLING), text)):
        if not any(group.take(text) for group in groups):
            groups.append(_Group())
            groups[-1].take(text)
    return [group.texts for group in groups]


def matches_near(
    pattern: re.Pattern[bytes], data: bytes, starts: Iterable[int], before: int, after: int
) -> Iterator[re.Match[bytes]]:
    """What `pattern.finditer` finds, when every match has a text at one of `starts` (ascending).

    A match begins at most `before` bytes ahead of it. `after` bytes behind it decide where a match
    may begin: they are enough for the shortest, and a cut there rules none out.
    """
    last = 0
    for first, end in _joined(starts, before, after):
        at = max(first, last)
        while at < end and (rough := pattern.search(data, at, end)):
            match = pattern.match(data, rough.start())
            if match is None:
                at = rough.start() + 1
            else:
                yield match
                at = last = match.end()


def _joined(starts: Iterable[int], before: int, after: int) -> Iterator[tuple[int, int]]:
    """Windows around the starts, those that touch as one."""
    first = end = -1
    for start in starts:
        if start - before > end:
            if end >= 0:
                yield first, end
            first = max(0, start - before)
        end = start + after
    if end >= 0:
        yield first, end
