"""Builds rules for secrets quoted in sentences: passwords, codes and rejected keys.

The rows and words are in `secrets.toml`. This module builds the patterns and needles for the words.
A frame contains a word in UTF-8 or, in ASCII-only JSON, as escapes.
"""

from collections.abc import Iterable
from typing import Final

from mcptally.redaction.secret_patterns import SECRETS, SecretPattern, rows_of


def _escaped(text: str, backslashes: int) -> str:
    r"""Replace non-ASCII characters with lower-case JSON escapes with this many `backslashes`."""
    mark = "\\" * backslashes
    return "".join(c if c.isascii() else f"{mark}u{ord(c):04x}" for c in text)


def _forms(words: Iterable[str]) -> tuple[str, ...]:
    """Return each word both as it is and in the forms that ASCII-only JSON gives it."""
    forms = (form for w in words for form in (w, _escaped(w, 1), _escaped(w, 2)))
    return tuple(dict.fromkeys(forms))


def _without_capital(word: str) -> str:
    """Drop the word's first letter if it is not ASCII and has an upper-case form.

    Needles are compared in lower case, but only ASCII is converted to lower case.
    """
    return word[1:] if not word[0].isascii() and word[0].upper() != word[0] else word


_SHORT: Final = {
    **dict.fromkeys(("verification", "confirmation", "authentication"), "ation"),
    "security": "rity",
}
"""Replaces words in needles with their endings, so that many words with the same ending share a
needle."""


def _needles(forms: Iterable[str]) -> tuple[str, ...]:
    """Return a substring of each form that cannot overlap itself, as `TextSearch` requires."""
    found = []
    for form in forms:
        ascii_start = next((at for at, c in enumerate(form) if not c.isascii() or c == "\\"), 0)
        needle = form[:ascii_start] if ascii_start >= 5 else form
        for beginning, end in _SHORT.items():
            needle = needle.replace(beginning, end)
        while any(needle.endswith(needle[:size]) for size in range(1, len(needle))):
            needle = needle[:-1]
        found.append(needle)
    return tuple(dict.fromkeys(found))


def _one_of(forms: Iterable[str]) -> str:
    """Return a regular expression that matches any of the forms; ASCII case is ignored."""
    longest = sorted(forms, key=len, reverse=True)
    return "(?i:" + "|".join(form.replace("\\", r"\\") for form in longest) + ")"


_FORMS: Final = {
    name: _forms(map(_without_capital, words)) for name, words in SECRETS["prose-words"].items()
}
_FORMS["foreign-password-word"] = tuple(f for f in _FORMS["password-word"] if "pass" not in f)
_LINKS: Final = {name: _forms(words) for name, words in SECRETS["prose-links"].items()}

PROSE_PATTERNS: Final = rows_of(
    SecretPattern,
    (
        {
            **row,
            "needles": (*_needles(_FORMS.get(row.get("words", ""), ())), *row.get("needles", ())),
        }
        for row in SECRETS["prose"]
    ),
    {name: _one_of(forms) for name, forms in (_FORMS | _LINKS).items()},
)
