"""Derives keywords from a regular expression: literals of which every match contains one.

One Aho-Corasick pass over the texts finds all keywords, and a pattern is tried only on texts that
contain one of its keywords. A pattern without keywords, or with syntax that is not read here, is
tried on every text: that costs time, never a match.
"""

import dataclasses
import re
from typing import Final

MIN_BYTES: Final = 3
"""Bytes of the shortest keyword; shorter literals are in nearly every text."""

_CLASSES: Final = frozenset("dDwWsSbBAz")
_CODE_POINTS: Final = frozenset("pPxuU")
"""Escapes that are read only if an argument in braces follows."""
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ANCHORS: Final = frozenset("^$")
_LITERAL: Final = re.compile(r"[^\\(\[|)?*+{.^$]+(?![?*+{])")
"""A run of literal characters without a quantifier behind it."""


def required(pattern: str) -> frozenset[str] | None:
    """Return literals, in lower case, of which every match contains one; None: none are known."""
    parser = _Parser(pattern)
    try:
        words = parser.alternation()
    except _UnsupportedError:
        return None
    return words if words and parser.at == len(pattern) else None


class _UnsupportedError(Exception):
    """The pattern is invalid or uses syntax that is not read here."""


@dataclasses.dataclass
class _Parser:
    """A recursive descent parser for patterns of the Rust `regex` crate.

    Raises:
        _UnsupportedError: the pattern is invalid or uses syntax that is rare in rules.
    """

    pattern: str
    at: int = 0

    def alternation(self) -> frozenset[str] | None:
        """Return the keywords of all branches; None if some branch has none."""
        keywords: set[str] = set()
        complete = True
        while True:
            words = self._branch()
            complete = complete and words is not None
            keywords |= words or set()
            if self._peek() != "|":
                return frozenset(keywords) if complete else None
            self.at += 1

    def _branch(self) -> frozenset[str] | None:
        """Return the best keywords of one branch; None if it has none."""
        best: frozenset[str] | None = None
        run = ""
        while (char := self._peek()) and char not in "|)":
            if literal := _LITERAL.match(self.pattern, self.at):
                run += literal[0]
                self.at = literal.end()
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
        """Return one literal character, the keywords of a group, or None for anything else."""
        char = self.pattern[self.at]
        self.at += 1
        if char == "(":
            return self._group()
        if char == "[":
            self._skip_class()
            return None
        if char == "\\":
            return self._escaped()
        return None if char in _ANCHORS or char == "." else char

    def _escaped(self) -> str | None:
        """Return the character that an escape stands for; None for a class or a code point."""
        char = self._peek()
        self.at += 1
        if char in _CLASSES or (char in _CODE_POINTS and self._peek() == "{"):
            if self._peek() == "{":
                self._skip_past("}")
            return None
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum() or char in {"", "<", ">"}:
            raise _UnsupportedError
        return char

    def _group(self) -> frozenset[str] | None:
        """Return the keywords of a group; None for flags such as `(?i)`."""
        if self._peek() == "?":
            flags = self.pattern[self.at : self._skip_past(":", ")", ">")]
            if "x" in flags and "<" not in flags:  # verbose mode ignores spaces and comments
                raise _UnsupportedError
            if flags.endswith(")"):
                return None
        words = self.alternation()
        self._skip_past(")")
        return words

    def _skip_class(self) -> None:
        """Move past a character class, which may hold other classes."""
        if self._peek() == "^":
            self.at += 1
        if self._peek() == "]":
            self.at += 1
        while (char := self._peek()) != "]":
            if not char:
                raise _UnsupportedError
            self.at += 2 if char == "\\" else 1
            if char == "[":
                self._skip_class()
        self.at += 1

    def _quantifier(self) -> tuple[int, int]:
        """Return the least and most repetitions of the last piece; most is 2 for more than one."""
        least = most = 1
        while (char := self._peek()) and char in "?*+{":
            begin = self.at + 1
            if char == "{":
                low, comma, high = self.pattern[begin : self._skip_past("}") - 1].partition(",")
                if not (low + high).isdecimal():
                    raise _UnsupportedError
                bounds = int(low or 0), int(high or 2) if comma else 2
            else:
                self.at = begin
                bounds = {"?": (0, 1), "*": (0, 2), "+": (1, 2)}[char]
            if self._peek() == "?":  # lazy quantifier
                self.at += 1
            least, most = least * bounds[0], most * bounds[1]
        return least, most

    def _skip_past(self, *ends: str) -> int:
        """Move past the next of these characters and return the new position."""
        places = [at for end in ends if (at := self.pattern.find(end, self.at)) >= 0]
        if not places:
            raise _UnsupportedError
        self.at = min(places) + 1
        return self.at

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]


def _better(
    best: frozenset[str] | None, candidate: str | frozenset[str] | None
) -> frozenset[str] | None:
    """Return the set whose shortest word is longer; None if both have a word below `MIN_BYTES`."""
    words = frozenset((candidate,)) if isinstance(candidate, str) else candidate
    words = frozenset(word.lower() for word in words) if words else None
    if words is None or _shortest(words) < MIN_BYTES:
        return best
    return words if best is None or _shortest(words) > _shortest(best) else best


def _shortest(words: frozenset[str]) -> int:
    return min(len(word.encode()) for word in words)
