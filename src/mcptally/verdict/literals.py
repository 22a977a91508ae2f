"""Which literal words a regular expression cannot match without: the keys of our prefilter.

One Aho-Corasick pass over the texts finds these words, and only texts that contain one of a
rule's words meet its regular expression. A pattern that has no such word is tried on every text,
so being unsure here costs time, never a match.
"""

import dataclasses
import re
from typing import Final

MIN_BYTES: Final = 3
"""Shorter words are in nearly every text and filter nothing."""

_CLASSES: Final = frozenset("dDwWsSbBAzpPx")
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r"}
_ZERO_WIDTH: Final = frozenset("^$")
_LITERAL: Final = re.compile(r"[^\\(\[|)?*+{.^$]+(?![?*+{])")
"""Characters that stand for themselves, once each."""


def required(pattern: str) -> frozenset[str] | None:
    """Words of which every match of `pattern` contains one, lower case; None if there are none."""
    reader = _Reader(pattern)
    words = reader.alternation()
    return words if words and reader.at == len(pattern) else None


@dataclasses.dataclass
class _Reader:
    """A recursive descent over the regular expressions that rules are written in."""

    pattern: str
    at: int = 0

    def alternation(self) -> frozenset[str] | None:
        """Words of which one is in any branch; None if some branch can do without."""
        found: set[str] = set()
        complete = True
        while True:
            words = self._branch()
            complete = complete and words is not None
            found |= words or set()
            if self._peek() != "|":
                return frozenset(found) if complete else None
            self.at += 1

    def _branch(self) -> frozenset[str] | None:
        best: frozenset[str] | None = None
        run = ""
        while (char := self._peek()) and char not in "|)":
            if plain := _LITERAL.match(self.pattern, self.at):
                run += plain[0]
                self.at = plain.end()
                continue
            piece = self._piece()
            least, most = self._quantifier()
            if isinstance(piece, str):
                if least == most == 1:
                    run += piece
                    continue
                best = _better(best, run + piece if least else run)
                run = ""
                continue
            best = _better(best, run)
            run = ""
            if least and piece is not None:
                best = _better(best, piece)
        return _better(best, run)

    def _piece(self) -> str | frozenset[str] | None:
        """One literal character, the words of a group, or None for what is not literal."""
        char = self.pattern[self.at]
        self.at += 1
        if char == "(":
            return self._group()
        if char == "[":
            self._skip_class()
            return None
        if char == "\\":
            escaped = self.pattern[self.at : self.at + 1]
            self.at += 1
            if escaped in _CLASSES:
                if self._peek() == "{":
                    self.at = self.pattern.index("}", self.at) + 1
                return None
            return _CONTROLS.get(escaped, escaped)
        return None if char in _ZERO_WIDTH or char == "." else char

    def _group(self) -> frozenset[str] | None:
        if self._peek() == "?":
            while self._peek() not in (":", ")", ">"):
                self.at += 1
            if self._peek() == ")":
                self.at += 1
                return None
            self.at += 1
        words = self.alternation()
        self.at += 1
        return words

    def _skip_class(self) -> None:
        start = self.at
        while self._peek() != "]" or self.at in (start, start + (self.pattern[start] == "^")):
            self.at += 2 if self._peek() == "\\" else 1
        self.at += 1

    def _quantifier(self) -> tuple[int, int]:
        char = self._peek()
        bounds = {"?": (0, 1), "*": (0, 2), "+": (1, 2)}.get(char)
        if bounds:
            self.at += 1
        elif char == "{":
            end = self.pattern.index("}", self.at)
            least, _, most = self.pattern[self.at + 1 : end].partition(",")
            bounds = (int(least or 0), int(most or 2) if "," in self.pattern[self.at : end] else 2)
            self.at = end + 1
        else:
            return 1, 1
        if self._peek() == "?":
            self.at += 1
        return bounds

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]


def _better(
    best: frozenset[str] | None, candidate: str | frozenset[str] | None
) -> frozenset[str] | None:
    """The set whose shortest word is longer, if it is long enough to filter at all."""
    words = frozenset((candidate,)) if isinstance(candidate, str) else candidate
    words = frozenset(word.lower() for word in words) if words else None
    if words is None or _shortest(words) < MIN_BYTES:
        return best
    return words if best is None or _shortest(words) > _shortest(best) else best


def _shortest(words: frozenset[str]) -> int:
    return min(len(word.encode()) for word in words)
