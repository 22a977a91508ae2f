r"""Translates JavaScript regular expressions (without the u flag) to strict ECMAScript.

`new RegExp(text)` accepts a brace that is not a quantifier as a literal, `\Z` as Z, and the dash in
`[\w-.]` as a literal; jsonschema-rs rejects all three. One difference remains: JavaScript counts a
character outside the basic plane (above U+FFFF) as two.
"""

import re
from typing import Final

_QUANTIFIER: Final = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_HEX: Final = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}")
_ESCAPES: Final = frozenset("dDwWsSbBfnrtvck0123456789")
_SYNTAX: Final = frozenset("^$\\.*+?()[]{}|/")
_CLASSES: Final = frozenset("dDwWsS")
_WORD: Final = "[0-9A-Z_a-z]"
_TRANSLATED: Final = {
    # In JavaScript, only ASCII letters, digits and _ are word characters.
    "b": f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "B": f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
    "0": r"\x00",
}
_ANY: Final = r"[^\n\r\u2028\u2029]"


def translate_pattern(pattern: str) -> str:
    """Translate a pattern to strict ECMAScript; a pattern that JavaScript rejects stays invalid."""
    out: list[str] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            piece, place = _escape(pattern, place)
            out.append(piece)
            continue
        if char == "[":
            piece, place = _class(pattern, place)
            out.append(piece)
            continue
        quantifier = _QUANTIFIER.match(pattern, place)
        if quantifier:
            out.append(quantifier.group())
            place = quantifier.end()
            continue
        out.append({".": _ANY, "{": "\\{", "}": "\\}", "]": "\\]"}.get(char, char))
        place += 1
    return "".join(out)


def _escape(pattern: str, place: int) -> tuple[str, int]:
    """Translate the escape at `place`; return the result and the position after the escape."""
    following = pattern[place + 1 : place + 2]
    if not following:
        return "\\", place + 1
    if following in "xu":
        known = _HEX.match(pattern, place + 1)
        return (f"\\{known.group()}", known.end()) if known else (following, place + 2)
    letter = pattern[place + 2 : place + 3]
    if following == "c" and letter.isascii() and letter.isalpha():
        return f"\\x{ord(letter) % 32:02x}", place + 3
    if following in _TRANSLATED:
        return _TRANSLATED[following], place + 2
    if following in _ESCAPES or following in _SYNTAX:
        return f"\\{following}", place + 2
    return following, place + 2


def _class(pattern: str, place: int) -> tuple[str, int]:
    """Translate the character class at `place`; return the result and the position after it."""
    negated = pattern.startswith("[^", place)
    start = place + (2 if negated else 1)
    if pattern.startswith("]", start):
        return (r"[\s\S]" if negated else r"[^\s\S]"), start + 1
    items: list[str] = []
    place = start
    while place < len(pattern) and pattern[place] != "]":
        if pattern[place] == "\\":
            piece, place = _escape(pattern, place)
            piece = r"\x08" if piece == _TRANSLATED["b"] else piece
        else:
            piece = pattern[place]
            piece = f"\\{piece}" if piece in _SYNTAX else piece
            place += 1
        items.append(piece)
    if place >= len(pattern):
        return "[", place  # the class is never closed, so the pattern stays invalid
    return f"[{'^' if negated else ''}{''.join(_with_dashes(items))}]", place + 1


def _with_dashes(items: list[str]) -> list[str]:
    """Escape the dashes in a character class that are literals.

    These are dashes at either end of the class, or next to a class escape.
    """
    out = list(items)
    for index, item in enumerate(items):
        if item != "-":
            continue
        beside = items[max(0, index - 1) : index] + items[index + 1 : index + 2]
        edge = index in (0, len(items) - 1)
        if edge or any(each[0] == "\\" and each[1:2] in _CLASSES for each in beside):
            out[index] = "\\-"
    return out
