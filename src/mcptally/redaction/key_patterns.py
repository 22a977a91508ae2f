"""Defines rules and word lists for names that mark the value next to them as secret.

`secret_patterns` defines secrets that are recognised by their form. `secrets.toml` contains the
rows of both modules.
"""

from typing import Final

import msgspec

from mcptally.redaction.secret_patterns import DEFAULT, SECRETS


class NameRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule under which the *name* next to a value marks the value as secret.

    The fields have the same meaning as in `secret_patterns.SecretPattern`; the tables below contain
    the names.
    """

    name: str
    title: str
    source: str = "mcptally"
    on: frozenset[str] = DEFAULT
    fires: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def words(text: str) -> frozenset[str]:
    """Return the set of words in a string; whitespace separates them."""
    return frozenset(text.split())


NAME_RULES: Final = msgspec.convert(SECRETS["named"], tuple[NameRule, ...])

_WORDS: Final = {name: words(text) for name, text in SECRETS["words"].items()}

WORDS_BEFORE_HARMLESS_TOKEN: Final = _WORDS["words_before_harmless_token"]
"""Words before `token` that denote a cursor, a model's token or a coin, not a secret."""

VERBS_OF_SETTINGS: Final = _WORDS["verbs_of_settings"]
"""First words of settings such as `stripCredentials`, whose values are not secret."""

WORDS_BEFORE_KEY: Final = _WORDS["words_before_key"]
"""Words that denote a credential together with a following `key`; `key` alone does not."""

WORDS_BEFORE_RANDOM_KEY: Final = _WORDS["words_before_random_key"]
"""Words before `key` that denote a credential only if the value looks random."""

WORDS_BEFORE_HARMLESS_KEY: Final = _WORDS["words_before_harmless_key"]
"""Words before `key` in capitals (`CACHE_KEY`) that never denote a credential."""

SECRET_NAMES: Final[dict[str, str]] = {
    word: label for label, names in SECRETS["secret_names"].items() for word in names.split()
}
"""Maps a key name, in lower case and without separators, to the kind of secret."""
