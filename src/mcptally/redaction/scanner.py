"""Finds many short texts in one fast scan, so that slow patterns run only near them.

Two engines find the same hits. Small frames are searched with a regular expression (`re`), which
stops at the rarest character of each text and compares the characters around it. Large frames use
ahocorasick_rs, which compares 16 or 32 bytes at a time. It is imported for the first large frame,
so it does not slow the recorder's startup. If it is not installed, the regular expression is used
for all frames.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

MAX_FAILED_MATCHES: Final = 16
"""Number of failed matches after which the rest of a long run of text is skipped.

Without the limit, a peer could send a long run of text that slows the search and delays all
traffic."""

LARGE_FRAME_BYTES: Final = 4096
"""Minimum size of a frame for which ahocorasick_rs is imported (3 ms, once)."""

LOADED_ENGINE_BYTES: Final = 400
"""Minimum size of frames that ahocorasick_rs searches faster, once it is imported."""

_LOAD_AFTER_BYTES: Final = 64 << 10
"""Total size of small frames after which ahocorasick_rs is imported without a large frame."""

_CHARACTERS_BY_FREQUENCY: Final = ' etaoinsrhldcumf"gpyA:,wbv/k1023456789\\xj.q-_'
"""Characters of JSON and English, most frequent first. All other characters are rarer."""

_FEW_TEXTS: Final = 4
"""Maximum number of texts per anchor that are compared before testing `ahead`."""

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

    def __init__(
        self, texts: Iterable[str], *, ahead: str = "", fast_from: int = LOADED_ENGINE_BYTES
    ) -> None:
        """Prepare a search for `texts`.

        Args:
            texts: the texts to find; none may overlap itself.
            ahead: a regular expression for the bytes after each text's rarest character. `find` may
                omit hits whose following bytes do not match.
            fast_from: minimum size of frames searched by ahocorasick_rs, once it is imported.

        Raises:
            ValueError: a text can overlap itself, so a vectorised search would miss hits.
        """
        self._texts = tuple(dict.fromkeys(text.encode() for text in texts))
        for text in self._texts:
            if any(text.endswith(text[:size]) for size in range(1, len(text))):
                raise ValueError(f"{text!r} can overlap itself")
        self._ahead = f"(?={ahead})" if ahead else ""
        self._loaded_from = fast_from
        self._fast_from = LARGE_FRAME_BYTES
        self._until_loaded = _LOAD_AFTER_BYTES

    def find(self, data: bytes) -> list[Hit]:
        """Return every occurrence of every text, from left to right; occurrences may overlap."""
        if len(data) >= self._fast_from and (searches := self._searches):
            found = [
                (start, ranks[index])
                for search, ranks in searches
                for index, start, _ in search(data)
            ]
        else:
            self._until_loaded -= len(data)
            if self._until_loaded < 0 and self._fast_from == LARGE_FRAME_BYTES:
                self._fast_from = self._loaded_from
            if self._pattern.search(data) is None:
                return []
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
        """Map anchor characters to strings, each with the anchor's offset and the string's rank."""
        groups: dict[int, list[tuple[int, int, bytes]]] = {}
        for rank, text in enumerate(self._texts):
            at = max(range(len(text)), key=lambda i: (_rarity(text[i]), i))
            groups.setdefault(text[at], []).append((at, rank, text))
        return groups

    @functools.cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        """A regular expression that matches at the anchor (the rarest character) of each text."""
        # The texts may be UTF-8; Latin-1 maps each of their bytes to one character and back.
        return re.compile("|".join(self._branches()).encode("latin-1") or b"(?!)")

    def _branches(self) -> Iterator[str]:
        for char, group in sorted(self._by_anchor.items()):
            texts = sorted({_rest_of_text(text.decode("latin-1"), at) for at, _, text in group})
            one_of = f"(?:{'|'.join(texts)})"
            order = (one_of, self._ahead) if len(texts) <= _FEW_TEXTS else (self._ahead, one_of)
            yield re.escape(chr(char)) + "".join(order)

    @functools.cached_property
    def _searches(self) -> list[tuple[_Search, Sequence[int]]]:
        """One search per group of strings, with their ranks; empty without ahocorasick_rs."""
        try:
            from ahocorasick_rs import BytesAhoCorasick, MatchKind  # noqa: PLC0415 - start-up
        except ImportError:
            self._fast_from = sys.maxsize
            return []
        self._fast_from = self._loaded_from
        rank = {text: number for number, text in enumerate(self._texts)}
        # Other match kinds compare byte by byte. This kind misses overlapping hits.
        kind = MatchKind.LeftmostFirst
        return [
            (BytesAhoCorasick(group, kind).find_matches_as_indexes, [rank[text] for text in group])
            for group in _groups_without_overlaps(self._texts)
        ]


def _rest_of_text(text: str, at: int) -> str:
    """Return lookarounds for the rest of `text`, around the character at index `at`."""
    behind = f"(?<={re.escape(text[: at + 1])})" if at else ""
    return behind + (f"(?={re.escape(text[at + 1 :])})" if text[at + 1 :] else "")


def _rarity(char: int) -> int:
    rank = _CHARACTERS_BY_FREQUENCY.find(chr(char))
    return len(_CHARACTERS_BY_FREQUENCY) if rank < 0 else rank


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
