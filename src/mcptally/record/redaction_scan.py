"""One fast scan for many texts: where, if anywhere, is it worth to look closely?

Python's regular expressions try every alternative at every byte. Here each text is known by its
rarest character; the scan stops only at those, which is a character class, and compares the rest
there, backwards and forwards. Measured on recorded traffic: half the time of a plain alternation,
and no slower with a hundred texts than with ten.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_COMMON: Final = 'etaoinsrhldcumf"gpyA:,wbv/k1023456789xj.q-_'
"""Characters of JSON and English, commonest first; one that is missing is rarer still."""


@functools.cache
def anchor(text: str) -> int:
    """Where in `text` its rarest character stands."""
    return max(range(len(text)), key=lambda i: (_rarity(text[i]), i))


def found_as(text: str) -> bytes:
    """What a match of `scanner` says when it found `text`."""
    return text[anchor(text) :].encode()


def _rarity(char: str) -> int:
    rank = _COMMON.find(char)
    return len(_COMMON) if rank < 0 else rank


def scanner(texts: Iterable[str], *, ahead: str = "") -> re.Pattern[bytes]:
    """A pattern that finds all of `texts`; a match begins at the text's anchor and ends with it.

    `ahead` is a further condition on what follows the anchor.
    """
    groups: dict[str, set[str]] = {}
    for text in texts:
        at = anchor(text)
        behind = f"(?<={re.escape(text[: at + 1])})" if at else ""
        groups.setdefault(text[at], set()).add(behind + re.escape(text[at + 1 :]))
    return re.compile("|".join(_branches(groups, ahead)).encode() or b"(?!)")


def _branches(groups: Mapping[str, set[str]], ahead: str) -> Iterator[str]:
    for char, rest in sorted(groups.items()):
        texts = f"(?:{'|'.join(sorted(rest))})"
        # The condition costs more than a few texts: it goes first only before many.
        yield re.escape(char) + (ahead + texts if len(rest) > 4 else texts + ahead)
