"""Decides whether a value looks like a secret, or like a path, a word or source code."""

import re
from collections.abc import Callable
from typing import Final

from mcptally.redaction.spans import URL_PASSWORD
from mcptally.redaction.token_checks import random_like, token_like

WORDS_IN_NAME: Final = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
"""Matches each word and number in a name: `apiKey2` has three of them."""

PLACEHOLDERS: Final = frozenset(
    b"null none nil true false undefined string str int number object bool boolean any required "
    b"optional redacted hidden changeme include omit same-origin".split()
)
"""Lower-case values that name a type or a mode, or mean "nothing"."""

PLACEHOLDER: Final = re.compile(
    rb"(?i)your[_-]|user_provided\Z|replace[_-]?me\Z|<[^<>]*>|\$?\{[a-z_][a-z0-9_.:-]*\}\Z"
    rb"|\$\{\{|\{\{|%\([a-z_]+\)s|(?-i:\$[A-Z_][A-Z0-9_]*\Z)"
)
"""Matches an example, a template or a variable that replaces a value."""


def is_path(value: bytes) -> bool:
    """Return whether the value is a file path or file name and does not look random."""
    return _PATH.fullmatch(value) is not None and not random_like(value)


_PATH: Final = re.compile(
    rb"(?:~|\.{1,2}|[A-Za-z]:)?(?:(?:/|\\{1,8})[A-Za-z0-9_.@+ -]+){2,64}"
    rb"|(?:~|\.{1,2})?/[A-Za-z][a-z0-9_.-]{0,24}"
    rb"|[A-Za-z0-9_.-]{1,60}\.(?:pem|key|crt|cer|p12|pfx|jks|json|ya?ml|toml|ini|env|txt)"
)


def _is_random_key(view: bytes, start: int, end: int) -> bool:
    """Return whether the value looks random and is not a UUID, which is often a mere identifier."""
    value = view[start:end]
    return (
        _KEY_VALUE.fullmatch(value) is not None
        and not _UUID.fullmatch(value)
        and (random_like(value) or _HEX_KEY.fullmatch(value) is not None)
    )


def _is_key_in_capitals(view: bytes, start: int, end: int) -> bool:
    """Return whether the value mixes letters, digits and cases and does not look like a name."""
    value = view[start:end]
    if len(value) < 8 or b" " in value or not token_like(value):
        return False
    return _IDENTIFIERS.fullmatch(value) is None or not _reads_as_words(value)


def _is_password_beside_login(view: bytes, start: int, end: int) -> bool:
    """Return whether the value looks like a password or stands near a login name field."""
    value = view[start:end]
    if len(value) < 3 or value.lower() in _TEST_RESULTS or not value.strip(b"0123456789/.% "):
        return False
    near = view[max(0, start - 120) : start] + b" " + view[end : end + 80]
    return token_like(value[:200]) or _LOGIN.search(near) is not None


_KEY_VALUE: Final = re.compile(rb"[A-Za-z0-9_\-+/=.~:]{16,512}")
_HEX_KEY: Final = re.compile(rb"[0-9a-fA-F]{24,128}")
_UUID: Final = re.compile(rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_LOGIN: Final = re.compile(
    rb"(?i)\b(?:user(?:_?name)?|login|e?mail|host(?:name)?)[\"'\\]{0,8}\s?[:=]"
)
_TEST_RESULTS: Final = frozenset(
    b"yes no true false pass passed fail failed failing skip skipped warn warning error first "
    b"second third last final single multiple all some partial unknown pending".split()
)

VALUE_CHECKS: Final[dict[str, Callable[[bytes, int, int], bool]]] = {
    "api-key if random": _is_random_key,
    "api-key in capitals": _is_key_in_capitals,
    "password beside a login": _is_password_beside_login,
}
"""Maps kinds whose names are not enough evidence to a check of the value `view[start:end]`.

The first word of a key is the secret's kind.
"""


def is_expression(view: bytes, found: re.Match[bytes], name: bytes, separator: bytes) -> bool:
    """Return whether the value is source code, such as `self.cookies` in `cookies=self.cookies`.

    The value must consist of words, and either share a word with the name or be followed by code.
    """
    value = found[0].rstrip(b"?!")
    if (separator == b"=" and name.isupper()) or name.startswith(b"-"):
        return False
    if not _IDENTIFIERS.fullmatch(value):
        return False
    paths = _BETWEEN_IDENTIFIERS.split(value)
    if not _reads_as_words(value):
        return False
    if len(paths) > 1 and paths[0].lower() in _OBJECTS:
        return True
    shared = {word.lower().rstrip(b"s") for word in WORDS_IN_NAME.findall(name) if len(word) > 2}
    words = {word.lower().rstrip(b"s") for word in WORDS_IN_NAME.findall(value)}
    return bool(shared & words) or _CODE_AFTER.match(view, found.end()) is not None


_OBJECTS: Final = frozenset(
    b"self this cls super config cfg conf settings options opts args params props ctx context env "
    b"process req request res response state data".split()
)
_IDENTIFIERS: Final = re.compile(
    rb"[#*&!@]?[A-Za-z_$][A-Za-z0-9_$]*(?:(?:[?!]?\.|::|->)#?[A-Za-z_$][A-Za-z0-9_$]*){0,16}"
)
_BETWEEN_IDENTIFIERS: Final = re.compile(rb"[?!]?\.#?|::|->")
_CODE_AFTER: Final = re.compile(
    rb"\s{0,2}(?:[,;)\]}|<]|=[^=]|\?\?|\|\||\\n\s{0,40}\)|(?:if|for|else|and|or|as|in)\b)"
)


def _reads_as_words(identifier: bytes) -> bool:
    """Return whether the parts of an identifier look like words, not like random letters."""
    words = WORDS_IN_NAME.findall(identifier)
    ends_with_number = bool(words) and words[-1].isdigit() and b"_" not in identifier
    return not ends_with_number and sum(map(len, words)) >= _LETTERS_PER_WORD * len(words) > 0


_LETTERS_PER_WORD: Final = 3.3

NOT_A_SECRET_TEXT: Final = re.compile(rb"\s|\A(?:\$\{|\$\(|\{\{|<.*>\Z|.{0,2}\Z)")
"""Matches values that contain white space, templates, and values of at most two characters."""


def is_plausible_value(value: bytes, name: bytes, separator: bytes) -> bool:
    """Return whether the value of an assignment in plain text looks like a secret, not a word."""
    if len(value) < 3 or value.lower() in PLACEHOLDERS or _NOT_A_VALUE.match(value):
        return False
    if URL_PASSWORD in value:
        return False  # skip a URL, because its password is already replaced
    if separator == b"=" and (name.isupper() or name.startswith(b"-")):
        return True
    if name[:2].lower() == b"x-":
        return True
    if b"://" in value[:12]:
        return False
    if value.isdigit() and len(value) >= 5 and _PIN.search(name):
        return True
    return token_like(value[:200]) or (
        separator == b"=" and len(value) >= 6 and not value.isalpha()
    )


_PIN: Final = re.compile(rb"(?i)pass|pwd|secret|pin\Z")
_NOT_A_VALUE: Final = re.compile(
    rb"[=<:]|\$[A-Za-z_{(]|%[A-Za-z]\b|%\(|\{\{|--|\*+\Z|\.\.?/|\.{3}|~?(?:/[A-Za-z0-9_.-]+){2}"
    rb"|#[0-9A-Fa-f]{3,8}\Z"
)
"""Matches the start of a comparison, variable, template, flag, ellipsis, path or colour."""
