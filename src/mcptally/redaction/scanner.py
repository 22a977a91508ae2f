"""Finds many short texts in one fast scan, so that slow patterns run only near them.

ahocorasick_rs compares 16 or 32 bytes at a time, but only if a search has few texts, and it misses
overlapping occurrences. The texts are therefore divided into groups whose texts cannot overlap.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ahocorasick_rs import BytesAhoCorasick, MatchKind

MAX_FAILED_MATCHES: Final = 16
"""Number of failed matches after which the rest of a long run of text is skipped.

Without the limit, a peer could send a long run of text that slows the search and delays all
traffic."""

_MAX_TEXTS_PER_SEARCH: Final = 32
"""Maximum number of texts per search: 50 are slower, and with 65 or more the library goes byte by
byte (measured)."""

_COMPARED_BYTES: Final = 4
"""Number of bytes that a search compares first; limited by the length of its shortest text."""

_Search = Callable[[bytes], list[tuple[int, int, int]]]
"""Finds (index of the text, start, end) for each hit of a group of texts."""


class Hit(NamedTuple):
    """An occurrence of one of the searched strings."""

    start: int
    end: int
    text: bytes


class TextSearch:
    """Searches bytes for many strings; hits with the same start are in the order of `texts`."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Prepare a search for `texts`, none of which may overlap itself.

        Raises:
            ValueError: a text can overlap itself, so a vectorised search would miss hits.
        """
        self._texts = tuple(dict.fromkeys(text.encode() for text in texts))
        for text in self._texts:
            if any(text.endswith(text[:size]) for size in range(1, len(text))):
                raise ValueError(f"{text!r} can overlap itself")

    def find(self, data: bytes) -> list[Hit]:
        """Return every occurrence of every text, from left to right; occurrences may overlap."""
        found = [
            (start, ranks[index])
            for search, ranks in self._searches
            for index, start, _ in search(data)
        ]
        found.sort()
        texts = self._texts
        return [Hit(start, start + len(texts[rank]), texts[rank]) for start, rank in found]

    @functools.cached_property
    def _searches(self) -> list[tuple[_Search, Sequence[int]]]:
        """One search per group of strings, with their ranks."""
        rank = {text: number for number, text in enumerate(self._texts)}
        # Other match kinds compare byte by byte. This kind misses overlapping hits.
        kind = MatchKind.LeftmostFirst
        return [
            (BytesAhoCorasick(group, kind).find_matches_as_indexes, [rank[text] for text in group])
            for group in _groups_without_overlaps(self._texts)
        ]


class _TextGroup:
    """A group of strings that cannot overlap each other."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._begin: set[bytes] = set()
        self._end: set[bytes] = set()

    def try_add(self, text: bytes) -> bool:
        """Add the text if it cannot overlap the group's texts; return whether it was added."""
        begin = {text[:size] for size in range(1, len(text))}
        end = {text[size:] for size in range(1, len(text))}
        if self.texts and (
            len(self.texts) == _MAX_TEXTS_PER_SEARCH
            or min(len(self.texts[0]), _COMPARED_BYTES) != min(len(text), _COMPARED_BYTES)
            or not begin.isdisjoint(self._end)
            or not end.isdisjoint(self._begin)
            or any(text in other or other in text for other in self.texts)
        ):
            return False
        self.texts.append(text)
        self._begin |= begin
        self._end |= end
        return True


def _groups_without_overlaps(texts: Iterable[bytes]) -> list[list[bytes]]:
    """Group strings so that none overlaps another of its group: searches miss overlapping hits."""
    groups: list[_TextGroup] = []
    for text in sorted(texts, key=lambda text: (min(len(text), _COMPARED_BYTES), text)):
        if not any(group.try_add(text) for group in groups):
            groups.append(_TextGroup())
            groups[-1].try_add(text)
    return [group.texts for group in groups]


def matches_near(
    pattern: re.Pattern[bytes], data: bytes, starts: Iterable[int], before: int, after: int
) -> Iterator[re.Match[bytes]]:
    """Yield the matches of `pattern`, searching only near `starts` (ascending).

    Args:
        pattern: the pattern to search for.
        data: the bytes to search.
        starts: positions of texts that every match contains.
        before: maximum bytes from the start of a match to such a text.
        after: minimum bytes from such a text to the end of a match.
    """
    last = 0
    for first, end in _windows(starts, before, after):
        at = max(first, last)
        while at < end and (rough := pattern.search(data, at, end)):
            match = pattern.match(data, rough.start())
            if match is None:
                at = rough.start() + 1
            else:
                yield match
                at = last = match.end()


def _windows(starts: Iterable[int], before: int, after: int) -> Iterator[tuple[int, int]]:
    """Yield ranges from `before` bytes before each start to `after` bytes after it.

    Ranges that touch are merged.
    """
    first = end = -1
    for start in starts:
        if start - before > end:
            if end >= 0:
                yield first, end
            first = max(0, start - before)
        end = start + after
    if end >= 0:
        yield first, end
