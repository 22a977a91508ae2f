"""Which literal words a regular expression cannot match without: the keys of our prefilter.

One Aho-Corasick pass over the texts finds these words, and only texts that contain one of a
rule's words meet its regular expression. A pattern that has no such word, or is written in what is
not read here, is tried on every text: being unsure costs time, never a match.
"""

import dataclasses
import re
from typing import Final

MIN_BYTES: Final = 3
"""Shorter words are in nearly every text and filter nothing."""

_CLASSES: Final = frozenset("dDwWsSbBAz")
_CODED: Final = frozenset("pPxuU")
"""Escapes that take what follows them with them: in braces, or as far as is not read here."""
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ZERO_WIDTH: Final = frozenset("^$")
_LITERAL: Final = re.compile(r"[^\\(\[|)?*+{.^$]+(?![?*+{])")
"""Characters that stand for themselves, once each."""


def required(pattern: str) -> frozenset[str] | None:
    """Words of which every match of `pattern` contains one, lower case; None: none are known."""
    reader = _Reader(pattern)
    try:
        words = reader.alternation()
    except _NotReadError:
        return None
    return words if words and reader.at == len(pattern) else None


class _NotReadError(Exception):
    """The pattern says something that is not read here."""


@dataclasses.dataclass
class _Reader:
    """A recursive descent over regular expressions of the Rust `regex` crate.

    Raises:
        _NotReadError: the pattern is no such expression, or is written in what rules hardly are.
    """

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
            return self._escaped()
        return None if char in _ZERO_WIDTH or char == "." else char

    def _escaped(self) -> str | None:
        char = self._peek()
        self.at += 1
        if char in _CLASSES or (char in _CODED and self._peek() == "{"):
            if self._peek() == "{":
                self._behind("}")
            return None
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum() or char in {"", "<", ">"}:
            raise _NotReadError
        return char

    def _group(self) -> frozenset[str] | None:
        if self._peek() == "?":
            flags = self.pattern[self.at : self._behind(":", ")", ">")]
            if "x" in flags and "<" not in flags:  # spaces and comments mean nothing
                raise _NotReadError
            if flags.endswith(")"):
                return None
        words = self.alternation()
        self._behind(")")
        return words

    def _skip_class(self) -> None:
        if self._peek() == "^":
            self.at += 1
        if self._peek() == "]":
            self.at += 1
        while (char := self._peek()) != "]":
            if not char:
                raise _NotReadError
            self.at += 2 if char == "\\" else 1
            if char == "[":
                self._skip_class()
        self.at += 1

    def _quantifier(self) -> tuple[int, int]:
        """How often the piece before is there: at least; and at most, 2 for more than once."""
        least = most = 1
        while (char := self._peek()) and char in "?*+{":
            begin = self.at + 1
            if char == "{":
                low, comma, high = self.pattern[begin : self._behind("}") - 1].partition(",")
                if not (low + high).isdecimal():
                    raise _NotReadError
                bounds = int(low or 0), int(high or 2) if comma else 2
            else:
                self.at = begin
                bounds = {"?": (0, 1), "*": (0, 2), "+": (1, 2)}[char]
            if self._peek() == "?":  # as few as will do
                self.at += 1
            least, most = least * bounds[0], most * bounds[1]
        return least, most

    def _behind(self, *ends: str) -> int:
        """Go on to behind the nearest of these characters."""
        found = [at for end in ends if (at := self.pattern.find(end, self.at)) >= 0]
        if not found:
            raise _NotReadError
        self.at = min(found) + 1
        return self.at

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
