"""Derives keywords from a regular expression: literals that every match contains.

One Aho-Corasick pass over the texts finds all keywords, and a pattern is tried only on texts that
contain its keywords. A pattern without keywords, or with syntax that is not supported here, is
tried on every text: this takes time, but no match is lost.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

MIN_BYTES: Final = 3
"""Bytes of the shortest keyword; shorter literals are in nearly every text."""

_CLASSES: Final = frozenset("dDwWsSbBAz")
_CODE_POINTS: Final = frozenset("pPxuU")
"""Escapes that are read only if an argument in braces follows."""
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ANCHORS: Final = frozenset("^$")
_LITERAL: Final = re.compile(r"[^\\(\[|)?*+{.^$]+(?![?*+{])")
"""A run of literal characters without a quantifier behind it."""


Branch: TypeAlias = tuple[frozenset[str], ...]
"""Sets of literals in lower case; a match contains one literal of each set."""


def length(words: Iterable[str]) -> int:
    """Return the number of bytes of the shortest word."""
    return min(len(word.encode()) for word in words)


def required(
    pattern: str, rank: Callable[[Iterable[str]], Any] = length
) -> tuple[Branch, ...] | None:
    """Return the keywords of each branch of a pattern; None: none are known.

    Every match contains, for at least one branch, a literal of each of its sets.

    Args:
        pattern: a regular expression.
        rank: chooses among sets of words that a part of a pattern requires: the highest wins.
    """
    parser = _Parser(pattern, rank)
    try:
        branches = parser.branches()
    except _UnsupportedError:
        return None
    if parser.at < len(pattern) or not all(branches):
        return None
    return tuple(
        tuple(frozenset(word.lower() for word in words.all) for words in branch)
        for branch in branches
    )


class _UnsupportedError(Exception):
    """The pattern is invalid or uses syntax that is not supported here."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Words:
    """Keywords of a part of a pattern."""

    all: tuple[str, ...]
    shortest: int
    """Bytes of the shortest one."""

    @classmethod
    def of(cls, *words: str) -> "_Words":
        return cls(words, length(words))


@dataclasses.dataclass
class _Parser:
    """A recursive descent parser for patterns of the Rust `regex` crate.

    Raises:
        _UnsupportedError: the pattern is invalid or uses syntax that is rare in rules.
    """

    pattern: str
    rank: Callable[[Iterable[str]], Any]
    at: int = 0

    def branches(self) -> list[list[_Words]]:
        """Return the keywords of each part of each branch."""
        branches = [self._branch()]
        while self.pattern.startswith("|", self.at):
            self.at += 1
            branches.append(self._branch())
        return branches

    def _branch(self) -> list[_Words]:
        """Return the keywords of each part of one branch that has some."""
        parts: list[_Words] = []
        run = ""
        while (char := self._peek()) and char not in "|)":
            if literal := _LITERAL.match(self.pattern, self.at):
                run += literal[0]
                self.at = literal.end()
                continue
            piece = self._piece()
            least, most = self._quantifier()
            if isinstance(piece, str) and least == most == 1:
                run += piece
                continue
            if isinstance(piece, str) and least:
                run += piece
            parts.append(_Words.of(run))
            run = ""
            if least and isinstance(piece, _Words):
                parts.append(piece)
        parts.append(_Words.of(run))
        return [words for words in parts if words.shortest >= MIN_BYTES]

    def _piece(self) -> str | _Words | None:
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

    def _group(self) -> _Words | None:
        """Return the keywords of a group; None for flags such as `(?i)`."""
        if self._peek() == "?":
            flags = self.pattern[self.at : self._skip_past(":", ")", ">")]
            if "x" in flags and "<" not in flags:  # verbose mode ignores spaces and comments
                raise _UnsupportedError
            if flags.endswith(")"):
                return None
        branches = self.branches()
        self._skip_past(")")
        if not all(branches):
            return None
        best = [max(branch, key=lambda words: self.rank(words.all)) for branch in branches]
        return _Words.of(*(word for words in best for word in words.all))

    def _skip_class(self) -> None:
        """Move past a character class, which may contain other classes."""
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
        """Return the minimum and maximum repetitions of the last piece; 2: no maximum."""
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
