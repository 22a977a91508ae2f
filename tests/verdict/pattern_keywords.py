"""Derives keywords from a regular expression: literals that every match contains.

One Aho-Corasick pass over the texts finds all keywords, and a pattern is tried only on texts that
contain its keywords. A pattern without keywords, or with syntax that is not supported here, is
tried on every text: this takes time, but no match is lost.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

MIN_BYTES: Final = 3
"""Bytes of the shortest keyword; shorter literals are in nearly every text."""

_TOKEN: Final = re.compile(
    r"""(?P<escape>\\(?:[pPxuU]\{[^}]*\}|.))
    |(?P<set>\[\^?\]?(?:\\.|\[(?:\\.|[^\\\]])*\]|[^\\\[\]])*\]|[.^$])
    |(?P<open>\((?:\?[^:)>]*[:)>])?)
    |(?P<close>\))
    |(?P<bar>\|)
    |(?P<repeat>(?:[?*+]|\{\d+(?:,\d*)?\})\??)
    |(?P<literal>[^\\\[{])""",
    re.DOTALL | re.VERBOSE,
)
"""The syntax of the Rust `regex` crate that rules use."""
_WITHOUT_TEXT: Final = frozenset("dDwWsSbBAz")
"""Escapes for classes of characters and for places."""
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

Branch: TypeAlias = tuple[frozenset[str], ...]
"""Sets of literals in lower case; a match contains one literal of each set."""
_Rank: TypeAlias = Callable[[Iterable[str]], Any]
_Tokens: TypeAlias = deque[tuple[str, str]]


def length(words: Iterable[str]) -> int:
    """Return the number of bytes of the shortest word."""
    return min(len(word.encode()) for word in words)


def required(pattern: str, rank: _Rank = length) -> tuple[Branch, ...] | None:
    """Return the keywords of each branch of a pattern; None: none are known.

    Every match contains, for at least one branch, a literal of each of its sets.

    Args:
        pattern: a regular expression.
        rank: chooses among sets of words that a part of a pattern requires: the highest wins.
    """
    found = list(_TOKEN.finditer(pattern))
    tokens = deque((str(each.lastgroup), each[0]) for each in found)
    try:
        branches = _branches(tokens, rank)
    except ValueError:
        return None
    if tokens or "".join(each[0] for each in found) != pattern or not all(branches):
        return None
    return tuple(
        tuple(frozenset(word.lower() for word in words) for words in branch) for branch in branches
    )


def _branches(tokens: _Tokens, rank: _Rank) -> list[list[tuple[str, ...]]]:
    """Return the keywords of each part of each branch, up to the end of the group.

    Raises:
        ValueError: the pattern is invalid or uses syntax that is rare in rules.
    """
    branches: list[list[tuple[str, ...]]] = [[]]
    run = ""
    while tokens and tokens[0][0] != "close":
        kind, text = tokens.popleft()
        if kind == "bar":
            branches[-1].append((run,))
            branches.append([])
            run = ""
            continue
        piece = _piece(kind, text, tokens, rank)
        least, most = _repetitions(tokens)
        if isinstance(piece, str) and least:
            run += piece
        if not isinstance(piece, str) or (least, most) != (1, 1):
            branches[-1].append((run,))
            run = ""
        if isinstance(piece, tuple) and least:
            branches[-1].append(piece)
    branches[-1].append((run,))
    return [[words for words in parts if length(words) >= MIN_BYTES] for parts in branches]


def _piece(kind: str, text: str, tokens: _Tokens, rank: _Rank) -> str | tuple[str, ...] | None:
    """Return one literal character, the keywords of a group, or None for anything else."""
    if kind == "open":
        return _group(text, tokens, rank)
    if kind == "escape" and len(text) == 2 and text[1] not in _WITHOUT_TEXT:
        if text[1] not in _CONTROLS and (text[1].isalnum() or text[1] in "<>"):
            raise ValueError(text)
        return _CONTROLS.get(text[1], text[1])
    if kind == "repeat":
        raise ValueError(text)
    return text if kind == "literal" else None


def _group(begin: str, tokens: _Tokens, rank: _Rank) -> tuple[str, ...] | None:
    """Return the keywords of a group; None for flags such as `(?i)`."""
    if "x" in begin and "<" not in begin:  # verbose mode ignores spaces and comments
        raise ValueError(begin)
    if begin.endswith(")"):
        return None
    branches = _branches(tokens, rank)
    if not tokens:
        raise ValueError(begin)
    tokens.popleft()
    if not all(branches):
        return None
    return tuple(word for branch in branches for word in max(branch, key=rank))


def _repetitions(tokens: _Tokens) -> tuple[int, int]:
    """Return the minimum and maximum repetitions of the last piece; 2: no maximum."""
    least = most = 1
    known = {"?": (0, 1), "*": (0, 2), "+": (1, 2)}
    while tokens and tokens[0][0] == "repeat":
        _, text = tokens.popleft()
        low, comma, high = text.strip("{}?").partition(",")
        bounds = known.get(text[0]) or (int(low), int(high or 2) if comma else 2)
        least, most = least * bounds[0], most * bounds[1]
    return least, most
